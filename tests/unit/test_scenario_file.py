"""Scenario files: what is read, written and refused."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import given, settings
from scenario_strategies import scenarios

from sim.errors import UsageError
from sim.scenario import Scenario, TraceWorkload, dumps, load, loads, with_settings


@settings(deadline=None)
@given(scenario=scenarios)
def test_a_scenario_survives_being_written_and_read(scenario: Scenario) -> None:
    """Whatever it holds: names that look like numbers, dates or YAML, tiny and huge numbers."""
    again = loads(dumps(scenario))
    assert again == scenario
    assert dumps(again) == dumps(scenario)
    assert again.digest() == scenario.digest()


@pytest.mark.parametrize(
    "text", ["1e3", "2024-01-01", "null", "yes", "1:30", "0x1f", "~", "", "<<"]
)
def test_text_that_looks_like_something_else_stays_text(text: str) -> None:
    """In a value as well as in a key."""
    scenario = Scenario(extra_config={"value": text, text: 1})
    assert loads(dumps(scenario)).extra_config == {"value": text, text: 1}


def test_a_written_scenario_holds_the_defaults_too() -> None:
    """What it means does not change when a default does."""
    text = dumps(Scenario())
    assert "kv_load_failure_policy: fail" in text
    assert "workload: {kind: generated, requests: 8" in text
    assert text.startswith("schema_version: 1\nseed: 0\nmodel: llama\n")


def test_equal_scenarios_have_equal_digests_however_they_were_written() -> None:
    """The order of keys says nothing; a value does."""
    one = loads("extra_config: {a: 1, b: 2}\nseed: 3")
    other = loads("seed: 3\nextra_config: {b: 2, a: 1}")
    assert one.digest() == other.digest()
    assert one.digest() != loads("seed: 4\nextra_config: {b: 2, a: 1}").digest()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("seed: -1", "s.yaml: seed: is -1, expected an integer, 0 or more"),
        ("seed: one", "s.yaml: seed: is 'one', expected an integer, 0 or more"),
        ("perturb: 1", "s.yaml: perturb: is 1, expected true or false"),
        ("overlay: 3", "s.yaml: overlay: is 3, expected text or null"),
        ("geometry: big", "s.yaml: geometry: is 'big', expected one of: real, reduced"),
        ("schema_version: 2", "s.yaml: schema_version: is 2, expected 1"),
        ("max_virtual_s: 0", "s.yaml: max_virtual_s: is 0, expected a number, above 0, at most 1e"),
        ("extra_config: {1: 2}", "s.yaml: extra_config: is {1: 2}, expected a mapping with names"),
        ("engine: {tp_size: 0}", "s.yaml: engine.tp_size: is 0, expected an integer, 1 or more"),
        (
            "engine: {step_times: {base_us: -5}}",
            "s.yaml: engine.step_times.base_us: is -5, expected an integer, 0 or more",
        ),
        (
            "engine: {tp_sise: 2}",
            "s.yaml: engine.tp_sise: unknown key (did you mean 'tp_size'?); accepted: tp_size, da",
        ),
        ("surprise: []", "s.yaml: surprise: unknown key; accepted: schema_version, seed, model, "),
        ("[]", "s.yaml: the document: is [], expected a mapping with the keys schema_version, "),
        ("", "s.yaml: is empty; expected a scenario, as faultlab init writes one"),
        ("# nothing yet", "s.yaml: is empty; expected a scenario, as faultlab init writes one"),
        (
            "model: lama",
            "s.yaml: model: unknown model 'lama' (did you mean 'llama'?); use one of: "
            "deepseek-mla, ",
        ),
        ("connector: x", "s.yaml: connector: unknown connector 'x'; known are example, "),
        (
            "workload: {}",
            "s.yaml: workload.kind: missing; expected one of: trace, generated, uniform, inline",
        ),
        (
            "workload: {kind: gen}",
            "s.yaml: workload.kind: is 'gen', expected one of: trace, generated, uniform, inline",
        ),
        ("workload: 4", "s.yaml: workload: is 4, expected a mapping with the key kind, one of: tr"),
        ("workload: {kind: trace}", "s.yaml: workload.path: missing; expected text"),
        (
            "workload: {kind: generated, requests: 3, path: x}",
            "s.yaml: workload.path: unknown key; accepted: kind, requests, rate_rps, ",
        ),
        (
            "workload: {kind: uniform, requests: 1, prompt_tokens: 3, output_tokens: [1, 1]}",
            "s.yaml: workload.prompt_tokens: is 3, expected a list of 2 (an integer, 1 or more ea",
        ),
        (
            "workload: {kind: uniform, requests: 1, prompt_tokens: [3, 2], output_tokens: [1, 1]}",
            "s.yaml: workload: prompt_tokens is [3, 2], must be [low, high], low <= high",
        ),
        (
            "workload: {kind: inline, requests: []}",
            "s.yaml: workload.requests: is [], expected a list that is not empty (a mapping with ",
        ),
        (
            "workload: {kind: inline, requests: [{request_id: a, prompt: [[1]], max_tokens: 2}]}",
            "s.yaml: workload.requests[0].prompt[0]: is [1], expected a list [content_id, n_toke",
        ),
        (
            "workload: {kind: inline, requests: [{request_id: a, prompt: 200, max_tokens: 2}]}",
            "s.yaml: workload.requests[0].prompt: is 200, expected a list of [content_id, n_tokens]"
            " with integers, such as [[1, 200]]",
        ),
        ("num_blocks: 9", "s.yaml: num_blocks: unknown key (num_blocks goes under engine, as in "),
        (
            "workload:\n  kind: inline\n  requests:\n"
            "  - {request_id: epilogue, prompt: [[1, 9]], max_tokens: 1}",
            "s.yaml: workload.requests[0]: request_id 'epilogue' begins with",
        ),
        (
            "workload: {kind: inline, requests: [{request_id: a, prompt: [[1,0]], max_tokens: 1}]}",
            "s.yaml: workload.requests[0]: prompt holds [1, 0]; a segment is [content id, number ",
        ),
        (
            "router: {holds: [{request: a, seconds: .nan}]}",
            "s.yaml: router.holds[0].seconds: is nan, expected a number, 0 or more, at most 1e",
        ),
        (
            "router: {aborts: [{request: a}]}",
            "s.yaml: router.aborts[0]: the abort of 'a' needs either at_s or on_phase, and neither",
        ),
        (
            "router: {aborts: [{request: a, at_s: 1, on_phase: decode}]}",
            "s.yaml: router.aborts[0]: the abort of 'a' needs either at_s or on_phase, and both ar",
        ),
        (
            "router: {holds: [{request: a, seconds: 1}, {request: a, seconds: 2}]}",
            "s.yaml: router: holds: 'a' is held 2 times; a request is held once, ",
        ),
        (
            "topology: {colocated: true}\nrouter: {holds: [{request: a, seconds: 1}]}",
            "s.yaml: router.holds: 'a' cannot be held between prefill and decode, because topology",
        ),
        (
            "topology: {colocated: true}\nrouter: {aborts: [{request: a, on_phase: handoff}]}",
            "s.yaml: router.aborts[0].on_phase: is 'handoff', which no request goes through with t",
        ),
        (
            "router: {retries: [{request: a, after_s: 1, consumer: other}]}",
            "s.yaml: router.retries[0].consumer: is 'other', but there is one decoding engine; rai",
        ),
        (
            "router: {aborts: [{request: a, on_phase: dinner}]}",
            "s.yaml: router.aborts[0].on_phase: is 'dinner', expected one of: allocated, decode, ",
        ),
        (
            "topology: {colocated: true, producers: 2}",
            "s.yaml: topology: colocated means a single engine: leave producers and consumers out",
        ),
        ("seed: 1\nmodel: llama\nseed: 2", "s.yaml: not valid YAML: key 'seed' is here and in "),
        ("engine: {tp_size: 1, tp_size: 2}", "s.yaml: not valid YAML: key 'tp_size' is here"),
        ("seed: 1\na: [", "s.yaml: not valid YAML: "),
        ("? [1, 2]\n: 3", "s.yaml: not valid YAML: "),
        ("seed: !!int a", "s.yaml: a value does not fit its tag: invalid literal for int()"),
        ("[" * 5000, "s.yaml: is nested too deeply to be read"),
        (
            "workload: {kind: generated, requests: 99999999999}",
            "s.yaml: workload.requests: is 99999999999, expected an integer, 1 or more, at most 1",
        ),
    ],
)
def test_what_is_not_understood_is_refused_with_place_and_remedy(text: str, message: str) -> None:
    """The message names the file, the key, what is there and what is accepted."""
    with pytest.raises(UsageError) as caught:
        loads(text, source="s.yaml")
    assert re.sub(r"^s\.yaml:\d+:\d+: ", "s.yaml: ", str(caught.value)).startswith(message)


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("seed: 1\n\nengine:\n  tp_size: 0", "4:3: engine.tp_size: "),
        ("seed: 1\nengine: {tp_sise: 2}", "2:10: engine.tp_sise: unknown key"),
        ("seed: 1\nworkload:\n  rate_rps: 3", "2:1: workload.kind: missing"),
        ("router:\n  holds:\n  - {request: a, seconds: x}", "3:18: router.holds[0].seconds: "),
        ("seed: 1\nmodel: lama", "2:1: model: unknown model"),
        ("seed: 1\nengine:\n\ttp_size: 2", "3:1: not valid YAML: "),
        ("seed: 1\nmodel: llama\nseed: 2", "3:1: not valid YAML: "),
    ],
)
def test_a_refusal_names_line_and_column(text: str, place: str) -> None:
    """Of the key, as editors jump to them; of what is no YAML, where reading ended."""
    with pytest.raises(UsageError) as caught:
        loads(text, source="s.yaml")
    assert str(caught.value).startswith(f"s.yaml:{place}")


def test_text_that_is_no_yaml_is_shown_with_what_was_expected() -> None:
    with pytest.raises(UsageError, match=r"in 'tp_size: 2'; expected KEY: VALUE, indented by sp"):
        loads("seed: 1\nengine:\n\ttp_size: 2")


def test_of_a_key_that_is_there_twice_one_has_to_go() -> None:
    """Nothing is wrong with how the lines are written."""
    with pytest.raises(UsageError, match=r"'seed' is here and in line 1; keep one of them$"):
        loads("seed: 1\nseed: 2")


def test_two_requests_of_one_name_are_refused() -> None:
    """Results are by name."""
    request = "{request_id: a, prompt: [[1, 2]], max_tokens: 2}"
    with pytest.raises(UsageError, match="request_id 'a' is used 2 times"):
        loads(f"workload: {{kind: inline, requests: [{request}, {request}]}}")


def test_numbers_may_be_written_with_an_exponent() -> None:
    """YAML 1.1 would read 1e3 as text."""
    assert loads("quiet_phase_s: 1e3").quiet_phase_s == 1000.0


def test_a_date_in_a_file_is_text() -> None:
    """JSON, which artifacts and digests are made of, knows no dates."""
    assert loads("extra_config: {day: 2024-01-01}").extra_config == {"day": "2024-01-01"}


def test_paths_in_a_file_are_relative_to_the_file(tmp_path: Path) -> None:
    """A scenario and its trace can be moved together; absolute paths stay."""
    file = tmp_path / "s.yaml"
    file.write_text("workload: {kind: trace, path: traces/t.jsonl}\noverlay: /elsewhere")
    scenario = load(file)
    assert scenario.workload == TraceWorkload(path=str(tmp_path / "traces" / "t.jsonl"))
    assert scenario.overlay == "/elsewhere"


@pytest.mark.parametrize("way", ["settings", "python", "text"])
def test_other_relative_paths_are_of_the_current_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    """And stay so in an artifact, which lies in a directory of its own."""
    monkeypatch.chdir(tmp_path)
    workload = "{kind: trace, path: ./t.jsonl}"
    made = {
        "settings": lambda: with_settings(Scenario(), {"workload": workload, "overlay": "vllm"}),
        "python": lambda: Scenario(workload=TraceWorkload("t.jsonl"), overlay="vllm"),
        "text": lambda: loads(f"workload: {workload}\noverlay: vllm"),
    }[way]()
    assert made.workload == TraceWorkload(str(tmp_path / "t.jsonl"))
    assert made.overlay == str(tmp_path / "vllm")
    there = tmp_path / "runs" / "scenario.yaml"
    there.parent.mkdir()
    there.write_text(dumps(made))
    assert load(there).digest() == made.digest()


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    """Missing, or not text."""
    with pytest.raises(UsageError, match=r"none\.yaml: cannot be read: No such file"):
        load(tmp_path / "none.yaml")
    binary = tmp_path / "binary.yaml"
    binary.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(UsageError, match=r"binary\.yaml: is not UTF-8"):
        load(binary)
