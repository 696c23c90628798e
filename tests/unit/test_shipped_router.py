"""The shipped router between engines that speak vLLM's HTTP, over real sockets."""

from __future__ import annotations

import asyncio
import logging
import socket
import subprocess
import sys
from collections.abc import Awaitable, Callable
from typing import Any

import aiohttp
import pytest
from fake_engines import HOLD, FakeEngine, running_router

from hw_tests.router.__main__ import main
from hw_tests.router.app import Timeouts
from hw_tests.router.engines import FORGOTTEN_AFTER_S, Engines
from hw_tests.router.errors import RouterError

PATIENCE_S = 20
PROMPT = "w " * 700_000  # more than aiohttp takes by default

Test = Callable[[aiohttp.ClientSession, str, FakeEngine, FakeEngine], Awaitable[None]]


def run(test: Test, timeouts: Timeouts | None = None, retries: int = 0) -> None:
    """``test`` with a client, the router's URL, its prefill and its decode engine."""

    async def all_of_it() -> None:
        async with (
            aiohttp.ClientSession() as client,
            FakeEngine().running() as prefill,
            FakeEngine().running() as decode,
            running_router([prefill.url], [decode.url], timeouts, retries) as url,
        ):
            await asyncio.wait_for(test(client, url, prefill, decode), PATIENCE_S)

    asyncio.run(all_of_it())


def dead_url() -> str:
    """An address at which nobody listens."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        return f"http://127.0.0.1:{server.getsockname()[1]}"


async def error_of(answer: aiohttp.ClientResponse) -> str:
    return str((await answer.json())["error"]["message"])


def test_all_that_the_prefill_engine_returns_goes_to_the_decode_engine() -> None:
    """The prefill leg has one token and the whole prompt; every key of the parameters goes on as it
    is, known or not; everything else is the client's."""

    async def test(
        client: aiohttp.ClientSession, url: str, prefill: FakeEngine, decode: FakeEngine
    ) -> None:
        body = {"prompt": PROMPT, "max_tokens": 40, "n": 3, "cache_salt": "s", "min_tokens": 2}
        answer = await client.post(
            f"{url}/v1/completions", json=body, headers={"Authorization": "Bearer k"}
        )
        assert answer.status == 200
        assert (await answer.json())["choices"][0]["text"] == "one two three"
        first, second = prefill.received[0], decode.received[0]
        transfer_id = first["kv_transfer_params"].pop("transfer_id")
        assert first == {
            "prompt": PROMPT,
            "max_tokens": 1,
            "n": 1,
            "stream": False,
            "cache_salt": "s",
            "kv_transfer_params": {"do_remote_decode": True, "do_remote_prefill": False},
        }
        params = {"remote_block_ids": [[1, 2], [7]], "hybrid": HOLD}
        assert second == body | {"kv_transfer_params": params}
        for headers in (prefill.headers[0], decode.headers[0], answer.headers):
            assert headers["X-Request-Id"] == transfer_id
        assert prefill.headers[0]["Authorization"] == "Bearer k"
        assert decode.headers[0]["Authorization"] == "Bearer k"

    run(test)


def test_each_request_has_a_transfer_of_its_own_whatever_its_client_says() -> None:
    """A client's own transfer parameters and request ids reach no engine."""

    async def test(
        client: aiohttp.ClientSession, url: str, prefill: FakeEngine, decode: FakeEngine
    ) -> None:
        prefill.params = None
        mine = {"transfer_id": "mine", "remote_host": "elsewhere", "do_remote_prefill": True}
        for _ in range(2):
            body = {"prompt": "p", "kv_transfer_params": mine}
            answer = await client.post(
                f"{url}/v1/completions", json=body, headers={"X-Request-Id": "mine"}
            )
            assert answer.status == 200
        ids = [body["kv_transfer_params"]["transfer_id"] for body in prefill.received]
        assert len({*ids, "mine"}) == 3
        assert [body.get("kv_transfer_params") for body in decode.received] == [None, None]
        assert [headers["X-Request-Id"] for headers in decode.headers] == ids

    run(test)


def test_a_chat_streams_while_the_decode_engine_still_writes() -> None:
    """The client reads the first piece before the second exists; the prefill leg has no stream."""

    async def test(
        client: aiohttp.ClientSession, url: str, prefill: FakeEngine, decode: FakeEngine
    ) -> None:
        decode.gate.clear()
        body = {
            "messages": [{"role": "user", "content": "hello"}],
            "max_completion_tokens": 9,
            "stream": True,
            "stream_options": {"include_usage": True},
        }
        answer = await client.post(f"{url}/v1/chat/completions", json=body)
        assert answer.content_type == "text/event-stream"
        assert await answer.content.readuntil(b"\n\n") == b"data: one\n\n"
        decode.gate.set()
        assert await answer.read() == b"data: two\n\ndata: three\n\ndata: [DONE]\n\n"
        leg = prefill.received[0]
        assert leg["messages"] == body["messages"]
        assert (leg["max_completion_tokens"], leg["max_tokens"], leg["stream"]) == (1, 1, False)
        assert "stream_options" not in leg
        assert decode.received[0]["stream_options"] == {"include_usage": True}

    run(test)


