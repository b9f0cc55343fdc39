"""The limit of a step's memory, `Model.compile(memory_limit=)`: as users write it, and what they
are told."""

from __future__ import annotations

import re
from typing import Any

from ..raw.check import integer
from ..raw.words import counted
from ..tape.tensor import Tensor

_UNITS = {"B": 1} | {
    f"{prefix}{binary}B": base**power
    for binary, base in (("", 1000), ("I", 1024))
    for power, prefix in enumerate("KMGT", 1)
}
_SIZE = re.compile(r"([0-9]+(?:\.[0-9]*)?) ?([A-Z]*)")


def as_bytes(op: str, name: str, size: Any) -> int:
    """A size in bytes: a positive integer, or a text such as "1.5 GiB" or "800 MB".

    Raises TypeError or ValueError, with `op` and the argument's `name`, for anything else.
    """
    if isinstance(size, bool):
        raise TypeError(f"[{op}] {name} must be a number of bytes, got {size}")
    if not isinstance(size, str):
        return integer(op, name, size, 1)
    match = _SIZE.fullmatch(size.strip().upper())
    count = float(match[1]) * _UNITS.get(match[2], 0) if match else 0.0
    if count < 1:
        raise ValueError(
            f'[{op}] {name} must be a size such as "1.5 GiB" or "800 MB", got {size!r}'
        )
    return int(count)


def limit_of_compile(recompute: bool | str | None, memory_limit: Any, use_graph: bool) -> int:
    """The limit in bytes that these arguments of `Model.compile` ask for; 0: none.

    Raises TypeError or ValueError for values that it does not take.
    """
    if recompute is not None and not isinstance(recompute, bool) and recompute != "auto":
        kind = ValueError if isinstance(recompute, str) else TypeError
        words = 'True, False, None or "auto"'
        raise kind(f"[compile] recompute must be {words}, got {recompute!r:.80}")
    if (recompute == "auto") != (memory_limit is not None):
        raise ValueError(
            '[compile] memory_limit and recompute="auto" belong together, got '
            f"memory_limit={memory_limit!r}, recompute={recompute!r}"
        )
    if memory_limit is None:
        return 0
    if not use_graph:
        raise ValueError("[compile] memory_limit is for recorded steps: use_graph=True")
    return as_bytes("compile", "memory_limit", memory_limit)


def begin(limit: Any, model: Any, first: bool) -> None:
    """Tells a `singa_wrap.MemoryLimit` what there is besides the operations of the step of `model`
    that is about to be recorded.

    Before, the optimizer makes its state. Before the first step, parameters move into the layouts
    in which compile() has read them. So the first step contains the update, as all others do, and
    need not keep the gradients for the host.
    """
    optimizer = vars(model).get("optimizer")
    params = list(model.get_params().values())
    for param in params if first else ():
        param.data.MoveAsWanted()
    others, slots, sums = [*model.get_states().values()], 0, 0
    if optimizer is not None:
        rule = getattr(optimizer, "opt", optimizer)  # that of a DistOpt
        if hasattr(rule, "make_states") and not getattr(optimizer, "shard_state", False):
            rule.make_states()
        found = [each for each in optimizer.get_states().values() if isinstance(each, dict)]
        others += [t for each in found for t in each.values() if isinstance(t, Tensor)]
        slots, sums = len(found), int(optimizer.has_parts and not optimizer.calls_made)
    limit.Expect([t.data for t in params], [t.data for t in others], slots + sums, sums)


def note(limit: Any) -> str:
    """What it takes to keep to a `singa_wrap.MemoryLimit`, in one line."""
    planned = f"{_size(limit.outside + limit.arena)} of {_size(limit.bytes)}"
    if not limit.again:
        return f"[memory] the step fits: {planned}; nothing is computed again"
    return (
        f"[memory] the step fits: {planned}, instead of {_size(limit.outside + limit.plain)}; "
        f"{counted(limit.again, 'operation')} run again: {2e-9 * limit.multiply_adds:.1f} GFLOP "
        f"more, about {100 * limit.share:.0f} % of the step's time"
    )


def facts(limit: Any) -> dict[str, Any]:
    """The same as numbers."""
    return {
        "bytes": limit.bytes,
        "planned_bytes": limit.outside + limit.arena,
        "without_bytes": limit.outside + limit.plain,
        "operations": limit.again,
        "gflop": 2e-9 * limit.multiply_adds,
        "share": limit.share,
    }


def _size(count: int) -> str:
    unit, name = (2**20, "MiB") if count >= 10 * 2**20 else (2**10, "KiB")
    return f"{count / unit:.1f} {name}"
