"""Output of several processes, whole lines each."""

from __future__ import annotations

import os
import select
from collections.abc import Callable, Sequence

_LONGEST = 1 << 20


class Lines:
    """Passes on what a process prints, whole lines only, each with `prefix` before it.

    prefix  text before each line, such as "[0] "
    target  descriptor to write to
    notice  is called with the bytes of each line; returns whether the line is left out
    copy    is called with the lines, without prefixes

    A line without an end is passed on when the process ends, or when it has a MiB. Once writing has
    failed, further lines are dropped; `notice` still sees them.
    """

    def __init__(
        self,
        prefix: str,
        target: int,
        notice: Callable[[bytes], bool] | None = None,
        copy: Callable[[bytes], object] | None = None,
    ) -> None:
        self._prefix = prefix.encode()
        self._target = target
        self._notice = notice
        self._copy = copy
        self._rest = b""
        self._closed = False

    def feed(self, data: bytes) -> None:
        """Takes the next bytes. Raises OSError if writing fails, once."""
        *lines, self._rest = (self._rest + data).split(b"\n")
        if len(self._rest) >= _LONGEST:
            lines.append(self._rest)
            self._rest = b""
        if self._notice is not None:
            lines = [line for line in lines if not self._notice(line)]
        self._pass_on(lines)

    def end(self) -> None:
        """Passes on a last line without an end."""
        rest, self._rest = self._rest, b""
        self._pass_on([rest] if rest else [])

    def _pass_on(self, lines: Sequence[bytes]) -> None:
        if lines and self._copy is not None:
            self._copy(b"".join(line + b"\n" for line in lines))
        self._write(b"".join(self._prefix + line + b"\n" for line in lines))

    def _write(self, data: bytes) -> None:
        view = memoryview(b"" if self._closed else data)
        while view:
            try:
                view = view[os.write(self._target, view) :]
            except BlockingIOError:  # a program that has the same output, such as ssh, made it so
                select.select([], [self._target], [])
            except OSError:
                self._closed = True
                raise
