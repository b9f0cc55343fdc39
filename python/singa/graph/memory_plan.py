"""Memory that the recorded steps of a model use."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ..layer.parameters import each_once
from ..tape.tensor import Tensor
from .memory_limit import facts
from .step_graphs import StepGraphs

if TYPE_CHECKING:
    from ..drawing.svg import Picture


class MemoryPlan(dict[str, Any]):
    """The result of `Model.memory_plan`: a dict that prints as a table."""

    #: What lies where in the arena during the step with the largest one: `singa_wrap.ArenaUse`s.
    arena_uses: Sequence[Any] = ()

    def _repr_html_(self) -> str:
        return str(self.plot())

    def plot(self, path: str | os.PathLike[str] | None = None) -> Picture:
        """A picture of all kinds of memory, and of what lies where in the arena over the step with
        the largest one. Notebooks show it; `path` also writes it to an SVG file.

        Raises ValueError for a name that does not end in .svg.
        """
        from .memory_picture import memory_picture  # not loaded by a program that only computes

        picture = memory_picture(self, self.arena_uses)
        if path is not None:
            picture.save(path)
        return picture

    def __str__(self) -> str:
        rows = [*self["by_kind"].items(), ("planned", self["planned_bytes"])]
        return "\n".join([f"{name:<16}{count / 2**20:10.1f} MiB" for name, count in rows])

    __repr__ = __str__


def memory_plan(
    graphs: StepGraphs,
    params: dict[str, Tensor],
    states: dict[str, Tensor],
    optimizer: dict[str, Any],
) -> MemoryPlan:
    """Computes the result of `Model.memory_plan`. Raises RuntimeError if nothing was recorded."""
    recorded = [graph.memory() for graph in graphs.graphs()]
    if not recorded:
        reasons = "; ".join(graphs.reasons()) or "run a few steps with use_graph=True first"
        raise RuntimeError(f"[memory_plan] no step was recorded: {reasons}")
    weights = sum([t.memsize() for t in params.values()])
    statistics = sum([t.memsize() for t in each_once(states).values()]) - weights
    kept = [t for value in optimizer.values() if isinstance(value, dict) for t in value.values()]
    by_kind = {
        "parameters": weights,
        "statistics": statistics,
        "optimizer": sum([t.memsize() for t in kept if isinstance(t, Tensor)]),
        "arena": max([m.arena for m in recorded]),
        "prepared weights": graphs.prepared_bytes(),
        "fixed copies": sum([m.fixed for m in recorded]),
        "inputs": max([m.inputs for m in recorded]),
        "results": max([m.outputs for m in recorded]),
        "plans": sum([m.plans for m in recorded]),
    }
    memory = ("arena", "peak", "unshared", "inputs", "outputs", "persistent", "prepared")
    fields = (*memory, "fixed", "plans", "nodes", "merged", "in_place", "branches", "longest")
    plan = MemoryPlan(
        planned_bytes=sum(by_kind.values()),
        arena_bytes=by_kind["arena"],
        by_kind=by_kind,
        graphs=[{name: getattr(m, name) for name in fields} for m in recorded],
    )
    largest = max(graphs.graphs(), key=lambda graph: graph.memory().arena)
    plan.arena_uses = largest.arena_uses()
    for limit in graphs.limits():
        plan["limit"] = facts(limit)
    return plan
