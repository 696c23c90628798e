"""The same with sixteen tokens an entry, the default of the model's configuration class."""

from __future__ import annotations

from sim.model.presets.glm import glm_preset

PRESET = glm_preset(
    "glm-kpool16-nospec",
    "like glm-flash-nospec, with an indexer of 16 tokens an entry",
    tokens_per_entry=16,
    reduced_latent=10,
)
