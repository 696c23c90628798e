"""What machines are reached by: IPv4 addresses, as `mori.io` takes nothing else.

A host name is worse than useless to a consumer: libzmq looks it up in the one thread that carries
the messages of all peers, which wait for as long as the look-up takes.
"""

from __future__ import annotations

from ipaddress import AddressValueError, IPv4Address

IPV4 = "an IPv4 address such as 10.0.0.1"


def is_ipv4(value: object) -> bool:
    """Whether a value is the text of an IPv4 address, four numbers with dots."""
    if not isinstance(value, str):  # a number would be taken for an address, too
        return False
    try:
        IPv4Address(value)
    except AddressValueError:
        return False
    return True
