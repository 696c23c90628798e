"""What the router answers when it has no engine's answer to hand on."""

from __future__ import annotations

from aiohttp import web


class RouterError(Exception):
    """An answer to the client.

    Args:
        status: of HTTP: 400 for the client's mistake, 502 for an engine that is down or failed, 503
            if there is none, 504 for one that is silent.
        message: names the engine and the cause.
    """

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.message = message

    def body(self) -> dict[str, object]:
        """In the form of OpenAI's and vLLM's servers."""
        return {"error": {"message": self.message, "type": "router_error", "code": self.status}}

    def response(self) -> web.Response:
        return web.json_response(self.body(), status=self.status)
