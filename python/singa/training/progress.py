"""Progress of a loop: a bar on a terminal and in a notebook, otherwise an occasional line."""

from __future__ import annotations

import sys
import time
import warnings
from types import TracebackType
from typing import IO, Any, Self

from ..distributed import is_main
from ..raw.process import notebook_cell


class Progress:
    """Shows the progress of a loop, with figures.

        with Progress(len(loader), "epoch 1/10", start=resumed_at) as bar:
            for ...:
                bar.step(loss=1.23, acc=0.56)

    total     number of steps of the loop
    title     text before the bar
    start     number of steps that are already done (default 0)
    file      where to print (default: standard error; in a notebook standard output, since the
              other one looks like a failure there)
    interval  seconds between lines (default 20)
    shown     whether anything is shown (default True)

    On a terminal it shows tqdm's bar, and in a notebook the widget of tqdm, or its bar of text
    without ipywidgets. Otherwise, or without tqdm, it prints at most one line per `interval`, which
    keeps log files short. Of several ranks, rank 0 alone shows anything.
    """

    def __init__(
        self,
        total: int,
        title: str,
        start: int = 0,
        file: IO[str] | None = None,
        interval: float = 20.0,
        shown: bool = True,
    ) -> None:
        self.total = total
        self.title = title
        self.done = start
        self.file = file or (sys.stderr if notebook_cell() is None else sys.stdout)
        self.interval = interval
        self._shown = time.monotonic()
        self._shows = shown and is_main()
        bar = _bar_class(file) if self._shows else None
        self._bar = bar and bar(
            total=total,
            initial=start,
            desc=title,
            file=self.file,
            leave=False,
            dynamic_ncols=True,
            unit="it",
        )

    def step(self, count: int = 1, /, **figures: float) -> None:
        """Advances by `count` steps (default 1) and shows the figures.

        Figures have four significant digits; integers are shown without decimals.
        """
        self.done += count
        if self._bar is not None:
            self._bar.set_postfix_str(_text(figures), refresh=False)
            self._bar.update(count)
        elif self._shows and time.monotonic() - self._shown >= self.interval:
            self._shown = time.monotonic()
            text = f"{self.title}  {self.done}/{self.total}  {_text(figures)}"
            print(text, file=self.file, flush=True)

    def close(self) -> None:
        """Removes the bar. Further calls do nothing."""
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


def _bar_class(file: IO[str] | None) -> Any:
    """The class of tqdm for what shows `file` (None: standard error); None for a log."""
    try:
        if file is None and notebook_cell() is not None:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # that it is a bar of text without ipywidgets
                from tqdm.auto import tqdm as notebook_bar
            return notebook_bar
        if (file or sys.stderr).isatty():
            from tqdm import tqdm

            return tqdm
    except ImportError:
        pass
    return None


def _text(figures: dict[str, float]) -> str:
    return "  ".join(f"{name} {_number(float(value))}" for name, value in figures.items())


def _number(value: float) -> str:
    decimals = 0 if value.is_integer() else max(0, 4 - len(f"{abs(value):.0f}"))
    return f"{value:.{decimals}f}"
