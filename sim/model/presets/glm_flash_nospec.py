"""GLM-5.3-Flash without its drafter, as the released checkpoint pools: four tokens an entry."""

from __future__ import annotations

from sim.model.presets.glm import glm_preset

PRESET = glm_preset(
    "glm-flash-nospec",
    "GLM-5.3-Flash-like without speculation: KDA states, MLA with an indexer of 4 tokens an entry, "
    "and its ring",
    tokens_per_entry=4,
    reduced_latent=8,
)
