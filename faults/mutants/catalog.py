"""All mutants by name."""

from __future__ import annotations

from collections.abc import Sequence

from faults.mutants.core_mutants import CORE_MUTANTS
from faults.mutants.edge_mutants import EDGE_MUTANTS
from faults.mutants.lease_mutants import LEASE_MUTANTS
from faults.mutants.mutant import Mutant
from faults.mutants.refusal_mutants import REFUSAL_MUTANTS
from sim.errors import UsageError
from sim.hints import nearest

_ALL = (*CORE_MUTANTS, *EDGE_MUTANTS, *LEASE_MUTANTS, *REFUSAL_MUTANTS)
MUTANTS = {mutant.name: mutant for mutant in _ALL}


def chosen(names: Sequence[str]) -> list[Mutant]:
    """The mutants of these names, all without names; UsageError for a name that there is not."""
    for name in names:
        if name not in MUTANTS:
            hint = nearest(name, MUTANTS)
            raise UsageError(f"there is no mutant {name!r}{hint}; there are: {', '.join(MUTANTS)}")
    return [MUTANTS[name] for name in dict.fromkeys(names or MUTANTS)]
