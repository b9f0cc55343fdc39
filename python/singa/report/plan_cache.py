"""The process's cache of compiled operations (plans). The least recently used leave it first."""

from __future__ import annotations

from typing import Any

from .. import singa_wrap as _c
from ..raw.check import integer


def stats() -> dict[str, Any]:
    """Statistics: hits, misses, evictions, entries, bytes, max_entries, max_bytes, and by_op with
    the hits and misses of each operation.

    >>> singa.plan_cache.clear()
    >>> singa.plan_cache.stats()["entries"]
    0
    """
    s = _c.GetPlanCacheStats()
    fields = ("hits", "misses", "evictions", "entries", "bytes", "max_entries", "max_bytes")
    by_op = {op.op: {"hits": op.hits, "misses": op.misses} for op in s.by_op}
    return {field: getattr(s, field) for field in fields} | {"by_op": by_op}


def set_limit(bytes: int = 0, entries: int = 0) -> None:
    """Limits the size and the number of plans; 0 keeps the current limit.

    Plans beyond the limit are removed at once. Raises ValueError for a negative limit.
    `enable(False)` turns the cache off.

    >>> singa.plan_cache.set_limit(entries=singa.plan_cache.stats()["max_entries"])
    """
    _c.SetPlanCacheLimit(
        integer("plan_cache.set_limit", "bytes", bytes, 0),
        integer("plan_cache.set_limit", "entries", entries, 0),
    )


def clear() -> None:
    """Removes all plans. Plans in use are freed later.

    >>> singa.plan_cache.clear()
    >>> singa.plan_cache.stats()["entries"]
    0
    """
    _c.ClearPlanCache()


def enable(flag: bool = True) -> None:
    """Turns the cache on, or off with `flag` False. Without it each call creates its plan; results
    are the same bits.

    >>> singa.plan_cache.enable(False)
    >>> singa.plan_cache.enabled()
    False
    >>> singa.plan_cache.enable()
    """
    _c.EnablePlanCache(bool(flag))


def enabled() -> bool:
    """Whether the cache is on.

    >>> singa.plan_cache.enabled()
    True
    """
    return _c.PlanCacheEnabled()
