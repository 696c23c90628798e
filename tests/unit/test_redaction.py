from __future__ import annotations

from typing import Any

import pytest

from faults.redaction import redacted, redacted_value

HOME = "/data/people/jane"


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ("read from 10.0.0.2:6301", "read from <address>:6301"),
        ("prefill_addr_10.0.0.2:6301___", "prefill_addr_<address>:6301___"),
        ("[fe80::1%eth0]:6301, ::1, and fe80::2", "[<address>]:6301, <address>, and <address>"),
        ("fe80:0000:0000:0000:0002:c903:00ab:cdef.", "<address>."),
        ("2001:db8::8a2e:370:7334 and ::ffff:10.0.0.1", "<address> and <address>"),
        ("port 00:1a:2b:3c:4d:5e", "port <address>"),
        ("tcp://10.1.2.3:5555, http://gpu7/kv", "<address>, <address>"),
        ("gpu7.example.com:80 and node-17:6301", "<address>:80 and <address>:6301"),
        ("hostname=gpu-host-3, 'host': 'gpu7'", "hostname=<address>, 'host': '<address>'"),
        ("jane@gpu-host-3 and root@login.example.org", "<address> and <address>"),
        ("at ~/vllm/vllm/v1/core.py:12", "at core.py:12"),
        ("at core.py:1234", "at core.py:1234"),
        ("in /srv/here/x.yaml and /etc", "in x.yaml and <path>"),
        (f"in {HOME}, ~jane/x and {HOME}/.ssh/id_rsa", "in <path>, <path> and <path>"),
        (f'File "{HOME} doe/my code/core.py", line 3', 'File "core.py", line 3'),
        (f'File "{HOME} doe", line 3', 'File "<path>", line 3'),
        (r'File "C:\Users\jane doe\core.py", line 3', 'File "core.py", line 3'),
        (r"at C:\Users\jane", "at <path>"),
        ("prompt_token_ids=[101, 2023], n", "prompt_token_ids=<prompt>, n"),
        ("prompt='it\\'s me'", "prompt=<prompt>"),
        ('{"prompt": "a secret", "n": 1}', '{"prompt": <prompt>, "n": 1}'),
        ("prompt='a sec", "prompt=<prompt>"),
    ],
)  # fmt: skip
def test_what_tells_about_somebody_is_taken_out(text: str, left: str) -> None:
    """Addresses of all kinds, hosts, users, directories and prompts; the name of a file stays."""
    assert redacted(text) == left


@pytest.mark.parametrize(
    "text",
    [
        "1P1D, 3/4 of 12.5 s, and/or blocks 1-2, 12:30:45",
        "layers.0.self_attn.attn of p0/core/main, vllm 0.33.0, torch 2.11.0+cpu",
        "use-after-free: block 18 was copied from block 2 of p0 by transfer 28 at 2.511226 s",
        "prompt of 256 tokens; prompt: 256 tokens; $ faultlab run reproducer.yaml",
        "vllm.distributed.kv_transfer.kv_connector.v1.moriio.moriio_connector:MoRIIOConnector",
        "event hash `d353f8d907d8e8581816bead18029b02`, std::vector",
    ],
)
def test_what_only_looks_like_it_stays(text: str) -> None:
    """What a reader of the text needs."""
    assert redacted(text) == text


def test_settings_lose_it_at_any_depth_and_stay_usable() -> None:
    """With an address that nobody has, and a path that every machine may have."""
    given: dict[str, Any] = {
        "proxy_ip": "10.1.2.3",
        "hosts": ["gpu7.example.com", {"url": "http://jane:pw@gpu7:8000/kv?x=1"}],
        "folder": "/srv/somewhere",
        "read_mode": "true",
        "defer_timeout": 5,
    }
    assert redacted_value(given) == {
        "proxy_ip": "192.0.2.1",
        "hosts": ["192.0.2.1", {"url": "http://192.0.2.1:8000/kv?x=1"}],
        "folder": "/shared",
        "read_mode": "true",
        "defer_timeout": 5,
    }
