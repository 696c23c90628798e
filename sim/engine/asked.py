"""Which settings a connector asks for: one that is misspelt is not refused, but never asked for."""

from __future__ import annotations

import copy
from collections.abc import ItemsView, Iterator, KeysView, Mapping, ValuesView
from typing import Any


class WatchedSettings(dict[str, Any]):
    """``kv_connector_extra_config``, which adds to ``asked`` every key that is looked for.

    Whoever goes through all of them, or copies them, has asked for each.
    """

    def __init__(self, settings: Mapping[str, Any], asked: set[str]) -> None:
        super().__init__(settings)
        self._asked = asked

    def __deepcopy__(self, memo: dict[int, Any]) -> WatchedSettings:
        """vLLM copies its configuration now and then, which asks for nothing."""
        return WatchedSettings(copy.deepcopy(dict(super().items()), memo), self._asked)

    def __getitem__(self, key: str) -> Any:
        self._asked.add(key)
        return super().__getitem__(key)

    def __contains__(self, key: object) -> bool:
        self._asked.add(str(key))
        return super().__contains__(key)

    def get(self, key: str, default: Any = None) -> Any:
        self._asked.add(key)
        return super().get(key, default)

    def pop(self, key: str, *default: Any) -> Any:
        self._asked.add(key)
        return super().pop(key, *default)

    def setdefault(self, key: str, default: Any = None) -> Any:
        self._asked.add(key)
        return super().setdefault(key, default)

    def __iter__(self) -> Iterator[str]:
        self._ask_for_all()
        return super().__iter__()

    def keys(self) -> KeysView[str]:  # type: ignore[override]
        self._ask_for_all()
        return super().keys()

    def values(self) -> ValuesView[Any]:  # type: ignore[override]
        self._ask_for_all()
        return super().values()

    def items(self) -> ItemsView[str, Any]:  # type: ignore[override]
        self._ask_for_all()
        return super().items()

    def copy(self) -> dict[str, Any]:
        self._ask_for_all()
        return super().copy()

    def __or__(self, other: Any) -> Any:
        self._ask_for_all()
        return super().__or__(other)

    def __ror__(self, other: Any) -> Any:
        self._ask_for_all()
        return super().__ror__(other)

    def _ask_for_all(self) -> None:
        self._asked.update(super().keys())
