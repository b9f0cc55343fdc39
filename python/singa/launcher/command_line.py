"""What the commands of `python -m singa` share: their names, parsers, and numbers as arguments."""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Callable
from pathlib import Path


def program_name(command: str = "") -> str:
    """How messages and help texts name a command: "singa train" where it was started so, otherwise
    "python -m singa train"."""
    program = "singa" if Path(sys.argv[0]).name == "singa" else "python -m singa"
    return f"{program} {command}".rstrip()


def command_parser(
    command: str, description: str | None, usage: str = "", **options: str | bool
) -> argparse.ArgumentParser:
    """A parser of the command's arguments. A description of several lines is printed as it is.
    `usage` follows the name, `options` are those of ArgumentParser."""
    as_it_is = argparse.RawDescriptionHelpFormatter
    return argparse.ArgumentParser(
        prog=program_name(command),
        usage=f"%(prog)s {usage}" if usage else None,
        description=description,
        formatter_class=as_it_is if "\n" in (description or "") else argparse.HelpFormatter,
        **options,  # type: ignore[arg-type]
    )


def at_least(low: float, kind: Callable[[str], float]) -> Callable[[str], float]:
    """Type of an argument: a finite number of type `kind` that is at least `low`."""

    def number(text: str) -> float:
        value = _number(kind, text)
        if not low <= value < math.inf:
            raise argparse.ArgumentTypeError(f"must be {low} or more, got {text}")
        return value

    return number


def positive(text: str) -> float:
    """Type of an argument: a finite number above 0."""
    value = _number(float, text)
    if not 0 < value < math.inf:
        raise argparse.ArgumentTypeError(f"must be a positive number, got {text!r}")
    return value


def _number(kind: Callable[[str], float], text: str) -> float:
    try:
        return kind(text)
    except ValueError:
        return math.nan
