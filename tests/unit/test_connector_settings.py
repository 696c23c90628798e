"""The connector's start-up gates: settings (R5), groups (R1 to R4) and fingerprints (R15)."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from vllm.config import ParallelConfig

from connector.caches import check_peer, fingerprint_of
from connector.core.config import check_parallelism, parse_settings
from connector.core.errors import ConfigError, PeerMismatch, UnsupportedModel
from connector.core.fingerprint import Fingerprint, check_same, differences
from connector.core.groups import Group, GroupKind, StateShape, TransferGroups, check_transferable
from connector.core.keys import KEYS, KNOWN_KEYS
from connector.mori_limits import CONTROL_PLANE, SEND_QUEUE, limit_waits

PORTS: dict[str, Any] = {"handshake_port": 6301, "notify_port": "61005"}


@pytest.mark.requirement("R5")
def test_upstreams_settings_are_accepted_as_they_are() -> None:
    """One set of deployment values serves both connectors; what has no meaning here is listed."""
    settings = parse_settings(
        {
            **PORTS,
            "read_mode": "true",
            "http_port": 8000,
            "host_ip": "10.0.0.1",
            "transfer_timeout": "12.5",
            "defer_timeout": 90,
            "recv_abort_timeout": 120,
            "qp_per_transfer": 4,
            "post_batch_size": -1,
            "num_workers": 2,
            "backend": "RDMA",
            "proxy_ip": "",
            "proxy_ping_port": 0,
        },
        role="kv_producer",
    )
    assert settings.is_producer
    assert (settings.notify_port, settings.transfer_timeout_s) == (61005, 12.5)
    assert settings.hold_timeout_s == 90
    assert settings.unused == ("recv_abort_timeout",)
    assert parse_settings(PORTS, role="kv_consumer").load_mode == "async"


@pytest.mark.requirement("R5")
@pytest.mark.parametrize(
    ("extra", "role", "message"),
    [
        ({"read_mode": "false"}, "kv_producer", "read_mode is 'false'.*reads only"),
        ({}, "kv_both", "kv_role is 'kv_both'; use 'kv_producer' or 'kv_consumer'"),
        ({"handshake_port": ""}, "kv_producer", "handshake_port is missing"),
        ({"handshake_port": 70_000}, "kv_producer", "handshake_port is 70000; expected a port"),
        ({"transfer_timeout": 0}, "kv_producer", "transfer_timeout is 0; expected a finite"),
        ({"defer_timeout": "inf"}, "kv_producer", "defer_timeout is 'inf'; expected a finite"),
        ({"fence_timeout": "nan"}, "kv_producer", "fence_timeout is 'nan'"),
        ({"transfer_timeout": True}, "kv_producer", "transfer_timeout is True"),
        ({"control_timeout": 2}, "kv_producer", "control_timeout is 2; expected at most 0.5"),
        ({"backend": "tcp"}, "kv_producer", "backend is 'tcp'; expected one of rdma, xgmi"),
        ({"load_mode": "lazy"}, "kv_producer", "load_mode is 'lazy'; expected one of async, sync"),
        ({"qp_per_transfer": 0}, "kv_producer", "qp_per_transfer is 0"),
        ({"num_workers": 1.5}, "kv_producer", "num_workers is 1.5"),
        ({"num_workers": 65_536}, "kv_producer", "num_workers is 65536; expected .* to 65535"),
        ({"post_batch_size": 0}, "kv_producer", "post_batch_size is 0; expected .* from 1 to 8192"),
        ({"post_batch_size": 8193}, "kv_producer", "post_batch_size is 8193; expected"),
        ({"transfer_timeuot": 3}, "kv_producer", "did you mean 'transfer_timeout'"),
        ({"proxy_ip": "10.0.0.9"}, "kv_producer", "proxy_ping_port and http_port are needed"),
        ({"host_ip": "p-0"}, "kv_producer", "host_ip is 'p-0'; expected an IPv4 address such as"),
        ({"host_ip": "::1"}, "kv_consumer", "host_ip is '::1'; expected an IPv4 address such as"),
        ({"host_ip": 167772161}, "kv_consumer", "host_ip is 167772161; expected an IPv4 address"),
    ],
)
def test_a_setting_that_cannot_be_used_is_refused_by_name(
    extra: dict[str, Any], role: str, message: str
) -> None:
    """With its value and what is accepted."""
    with pytest.raises(ConfigError, match=message):
        parse_settings({**PORTS, **extra}, role=role)


@pytest.mark.requirement("S5")
@pytest.mark.parametrize(("backend", "fence_s"), [("rdma", 12.0), ("xgmi", 5.0)])
def test_queue_pairs_that_others_read_through_end_no_fence_too_early(
    backend: str, fence_s: float
) -> None:
    """They are destroyed when the last load of theirs has ended, whatever `fence_timeout` says;
    copies over XGMI have none."""
    given = {**PORTS, "transfer_timeout": 12, "fence_timeout": 5, "backend": backend}
    assert parse_settings(given, role="kv_consumer").fence_s == fence_s
    assert parse_settings({**given, "fence_timeout": 99}, role="kv_consumer").fence_s == 99


@pytest.mark.requirement("R5", "R16")
@pytest.mark.parametrize("seconds", [1e11, 1_000_000.5, 10**400, "1e9"], ids=lambda x: str(x)[:9])
@pytest.mark.parametrize(
    "key",
    ["transfer_timeout", "defer_timeout", "renewal_timeout", "fence_timeout", "control_timeout"],
)
def test_no_duration_is_longer_than_a_thread_can_wait(key: str, seconds: Any) -> None:
    """The refusal names the limit."""
    with pytest.raises(ConfigError, match=f"^{key} is .*seconds above 0, at most 1000000$"):
        parse_settings({**PORTS, key: seconds}, role="kv_consumer")


@pytest.mark.requirement("R5")
def test_all_settings_that_are_wrong_are_told_at_once() -> None:
    """Nobody has to start an engine once for each typing error."""
    wrong = {"transfer_timeout": -1, "defer_timeout": "x", "backend": "tcp", "fence_timeuot": 3}
    with pytest.raises(ConfigError) as refused:
        parse_settings({**wrong, "notify_port": 61005}, role="kv_both")
    for told in ("transfer_timeout is -1", "defer_timeout is 'x'", "backend is 'tcp'", "kv_role"):
        assert told in str(refused.value)
    assert "did you mean 'fence_timeout'?" in str(refused.value)
    assert "handshake_port is missing" in str(refused.value)


@pytest.mark.requirement("R5")
def test_a_key_is_not_said_to_be_meant_if_it_is_nothing_like_it() -> None:
    """And one of the level above is sent there."""
    with pytest.raises(ConfigError, match="'kv_role' is in kv_connector_extra_config; it belongs"):
        parse_settings({**PORTS, "kv_role": "kv_producer"}, role="kv_producer")
    with pytest.raises(ConfigError, match=r"unknown key 'zzz' in kv_connector_extra_config\. Kn"):
        parse_settings({**PORTS, "zzz": 1}, role="kv_producer")


def test_listed_defaults_are_those_that_apply() -> None:
    """The list of keys gives what an engine that is told nothing runs with."""
    settings = parse_settings(PORTS, role="kv_producer")
    renamed = {"defer_timeout": "hold_timeout_s"}
    for key in KEYS:
        name = renamed.get(key.name, key.name + "_s" * key.name.endswith("timeout"))
        if key.default is not None and key.name != "read_mode":
            assert getattr(settings, name) == key.default


@pytest.mark.requirement("R5")
def test_pipeline_and_context_parallelism_are_refused() -> None:
    """They split a model in ways that addresses of blocks do not cover."""
    names = ("pipeline_parallel", "decode_context_parallel", "prefill_context_parallel")
    sizes = {f"{name}_size": 1 for name in names}
    whole = {**sizes, "nnodes_within_dp": 1}
    check_parallelism(SimpleNamespace(**whole))
    for size in sizes:
        with pytest.raises(ConfigError, match=f"{size} is 4; this connector supports 1 only"):
            check_parallelism(SimpleNamespace(**{**whole, size: 4}))


@pytest.mark.requirement("R5")
@pytest.mark.parametrize("dp_size", [1, 2])
def test_tensor_parallelism_over_machines_is_refused(dp_size: int) -> None:
    """Peers dial all ranks where rank 0 is; data parallelism has an address for each engine."""

    def split(tp_size: int, nnodes: int) -> ParallelConfig:
        return ParallelConfig(
            tensor_parallel_size=tp_size,
            data_parallel_size=dp_size,
            data_parallel_size_local=1,
            nnodes=nnodes,
            distributed_executor_backend="mp",
        )

    check_parallelism(split(tp_size=8, nnodes=dp_size))
    with pytest.raises(ConfigError, match=f"nnodes is {2 * dp_size}, so 2 machines share tensor_p"):
        check_parallelism(split(tp_size=16, nnodes=2 * dp_size))


def test_no_known_key_is_listed_twice() -> None:
    """The suggestion for a typing error comes from this list."""
    assert len(set(KNOWN_KEYS)) == len(KNOWN_KEYS)


# --------------------------------------------------------------------------- groups


def _state(layer: str, **changes: Any) -> Group:
    values: dict[str, Any] = {
        "shapes": ((8, 3), (2, 4)),
        "dtypes": ("bf16", "f32"),
        "block_size": 16,
        "page_bytes": 4096,
        "num_scratch": 1,
        **changes,
    }
    return Group(GroupKind.STATE, (layer,), 16, state=StateShape(**values))


ATTENTION = Group(GroupKind.FULL, ("attn", "mtp"), 16)
RING = Group(GroupKind.RING, ("tail",), 8)


@pytest.mark.requirement("R2")
def test_a_model_without_attention_is_refused_by_its_groups() -> None:
    """A ring alone does not make up for it."""
    with pytest.raises(UnsupportedModel, match=r"recurrent state group \(a\), per-request ring"):
        check_transferable(TransferGroups((_state("a"), RING)), "accept")


@pytest.mark.requirement("R4")
@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"page_bytes": 8192}, "page_bytes is 4096 in .* and 8192"),
        ({"num_scratch": 2}, "num_scratch is 1"),
        ({"dtypes": ("bf16", "bf16")}, "dtypes is"),
        ({"shapes": ((8, 3), (2, 8))}, "shapes is"),
        ({"shapes": ((8, 3),)}, "has 1 states"),
    ],
)
def test_differing_states_are_refused_by_the_field(changes: dict[str, Any], field: str) -> None:
    """All recurrent groups must be alike."""
    with pytest.raises(UnsupportedModel, match=field):
        check_transferable(
            TransferGroups((ATTENTION, _state("a"), _state("b", **changes))), "accept"
        )


@pytest.mark.requirement("R3")
def test_a_drafter_with_groups_of_its_own_is_a_warning_or_refused() -> None:
    """There is no list of methods; only the layout counts."""
    drafter = Group(GroupKind.FULL, ("draft",), 16, is_drafter=True)
    groups = TransferGroups((ATTENTION, RING, _state("a"), drafter))
    (warning,) = check_transferable(groups, "accept")
    assert "draft" in warning
    with pytest.raises(UnsupportedModel, match="Set drafter_groups to 'accept'"):
        check_transferable(groups, "refuse")
    assert check_transferable(TransferGroups((ATTENTION, RING, _state("a"))), "refuse") == []


# --------------------------------------------------------------------- fingerprints


@pytest.mark.requirement("R15")
def test_a_peer_is_refused_with_every_field_that_differs() -> None:
    """Both values are named; what only one side has counts as different."""
    ours = {"tp_size": 2, "layers": {"a": [0, [4, 8]], "b": [1, [4]]}, "dtype": "fp8_e4m3"}
    theirs = {"tp_size": 2, "layers": {"a": [0, [4, 9]]}, "dtype": "fp8_e5m2"}
    assert differences(ours, theirs) == [
        "dtype is 'fp8_e4m3' here and 'fp8_e5m2' there",
        "layers.a[1][1] is 8 here and 9 there",
        "layers.b is [1, [4]] here and missing there",
    ]
    with pytest.raises(PeerMismatch, match=r"p0 has other caches .*fp8_e5m2"):
        check_same("p0", ours, theirs)
    check_same("p0", ours, dict(ours))


@pytest.mark.parametrize(
    ("name", "limit"), [(CONTROL_PLANE, "500"), (SEND_QUEUE, "1000")], ids=["session", "queue"]
)
@pytest.mark.parametrize(
    ("given", "stays", "is_warned"),
    [
        (None, False, False),
        ("200", True, False),
        ("500", True, False),
        ("5000000", False, True),
        ("0", False, True),
        ("soon", False, True),
    ],
)
def test_the_library_may_wait_only_briefly_for_one_peer(
    name: str, limit: str, given: str | None, stays: bool, is_warned: bool
) -> None:
    """A shorter time-out of the operator stays; a longer one, or none at all, is replaced, and the
    warning names both."""
    environ = {} if given is None else {name: given}
    warnings = limit_waits(environ, 0.5)
    assert environ[name] == (given if stays else limit)
    assert len(warnings) == int(is_warned)
    for warning in warnings:
        assert f"{name} is {given!r}" in warning
        assert limit in warning


def attention_layer(name: str, size: int = 1152, head_layout: Any = None) -> SimpleNamespace:
    spec, blocks = SimpleNamespace(block_size=16), SimpleNamespace(size=size)
    return SimpleNamespace(
        name=name, is_state=False, spec=spec, blocks=blocks, head_layout=head_layout
    )


@pytest.mark.requirement("R15", "S7")
def test_moriios_blocks_of_another_length_are_refused() -> None:
    """As with another cache dtype. With heads, which the ranks share, their own length tells."""
    metadata = SimpleNamespace(
        attn_backend_name="X", attention_block_sizes={}, num_blocks=9, block_len=576
    )
    peer: Any = SimpleNamespace(fingerprint=None, metadata=metadata, descriptors={"a": [], "b": []})

    def check(size: int, head_layout: Any) -> None:
        layers = [attention_layer("a", 132), attention_layer("b", size, head_layout)]
        check_peer({}, SimpleNamespace(layers=layers), "X", "p0", peer)  # type: ignore[arg-type]

    check(576, None)
    check(1152, "of heads")
    with pytest.raises(PeerMismatch, match="block_len is 1152 here and 576"):
        check(1152, None)


@pytest.mark.requirement("R15")
@pytest.mark.parametrize("is_ours", [True, False])
def test_a_peer_with_its_layers_in_another_order_is_refused(is_ours: bool) -> None:
    """Whose addresses would be taken for those of other layers; everything else is equal."""
    memory: Any = SimpleNamespace(layers=[attention_layer(name) for name in ("a", "b", "c")])
    metadata = SimpleNamespace(
        attn_backend_name="X",
        attention_block_sizes={"a": 16, "b": 16, "c": 16},
        num_blocks=9,
        block_len=1152,
    )
    ours = {"layers": {"a": 0, "b": 0, "c": 0}}

    def check(order: str) -> None:
        fingerprint = {"layers": dict.fromkeys(order, 0)} if is_ours else None
        peer: Any = SimpleNamespace(
            fingerprint=fingerprint, metadata=metadata, descriptors={key: [] for key in order}
        )
        check_peer(ours, memory, "X", "p0", peer)

    check("abc")
    with pytest.raises(PeerMismatch, match="in another order: c there where b is here"):
        check("acb")


@pytest.mark.requirement("R15")
def test_peers_of_another_fp8_format_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """gfx94x and gfx95x write other bytes for the same number, into caches of the same shape."""
    config: Any = SimpleNamespace(
        cache_config=SimpleNamespace(cache_dtype="auto"), num_speculative_tokens=0
    )
    groups: Any = SimpleNamespace(on_wire=[], has_state=False)
    memory: Any = SimpleNamespace(layers=[], geometry=dict)

    def on(dtype: torch.dtype) -> Fingerprint:
        platform = SimpleNamespace(fp8_dtype=lambda: dtype)
        monkeypatch.setattr("connector.caches.current_platform", platform)
        return fingerprint_of(config, groups, {}, memory, "X")

    ours, theirs = on(torch.float8_e4m3fn), on(torch.float8_e4m3fnuz)
    check_same("p0", ours, dict(ours))
    with pytest.raises(PeerMismatch, match=r"fp8_format is 'torch\.float8_e4m3fn' here and"):
        check_same("p0", ours, theirs)


@pytest.mark.requirement("R15", "S7")
def test_moriios_convolution_states_are_taken_in_their_layout_only() -> None:
    """It starts with no other than DS, and does not say so in its handshake."""
    layer = SimpleNamespace(name="a", is_state=True, spec=SimpleNamespace(block_size=16))
    memory: Any = SimpleNamespace(layers=[layer])
    metadata = SimpleNamespace(attn_backend_name="X", attention_block_sizes={}, num_blocks=9)
    peer: Any = SimpleNamespace(fingerprint=None, metadata=metadata, descriptors={"a": []})
    check_peer({"conv_layout": "DS"}, memory, "X", "p0", peer)
    with pytest.raises(PeerMismatch, match="conv_layout"):
        check_peer({"conv_layout": "SD"}, memory, "X", "p0", peer)
