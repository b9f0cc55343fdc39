"""The cache of compiled operations: one for the process, least recently used out first."""

from __future__ import annotations

from typing import Any

from . import singa_wrap as _c
from ._check import integer


def stats() -> dict[str, Any]:
    """hits, misses, evictions, entries, bytes, max_entries, max_bytes, and by_op: hits and misses
    for each operation."""
    s = _c.GetPlanCacheStats()
    fields = ("hits", "misses", "evictions", "entries", "bytes", "max_entries", "max_bytes")
    by_op = {op.op: {"hits": op.hits, "misses": op.misses} for op in s.by_op}
    return {field: getattr(s, field) for field in fields} | {"by_op": by_op}


def set_limit(bytes: int = 0, entries: int = 0) -> None:
    """Bounds the cache; 0 keeps the present limit. What is over it goes at once.

    Raises ValueError for a negative limit. `enable(False)` is how to do without the cache.
    """
    _c.SetPlanCacheLimit(
        integer("plan_cache.set_limit", "bytes", bytes, 0),
        integer("plan_cache.set_limit", "entries", entries, 0),
    )


def clear() -> None:
    """Drops all plans; those that are still in use live until they are not."""
    _c.ClearPlanCache()


def enable(flag: bool = True) -> None:
    """Off: each call makes its plan anew, for comparison; the results are the same bits."""
    _c.EnablePlanCache(bool(flag))


def enabled() -> bool:
    """Whether plans are kept."""
    return _c.PlanCacheEnabled()
