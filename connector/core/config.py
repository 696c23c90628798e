"""The connector's settings: one checked value, made from ``kv_connector_extra_config``.

Upstream's keys keep their names and meanings, so that one set of deployment values serves both
connectors. A key that upstream knows and that means nothing here is accepted and listed in
`Settings.unused`; any other unknown key is an error.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any, Literal

from connector.core.addresses import IPV4, is_ipv4
from connector.core.errors import ConfigError
from connector.core.groups import DrafterGroups
from connector.core.keys import DEFAULTS, KNOWN_KEYS, LONGEST_S, UNUSED_KEYS
from connector.core.pairing import LoadMode
from connector.core.verification import VerifyReads

Role = Literal["kv_producer", "kv_consumer"]

_MAX_CONTROL_TIMEOUT_S = 0.5  # a session that is being opened holds the interpreter's lock


@dataclass(frozen=True)
class Settings:
    """All settings of one engine.

    Args:
        role: producer or consumer.
        handshake_port: of rank 0 of data-parallel rank 0; others follow.
        notify_port: likewise, for releases.
        host_ip: the IPv4 address that peers are told; None lets vLLM find it.
        http_port: of the serving front end, told to the proxy.
        proxy_ip: of a proxy that wants to be told that we are alive; empty for none.
        proxy_ping_port: of that proxy.
        backend: of mori.io.
        qp_per_transfer: queue pairs of a transfer.
        post_batch_size: work requests posted at once; -1 leaves it to mori.io.
        num_workers: posting threads of mori.io.
        transfer_timeout_s: from the order of a load until it is confirmed.
        hold_timeout_s: how long a producer holds blocks that nobody releases or renews.
        renewal_timeout_s: how long a consumer has blocks held for a request that waits.
        fence_timeout_s: how long blocks stay out of use after a read that never completes.
        control_timeout_s: for one answer of a peer.
        load_mode: whether requests wait for their load, or the step does.
        drafter_groups: what becomes of a drafter with cache groups of its own.
        require_safe_reads: refuse peers that cannot confirm that blocks were held, and what they
            held if reads are verified.
        verify_reads: which loads are compared with the bytes that the peer holds.
        unused: keys that were given and mean nothing here.
    """

    role: Role
    handshake_port: int
    notify_port: int
    host_ip: str | None = None
    http_port: int | None = None
    proxy_ip: str = ""
    proxy_ping_port: int = 0
    backend: Literal["rdma", "xgmi"] = "rdma"
    qp_per_transfer: int = 1
    post_batch_size: int = -1
    num_workers: int = 1
    transfer_timeout_s: float = 30.0
    hold_timeout_s: float = 60.0
    renewal_timeout_s: float = 600.0
    fence_timeout_s: float = 30.0
    control_timeout_s: float = 0.5
    load_mode: LoadMode = "async"
    drafter_groups: DrafterGroups = "accept"
    require_safe_reads: bool = False
    verify_reads: VerifyReads = "off"
    unused: tuple[str, ...] = ()

    @property
    def fence_s(self) -> float:
        """The longest that blocks stay out of use. Other loads may read through the same queue
        pairs, which are destroyed when these have ended: not before that is anything sure."""
        if self.backend == "xgmi":
            return self.fence_timeout_s
        return max(self.fence_timeout_s, self.transfer_timeout_s)

    @property
    def is_producer(self) -> bool:
        return self.role == "kv_producer"

    @property
    def side(self) -> Literal["producer", "consumer"]:
        """The role, as the log names it."""
        return "producer" if self.is_producer else "consumer"


def parse_settings(extra: Mapping[str, Any], *, role: str | None) -> Settings:
    """Check the settings of an engine.

    Raises:
        ConfigError: naming every key that is wrong, its value and what is accepted.
    """
    get = _Reader(extra)
    for key in extra:
        get.check(_check_key, key)
    get.check(_check_role, role)
    get.check(_check_reads, extra, get("read_mode", _boolean))
    proxy_ip = get("proxy_ip", _text) or ""
    settings = Settings(
        role="kv_producer" if role == "kv_producer" else "kv_consumer",
        handshake_port=get.required("handshake_port", _port),
        notify_port=get.required("notify_port", _port),
        host_ip=get("host_ip", _ipv4),
        http_port=get("http_port", _port),
        proxy_ip=proxy_ip,
        proxy_ping_port=get("proxy_ping_port", _port_or_0),
        backend=get("backend", _choice("rdma", "xgmi")),
        qp_per_transfer=get("qp_per_transfer", _positive_int),
        post_batch_size=get("post_batch_size", _batch_size),
        num_workers=get("num_workers", _positive_int),
        transfer_timeout_s=get("transfer_timeout", _seconds),
        hold_timeout_s=get("defer_timeout", _seconds),
        renewal_timeout_s=get("renewal_timeout", _seconds),
        fence_timeout_s=get("fence_timeout", _seconds),
        control_timeout_s=get("control_timeout", _control_seconds),
        load_mode=get("load_mode", _choice("async", "sync")),
        drafter_groups=get("drafter_groups", _choice("accept", "refuse")),
        require_safe_reads=get("require_safe_reads", _boolean),
        verify_reads=get("verify_reads", _verify_reads),
        unused=tuple(key for key in UNUSED_KEYS if key in extra),
    )
    get.check(_check_proxy, settings, extra)
    get.refuse_problems()
    return settings


def _check_role(role: str | None) -> None:
    if role not in ("kv_producer", "kv_consumer"):
        raise ConfigError(
            f"kv_role is {role!r}; use 'kv_producer' or 'kv_consumer', an engine cannot be both"
        )


def _check_reads(extra: Mapping[str, Any], reads: bool) -> None:
    if not reads:
        raise ConfigError(
            f"read_mode is {extra['read_mode']!r}; this connector reads only, so leave it out or "
            "set it to true (vLLM's MoRIIOConnector has a WRITE mode)"
        )


def _check_proxy(settings: Settings, extra: Mapping[str, Any]) -> None:
    if settings.proxy_ip and not (settings.proxy_ping_port and settings.http_port):
        raise ConfigError(
            f"proxy_ip is {settings.proxy_ip!r}, so proxy_ping_port and http_port are needed; got "
            f"{extra.get('proxy_ping_port')!r} and {extra.get('http_port')!r}"
        )


def check_parallelism(parallel: Any) -> None:
    """Refuse ways of splitting a model that the transfer's addressing does not cover.

    Args:
        parallel: vLLM's ParallelConfig.

    Raises:
        ConfigError: naming the setting.
    """
    for name in (
        "pipeline_parallel_size",
        "decode_context_parallel_size",
        "prefill_context_parallel_size",
    ):
        size = getattr(parallel, name)
        if size != 1:
            raise ConfigError(f"{name} is {size}; this connector supports 1 only")
    machines = parallel.nnodes_within_dp
    if machines > 1:
        raise ConfigError(
            f"nnodes is {parallel.nnodes}, so {machines} machines share tensor_parallel_size "
            f"{parallel.tensor_parallel_size}; peers look for all ranks at the address of rank 0. "
            "Let one machine have all tensor-parallel ranks, and split over machines by "
            "data_parallel_size"
        )


def check_recomputation(settings: Settings, *, recomputes: bool, is_async_scheduling: bool) -> None:
    """Refuse a combination in which vLLM 0.33.0 makes a token of a failed load an answer.

    It sets a request back whose blocks were not loaded, but takes the token of the step that was
    scheduled after the failed one. Only synchronous loads are reported in a way that leads there.
    """
    if settings.load_mode == "sync" and recomputes and is_async_scheduling:
        raise ConfigError(
            "load_mode is 'sync', kv_load_failure_policy is 'recompute' and scheduling is "
            "asynchronous: vLLM would answer with a token from a failed load. Use load_mode "
            "'async', kv_load_failure_policy 'fail', or synchronous scheduling"
        )


def _check_key(key: str) -> None:
    if key in KNOWN_KEYS:
        return
    if str(key).startswith("kv_"):
        raise ConfigError(
            f"{key!r} is in kv_connector_extra_config; it belongs beside that, in vLLM's "
            "--kv-transfer-config itself"
        )
    near = get_close_matches(str(key), KNOWN_KEYS, n=1)
    meant = f"; did you mean {near[0]!r}?" if near else "."
    raise ConfigError(
        f"unknown key {key!r} in kv_connector_extra_config{meant} "
        f"Known are {', '.join(sorted(KNOWN_KEYS))}"
    )


class _Reader:
    """Reads one key after the other, and keeps what is wrong until all have been read."""

    def __init__(self, extra: Mapping[str, Any]) -> None:
        self._extra = extra
        self._problems: list[str] = []

    def __call__(self, key: str, check: Callable[[Any], Any]) -> Any:
        """The checked value; the default if the key is left out or its value is wrong."""
        if key not in self._extra:
            return DEFAULTS[key]
        try:
            return self._checked(key, check)
        except ConfigError as error:
            self._problems.append(str(error))
            return DEFAULTS[key]

    def required(self, key: str, check: Callable[[Any], int]) -> int:
        self.check(self._check_given, key)
        given = self._extra.get(key) not in (None, "")
        return (self(key, check) if given else None) or 1  # a placeholder beside the problem

    def check(self, check: Callable[..., None], *arguments: Any) -> None:
        """Run a check, and keep what it complains about."""
        try:
            check(*arguments)
        except ConfigError as error:
            self._problems.append(str(error))

    def refuse_problems(self) -> None:
        """ConfigError with all that was wrong, if anything was."""
        if self._problems:
            message = "; ".join(self._problems)
            raise ConfigError(message)

    def _check_given(self, key: str) -> None:
        if self._extra.get(key) in (None, ""):
            raise ConfigError(f"{key} is missing in kv_connector_extra_config; give a port number")

    def _checked(self, key: str, check: Callable[[Any], Any]) -> Any:
        value = self._extra[key]
        try:
            return check(value)
        except (TypeError, ValueError) as error:
            raise ConfigError(f"{key} is {value!r}; expected {error}") from None


def _whole(value: Any) -> int:
    if isinstance(value, bool) or (isinstance(value, float) and value != int(value)):
        raise ValueError
    return int(value)


def _in_range(low: int, high: int, what: str) -> Callable[[Any], int]:
    def check(value: Any) -> int:
        try:
            number = _whole(value)
        except (TypeError, ValueError, OverflowError):
            raise ValueError(what) from None
        if not low <= number <= high:
            raise ValueError(what)
        return number

    return check


_port = _in_range(1, 65535, "a port number from 1 to 65535")
_port_or_0 = _in_range(0, 65535, "a port number from 1 to 65535, or 0 for none")
_positive_int = _in_range(1, 65535, "a whole number from 1 to 65535")


def _batch_size(value: Any) -> int:
    what = "a whole number from 1 to 8192, or -1 to leave it to mori.io"
    number = _in_range(-1, 8192, what)(value)
    if number == 0:
        raise ValueError(what)
    return number


def _seconds(value: Any) -> float:
    what = f"a finite number of seconds above 0, at most {LONGEST_S}"
    try:
        seconds = float(value)
    except (TypeError, ValueError, OverflowError):
        raise ValueError(what) from None
    if isinstance(value, bool) or not 0 < seconds <= LONGEST_S:
        raise ValueError(what)
    return seconds


def _control_seconds(value: Any) -> float:
    seconds = _seconds(value)
    if seconds > _MAX_CONTROL_TIMEOUT_S:
        raise ValueError(f"at most {_MAX_CONTROL_TIMEOUT_S} seconds: others wait while one is slow")
    return seconds


def _boolean(value: Any) -> bool:
    text = str(value).strip().lower()
    if text not in ("true", "1", "false", "0"):
        raise ValueError("true or false")
    return text in ("true", "1")


def _text(value: Any) -> Any:
    if value is not None and not isinstance(value, str):
        raise ValueError("a text")
    return value


def _ipv4(value: Any) -> str | None:
    if value in (None, ""):
        return None
    if not is_ipv4(value):
        raise ValueError(f"{IPV4}, as mori.io takes no host name")
    return str(value)


def _verify_reads(value: Any) -> Any:
    return "off" if value is False else _choice("off", "sample", "all")(value)  # YAML's "off"


def _choice(*allowed: str) -> Callable[[Any], Any]:
    def check(value: Any) -> str:
        text = str(value).lower()
        if text not in allowed:
            raise ValueError(f"one of {', '.join(allowed)}")
        return text

    return check
