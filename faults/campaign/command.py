"""The command lines that run a campaign, or one seed of it, again."""

from __future__ import annotations

import shlex

from faults.campaign.swarm import DEFAULT_MODELS, SwarmOptions
from faults.directories import FAILURES


def campaign_line(options: SwarmOptions, seeds: str, *more: str) -> str:
    """The campaign of ``seeds``; options that are as by default are left out."""
    words = ["faultlab", "campaign", "--seeds", seeds, "--connector", options.connector]
    if options.beside is not None:
        words += ["--beside", options.beside]
    if options.models != DEFAULT_MODELS:
        words += [word for model in options.models for word in ("--model", model)]
    for key, value in options.settings.items():
        words += ["--set", f"{key}={value}"]
    return shlex.join([*words, *more])


def seed_line(options: SwarmOptions, seed: int) -> str:
    """Runs one seed alone: it prints how the seed ends, and why."""
    return campaign_line(options, f"{seed}:{seed + 1}")


def kept_seed_line(options: SwarmOptions, seed: int) -> str:
    """Runs one seed that fails, keeps the run, and replays it, which prints its story."""
    name = f"seed-{seed}"
    once_more = campaign_line(options, f"{seed}:{seed + 1}", "--out", name)
    return f"{once_more}; faultlab replay {name}/{FAILURES}/{name}"