@pytest.mark.parametrize("leg", ["prefill", "decode"])
def test_a_client_that_goes_away_ends_the_leg_that_is_under_way(leg: str) -> None:
    """The engine sees its connection close; in the prefill leg no decode leg follows."""

    async def test(
        client: aiohttp.ClientSession, url: str, prefill: FakeEngine, decode: FakeEngine
    ) -> None:
        engine = prefill if leg == "prefill" else decode
        engine.gate.clear()
        body = {"prompt": "p", "stream": True}
        asked = asyncio.create_task(client.post(f"{url}/v1/completions", json=body))
        await engine.started.wait()
        if leg == "decode":
            (await asked).close()
        else:
            asked.cancel()
        await engine.aborted.wait()
        assert len(decode.received) == (leg == "decode")

    run(test)


@pytest.mark.parametrize("dead", ["prefill", "decode"])
def test_an_engine_that_is_down_is_named_with_the_cause(dead: str) -> None:
    """Status 502, the engine's kind and address, and what the socket said."""

    async def test() -> None:
        nobody = dead_url()
        async with aiohttp.ClientSession() as client, FakeEngine().running() as engine:
            engines = {"prefill": engine.url, "decode": engine.url, dead: nobody}
            async with running_router([engines["prefill"]], [engines["decode"]]) as url:
                answer = await client.post(f"{url}/v1/completions", json={"prompt": "p"})
                assert answer.status == 502
                message = await error_of(answer)
                assert f"the {dead} engine {nobody}/v1/completions cannot be reached" in message
                assert "refused" in message.lower() or "connect call failed" in message.lower()
                assert len(engine.received) == (dead == "decode")
                health = await client.get(f"{url}/health")
                assert health.status == 503
                states = await health.json()
                assert "Connector" in states[dead][nobody]
                assert [*states["prefill"].values(), *states["decode"].values()].count("ok") == 1

    asyncio.run(test())


@pytest.mark.parametrize(("status", "told"), [(500, 502), (503, 502), (400, 400), (429, 429)])
@pytest.mark.parametrize("leg", ["prefill", "decode"])
def test_an_engine_that_refuses_is_quoted(leg: str, status: int, told: int) -> None:
    """The client's mistakes keep their status; what an engine could not do is a bad gateway."""

    async def test(
        client: aiohttp.ClientSession, url: str, prefill: FakeEngine, decode: FakeEngine
    ) -> None:
        engine = prefill if leg == "prefill" else decode
        engine.status = status
        answer = await client.post(f"{url}/v1/completions", json={"prompt": "p", "stream": True})
        assert answer.status == told
        message = await error_of(answer)
        assert f"the {leg} engine {engine.url}" in message
        assert f"answered {status}" in message
        assert "no blocks" in message
        assert (len(prefill.received), len(decode.received)) == (1, int(leg == "decode"))

    run(test)


@pytest.mark.parametrize("leg", ["prefill", "decode"])
def test_an_engine_that_says_nothing_is_given_up(leg: str) -> None:
    """Status 504 after the time-out, and the engine's request is aborted."""

    async def test(
        client: aiohttp.ClientSession, url: str, prefill: FakeEngine, decode: FakeEngine
    ) -> None:
        engine = prefill if leg == "prefill" else decode
        engine.gate.clear()
        answer = await client.post(f"{url}/v1/completions", json={"prompt": "p"})
        assert answer.status == 504
        assert f"the {leg} engine {engine.url}/v1/completions was silent" in await error_of(answer)
        await engine.aborted.wait()

    run(test, Timeouts(silence_s=0.1))


