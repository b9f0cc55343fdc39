"""Numbers of a computation that follow its sizes: as a formula, from their values in all traces.

A number that is the same in all traces is a constant. Another one has to be a formula of sources:
lengths of values in the file, and elements of small integer inputs. Where traces leave several
formulas open that give different numbers for other sizes, there is none.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction

#: The number in each trace.
Column = tuple[int, ...]

_MOST_FACTORS = 3
_LARGEST_DIVISOR = 32
#: Sources beyond these are only compared for equality.
_MOST_SOURCES = 64


@dataclass(frozen=True)
class Source:
    """Where a number is found in the file: the length of an axis, or an element."""

    value: str
    index: int
    is_length: bool = True


@dataclass(frozen=True)
class Formula:
    """(factor * product of sources + offset) // divisor."""

    sources: tuple[Source, ...]
    factor: int = 1
    offset: int = 0
    divisor: int = 1

    @property
    def plain(self) -> Source | None:
        """The source, if the formula is nothing else."""
        bare = self.factor == self.divisor == 1 and not self.offset and len(self.sources) == 1
        return self.sources[0] if bare else None


class Lengths:
    """The sources that are known so far."""

    def __init__(self) -> None:
        self._primary: dict[Column, Source] = {}
        self._sources: dict[Column, Source] = {}
        self.used: set[Source] = set()  # those of formulas that `find` has returned

    def add(self, column: Column, source: Source, primary: bool = False) -> None:
        """Notes a source, unless it is the same number in all traces. Formulas of several sources
        have primary ones only."""
        if len(set(column)) > 1:
            self._sources.setdefault(column, source)
            if primary:
                self._primary.setdefault(column, source)

    def find(self, column: Column) -> Formula | None:
        """The formula of a number that differs between traces; None if there is none."""
        formula = self._found(column)
        if formula is not None:
            self.used.update(formula.sources)
        return formula

    def _found(self, column: Column) -> Formula | None:
        same = self._sources.get(column)
        if same is not None:
            return Formula((same,))
        for products in (self._products(), self._few()):
            for values, sources in products:
                found = _linear(values, column)
                if found is not None:
                    return Formula(sources, *found)
        for values, sources in self._few():
            quotient = _quotient(values, column)
            if quotient is not None:
                return Formula(sources, 1, *quotient)
        return None

    def few(self) -> Iterator[tuple[Column, Formula]]:
        """Sources, the first ones, with their numbers in all traces."""
        for column, sources in self._few():
            yield column, Formula(sources)

    def _products(self) -> Iterator[tuple[Column, tuple[Source, ...]]]:
        for count in range(1, _MOST_FACTORS + 1):
            for chosen in itertools.combinations(self._primary.items(), count):
                columns = [column for column, _ in chosen]
                values = tuple(math.prod(each) for each in zip(*columns, strict=True))
                yield values, tuple(source for _, source in chosen)

    def _few(self) -> Iterator[tuple[Column, tuple[Source, ...]]]:
        for column, source in itertools.islice(self._sources.items(), _MOST_SOURCES):
            yield column, (source,)


def _linear(xs: Sequence[int], ys: Sequence[int]) -> tuple[int, int, int] | None:
    """(a, b, d) with y = (a x + b) / d everywhere, without a rest. Unless y = a x, the points have
    to be more than two."""
    i = next((i for i in range(1, len(xs)) if xs[i] != xs[0]), None)
    if i is None or ys[i] == ys[0]:
        return None
    slope = Fraction(ys[i] - ys[0], xs[i] - xs[0])
    a, d = slope.numerator, slope.denominator
    b = d * ys[0] - a * xs[0]
    fits = all(a * x + b == d * y for x, y in zip(xs, ys, strict=True))
    return (a, b, d) if fits and ((not b and d == 1) or len(set(xs)) > 2) else None


def _quotient(xs: Sequence[int], ys: Sequence[int]) -> tuple[int, int] | None:
    """(offset, divisor) with y = (x + offset) // divisor everywhere, if only one gives these."""
    if len(set(xs)) < 3:
        return None
    found = []
    for divisor in range(2, _LARGEST_DIVISOR + 1):
        low = max(y * divisor - x for x, y in zip(xs, ys, strict=True))
        high = min(y * divisor + divisor - 1 - x for x, y in zip(xs, ys, strict=True))
        found += [(offset, divisor) for offset in range(low, high + 1)]
    return found[0] if len(found) == 1 else None
