"""Reports which implementation runs each operation, and why."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from .. import singa_wrap as _c
from ..drawing.table import Table
from ..model import Model
from .collector import Collector

#: The reason for an implementation that no setting has chosen.
_USUAL = "the first in order that takes it"


class Explanation(Collector, list[dict[str, Any]]):
    """A list of the operations that ran, which prints as a short table: how often each
    implementation ran, and how long. `table(full=True)` has all that follows. Each is a dict:

    op, layer        name of the operation, and of the layer in which it ran
    implementation   name of the implementation
    description      details of the implementation
    why              why it was chosen
    refused          {name: reason} of the other implementations
    inputs, outputs  shapes and layouts
    input_names,     their names; none of an operation on a list of tensors, of an elementwise
    output_names     function, or of a replayed step
    in_place         {output: input} whose memory the output may overwrite
    taken            the pairs of in_place in which it does
    workspace        temporary memory in bytes
    ms               time in milliseconds
    signature        key of the operation in the table of `singa.tuning`

    Reorders between layouts appear as the operation "Reorder". As a context manager it collects the
    operations that run inside.
    """

    _name = "explain"
    _switch = staticmethod(_c.SetExplaining)
    _take = staticmethod(_c.TakeExplanations)

    def _collect(self, found: Any) -> None:
        self.extend(_entry(op) for op in found)

    def refusals(self) -> Iterator[tuple[str, str, str, str]]:
        """(operation, layer, implementation, reason) of each implementation that was not chosen."""
        for entry in self:
            for name, reason in entry["refused"].items():
                yield entry["op"], entry["layer"], name, reason

    def table(self, full: bool = False, limit: int = 40) -> str:
        """The operations as text.

        full   whether each operation is listed, with its layer, layouts and workspace, and with
               the reasons for its implementation and against the others; by default there is a row
               for all calls of an operation with the same implementation, longest first
        limit  maximum number of rows of the short table (default 40)
        """
        return self._full() if full else self._short(limit).text()

    def _short(self, limit: int = 40) -> Table:
        groups: dict[tuple[str, str, str], list[float]] = {}
        for entry in self:
            why = "" if entry["why"] == _USUAL else entry["why"]
            groups.setdefault((entry["op"], entry["description"], why), []).append(entry["ms"])
        ranked = sorted(groups.items(), key=lambda group: -sum(group[1]))
        rows: list[tuple[str, ...]] = [
            (str(len(times)), f"{sum(times):.3f}", *texts) for texts, times in ranked[:limit]
        ]
        heads = ["calls", "ms", "operation", "implementation", "why"]
        shrinks = [3, 4, 2]
        if not any(row[-1] for row in rows):
            heads, rows, shrinks = heads[:-1], [row[:-1] for row in rows], [3, 2]
        more = f"... and {len(ranked) - limit} more rows\n" if len(ranked) > limit else ""
        total = f"{more}{self._count()}, {sum(entry['ms'] for entry in self):.3f} ms"
        total += "; table(full=True) lists them, with reasons" if self else ""
        return Table(heads, rows, numbers=[0, 1], total=total, shrinks=shrinks)

    def _count(self) -> str:
        return f"{len(self)} operation{'s' if len(self) != 1 else ''}"

    def _full(self) -> str:
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
                f"{_named(entry, 'input')} -> {_named(entry, 'output')}",
                " ".join(
                    f"{_name(entry, 'output', o)}<-{_name(entry, 'input', i)}"
                    for o, i in entry["in_place"].items()
                )
                or "-",
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

    def __str__(self) -> str:
        return self.table()

    def __rich__(self) -> Table:
        return self._short()

    __repr__ = __str__

    def _repr_html_(self) -> str:
        from ..drawing.html import folded, table

        rows = []
        for entry in self:
            refused = [f"not {name}: {reason}" for name, reason in entry["refused"].items()]
            why = "the default" if entry["why"] == _USUAL else entry["why"] or "not noted"
            why = folded(why, refused)
            shapes = f"{_named(entry, 'input')} → {_named(entry, 'output')}"
            name = entry["layer"] or "-"
            rows.append(
                (name, entry["op"], entry["description"], shapes, f"{entry['ms']:.3f}", why)
            )
        heads = ["layer", "operation", "implementation", "inputs → outputs", "ms", "why"]
        caption = f"{self._count()}. By default the first implementation in order runs that can."
        return table(heads, rows, caption, numbers=[4])


def explain(what: Callable[..., Any] | None = None, /, *args: Any, **kwargs: Any) -> Explanation:
    """Reports for each operation which implementation runs it, and why.

    `what` is a model, a layer or any function, which is called with the arguments. A model without
    arguments infers on what compile() was given. With a batch it runs one step of training, or
    inference after eval(); the step is executed and not replayed. Without `what`, the result is a
    context manager for the operations inside. Operations of a replayed step have no "why".

        print(singa.explain(net))                   # a short table
        print(singa.explain(net).table(full=True))  # each operation, with reasons
        print(singa.explain(autograd.relu, x))
        with singa.explain() as ops:
            autograd.backward(loss)
        print(ops[0]["implementation"], ops[0]["why"])

    Raises TypeError if `what` cannot be called. Raises RuntimeError if a model is not compiled, or
    while a profile or another explanation is running.

    >>> linear, x = layer.Linear(2), tensor.ones((1, 3))
    >>> y = linear(x)
    >>> report = singa.explain(linear, x)
    >>> "LinearForward" in str(report)
    True
    """
    explanation = Explanation()
    if what is None:
        if args or kwargs:
            raise TypeError("[explain] got arguments, but no function to call with them")
        return explanation
    if not callable(what):
        raise TypeError(f"[explain] expected a model, a layer or a function, got {what!r:.60}")
    if not isinstance(what, Model):
        with explanation:
            what(*args, **kwargs)
        return explanation
    run = what if args or kwargs else what._infer_on_examples
    with what.executed(), explanation:
        run(*args, **kwargs)
    return explanation


def _name(entry: dict[str, Any], kind: str, i: int) -> str:
    """The name of input or output `i`, or its number."""
    return str(dict(enumerate(entry[f"{kind}_names"])).get(i, i))


def _named(entry: dict[str, Any], kind: str) -> str:
    """The shapes of the inputs or outputs that are there, each behind its name."""
    names, shapes = entry[f"{kind}_names"], entry[f"{kind}s"]
    if not names:
        return " ".join(shapes)
    return " ".join(f"{name} {t}" for name, t in zip(names, shapes, strict=True) if t != "-")


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
        "input_names": list(op.input_names),
        "output_names": list(op.output_names),
        "in_place": {i: source for i, source in enumerate(op.may_take) if source >= 0},
        "taken": {i: source for i, source in enumerate(op.takes) if source >= 0},
        "workspace": op.workspace,
        "ms": op.milliseconds,
        "signature": op.signature,
    }
