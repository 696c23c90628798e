"""Kinds of fault, campaigns, reports and the command line; and the library.

``from faults import run, campaign, Scenario`` is the public interface: ``run``, ``load``,
``campaign``, and what ``faults.public`` lists. All else in here may change. Importing it loads
nothing that takes time. It imports ``sim``; ``sim`` never imports it, so that an oracle cannot
know what was injected.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

# The package faults.campaign comes first, so that its name here is the function's for good.
import faults.campaign  # noqa: F401
from faults.api import campaign as campaign
from faults.api import load as load
from faults.api import run as run

if TYPE_CHECKING:
    from faults.public import *  # noqa: F403
else:

    def __getattr__(name: str) -> Any:
        """The public types, which are loaded when one of them is first asked for."""
        if name.startswith("_"):
            raise AttributeError(f"module 'faults' has no attribute {name!r}")
        public = import_module("faults.public")
        if name not in public.__all__:
            raise AttributeError(f"module 'faults' has no attribute {name!r}")
        return getattr(public, name)

    def __dir__() -> list[str]:
        """The public types too, for whoever completes names."""
        return sorted({*globals(), *import_module("faults.public").__all__})
