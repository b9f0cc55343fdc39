"""Optimizer state that is divided among the ranks (ZeRO, stage 1; Rajbhandari et al. 2020)."""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Mapping
from typing import Any

from .. import distributed
from ..tensor import DType, Tensor


class Owners:
    """Which rank updates each parameter and keeps its state.

    A parameter goes to the rank that has the fewest elements so far, so with the largest parameters
    first ranks have about equally many, unless one parameter is larger than 1 / world_size of all.
    """

    def __init__(self, rank: int, world_size: int) -> None:
        self._rank = rank
        self._elements = [0] * world_size
        self._owners: dict[int, tuple[weakref.ref[Tensor], int]] = {}  # by identity

    def add(self, params: Iterable[Tensor]) -> None:
        """Gives the parameters that have no owner one. All ranks have to call it with the same ones
        in the same order."""
        new = {id(param): param for param in params if self._find(param) is None}
        for param in sorted(new.values(), key=lambda param: -param.size()):  # stable
            owner = self._elements.index(min(self._elements))
            self._elements[owner] += param.size()
            self._owners[id(param)] = weakref.ref(param), owner

    def of(self, param: Tensor) -> int:
        """The owner of a parameter that was added."""
        owner = self._find(param)
        if owner is None:
            raise KeyError(f"{param.name} has no owner")
        return owner

    def is_own(self, param: Tensor) -> bool:
        """Whether this rank is the owner."""
        return self._find(param) in (None, self._rank)

    def _find(self, param: Tensor) -> int | None:
        holder, owner = self._owners.get(id(param), (None, 0))
        return owner if holder is not None and holder() is param else None


def joined_states(states: Mapping[str, Any], rank: int | None) -> dict[str, Any]:
    """The states of an optimizer, of which each rank gives those that it has, with those of all
    ranks. All ranks have to call it. With `rank`, only that one gets the tensors of others, which
    elsewhere take the memory of one of them for a moment."""
    tensors: dict[tuple[str, str], Tensor] = {}
    numbers: dict[str, dict[str, Any]] = {}
    joined: dict[str, Any] = {}
    for slot, values in states.items():
        joined[slot] = {} if isinstance(values, Mapping) else values
        for key, value in values.items() if isinstance(values, Mapping) else ():
            if isinstance(value, Tensor):
                tensors[slot, key] = value
            else:
                numbers.setdefault(slot, {})[key] = value
    listed = [(*place, list(t.shape), int(t.dtype)) for place, t in tensors.items()]
    sources: dict[tuple[str, str], tuple[int, list[int], int]] = {}
    for source, (its_tensors, its_numbers) in enumerate(distributed.gather([listed, numbers])):
        for slot, key, shape, dtype in its_tensors:
            sources.setdefault((slot, key), (source, shape, dtype))
        for slot, values in its_numbers.items():
            joined.setdefault(slot, {}).update(values)
    own = distributed.rank()
    for (slot, key), (source, shape, dtype) in sorted(sources.items()):
        kept = (
            tensors[slot, key]
            if source == own
            else Tensor(shape, dtype=DType(dtype), requires_grad=False)
        )
        distributed.communicator().broadcast([kept.data], source)
        if rank in (None, own):
            joined.setdefault(slot, {})[key] = kept
    return joined
