"""How a violation came about: the few records of the event log that lead to it, as sentences.

The story is about the requests and engines that the violation names: who held the blocks, who let
go of them, who got them next, what was read from where, when a forward pass began, what was last
heard, who waits for what, and what was found. It only selects and words records; it concludes
nothing that an oracle has not said.
"""

from __future__ import annotations

from faults.story.aftermath import aftermaths
from faults.story.moment import MAX_MOMENTS, Moment
from faults.story.subject import NO_RULE, rank_of, subject_of
from faults.story.telling import tell

__all__ = ["MAX_MOMENTS", "NO_RULE", "Moment", "aftermaths", "rank_of", "subject_of", "tell"]
