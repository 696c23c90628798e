"""What is wrong with a command line that Typer does not take: the value, what was expected, and
what to do about it."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

import typer
from pydantic import ValidationError
from typer.core import TyperCommand, TyperOption
from typer.exceptions import TyperException

from sim.errors import UsageError
from sim.hints import nearest

_PROGRAM = "faultlab"
_BEFORE_THE_COMMAND = {"--log-level": "debug", "--log-format": "json"}


class OnceOnly(TyperCommand):
    """A command that takes no value twice: of two, the last one would count without a word."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Raises UsageError."""
        _, _, given = self.make_parser(ctx).parse_args(args=list(args))
        options = [param for param in given if isinstance(param, TyperOption)]
        for option in options:
            times = options.count(option)
            if times > 1 and not (option.multiple or option.is_flag):
                name = max(option.opts, key=len)
                hint = "; faultlab compare takes two connectors" * (name == "--connector")
                raise UsageError(f"{name} is given {times} times; give it once{hint}")
        return super().parse_args(ctx, args)


def explain_usage(error: TyperException, commands: Iterable[str]) -> str:
    """A sentence about ``error``; ``commands`` are the names that there are."""
    context = getattr(error, "ctx", None)
    path = "" if context is None else context.command_path
    see = f"see {path} --help" if path else "see --help"
    return "; ".join([_what(error, commands), *_where(error, path), see])


def _what(error: TyperException, commands: Iterable[str]) -> str:
    message = error.format_message().rstrip(".")
    if message.startswith("No such command"):
        return f"{message.replace('. Did', '; did')}; there are: {', '.join(commands)}"
    if not isinstance(error, typer.BadParameter) or error.param is None:
        return message
    if isinstance(error.__cause__, ValidationError):
        return _wrong_value(max(error.param.opts, key=len), error.__cause__)
    about = (getattr(error.param, "help", None) or "").rstrip(".")
    return f"{message} ({about})" if about else message


def _wrong_value(option: str, cause: ValidationError) -> str:
    found = cause.errors()[0]
    value, message = found["input"], found["msg"]
    _, is_choice, choices = message.partition("is not one of ")
    if is_choice:
        names = re.findall(r"'([^']*)'", choices)
        return f"{option} {value}: expected one of {', '.join(names)}{nearest(str(value), names)}"
    expected = message.removeprefix("Input should be ").partition(",")[0]
    if expected.startswith(("greater", "less")):
        expected = f"a number {expected}"
    return f"{option} {value}: expected {expected}"


def _where(error: TyperException, path: str) -> list[str]:
    """Where an option belongs that is on the wrong side of the command."""
    option = getattr(error, "option_name", None)
    if option is None or not path:
        return []
    if path == _PROGRAM:
        return [f"options of a command come after it: {_PROGRAM} run --json"]
    if value := _BEFORE_THE_COMMAND.get(option):
        return [f"it comes before the command: {_PROGRAM} {option} {value} run ..."]
    return []
