"""What the commands of `python -m singa` share: their names, parsers, and numbers as arguments."""

from __future__ import annotations

import argparse
import math
import os
import re
import sys
import textwrap
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NoReturn


def program_name(command: str = "") -> str:
    """How messages and help texts name a command: "singa train" where it was started so, otherwise
    "python -m singa train"."""
    program = "singa" if Path(sys.argv[0]).name == "singa" else "python -m singa"
    return f"{program} {command}".rstrip()


class CommandParser(argparse.ArgumentParser):
    """A parser whose help fits the width of the terminal, and whose errors name what a misspelled
    word may have meant.

    for_words  the option that a word without one belongs to
    """

    for_words = ""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **{"formatter_class": _Paragraphs, **options})

    def parse_args(self, args: Any = None, namespace: Any = None) -> Any:
        """As ArgumentParser's."""
        found, unknown = self.parse_known_args(args, namespace)
        if unknown:
            known = [option for parser in self._asked(args) for option in parser._options()]
            hints = [nearest(word.partition("=")[0], known) for word in unknown if word[0] == "-"]
            if self.for_words and not hints:
                hints = [f"; did you mean {self.for_words} {unknown[0]}?"]
            self.error(
                f"unrecognized arguments: {' '.join(unknown)}{next(filter(None, hints), '')}"
            )
        return found

    def _get_value(self, action: argparse.Action, arg_string: str) -> Any:
        """As ArgumentParser's. An empty text, such as that of an unset variable, would mean the
        current folder, or nothing; words of other programs may be empty."""
        if not arg_string and action.nargs not in (argparse.REMAINDER, argparse.PARSER):
            raise argparse.ArgumentError(action, "expected a value, got an empty text")
        return super()._get_value(action, arg_string)

    def error(self, message: str) -> NoReturn:
        """As ArgumentParser's."""
        if wrong := re.search(r"invalid choice: '([^']*)' \(choose from (.*)\)$", message):
            choices = [each.strip("' ") for each in wrong[2].split(",")]
            message += nearest(wrong[1], choices)
        super().error(message)

    def refuse(self, given: argparse.Namespace, why: str, *names: str) -> None:
        """Exits with an error for an option or a word of these names that was given: "--seed is
        for --kernels"."""
        for action in self._actions:
            if action.dest in names and getattr(given, action.dest) != action.default:
                name = action.option_strings[-1] if action.option_strings else action.metavar
                self.error(f"{name} is {why}")

    def _options(self) -> list[str]:
        return [name for name in self._option_string_actions if name.startswith("--")]

    def _asked(self, args: Sequence[str] | None) -> Iterator[CommandParser]:
        """This parser, and that of the command which the arguments name."""
        yield self
        words = sys.argv[1:] if args is None else args
        for action in self._actions:
            if isinstance(action, argparse._SubParsersAction):
                yield from (action.choices[word] for word in words if word in action.choices)


def nearest(word: str, known: Iterable[str]) -> str:
    """What an error adds about a word that is nearly a known one: "; did you mean resnet50?"; else
    nothing."""
    meant = closest(word, known)
    return "" if meant is None else f"; did you mean {meant}?"


def closest(word: str, known: Iterable[str]) -> str | None:
    """The known word that is nearly `word`, as resnet50 is ResNet-50, if there is one."""
    import difflib  # a program without mistakes needs none

    by_letters: dict[str, list[str]] = {}
    for each in sorted(known):
        by_letters.setdefault(_letters(each), []).append(each)
    close = difflib.get_close_matches(_letters(word), by_letters, 1, 0.7)
    return difflib.get_close_matches(word, by_letters[close[0]], 1, 0.0)[0] if close else None


def _letters(word: str) -> str:
    return re.sub("[-_ .]", "", word.lower())


class _Paragraphs(argparse.HelpFormatter):
    """Paragraphs of prose are filled. Lines that are indented are a table: a word or a command, two
    spaces or more, and what it is; they stay as they are where they fit."""

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        blocks = re.split(r"\n\s*\n", text.strip("\n"))
        return "\n\n".join(
            "\n".join(_table(block.splitlines(), width))
            if block.startswith(" ")
            else textwrap.fill(" ".join(block.split()), width)
            for block in blocks
        )


def _table(lines: Sequence[str], width: int) -> list[str]:
    """The lines of a table, none of them longer than `width`, where that can be."""
    margin = min(len(line) - len(line.lstrip()) for line in lines)
    rows: list[tuple[int, str, str]] = []  # place of the explanation, term, explanation
    for line in lines:
        term, gap, text = re.match(r" *(.*?)(?:(  +)(\S.*))?$", line).groups()  # type: ignore[union-attr]
        if line[margin] == " " and rows:  # goes on
            place, before, said = rows[-1]
            rows[-1] = place, before, f"{said} {line.strip()}"
        else:
            rows.append((margin + len(term) + len(gap or ""), term, text or ""))
    too_long = any(place + len(text) > width for place, _, text in rows)
    below = too_long and max(place for place, _, _ in rows) > width // 2
    filled = []
    for place, term, text in rows:
        head = " " * margin + term
        if text and below:
            filled.append(head)
            head, place = "", margin + 4
        hanging = textwrap.wrap(text, width - place) if text else [""]
        filled.append((head.ljust(place) + hanging[0]).rstrip())
        filled += [" " * place + each for each in hanging[1:]]
    return filled


def command_parser(
    command: str,
    description: str | None,
    usage: str = "",
    epilog: str | None = None,
    **options: bool,
) -> CommandParser:
    """A parser of the command's arguments. `usage` follows the name, `options` are those of
    ArgumentParser. Texts call singa as it was called."""
    texts = {"description": description, "epilog": epilog}
    return CommandParser(
        prog=program_name(command),
        usage=f"%(prog)s {usage}" if usage else None,
        **{
            k: text and text.replace("python -m singa", program_name()) for k, text in texts.items()
        },
        **options,
    )


def error_text(error: Exception) -> str:
    """The message of an error. Of one of the system it is the file and what is wrong with it."""
    if isinstance(error, OSError) and error.filename is not None and error.strerror:
        return f"{os.fsdecode(error.filename)}: {error.strerror[:1].lower()}{error.strerror[1:]}"
    return str(error)


def at_least(low: float, kind: Callable[[str], float]) -> Callable[[str], float]:
    """Type of an argument: a finite number of type `kind` that is at least `low`."""

    def number(text: str) -> float:
        value = _number(kind, text)
        if not low <= value < math.inf:
            raise argparse.ArgumentTypeError(f"must be {low} or more, got {text}")
        return value

    return number


def share(text: str) -> float:
    """Type of an argument: a number from 0 to 1."""
    value = _number(float, text)
    if not 0 <= value <= 1:
        raise argparse.ArgumentTypeError(f"must lie between 0 and 1, got {text}")
    return value


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
