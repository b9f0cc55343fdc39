"""The line of the program that draws random numbers."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from types import CodeType, FrameType
from typing import Any, Self

from .owners import is_program
from .tokens import generator_state, random_numbers

#: Of code that a library has made.
_NO_FILES = ("<string>", "<frozen ", "<eval")


class DrawnLine:
    """Context manager that finds the first line of the program, within it, at which a random
    generator moves: one of Python's, NumPy's and, with `of_torch`, PyTorch's global ones, or of
    `generators`.

    place  where that is, such as " at train.py line 7"; "" before, and where a debugger or a
           measure of coverage follows the program already

    It follows the program line by line, so it is for a step that is known to draw.
    """

    def __init__(self, generators: Mapping[str, Any] | None = None, of_torch: bool = True) -> None:
        self._generators = list((generators or {}).values())
        self._of_torch = of_torch
        self._is_own: dict[CodeType, bool] = {}
        self._line = ""  # that runs
        self.place = ""

    def __enter__(self) -> Self:
        self._follows = sys.gettrace() is None
        if self._follows:
            self._outside = sys._getframe(1)
            self._state = self._states()
            sys.settrace(self._enter)
        return self

    def __exit__(self, *_: object) -> None:
        if self._follows:
            sys.settrace(None)
            del self._outside, self._state

    def _states(self) -> Any:
        return random_numbers(self._of_torch), [generator_state(g) for g in self._generators]

    def _belongs(self, frame: FrameType) -> bool:
        code = frame.f_code
        if code not in self._is_own:
            is_file = not code.co_filename.startswith(_NO_FILES)
            self._is_own[code] = is_file and is_program(frame.f_globals, frozenset())
        return self._is_own[code]

    def _enter(self, frame: FrameType, event: str, argument: Any) -> Any:
        return self._step if not self.place and self._belongs(frame) else None

    def _step(self, frame: FrameType, event: str, argument: Any) -> Any:
        if self.place:
            return None
        if self._line and self._states() != self._state:
            self.place = f" at {self._line}"
            return None
        inside: FrameType | None = frame
        if event == "return":  # the line of the caller goes on
            inside = frame.f_back
            while inside is not None and inside is not self._outside and not self._belongs(inside):
                inside = inside.f_back
        is_known = inside is not None and inside is not self._outside
        self._line = f"{inside.f_code.co_filename} line {inside.f_lineno}" if is_known else ""  # type: ignore[union-attr]
        return self._step
