"""What a run would refuse, as far as the scenario alone tells, without vLLM being loaded.

Each of these is refused in the same words where it would be found during the run: that costs
seconds, and callers that have vLLM loaded do without this.
"""

from __future__ import annotations

from pathlib import Path

from sim.engine.connectors import ConnectorKind, get_connector
from sim.engine.guest_roots import guest_roots
from sim.engine.options import pass_times_of
from sim.engine.refusals import without_source
from sim.guest.sources import GuestSources
from sim.model.presets import get_preset
from sim.scenario import Scenario, require_usable_block


def legs_in_pairs(scenario: Scenario) -> bool:
    """Whether both legs of a request are sent at once, because its producer writes."""
    writes = get_connector(scenario.producer_connector).writes(scenario.extra_config)
    return writes and not scenario.topology.colocated


def require_possible(scenario: Scenario) -> None:
    """Look for sources, and at sizes that have to fit each other.

    Raises:
        UsageError: an overlay or the source of a connector is missing, the model does not run
            with the engine's options, or the router cannot do what it is to do.
    """
    _require_model(scenario)
    scenario.router.require_possible(in_pairs=legs_in_pairs(scenario))
    require_sources(scenario)


def require_sources(scenario: Scenario) -> None:
    """UsageError when an overlay or the source of a connector is missing, or no engine can use
    anything of the overlay."""
    sources = GuestSources(None if scenario.overlay is None else Path(scenario.overlay))
    roots = list(guest_roots(None))
    if not scenario.topology.colocated:
        for engine, connector in (
            (scenario.producer_engines[0], scenario.producer_connector),
            (scenario.consumer_engines[0], scenario.connector),
        ):
            kind = get_connector(connector)
            _require_source(engine, kind, sources)
            roots += guest_roots(kind)
    sources.require_usable_overlay(roots)


def _require_model(scenario: Scenario) -> None:
    options, preset = scenario.engine, get_preset(scenario.model)
    preset.require_tp_size(options.tp_size, scenario.geometry)
    preset.require_chunks(options.enable_prefix_caching and not options.enable_chunked_prefill)
    if scenario.speculation is not None:
        preset.drafter(scenario.speculation.method)
    pass_times_of(options, preset)
    if options.num_blocks is not None:
        require_usable_block(options.num_blocks)


def _require_source(engine: str, kind: ConnectorKind, sources: GuestSources) -> None:
    try:
        for module in kind.modules:
            sources.find(module)
    except ModuleNotFoundError as error:
        raise without_source(engine, error) from error
