"""``faultlab campaign``: many seeds, each with faults of its own, in parallel."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from faults.api import Where
from faults.api import campaign as run_campaign
from faults.campaign.campaign import OnResult
from faults.campaign.junit import require_writable, write_junit
from faults.campaign.seeds import parse_duration, parse_seeds, parse_shard, share
from faults.campaign.swarm import DEFAULT_MODELS, SwarmOptions
from faults.cli.bar import bar
from faults.cli.campaign_summary import Junit, Known, excused_groups, exit_code, render
from faults.cli.options import fabric_setting, setting_pairs
from faults.cli.outcome import JsonFlag, Outcome

Seeds = Annotated[str, typer.Option(metavar="N|A:B", help="The first N seeds, or A up to B.")]
Model = Annotated[
    list[str] | None,
    typer.Option(metavar="NAME", help="Draw the model from these (see faultlab models)."),
]
Connector = Annotated[str, typer.Option(help="A known connector, or package.module:Class.")]
Beside = Annotated[
    str | None,
    typer.Option(
        metavar="NAME", help="Draw nothing that this connector cannot do too, as compare does."
    ),
]
Fabric = Annotated[
    str | None,
    typer.Option(metavar="NAME|FILE.toml", help="How fast the RDMA network is, in all seeds."),
]
Settings = Annotated[
    list[str] | None,
    typer.Option(
        "--set", metavar="KEY=VALUE", help="Set a key of every seed's scenario, such as tp_size=2."
    ),
]
Jobs = Annotated[
    int | None, typer.Option(min=1, help="Worker processes; as many as there are processors.")
]
Executors = Annotated[Where, typer.Option(help="Run seeds here, or on a Ray cluster.")]
Address = Annotated[
    str | None, typer.Option(metavar="HOST:PORT", help="Of the Ray cluster; the one found here.")
]
Budget = Annotated[
    str | None, typer.Option(metavar="TIME", help="Start no run after 90s, 10m, 1h.")
]
Shard = Annotated[str | None, typer.Option(metavar="I/N", help="Only part I of N.")]
SeedLimit = Annotated[
    float, typer.Option(min=1, metavar="SECONDS", help="A run that takes longer has hung.")
]
Out = Annotated[Path | None, typer.Option(help="Keep results and failing runs here.")]
Resume = Annotated[bool, typer.Option("--resume", help="Go on with the campaign in --out.")]


def command(
    seeds: Seeds,
    model: Model = None,
    connector: Connector = "moriio",
    beside: Beside = None,
    fabric: Fabric = None,
    setting: Settings = None,
    jobs: Jobs = None,
    executor: Executors = "local",
    address: Address = None,
    budget: Budget = None,
    shard: Shard = None,
    seed_limit: SeedLimit = 600.0,
    known: Known = None,
    junit: Junit = None,
    out: Out = None,
    resume: Resume = False,
    json: JsonFlag = False,
) -> Outcome:
    """Run many seeds; each draws engines, workload and faults, and what fails is grouped.

    With --out, the artifact of the first run of each group is kept, for faultlab replay. Before the
    seeds, the workers have to notice a connector that is known to be wrong.

    \b
    Examples:
      faultlab campaign --seeds 100
      faultlab campaign --seeds 1000:2000 --budget 10m --out night --known known.yaml
      faultlab campaign --seeds 100 --connector reference --model llama --jobs 4
      faultlab campaign --seeds 500 --shard 2/4 --junit shard-2.xml
      faultlab campaign --seeds 100 --fabric fabric.toml
      faultlab campaign --seeds 100000 --executor ray --address 10.0.0.1:6379 --out week

    Exit code 0: no failure, or known ones only; 1: a new group of failures; 2: bad usage, or all
    seeds were refused; 3: the wrong connector was not noticed, the testbed failed, or a worker died
    or hung; 130: Ctrl-C ended it (143: SIGTERM did), and no group is new. Seeds that --budget left
    are counted, and no failure.
    """
    chosen, part = parse_seeds(seeds), parse_shard(shard)
    excused = excused_groups(known)
    require_writable(junit)
    options = SwarmOptions(
        connector=connector,
        beside=beside,
        models=tuple(model or DEFAULT_MODELS),
        settings={**fabric_setting(fabric), **setting_pairs(setting or ())},
    )
    with progress(len(share(chosen, part))) as on_result:
        ran = run_campaign(
            chosen,
            connector=options.connector,
            beside=options.beside,
            models=options.models,
            settings=options.settings,
            jobs=jobs,
            shard=part,
            budget_s=None if budget is None else parse_duration(budget),
            seed_limit_s=seed_limit,
            executor=executor,
            address=address,
            known=excused,
            out=out,
            resume=resume,
            on_result=on_result,
        )
    if junit is not None:
        write_junit(junit, ran.results, excused, ran.summary["not_run"])
    return Outcome(
        ran.summary, partial(render, ran.summary, options, out=out), exit_code(ran.summary)
    )


@contextmanager
def progress(total: int, title: str = "campaign") -> Iterator[OnResult]:
    """A bar on stderr, if somebody looks at it."""
    with bar(title, total, "failed") as advance:
        yield lambda result: advance(result.status in ("failed", "error"))
