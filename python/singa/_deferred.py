"""Modules that stand on the tensor, for the tensor: imported at the first use."""

from __future__ import annotations

import functools
from types import ModuleType


@functools.cache
def graph() -> ModuleType:
    """`singa.graph`."""
    from . import graph

    return graph


@functools.cache
def tape() -> ModuleType:
    """`singa.tape`."""
    from . import tape

    return tape


@functools.cache
def ops() -> ModuleType:
    """`singa.ops`."""
    from . import ops

    return ops


@functools.cache
def walk() -> ModuleType:
    """`singa.walk`."""
    from . import walk

    return walk
