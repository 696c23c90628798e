"""``python -m hw_tests.router``: serve until interrupted."""

from __future__ import annotations

import argparse
import logging
from collections.abc import Sequence

import zmq
from aiohttp import web

from hw_tests.option_types import host, natural, parsed, port, seconds, url
from hw_tests.router.app import Router, Timeouts
from hw_tests.router.discovery import Discovery
from hw_tests.router.engines import Engines
from hw_tests.unverified import NOTE


def main(arguments: Sequence[str] | None = None) -> None:
    """Exit code 2 when a port cannot be had or an argument is wrong."""
    parser = _parser()
    options = parsed(parser, arguments)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    prefill, decode = Engines("prefill", options.prefill), Engines("decode", options.decode)
    if options.ping_port is None and not (options.prefill and options.decode):
        parser.error("give --prefill and --decode, or --ping-port for engines that announce")
    discovery = None
    if options.ping_port is not None:
        try:
            discovery = Discovery(options.ping_port, prefill, decode)
        except zmq.ZMQError as error:
            parser.error(f"--ping-port {options.ping_port}: {error}; name a port that is free")
    timeouts = Timeouts(options.connect_timeout, options.timeout)
    router = Router(prefill, decode, timeouts, options.retries, discovery)
    logging.info(NOTE)
    try:
        web.run_app(
            router.app(),
            host=options.host,
            port=options.port,
            handler_cancellation=True,
            print=None,
        )
    except OSError as error:
        parser.error(f"--port {options.port}: {error}; name a port that is free")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        "python -m hw_tests.router",
        description="Send each request to a prefill engine, then to a decode engine (READ).",
    )
    parser.add_argument(
        "--prefill", metavar="URL", nargs="+", type=url, default=[], help="prefill engines"
    )
    parser.add_argument(
        "--decode", metavar="URL", nargs="+", type=url, default=[], help="decode engines"
    )
    parser.add_argument(
        "--host", type=host, default="0.0.0.0", help="address to serve on (%(default)s)"
    )
    parser.add_argument("--port", type=port, required=True, help="port to serve on")
    parser.add_argument(
        "--ping-port",
        type=port,
        metavar="PORT",
        help="where engines announce themselves: proxy_ping_port of their connector",
    )
    parser.add_argument(
        "--timeout",
        type=seconds,
        default=Timeouts.silence_s,
        metavar="S",
        help="how long an engine may be silent (%(default)s)",
    )
    parser.add_argument(
        "--connect-timeout",
        type=seconds,
        default=Timeouts.connect_s,
        metavar="S",
        help="how long a connection to an engine may take (%(default)s)",
    )
    parser.add_argument(
        "--retries",
        type=natural,
        default=0,
        metavar="N",
        help="how often a failed request is begun anew, both legs, before the client is told "
        "(%(default)s: each attempt leaves blocks held on the prefill engine until their lease "
        "ends, and a failure is what a test wants to see)",
    )
    return parser


if __name__ == "__main__":
    main()
