"""Why an engine did not start, in a sentence for whoever wrote the scenario or the connector."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pydantic import ValidationError

from sim.errors import StartRefused, UsageError
from sim.kernel.frames import described, described_with_place, raised_at

if TYPE_CHECKING:
    from sim.engine.engine import Engine

_WAITS_TOLD = 3  # of the threads that were started first
_PORT_IN_USE = "Address already in use"
_NO_ROOM = "To serve at least one request"  # how vLLM begins when the pool is too small


def refusal(engine: Engine, error: BaseException) -> StartRefused:
    """The exception that ended ``engine`` while it started, as one about what it was given."""
    if isinstance(error, UsageError):
        return StartRefused(str(error))
    reason = _reason(engine, error)
    return _refused(engine.name, reason + _hint_at_ranks(engine, reason))


def without_source(engine: str, error: ModuleNotFoundError) -> StartRefused:
    """What ``refusal`` will say of the engine of that name, whose connector has no source."""
    return _refused(engine, described(error) + _hint_at_path(error))


def never_started(engine: Engine) -> StartRefused:
    """``engine`` hangs: which of its threads have died, and what the first ones wait for."""
    kernel = engine.kernel
    died = [
        f"{failure.task} ended with {described(failure.exception)}"
        for failure in kernel.failures
        if failure.owner == engine.name
    ]
    waits = kernel.describe_waiters(engine.name)[:_WAITS_TOLD]
    reason = "; ".join([*died, *waits])
    return StartRefused(
        f"engine {engine.name} did not start within ten virtual minutes: {reason}"
        + _hint_at_ranks(engine, reason)
    )


def _refused(engine: str, reason: str) -> StartRefused:
    return StartRefused(f"engine {engine} refused to start: {reason}")


def _reason(engine: Engine, error: BaseException) -> str:
    if isinstance(error, ValidationError):
        return "; ".join(_sentence(part["msg"], part["loc"]) for part in error.errors())
    if isinstance(error, KeyError):
        return described_with_place(error) + _hint_at_setting(engine, error)
    if isinstance(error, ModuleNotFoundError):
        return described(error) + _hint_at_path(error)
    if str(error).startswith(_NO_ROOM):
        return _no_room(engine)
    return described_with_place(error)


def _sentence(message: str, location: tuple[int | str, ...]) -> str:
    """pydantic's message without what it puts around somebody else's sentence."""
    sentence = message.removeprefix("Value error, ").removeprefix("Assertion failed, ")
    return ": ".join([*(str(part) for part in location), sentence])


def _hint_at_setting(engine: Engine, error: KeyError) -> str:
    """A key that code under test missed is mostly one of its settings."""
    key = error.args[0] if error.args else None
    if engine.connector is None or raised_at(error) is None or not isinstance(key, str):
        return ""
    if key in engine.connector.settings:
        return ""
    return (
        f"; if that is a setting of the connector (kv_connector_extra_config), give it with "
        f"--set extra_config.{key}=VALUE"
    )


def _hint_at_path(error: ModuleNotFoundError) -> str:
    return (
        f"; if {error.name} is yours, put the directory that holds it on PYTHONPATH, or install it"
    )


def _hint_at_ranks(engine: Engine, reason: str) -> str:
    """Connectors tell the ports of an instance's ranks apart by the number that vLLM gives them."""
    if _PORT_IN_USE not in reason or engine.group.size == 1 or engine.in_lockstep:
        return ""
    return (
        "; vLLM tells every data-parallel rank of a dense model that it is number 0 of 1, so all "
        "of them want the same port: leave data_parallel_size at 1 and set topology.producers or "
        "topology.consumers instead"
    )


def _no_room(engine: Engine) -> str:
    blocks = engine.blocks_of_longest_request()
    enough = sum(blocks) + 1
    groups = "" if len(blocks) == 1 else f" in {len(blocks)} KV cache groups ({_sum(blocks)})"
    unset = "" if engine.options.num_blocks is None else ", or leave the key out"
    return (
        f"its pool of {engine.num_blocks} blocks (engine.num_blocks) does not hold the longest "
        f"request of its model {engine.preset.name}: for {engine.max_model_len} tokens vLLM "
        f"reserves {sum(blocks)} blocks{groups}, and it keeps one more to itself; --set "
        f"engine.num_blocks={enough}{unset}"
    )


def _sum(blocks: list[int]) -> str:
    return " + ".join(str(number) for number in blocks)
