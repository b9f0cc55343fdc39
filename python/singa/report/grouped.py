"""Convolutions whose groups are joined until they fill a vector, which multiplies zeros."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Collection, Iterable, Iterator
from typing import Any

from ..layer.head import remake
from ..model import Model
from .profiling import Record

#: As the implementation describes itself.
_JOINED = re.compile(r"joined groups, (\d+) at a time")


def joined(records: Iterable[Record]) -> dict[str, int]:
    """{layer: groups that are joined}, of the operations of a step."""
    found = {}
    for record in records:
        if record.layer and (match := _JOINED.search(record.implementation)):
            found[record.layer] = int(match[1])
    return found


def changes(model: Model, names: Collection[str]) -> Iterator[tuple[str, Callable[[Model], None]]]:
    """Other groups for all of these layers: (what to write, a function that changes a model).

    They are a group for each channel, which depthwise kernels compute, and a single group, which
    Winograd's method may compute.
    """
    layers: list[Any] = [each for name, each in model.named_layers() if name in names]
    if all(each.nb_kernels % each.in_channels == 0 for each in layers):
        line = "group=in_channels  # depthwise, in these layers"
        yield line, functools.partial(_regroup, names, lambda each: each.in_channels)
    yield "group=1  # in these layers", functools.partial(_regroup, names, lambda each: 1)


def _regroup(names: Collection[str], group: Callable[[Any], int], model: Model) -> None:
    optimizer: Any = vars(model).get("optimizer")
    each: Any
    for name, each in model.named_layers():
        if name not in names:
            continue
        for path, param in model.get_params().items():
            if param is each.W and hasattr(optimizer, "_take_out"):
                optimizer._take_out(path)  # the state is of the old shape
        remake(each, "group", group(each))
    model._update_names()
