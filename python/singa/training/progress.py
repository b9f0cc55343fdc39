"""A progress bar where there is a terminal and tqdm; else a line now and then."""

from __future__ import annotations

import sys
import time
from types import TracebackType
from typing import IO, Any, Self


class Progress:
    """Shows how far a loop is, with figures beside it.

        with Progress(len(loader), "epoch 1/10", start=resumed_at) as bar:
            for ...:
                bar.step(loss=1.23, acc=0.56)

    Without a terminal (or without tqdm) it prints a line every `interval` seconds at most, so that
    a log file shows life and stays short. `file` defaults to standard error.
    """

    def __init__(
        self,
        total: int,
        title: str,
        start: int = 0,
        file: IO[str] | None = None,
        interval: float = 20.0,
    ) -> None:
        self.total = total
        self.title = title
        self.done = start
        self.file = file or sys.stderr
        self.interval = interval
        self._shown = time.monotonic()
        self._bar = _terminal_bar(total, title, start, self.file)

    def step(self, count: int = 1, /, **figures: float) -> None:
        """So many more rounds are done. Figures are shown to four digits, whole ones whole."""
        self.done += count
        if self._bar is not None:
            self._bar.set_postfix_str(_text(figures), refresh=False)
            self._bar.update(count)
        elif time.monotonic() - self._shown >= self.interval:
            self._shown = time.monotonic()
            text = f"{self.title}  {self.done}/{self.total}  {_text(figures)}"
            print(text, file=self.file, flush=True)

    def close(self) -> None:
        """Removes the bar. May be called more than once."""
        if self._bar is not None:
            self._bar.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


def _terminal_bar(total: int, title: str, start: int, file: IO[str]) -> Any:
    if not file.isatty():
        return None
    try:
        from tqdm import tqdm
    except ImportError:
        return None
    return tqdm(
        total=total,
        initial=start,
        desc=title,
        file=file,
        leave=False,
        dynamic_ncols=True,
        unit="it",
    )


def _text(figures: dict[str, float]) -> str:
    return "  ".join(f"{name} {_number(float(value))}" for name, value in figures.items())


def _number(value: float) -> str:
    decimals = 0 if value.is_integer() else max(0, 4 - len(f"{abs(value):.0f}"))
    return f"{value:.{decimals}f}"
