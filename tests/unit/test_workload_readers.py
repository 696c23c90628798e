"""Trace files: what is read from them, and what is said about the bad ones."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from sim.workload import Segment, TraceError, WorkloadError, load_trace, prompt_token_ids

AZURE_HEADER = "TIMESTAMP,ContextTokens,GeneratedTokens"


def mooncake_line(**changes: object) -> str:
    """A good line, with some keys changed; None removes a key."""
    row: dict[str, object] = {
        "timestamp": 0,
        "input_length": 600,
        "output_length": 5,
        "hash_ids": [1, 2],
    }
    row.update(changes)
    return json.dumps({key: value for key, value in row.items() if value is not None})


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    """Where a test puts its trace; the suffix tells nothing."""
    return tmp_path / "trace.dat"


def write(path: Path, *lines: str, newline: str = "\n") -> Path:
    """Write ``lines`` and return the path."""
    path.write_bytes(newline.join([*lines, ""]).encode())
    return path


def test_hash_ids_become_blocks_of_512_tokens_the_last_one_partial(trace: Path) -> None:
    """600 tokens with two ids are a full block and 88 tokens of another."""
    (spec,) = load_trace(write(trace, mooncake_line()))
    assert spec.prompt == (Segment(1, 512), Segment(2, 88))
    assert (spec.prompt_tokens, spec.max_tokens) == (600, 5)


def test_a_prompt_of_whole_blocks_has_no_empty_last_one(trace: Path) -> None:
    """1,024 tokens are two blocks, not two and an empty third."""
    (spec,) = load_trace(write(trace, mooncake_line(input_length=1024)))
    assert spec.prompt == (Segment(1, 512), Segment(2, 512))


def test_equal_hash_ids_mean_equal_tokens(trace: Path) -> None:
    """Two prompts with the same first id begin alike and part at the second block."""
    lines = [mooncake_line(hash_ids=[1, 2]), mooncake_line(hash_ids=[1, 3])]
    left, right = map(prompt_token_ids, load_trace(write(trace, *lines)))
    np.testing.assert_array_equal(left[:512], right[:512])
    assert (left[512:] != right[512:]).any()


def test_prompts_without_hash_ids_share_nothing(trace: Path) -> None:
    """Each gets a content of its own, which no hash id can name."""
    specs = load_trace(write(trace, mooncake_line(hash_ids=None), mooncake_line(hash_ids=None)))
    (left,), (right,) = specs[0].prompt, specs[1].prompt
    assert left.n_tokens == right.n_tokens == 600
    assert left.content_id != right.content_id
    assert max(left.content_id, right.content_id) < 0


def test_azure_rows_become_prompts_that_share_nothing(trace: Path) -> None:
    """Timestamps keep all seven digits and count from the first arrival."""
    rows = ["2023-11-16 18:17:03.9799600,4808,10", "2023-11-16 18:17:04.0319601,3180,8"]
    first, second = load_trace(write(trace, AZURE_HEADER, *rows, newline="\r\n"))
    assert (first.arrival_ns, second.arrival_ns) == (0, 52_000_100)
    assert (first.prompt_tokens, first.max_tokens) == (4808, 10)
    assert first.prompt[0].content_id != second.prompt[0].content_id


def test_azure_timestamps_with_an_offset_of_zero_and_no_fraction_are_read(trace: Path) -> None:
    """Later Azure traces write +00:00; a fraction may be missing; midnight is crossed."""
    rows = ["2024-05-10 23:59:59+00:00,1,1", "2024-05-11 00:00:00.5+00:00,1,1"]
    specs = load_trace(write(trace, AZURE_HEADER, *rows))
    assert [spec.arrival_ns for spec in specs] == [0, 1_500_000_000]


def test_requests_arrive_in_time_order_and_keep_file_order_among_equals(trace: Path) -> None:
    """An unsorted file is sorted, stably; names follow arrival; the first arrives at 0."""
    stamps = [(7, 10), (5, 11), (7, 12), (5, 13)]
    lines = [mooncake_line(timestamp=ms, output_length=length) for ms, length in stamps]
    specs = load_trace(write(trace, *lines))
    assert [spec.max_tokens for spec in specs] == [11, 13, 10, 12]
    assert [spec.arrival_ns for spec in specs] == [0, 0, 2_000_000, 2_000_000]
    assert [spec.request_id for spec in specs] == ["req-0", "req-1", "req-2", "req-3"]


def test_a_limit_takes_the_first_arrivals(trace: Path) -> None:
    """Not the first lines: the file need not be sorted."""
    lines = [mooncake_line(timestamp=ms, output_length=ms + 1) for ms in (9, 0, 5)]
    specs = load_trace(write(trace, *lines), requests=2)
    assert [spec.max_tokens for spec in specs] == [1, 6]


def test_a_limit_beyond_the_file_gives_the_whole_file(trace: Path) -> None:
    """The caller sees it in the length."""
    assert len(load_trace(write(trace, mooncake_line()), requests=300)) == 1


def test_a_limit_below_one_is_refused(trace: Path) -> None:
    """A run without requests is a mistake."""
    with pytest.raises(WorkloadError, match="requests is 0, must be an integer, 1 or more"):
        load_trace(write(trace, mooncake_line()), requests=0)


def test_blank_lines_and_a_byte_order_mark_are_no_requests(trace: Path) -> None:
    """Line numbers in messages still count the blank lines."""
    good = mooncake_line()
    write(trace, "\ufeff" + good, "", "  ", good)
    assert len(load_trace(trace)) == 2
    write(trace, "\ufeff" + good, "", "nonsense")
    with pytest.raises(TraceError, match=r"trace\.dat:3: "):
        load_trace(trace)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("{oops", "'{oops' is not valid JSON .*expected an object with timestamp"),
        ("[1, 2]", r"\[1, 2\] is not an object"),
        (mooncake_line(timestamp=None), "key 'timestamp' is missing .keys here: input_length"),
        (mooncake_line(output_length=None), "key 'output_length' is missing"),
        (mooncake_line(timestamp=-3), "timestamp is -3, must be milliseconds, 0 or more"),
        (mooncake_line(timestamp="now"), "timestamp is 'now', must be milliseconds"),
        (mooncake_line(timestamp=True), "timestamp is True, must be milliseconds"),
        (mooncake_line(input_length=-1), "input_length is -1, must be an integer, 1 or more"),
        (mooncake_line(input_length=0), "input_length is 0, must be an integer, 1 or more"),
        (mooncake_line(input_length=6.5), "input_length is 6.5, must be an integer"),
        (mooncake_line(output_length=True), "output_length is True, must be an integer"),
        (mooncake_line(hash_ids=7), "hash_ids is 7, must be a list of integers"),
        (mooncake_line(hash_ids=[1, -2]), "hash_ids holds -2, must be integers, 0 or more"),
        (mooncake_line(hash_ids=[1]), "hash_ids has 1 entries, but input_length 600 needs 2"),
    ],
)
def test_a_bad_mooncake_line_is_named_with_its_value(trace: Path, line: str, message: str) -> None:
    """File, line, what was found and what is accepted; a good line before it changes nothing."""
    with pytest.raises(TraceError, match=rf"trace\.dat:2: .*{message}") as caught:
        load_trace(write(trace, mooncake_line(), line))
    assert caught.value.line == 2


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ("yesterday,1,1", "TIMESTAMP is 'yesterday', must be UTC like"),
        ("2023-13-16 18:17:03,1,1", "TIMESTAMP is '2023-13-16 18:17:03', .*month"),
        ("2023-11-16 18:17:03,-4,1", "ContextTokens is '-4', must be an integer, 1 or more"),
        ("2023-11-16 18:17:03,4,0", "GeneratedTokens is '0', must be an integer, 1 or more"),
        ("2023-11-16 18:17:03,4", "has 2 columns, expected 3"),
    ],
)
def test_a_bad_azure_row_is_named_with_its_value(trace: Path, row: str, message: str) -> None:
    """File, line, what was found and what is accepted."""
    with pytest.raises(TraceError, match=rf"trace\.dat:2: .*{message}"):
        load_trace(write(trace, AZURE_HEADER, row))


def test_a_missing_azure_column_is_named(trace: Path) -> None:
    """The header is quoted beside the one that is accepted."""
    with pytest.raises(TraceError, match="column 'GeneratedTokens' is missing"):
        load_trace(write(trace, "TIMESTAMP,ContextTokens", "2023-11-16 18:17:03,4"))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "is empty; accepted: Mooncake JSON lines"),
        (b"\n \n", "is empty"),
        (b"hello\n", "starts with 'hello'; accepted: .* or Azure CSV"),
        (b"\x1f\x8b\xff\xfe", "is not UTF-8 text"),
        (AZURE_HEADER.encode(), "a header and no requests"),
    ],
)
def test_a_file_that_is_no_trace_is_refused(trace: Path, content: bytes, message: str) -> None:
    """The message says which formats are accepted."""
    trace.write_bytes(content)
    with pytest.raises(TraceError, match=message):
        load_trace(trace)


def test_a_missing_file_is_a_trace_error(tmp_path: Path) -> None:
    """So a command line can report it like any other bad trace."""
    with pytest.raises(TraceError, match=r"gone\.jsonl: cannot be read: No such file"):
        load_trace(tmp_path / "gone.jsonl")


def test_a_long_bad_value_is_cut_in_the_message(trace: Path) -> None:
    """A line of a megabyte must not become a message of a megabyte."""
    with pytest.raises(TraceError) as caught:
        load_trace(write(trace, "{" + "x" * 100_000))
    assert len(str(caught.value)) < 500
