"""Tracebacks that end at the user's line: without the frames of singa.

An error that ends a program, or a cell of a notebook, is shown without them. The error itself keeps
them, so pytest, pdb and loggers see all. SINGA_FULL_TRACEBACK=1 in the environment shows them.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Any

from .. import singa_wrap as _c
from .process import ipython_shell

_PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep


def install() -> None:
    """Has errors shown so from now on, unless the environment forbids it."""
    if _c.EnvironmentValue("SINGA_FULL_TRACEBACK") == "1":
        return
    before = sys.excepthook

    def excepthook(
        kind: type[BaseException], error: BaseException, trace: TracebackType | None
    ) -> None:
        if trace is not error.__traceback__:
            before(kind, error, trace)
            return
        with folded(error) as hidden:
            _say(hidden)
            before(kind, error, error.__traceback__)

    sys.excepthook = excepthook
    _install_in_notebook()


def _install_in_notebook() -> None:
    """The same for IPython, which shows errors without sys.excepthook."""
    shell = ipython_shell()
    if shell is None or shell.custom_exceptions:
        return

    def show(shell: Any, kind: Any, error: Any, trace: Any, tb_offset: Any = None) -> None:
        with folded(error) as hidden:
            _say(hidden)
            shell.showtraceback((kind, error, error.__traceback__), tb_offset=tb_offset)
        sys.last_traceback = trace  # for %debug

    shell.set_custom_exc((Exception,), show)


def _say(hidden: int) -> None:
    """Says how many frames a traceback lacks, before it: tools read the exception in its last
    lines."""
    if hidden and sys.stderr is not None:
        frames = f"{hidden} frame{'s' if hidden > 1 else ''}"
        print(f"{frames} of singa left out: SINGA_FULL_TRACEBACK=1 shows them", file=sys.stderr)


@contextmanager
def folded(error: BaseException) -> Iterator[int]:
    """Context manager: the traceback of the error, and those of the errors that it chains, have no
    frames of singa. It gives the number of frames that are hidden. Where there are no others, as in
    a command of singa, all remain."""
    if "singa.__main__" in sys.modules or not any(map(_is_users, _entries(error.__traceback__))):
        yield 0
        return
    whole = [(each, each.__traceback__) for each in _chained(error)]
    hidden = 0
    try:
        for each, trace in whole:
            entries = _entries(trace)
            shown = [entry for entry in entries if not _is_own(entry)]
            hidden += len(entries) - len(shown)
            each.__traceback__ = _linked(shown)
        yield hidden
    finally:
        for each, trace in whole:
            each.__traceback__ = trace


def _entries(trace: TracebackType | None) -> list[TracebackType]:
    entries = []
    while trace is not None:
        entries.append(trace)
        trace = trace.tb_next
    return entries


def _linked(entries: list[TracebackType]) -> TracebackType | None:
    trace = None
    for entry in reversed(entries):
        trace = TracebackType(trace, entry.tb_frame, entry.tb_lasti, entry.tb_lineno)
    return trace


def _is_own(entry: TracebackType) -> bool:
    return entry.tb_frame.f_code.co_filename.startswith(_PACKAGE)


def _is_users(entry: TracebackType) -> bool:
    """Whether a frame belongs neither to singa nor to Python's start of a module."""
    return not _is_own(entry) and not entry.tb_frame.f_code.co_filename.startswith("<frozen ")


def _chained(error: BaseException) -> list[BaseException]:
    """The error, and all that it refers to: its cause, its context, the members of a group."""
    found: list[BaseException] = []
    left: list[BaseException | None] = [error]
    while left:
        each = left.pop()
        if each is not None and not any(each is other for other in found):
            found.append(each)
            left += [each.__cause__, each.__context__, *getattr(each, "exceptions", ())]
    return found
