"""Which implementation runs each operation, and why."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from . import singa_wrap as _c
from .layer_names import Collector


class Explanation(Collector, list[dict[str, Any]]):
    """What ran, one dict for each operation, in order:

    op, layer, implementation, description (what the implementation says of itself), why (it was
    chosen), refused ({name: reason} of all others, also those that come later in order), inputs and
    outputs (shapes and layouts), in_place ({output: input} whose memory it may take over), taken
    (the pairs where it did), workspace (bytes), ms, and signature (under which `singa.tuning` knows
    it). Reorders between layouts are there as the operation "Reorder".

    Printed, it is a table. As a context it collects what runs meanwhile.
    """

    _name = "explain"
    _switch = staticmethod(_c.SetExplaining)
    _take = staticmethod(_c.TakeExplanations)

    def _collect(self, found: Any) -> None:
        self.extend(_entry(op) for op in found)

    def refusals(self) -> Iterator[tuple[str, str, str, str]]:
        """(operation, layer, implementation, reason) of each that was not taken."""
        for entry in self:
            for name, reason in entry["refused"].items():
                yield entry["op"], entry["layer"], name, reason

    def __str__(self) -> str:
        heads = (
            "layer",
            "op",
            "implementation",
            "inputs -> outputs",
            "in place",
            "workspace",
            "why",
        )
        rows = [heads] + [
            (
                entry["layer"] or "-",
                entry["op"],
                entry["description"],
                f"{' '.join(entry['inputs'])} -> {' '.join(entry['outputs'])}",
                " ".join(f"{o}<-{i}" for o, i in entry["in_place"].items()) or "-",
                str(entry["workspace"]),
                entry["why"],
            )
            for entry in self
        ]
        widths = [min(max(len(row[i]) for row in rows), 60) for i in range(len(heads) - 1)]
        lines = []
        for row, entry in zip(rows, [None, *self], strict=True):
            cells = [cell.ljust(width) for cell, width in zip(row, widths, strict=False)]
            lines.append("  ".join([*cells, row[-1]]).rstrip())
            for name, reason in (entry or {}).get("refused", {}).items():
                lines.append(f"    not {name}: {reason}")
        return "\n".join(lines)

    __repr__ = __str__


def explain(what: Callable[..., Any] | None = None, /, *args: Any, **kwargs: Any) -> Explanation:
    """Says for each operation which implementation runs it, and why.

    what: a model, a layer, or any function; it is called with the arguments. A model that is given
    none infers on zeros of the shapes that it was compiled for; with a batch it does what such a
    call does: one step of training, or inference after eval(), executed and not replayed. Nothing:
    a context for what runs inside; operations of a replayed step have no `why` there.

        print(singa.explain(net))
        print(singa.explain(autograd.relu, x))
        with singa.explain() as ops:
            autograd.backward(loss)
        print(ops[0]["implementation"], ops[0]["why"])

    Raises TypeError for what cannot be called, RuntimeError for a model that is not compiled and
    while a profile runs.
    """
    explanation = Explanation()
    if what is None:
        if args or kwargs:
            raise TypeError("[explain] there are arguments, but nothing to call with them")
        return explanation
    if not callable(what):
        raise TypeError(f"[explain] expected a model, a layer or a function, got {what!r:.60}")
    from .model import Model

    if not isinstance(what, Model):
        with explanation:
            what(*args, **kwargs)
        return explanation
    run = what if args or kwargs else what._infer_on_zeros
    with what.executed(), explanation:
        run(*args, **kwargs)
    return explanation


def _entry(op: Any) -> dict[str, Any]:
    return {
        "op": op.op,
        "layer": op.layer,
        "implementation": op.implementation or "-",
        "description": op.description,
        "why": op.why,
        "refused": dict(zip(op.others, op.reasons, strict=True)),
        "inputs": list(op.inputs),
        "outputs": list(op.outputs),
        "in_place": {i: source for i, source in enumerate(op.may_take) if source >= 0},
        "taken": {i: source for i, source in enumerate(op.takes) if source >= 0},
        "workspace": op.workspace,
        "ms": op.milliseconds,
        "signature": op.signature,
    }