def test_an_answer_that_breaks_off_breaks_off_for_the_client(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Half an answer must not look like a whole one; the log has the cause."""

    async def test(
        client: aiohttp.ClientSession, url: str, prefill: FakeEngine, decode: FakeEngine
    ) -> None:
        decode.dies_after = 2
        answer = await client.post(f"{url}/v1/completions", json={"prompt": "p", "stream": True})
        with pytest.raises(aiohttp.ClientError):
            await answer.read()
        assert f"broken off: the decode engine {decode.url}" in caplog.text

    run(test)


@pytest.mark.parametrize("retries", [0, 1])
def test_a_request_is_begun_anew_only_where_that_was_asked_for(retries: int) -> None:
    """Both legs, with another transfer id; a decode leg alone is never repeated."""

    async def test(
        client: aiohttp.ClientSession, url: str, prefill: FakeEngine, decode: FakeEngine
    ) -> None:
        decode.status = 500
        answer = await client.post(f"{url}/v1/completions", json={"prompt": "p"})
        assert answer.status == 502
        ids = [body["kv_transfer_params"]["transfer_id"] for body in prefill.received]
        assert len(set(ids)) == len(ids) == len(decode.received) == 1 + retries

    run(test, retries=retries)


def test_a_prompt_for_which_nothing_is_handed_over_is_computed_again_and_told(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """vLLM's MoRIIO returns nothing when the first token ends the answer, for one."""

    async def test(
        client: aiohttp.ClientSession, url: str, prefill: FakeEngine, decode: FakeEngine
    ) -> None:
        prefill.params = None
        answer = await client.post(f"{url}/v1/completions", json={"prompt": "p"})
        assert answer.status == 200
        assert decode.received == [{"prompt": "p"}]
        assert "hands nothing over" in caplog.text

    with caplog.at_level(logging.WARNING):
        run(test)


@pytest.mark.parametrize(
    ("sent", "told"),
    [
        ({"json": {"prompt": ["one", "two"]}}, "2 prompts"),
        ({"json": {"prompt": [[1], [2], [3]]}}, "3 prompts"),
        ({"json": ["prompt"]}, "expected a JSON object"),
        ({"data": b"{"}, "no JSON"),
    ],
)
def test_a_request_that_cannot_be_handed_over_is_refused(sent: dict[str, Any], told: str) -> None:
    """Before any engine hears of it."""

    async def test(
        client: aiohttp.ClientSession, url: str, prefill: FakeEngine, decode: FakeEngine
    ) -> None:
        answer = await client.post(f"{url}/v1/completions", **sent)
        assert answer.status == 400
        assert told in await error_of(answer)
        assert prefill.received == decode.received == []

    run(test)


@pytest.mark.parametrize("prompt", [[1, 2, 3], ["one"], [[1, 2]], "one"])
def test_one_prompt_in_any_form_is_served(prompt: object) -> None:
    """Token ids are one prompt."""

    async def test(
        client: aiohttp.ClientSession, url: str, prefill: FakeEngine, decode: FakeEngine
    ) -> None:
        answer = await client.post(f"{url}/v1/completions", json={"prompt": prompt})
        assert answer.status == 200
        assert prefill.received[0]["prompt"] == decode.received[0]["prompt"] == prompt

    run(test)


def test_health_and_models_come_from_the_engines() -> None:
    """A client finds the model's name, an operator every engine's state."""

    async def test(
        client: aiohttp.ClientSession, url: str, prefill: FakeEngine, decode: FakeEngine
    ) -> None:
        models = await client.get(f"{url}/v1/models")
        assert (await models.json())["data"][0]["id"] == "a-model"
        health = await client.get(f"{url}/health")
        assert health.status == 200
        assert await health.json() == {"prefill": {prefill.url: "ok"}, "decode": {decode.url: "ok"}}

    run(test)


def test_engines_take_turns_and_are_forgotten_when_they_fall_silent() -> None:
    """Those on the command line stay; a router without any says what to do."""
    now = 0.0
    engines = Engines("decode", ["http://a"], clock=lambda: now)
    assert engines.announce("http://b")
    assert not engines.announce("http://b")
    assert [engines.next() for _ in range(4)] == ["http://a", "http://b"] * 2
    now = FORGOTTEN_AFTER_S
    assert engines.urls() == ["http://a"]
    with pytest.raises(RouterError, match="--decode, or let engines announce"):
        Engines("decode").next()


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["--port", "8000"], "give --prefill and --decode, or --ping-port"),
        (["--port", "0"], "expected a port from 1 to 65535"),
        (["--port", "8000", "--prefill", "10.0.0.1:8000"], "expected a URL such as"),
        (["--port", "8000", "--ping-port", "1", "--timeout", "-1"], "expected seconds above 0"),
        (["--help"], "--ping-port PORT"),
    ],
)
def test_the_command_explains_itself(
    arguments: list[str], told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Wrong arguments end with exit code 2 and what is expected."""
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    assert told in "".join(capsys.readouterr())
    assert ended.value.code == (0 if "--help" in arguments else 2)


def test_the_command_says_what_was_not_tried(caplog: pytest.LogCaptureFixture) -> None:
    """In the log of whoever runs it in front of real engines, and before it serves."""
    caplog.set_level(logging.INFO)
    engines = ["--host=127.0.0.1", "--prefill=http://a", "--decode=http://b"]
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        with pytest.raises(SystemExit):
            main([*engines, "--port", port])
    assert "unverified on hardware" in caplog.text


def test_the_router_needs_nothing_but_what_comes_with_vllm() -> None:
    """Neither vLLM itself nor this project's other packages: it runs on a machine without GPUs."""
    command = (
        "import hw_tests.router.__main__, sys; "
        "print([m for m in ('vllm', 'torch', 'sim', 'faults', 'connector') if m in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", command], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[]"
