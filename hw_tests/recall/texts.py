"""Texts with codes hidden in them ("needles"), each made from its length and a seed."""

from __future__ import annotations

import random
from dataclasses import dataclass

_COLOURS = """
amber azure beige black bronze copper coral crimson cyan ebony emerald golden green grey indigo
ivory jade lilac maroon olive orange pink purple red ruby silver teal violet white yellow
"""
_THINGS = """
anchor badger bridge candle castle compass drum falcon feather fountain hammer harbour kettle ladder
lantern lighthouse meadow mirror otter parrot pebble piano rocket saddle teapot tower trumpet violin
walnut windmill
"""
_FILLER = """
the a one this that every some old young small large quiet early late river mountain village market
teacher farmer letter window garden winter summer morning evening story answer question road boat
horse bread water paper music table house child friend walked carried opened closed found watched
wrote mended bought sold kept lost and but while before after because near under over behind across
without slowly quickly often again never always together alone there here
"""
_NAMES = [f"{colour} {thing}" for colour in _COLOURS.split() for thing in _THINGS.split()]

MAX_NEEDLES = len(_NAMES)
_WORDS_PER_NEEDLE = 30
"""Less text for each, and the codes are most of it."""


@dataclass(frozen=True)
class Needle:
    """A hidden code.

    Args:
        name: of the thing that has it.
        code: six digits, of no other needle in the text.
        depth: 0 where the text begins, 1 where it ends.
    """

    name: str
    code: str
    depth: float

    @property
    def sentence(self) -> str:
        return f"{self.question} {self.code}."

    @property
    def question(self) -> str:
        """What a model goes on from, with or without training for chats."""
        return f"The code of the {self.name} is"


@dataclass(frozen=True)
class Text:
    """A text to ask about.

    Args:
        words: in ``body``.
        seed: that it is made from, together with its length and number of needles.
        body: with all needles.
        needles: in the order in which to ask, which says nothing about their depth.
    """

    words: int
    seed: int
    body: str
    needles: tuple[Needle, ...]

    def prompt(self, needle: Needle) -> str:
        return f"{self.body}\n\n{needle.question}"


def make_text(words: int, seed: int, num_needles: int) -> Text:
    """The same for the same arguments, everywhere; it shares no beginning with any other.

    Raises:
        ValueError: there is no room for so many needles, or there are no names for them.
    """
    if not 0 < num_needles <= MAX_NEEDLES:
        raise ValueError(f"{num_needles} needles; expected 1 to {MAX_NEEDLES}")
    if words < (least := _WORDS_PER_NEEDLE * num_needles):
        raise ValueError(f"{words} words for {num_needles} needles; expected {least} or more")
    chance = random.Random(f"{words} {seed} {num_needles}")
    names = chance.sample(_NAMES, num_needles)
    codes = chance.sample(range(100_000, 1_000_000), num_needles)
    depths = [(index + chance.random()) / num_needles for index in range(num_needles)]
    needles = [Needle(*of) for of in zip(names, map(str, codes), depths, strict=True)]
    num_filler = words - sum(len(needle.sentence.split()) for needle in needles)
    sentences = _filler(chance, num_filler)
    for needle in reversed(needles):  # from the end, so that indices stay
        sentences.insert(int(needle.depth * len(sentences)), needle.sentence)
    chance.shuffle(needles)
    return Text(words, seed, " ".join(sentences), tuple(needles))


def _filler(chance: random.Random, num_words: int) -> list[str]:
    """Sentences of six to fourteen words, ``num_words`` in all."""
    words, sentences = _FILLER.split(), []
    while num_words > 0:
        length = min(num_words, chance.randint(6, 14))
        sentences.append(" ".join(chance.choices(words, k=length)).capitalize() + ".")
        num_words -= length
    return sentences
