"""``faultlab models``: the models one can name, with the sizes of their caches."""

from __future__ import annotations

from functools import partial
from typing import Any

from rich.console import Console
from rich.table import Table

from faults.cli.outcome import JsonFlag, Outcome
from faults.cli.tables import print_table
from sim.model.presets import PRESETS, ModelPreset


def command(json: JsonFlag = False) -> Outcome:
    """List the models, each with the figures of its geometries.

    \b
    Examples:
      faultlab models
      faultlab run --model deepseek-mla --set geometry=real --requests 2 --set length_scale=0.05
    """
    models = described()
    return Outcome({"models": models}, partial(_render, models))


def described() -> list[dict[str, Any]]:
    """Every model, with the sizes of its caches on one rank."""
    return [_describe(preset) for preset in PRESETS.values()]


def _describe(preset: ModelPreset) -> dict[str, Any]:
    geometries = {
        name: {
            "layers": sizes.num_layers,
            "kv_heads": sizes.num_kv_heads,
            "head_size": sizes.head_size,
            "tokens_per_block": preset.tokens_per_block(1, name),
            "bytes_per_token": float(preset.bytes_per_token(1, name)),
        }
        for name, sizes in preset.dimensions.items()
    }
    return {
        "name": preset.name,
        "summary": preset.summary,
        "attention": preset.attention,
        "block_size": preset.block_size,
        "max_positions": preset.max_positions,
        "dtype": preset.dtype,
        "speculation": sorted(preset.drafters),
        "geometries": geometries,
    }


def _render(models: list[dict[str, Any]], console: Console) -> None:
    table = Table(title="models")
    table.add_column("model")
    for heading in ("geometry", "layers", "heads", "head size", "block", "B/token"):
        table.add_column(heading)
    for model in models:
        for number, (name, sizes) in enumerate(model["geometries"].items()):
            table.add_row(
                "" if number else model["name"],
                name,
                str(sizes["layers"]),
                str(sizes["kv_heads"]),
                str(sizes["head_size"]),
                str(sizes["tokens_per_block"]),
                f"{sizes['bytes_per_token']:g}",
            )
    print_table(console, table)
    console.print(
        "heads: KV heads; block: tokens of a cache block; B/token: cache bytes of one token; "
        "all of one rank at TP 1",
        style="dim",
    )
    for model in models:
        drafters = " or ".join(model["speculation"]) or "no"
        console.print(
            f"[bold]{model['name']}[/]: {model['summary']}; {model['max_positions']:,} positions; "
            f"{drafters} speculation"
        )
