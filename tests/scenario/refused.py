"""Which models vLLM's own MoRIIO connector refuses to serve; test_glm.py shows that it does."""

from __future__ import annotations

from sim.model.presets import get_preset


def moriio_refuses(model: str) -> bool:
    """Rings are a second attention group beside recurrent states, and it takes exactly one."""
    return get_preset(model).sizes("real").indexer is not None
