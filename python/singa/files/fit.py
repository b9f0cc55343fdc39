"""Which of the named values in a file, or in a dict, belong to which tensors of a model."""

from __future__ import annotations

import warnings
from collections.abc import Collection, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

Shape = Sequence[int]


class Mismatch(NamedTuple):
    """What did not fit."""

    #: Names in the model for which there was no value.
    missing: list[str]
    #: Names of values for which the model has no tensor.
    unexpected: list[str]


class UnfitStatesError(ValueError):
    """The states in an undamaged file, or dict, are not those of the model."""


class _Shaped(Protocol):
    @property
    def shape(self) -> Any: ...


def mismatch(own: Mapping[str, object], given: Collection[str]) -> Mismatch:
    """The names that do not fit. A tensor with several names in `own` needs a value under one of
    them."""
    reached = {id(own[name]) for name in given if name in own}
    missing = [name for name, tensor in own.items() if id(tensor) not in reached]
    return Mismatch(missing, [name for name in given if name not in own])


def check(where: str, what: Mismatch, wrong: Sequence[str] = ()) -> None:
    """Raises UnfitStatesError if something does not fit. `wrong` describes wrong shapes."""
    kinds = (*zip(("missing", "unexpected"), what, strict=True), ("wrong shape", wrong))
    complaints = [f"{kind}: {_listed(names)}" for kind, names in kinds if names]
    if complaints:
        raise UnfitStatesError(f"{where} does not fit the model; " + "; ".join(complaints))


def fit(
    where: str,
    own: Mapping[str, _Shaped],
    found: Mapping[str, Shape],
    strict: bool = True,
    by_ends: bool = True,
    expected: Mapping[str, Shape] | None = None,
) -> tuple[dict[str, str], Mismatch]:
    """({name in the model: name in the file}, what does not fit) for the tensors `own` of a model
    and the shapes in a file. `expected` has the shapes to compare with (default: those of `own`).

    Where names differ because the model was put into another one since, or taken out, a name
    belongs to the one that ends in it. This is done only if it is clear for all names, and shapes
    are equal, and with `by_ends`; `say_renamed` tells the user.

    Raises UnfitStatesError, which begins with `where`, for wrong shapes, and if `strict` for names
    that do not fit.
    """
    shapes = expected or {name: tensor.shape for name, tensor in own.items()}
    names = {name: name for name in own if name in found}
    apart = mismatch(own, found)
    if by_ends and apart.missing and apart.unexpected:
        moved = _moved(own, shapes, found, apart)
        if moved is not None:
            names |= moved
            apart = Mismatch([], [])
    wrong = [
        f"{name} is {tuple(found[other])} instead of {tuple(shapes[name])}"
        for name, other in names.items()
        if tuple(found[other]) != tuple(shapes[name])
    ]
    check(where, apart if strict or wrong else Mismatch([], []), wrong)
    return names, apart


def say_renamed(where: str, names: Mapping[str, str]) -> None:
    """Warns where names in a file are not those in the model."""
    changed = [f"{there} as {here}" for here, there in names.items() if here != there]
    if changed:
        warnings.warn(
            f"{where} names tensors otherwise than the model; taken by the ends of their names: "
            f"{_listed(changed)}",
            stacklevel=3,
        )


def _moved(
    own: Mapping[str, object],
    shapes: Mapping[str, Shape],
    found: Mapping[str, Shape],
    apart: Mismatch,
) -> dict[str, str] | None:
    """{name in the model: name in the file} for all names that do not fit, if only one assignment
    is possible in which one name ends in the other. None otherwise."""
    if len(apart.unexpected) > len(apart.missing):
        return None
    choices = {
        name: {
            mine
            for mine in apart.missing
            if (mine.endswith(f".{name}") or name.endswith(f".{mine}"))
            and tuple(shapes[mine]) == tuple(found[name])
        }
        for name in apart.unexpected
    }
    moved: dict[str, str] = {}
    while choices:
        name = next((name for name, left in choices.items() if len(left) == 1), None)
        if name is None:
            return None
        (mine,) = choices.pop(name)
        moved[mine] = name
        for left in choices.values():
            left.discard(mine)
    reached = {id(own[mine]) for mine in moved}
    return moved if all(id(own[mine]) in reached for mine in apart.missing) else None


def _listed(names: Sequence[str], most: int = 8) -> str:
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more
