"""GLM-5.3-Flash as it is deployed: with its drafter (MTP), which makes one draft a step."""

from __future__ import annotations

from sim.model.presets.glm import glm_preset
from sim.model.speculation import Speculation

PRESET = glm_preset(
    "glm-flash",
    "GLM-5.3-Flash-like, speculating with MTP: KDA states, MLA with an indexer of 4 tokens an "
    "entry, and its ring",
    tokens_per_entry=4,
    reduced_latent=8,
    speculation=Speculation(method="mtp", num_speculative_tokens=1),
)
