"""What engines say that they are: whether all that are compared serve one model with one vLLM."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import aiohttp

_TOLD = {"model": "the served name", "root": "the model", "version": "vLLM's version"}


class Identity(NamedTuple):
    """Of an engine, by its ``/v1/models`` and ``/version``.

    Args:
        model: the name by which it is asked.
        root: what it has loaded, by the last word of its path; None if it does not tell.
        version: of vLLM; None if it does not tell.
    """

    model: str
    root: str | None
    version: str | None


async def identify(session: aiohttp.ClientSession, url: str) -> Identity:
    """Of the engine at ``url``.

    Raises:
        ValueError: it does not name a model.
    """
    card = await _first_model(session, url)
    root, version = card.get("root"), (await _json(session, f"{url}/version")).get("version")
    return Identity(
        str(card["id"]),
        str(root).rstrip("/").rpartition("/")[2] if root else None,
        str(version) if version else None,
    )


async def served_model(session: aiohttp.ClientSession, url: str) -> str:
    """The name by which a server, or an engine behind it, is asked. Raises ValueError."""
    return str((await _first_model(session, url))["id"])


async def _first_model(session: aiohttp.ClientSession, url: str) -> Mapping[str, Any]:
    try:
        async with session.get(f"{url}/v1/models") as response:
            response.raise_for_status()
            card = (await response.json())["data"][0]
            return {"root": None, **card, "id": card["id"]}
    except (aiohttp.ClientError, OSError, ValueError, LookupError, TypeError) as error:
        cause = f"{type(error).__name__}: {error}"
        raise ValueError(f"{url}/v1/models does not name a model ({cause}); is it up?") from None


async def _json(session: aiohttp.ClientSession, url: str) -> Mapping[str, Any]:
    """Empty of a server that does not answer, or with something else."""
    try:
        async with session.get(url) as response:
            found = await response.json()
    except (aiohttp.ClientError, OSError, ValueError):
        return {}
    return found if response.status == 200 and isinstance(found, dict) else {}


def refuse_strangers(engines: Mapping[str, Identity]) -> None:
    """Raises ValueError: two of these engines tell different models or versions."""
    for key, what in _TOLD.items():
        told = {name: getattr(engine, key) for name, engine in engines.items()}
        if len(set(told.values()) - {None}) > 1:
            each = ", ".join(f"{value} of {name}" for name, value in told.items())
            raise ValueError(f"{what} differs: {each}; answers can be compared, and blocks handed "
                             "over, only of one model in one version")  # fmt: skip


def unknown(engines: Mapping[str, Identity]) -> list[str]:
    """A caveat, if an engine does not tell all; nothing if all do."""
    silent = [name for name, engine in engines.items() if None in engine]
    return [f"model or version not told by {', '.join(silent)}"] if silent else []
