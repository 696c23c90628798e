"""Texts with codes in them, and which answers are right."""

from __future__ import annotations

import hashlib

import pytest

from hw_tests.recall.ask import Answer
from hw_tests.recall.texts import make_text


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (" 482913.", True),
        ("\n**482913**, and 111111", True),
        (" 111111, not 482913", False),
        (" 4829130", False),
        (" no idea", False),
        ("", False),
    ],
)
def test_the_first_number_is_the_answer(text: str, found: bool) -> None:
    """A model that lists every code of the text has found none."""
    answer = Answer("router", 1, 0, "red kettle", 0.5, "482913", "none", text=text)
    assert answer.found == found


@pytest.mark.parametrize(("words", "needles"), [(30, 1), (300, 10), (5000, 25)])
def test_a_text_has_its_length_and_each_code_once_where_it_says(words: int, needles: int) -> None:
    """In order of depth; the prompt is the text and a question that the text answers."""
    text = make_text(words, 7, needles)
    assert len(text.body.split()) == words
    places = [text.body.index(needle.sentence) / len(text.body) for needle in text.needles]
    for needle, place in zip(text.needles, places, strict=True):
        assert text.body.count(needle.code) == text.body.count(needle.name) == 1
        assert place == pytest.approx(needle.depth, abs=14 / words + 0.15)
        assert text.prompt(needle).startswith(text.body)
        assert text.prompt(needle).endswith(needle.question)
    by_depth = sorted(text.needles, key=lambda needle: needle.depth)
    assert by_depth == sorted(text.needles, key=lambda needle: text.body.index(needle.code))


def test_texts_are_made_from_their_seed_alone() -> None:
    """The same in every process and on every machine, and no two begin alike."""
    again = [make_text(2000, seed, 10) for seed in (0, 1, 0)]
    assert again[0] == again[2]
    digest = hashlib.sha256(again[0].body.encode()).hexdigest()
    assert digest.startswith("58fb2e2b437ec3cf")
    beginnings = {text.body[:40] for text in (*again, make_text(2001, 0, 10))}
    assert len(beginnings) == 3
