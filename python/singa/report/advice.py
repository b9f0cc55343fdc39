"""Advice: what would make the steps of a model quicker or smaller, tried on copies of it."""

from __future__ import annotations

import textwrap
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from html import escape
from typing import Any

from .. import distributed, tuning
from .. import singa_wrap as _c
from ..graph.memory_limit import as_bytes
from ..layer.layout import ToBlocked, ToPlain
from ..model import Model
from ..raw.check import number
from ..raw.process import get_num_threads
from ..raw.words import counted
from ..tape import autocast
from ..tensor import Tensor, bfloat16
from . import grouped
from .diagnostics import cpu_flags
from .machine_memory import machine_memory
from .profiling import Record, typical
from .trials import Comparison, Twin, compare

#: The least shares that are worth a piece of advice: of a step's time, and of its memory; of an
#: input's time where another batch size gives it, since that changes the training.
_TIME, _MEMORY, _BATCH = 0.03, 0.05, 0.1
#: The largest batch that is tried, in present ones.
_LARGEST = 8
#: The part of the memory that the process may use, of which the rest is for all but tensors.
_MOST_OF_MEMORY = 0.9
#: Of sizes in lines to write: a power of two, and its name.
_UNIT = (20, "MiB")
#: The option of compile() that is shown although its value is false.
_KEEPS = ("recompute", False)
_SAME_BITS = "Gives the same bits."
#: How a saving is known, as the table says it.
_HOW = {"measured": "Measured.", "at most": "At most, if all of it is avoided."}


@dataclass(frozen=True)
class Piece:
    """One thing to change.

    topic    its name, such as "16 bits"
    finding  what is the matter, in a sentence
    line     the code to write
    time     share of a step's time that it saves, per input; negative: it takes longer
    memory   share of the step's planned memory that it saves; None: not known, or none
    how      how `time` is known: "measured", or "at most" for what a change saves at most
    note     what else it changes; may be empty
    """

    topic: str
    finding: str
    line: str
    time: float
    memory: float | None = None
    how: str = "measured"
    note: str = ""


class Advice(list[Piece]):
    """What `advise` returns: pieces of advice, the most helpful first. It prints as a table.

    step     what was timed, such as "training step of 32 inputs"
    ms       its duration in milliseconds, as the model is
    bytes    its planned memory; None if steps are not recorded
    without  {topic: reason} of what was looked at and does not help
    """

    def __init__(self, step: str, ms: float, bytes: int | None) -> None:
        super().__init__()
        self.step, self.ms, self.bytes = step, ms, bytes
        self.without: dict[str, str] = {}

    def _heading(self) -> str:
        memory = "" if self.bytes is None else f" and {_mib(self.bytes)}"
        what = "Each of these alone changes that:" if self else "Nothing was found to change that."
        return f"A {self.step} takes {self.ms:.3g} ms{memory}. {what}"

    def __str__(self) -> str:
        lines = _wrapped(self._heading(), 80)
        if self:
            lines += ["", "   time  memory"]
        for piece in self:
            first, *others = _wrapped(f"{piece.topic}: {piece.finding}", 62)
            memory = "" if piece.memory is None else _change(piece.memory)
            lines.append(f"{_change(piece.time):>7} {memory:>7}  {first}")
            note = _wrapped(f"{_HOW[piece.how]} {piece.note}", 62)
            below = [*others, *piece.line.splitlines(), *note]
            lines += [f"{'':17}{line}" for line in below]
        if self.without:
            lines += ["", "Looked at without finding a gain:"]
            width = max(map(len, self.without))
            for topic, reason in self.without.items():
                first, *others = _wrapped(reason, 74 - width)
                lines.append(f"  {topic:<{width}}  {first}")
                lines += [f"  {'':<{width}}  {line}" for line in others]
        return "\n".join(lines)

    __repr__ = __str__

    def _repr_html_(self) -> str:
        from ..drawing.html import Markup, table

        rows = [
            (
                piece.topic,
                f"{piece.finding} {piece.note}".strip(),
                _change(piece.time),
                "" if piece.memory is None else _change(piece.memory),
                piece.how,
                Markup(f"<pre>{escape(piece.line)}</pre>"),
            )
            for piece in self
        ]
        heads = ["what", "why", "time", "memory", "", "write"]
        parts = [f"<p>{escape(self._heading())}</p>"]
        parts += [table(heads, rows, numbers=[2, 3])] if self else []
        if self.without:
            parts.append(table(["without a gain", "reason"], self.without.items()))
        return "\n".join(parts)


def _change(saved: float) -> str:
    return f"{-100 * saved:+.0f} %"


def _wrapped(text: str, width: int) -> list[str]:
    return textwrap.wrap(text, width) or [""]


def advise(
    model: Model,
    *batch: Any,
    loader: Any = None,
    limit: float = 120.0,
    memory_limit: int | str | None = None,
) -> Advice:
    """Looks for what would make the steps of a model quicker or smaller, and says what to write.

        print(singa.advise(net, x, y))

    batch   arguments of a call of the model, which trains or infers according to its mode
    loader  yields batches for it, such as a `data.DataLoader`; with one, it is also measured
            whether steps wait for data (default None)
    limit   seconds (default 120) after which nothing else is tried. What has begun is finished.
    memory_limit  bytes that a training step may take, or "1.5 GiB"; by default nine tenths of what
            the process may use. Of a step that plans more, it is tried to keep to this

    Alternatives run on copies of the model, in turns with the step as it is, and are listed only if
    they save 3 % of its time, or 5 % of its memory. Each is measured alone: after a change, ask
    again. These are tried: recorded steps; images in the layouts that kernels choose, where plain
    ones are forced; other groups for convolutions that multiply zeros; bfloat16, where the device
    multiplies it; `recompute`, with "auto" where memory is short; larger batches; and the choices
    of `singa.tuning.tune`. A reorder of 3 % is listed with its time, which is the most that
    avoiding it saves.

    The model, its recorded steps, optimizer and random generators, the loader's position, the table
    of choices and all settings are afterwards what they were. Needs memory for two more models, and
    the steps of both. Times of a machine with other load vary.

    Raises TypeError if `model` is not a Model, or without a batch; RuntimeError before compile(),
    in a job of several ranks, and while a profile or an explanation is running; ValueError if
    `limit` is NaN, or for a wrong `memory_limit`; and what a step raises.
    """
    if not isinstance(model, Model):
        kind = type(model).__name__
        if kind == "Accelerated":  # of a loop of PyTorch
            kind += ": singa.from_torch(module, x) makes a model; singa.profile() times your steps"
        raise TypeError(f"[advise] expected a model, got {kind}")
    if not batch:
        raise TypeError("[advise] expected the arguments of a step, as in advise(net, x, y)")
    if distributed.world_size() > 1:
        raise RuntimeError("[advise] steps of several ranks cannot be tried apart: use one process")
    if _c.IsProfiling():
        raise RuntimeError("[advise] a profile or an explanation is running already")
    end = time.monotonic() + number("advise", "limit", limit)
    if memory_limit is not None:
        as_bytes("advise", "memory_limit", memory_limit)
    given = model._as_tensors(batch)
    states = model.get_states()
    if not states:
        raise RuntimeError("[advise] the model has no parameters yet: call compile() first")
    with tuning.random_as_before(next(iter(states.values())).device):
        return _Trials(model, given, end, memory_limit).advice(loader)


class _Trials:
    """The alternatives to the steps of a model as it is."""

    def __init__(
        self, model: Model, batch: tuple[Any, ...], end: float, memory_limit: int | str | None
    ) -> None:
        self.model, self.batch, self.end = model, batch, end
        self.memory_limit = memory_limit
        self.base = Twin(model, batch)
        self.records: list[Record] = []
        self.budget = max(1.0, (end - time.monotonic()) / 12)  # seconds of a comparison

    def advice(self, loader: Any) -> Advice:
        sizes = [x.shape[0] for x in self.batch if isinstance(x, Tensor) and x.shape]
        kind = "training step" if self.model.training else "step of inference"
        step = f"{kind} of {counted(sizes[0], 'input')}" if sizes else kind
        advice = Advice(step, 1e3 * self.base.seconds(3), self.base.bytes())
        attempts: list[tuple[str, Callable[[], Iterable[Piece] | str]]] = [
            ("recorded steps", self._recorded),
            ("plain layout", self._plain_layout),
            ("layers of layouts", self._layout_layers),
            ("groups", self._groups),
            ("reorders", self._reorders),
            ("memory limit", self._memory_limit),
            ("recompute", self._recompute),
            ("16 bits", self._sixteen_bits),
            ("batch size", self._batch_size),
            ("autotune", self._autotune),
        ]
        if loader is not None:
            attempts.insert(0, ("data", lambda: self._data(loader)))
        for topic, attempt in attempts:
            if time.monotonic() > self.end:
                advice.without[topic] = "not tried: the time limit was reached"
                continue
            try:
                found = attempt()
            except (ArithmeticError, LookupError, MemoryError, RuntimeError, ValueError) as error:
                found = f"cannot be tried: {error}"
            if isinstance(found, str):
                if found:
                    advice.without[topic] = found
            else:
                advice.extend(found)
        advice.sort(key=lambda piece: -max(piece.time, piece.memory or 0.0))
        return advice

    def _against(self, other: Twin) -> Comparison:
        return compare(self.base, other, self.budget)

    def _saved_memory(self, other: Twin) -> float | None:
        now, then = self.base.bytes(), other.bytes()
        return None if now is None or then is None else 1 - then / now

    def _if_quicker(
        self, topic: str, other: Twin, finding: str, line: str, note: str = ""
    ) -> list[Piece] | str:
        """A piece of advice if `other` is quicker, also when it is measured again, which is what
        the piece says: the first result was chosen for being small. Otherwise how long it takes."""
        found = self._against(other)
        if _is_quicker(found):
            found = self._against(other)
        if not _is_quicker(found):
            return _took(found)
        memory = self._saved_memory(other)
        return [Piece(topic, finding, line, 1 - found.ratio, memory, note=note)]

    def _compile_line(self, **options: Any) -> str:
        """The call of compile() that changes options, and keeps the others."""
        model = self.model
        now: dict[str, Any] = {"use_graph": model.graph_mode}
        now["dtype"] = None if model._autocast_dtype is None else model._autocast_dtype.name
        now |= {"recompute": model._recompute, "fuse": model._fuse}
        if model._memory_limit:
            now |= {"recompute": "auto", "memory_limit": model._memory_limit}
        given = (now | options).items()
        shown = {name: value for name, value in given if value or (name, value) == _KEEPS}
        mode = {} if model.training else {"is_train": False}
        named = "".join(f", {name}={value!r}" for name, value in (mode | shown).items())
        named = named.replace("'", '"')
        return f"net.compile([x]{named})"

    # What is tried. Each returns pieces of advice, or why there are none; "": not asked.

    def _recorded(self) -> list[Piece] | str:
        if self.model.graph_mode:
            reason = self.base.obstacle
            return f"steps are executed, not replayed: {reason}" if reason else ""
        other = Twin(self.model, self.batch, use_graph=True)
        if not other.recorded:
            return f"cannot be recorded: {other.obstacle}"
        finding = "each step runs the Python code; recorded ones are replayed in C++."
        note = "" if self.model.training else "Rounds differently: batch norms are folded."
        return self._if_quicker("recorded steps", other, finding, "net.graph()", note)

    def _plain_layout(self) -> list[Piece] | str:
        if not _c.PlainLayouts():
            return ""
        other = Twin(self.model, self.batch, plain=False)
        finding = "all images are row-major, which kernels are slow on."
        line = 'singa.set_layout("auto")  # and no SINGA_LAYOUT=plain'
        return self._if_quicker("plain layout", other, finding, line)

    def _layout_layers(self) -> list[Piece] | str:
        names = [
            name
            for name, each in self.base.model.named_layers()
            if isinstance(each, ToPlain | ToBlocked)
        ]
        if not names:
            return ""

        def without(model: Model) -> None:
            for name, each in model.named_layers():
                if name in names:
                    vars(each)["forward"] = _same

        other = Twin(self.model, self.batch, change=without)
        finding = f"{_listed(names)} forces a layout, to which images are reordered."
        line = "\n".join(f"{_written(name)} = layer.Identity()" for name in names[:4])
        return self._if_quicker("layers of layouts", other, finding, line)

    def _groups(self) -> list[Piece] | str:
        found = grouped.joined(self._typical())
        if not found:
            return ""
        names = _listed(list(found))
        zeros = max(found.values()) - 1
        gains: list[Piece] = []
        reasons = []
        for line, change in grouped.changes(self.base.model, found):
            other = Twin(self.model, self.batch, change=change)
            finding = f"{names}: {zeros} products of {zeros + 1} are with zeros, because groups "
            finding += "have fewer channels than a vector, and are joined."
            got = self._if_quicker("groups", other, finding, line, "It makes another network.")
            if isinstance(got, str):
                reasons.append(f"{line.partition(' ')[0]}: {got}")
            else:
                gains += got
        return [max(gains, key=lambda piece: piece.time)] if gains else "; ".join(reasons)

    def _reorders(self) -> list[Piece] | str:
        records = self._typical()
        total = sum(record.ms for record in records)
        found: dict[tuple[str, str, str], float] = {}
        for record, after in zip(records, [*records[1:], None], strict=True):
            if record.op == "Reorder":
                needed_by = after.op if after is not None else ""
                key = record.layer, needed_by, record.implementation
                found[key] = found.get(key, 0.0) + record.ms
        together = sum(found.values()) / (total or 1.0)
        if together < _TIME:
            return f"they take {together:.1%} of the step"
        if not _c.PlainLayouts():
            other = Twin(self.model, self.batch, plain=True)
            finding = f"reorders take {together:.0%} of the step: more than their layouts save."
            got = self._if_quicker("reorders", other, finding, 'singa.set_layout("plain")')
            if not isinstance(got, str):
                return got
        pieces = []
        for (layer, op, way), ms in found.items():
            if ms < _TIME * total:
                continue
            where = f" in layer {layer}" if layer else ""
            finding = f"{way} for {op}{where} takes {ms:.3g} ms. Do there what {op} does in the "
            finding += "layout of its neighbours."
            line = "singa.explain(net, x, y)  # which layouts the neighbours have"
            pieces.append(Piece("reorders", finding, line, ms / total, how="at most"))
        return pieces or f"they take {together:.1%} of the step, none of them 3 %"

    def _sixteen_bits(self) -> list[Piece] | str:
        if self.model._autocast_dtype is not None or autocast.dtype() is not None:
            return ""
        kind = next(iter(self.model.get_states().values())).device.kind()
        if kind == _c.DeviceKind_kCpu and not {"avx512_bf16", "amx_bf16"} & cpu_flags():
            return "this processor does not multiply bfloat16"
        other = Twin(self.model, self.batch, dtype=bfloat16)
        finding = "convolutions and products of matrices can compute in bfloat16."
        line = self._compile_line(dtype="bfloat16")
        note = "Rounds more coarsely: compare the losses of a short run."
        return self._if_quicker("16 bits", other, finding, line, note)

    def _memory_limit(self) -> list[Piece] | str:
        """What keeps a step to the memory that it may take, if it plans more."""
        if not self.model.training or self.model._memory_limit:
            return ""
        if not self.base.recorded:
            return "it is for recorded steps" if self.memory_limit else ""
        on_cpu = self.base.device.kind() == _c.DeviceKind_kCpu
        if self.memory_limit is None and not on_cpu:
            return ""
        plan = self.base.model.memory_plan()
        need = plan["planned_bytes"] - plan["by_kind"]["plans"]  # plans are no part of a limit
        size = self.memory_limit or _size(_MOST_OF_MEMORY * machine_memory())
        limit = as_bytes("advise", "memory_limit", size)
        if need <= limit:
            return f"tensors take {_mib(need)} of {_mib(limit)}" if self.memory_limit else ""
        other = Twin(self.model, self.batch, memory_limit=limit)
        found = self._against(other)
        finding = f"tensors of a step take {_mib(need)}, and may take {_mib(limit)}."
        line = self._compile_line(recompute="auto", memory_limit=size)
        saved = 1 - found.ratio if found.low > 1 or found.high < 1 else 0.0
        memory = self._saved_memory(other)
        return [Piece("memory limit", finding, line, saved, memory, note=_SAME_BITS)]

    def _recompute(self) -> list[Piece] | str:
        if not self.model.training or self.model._recompute:
            return ""
        if not self.base.recorded:
            return "it is for recorded steps"
        other = Twin(self.model, self.batch, recompute=True)
        memory = self._saved_memory(other)
        if memory is None or memory < _MEMORY:
            return f"it saves {max(memory or 0.0, 0.0):.1%} of the memory"
        found = self._against(other)
        finding = "outputs of norms and elementwise operations can be computed again, not kept."
        line = self._compile_line(recompute=True)
        saved = 1 - found.ratio if found.low > 1 or found.high < 1 else 0.0
        return [Piece("recompute", finding, line, saved, memory, note=_SAME_BITS)]

    def _batch_size(self) -> list[Piece] | str:
        tensors = [x for x in self.batch if isinstance(x, Tensor)]
        sizes = {x.shape[0] if x.shape else 0 for x in tensors}
        if len(tensors) < len(self.batch) or len(sizes) != 1:
            return "the arguments are not tensors of one batch size"
        (size,) = sizes
        best: Twin | None = None
        ratio, times, reason = 1.0, 2, ""
        while times <= _LARGEST and time.monotonic() < self.end:
            other = Twin(self.model, [_repeated(x, times) for x in tensors])
            found = compare(self.base, other, self.budget, times * (1 - _TIME))
            reason = reason or f"an input of {times * size}: {_took(found, times)} of one of {size}"
            if max(found.high, found.ratio / ratio) / times > 1 - _TIME:
                break
            best, ratio = other, found.ratio / times
            times *= 2
        if best is None or ratio > 1 - _BATCH:
            return reason
        large = best.batch[0].shape[0]
        found = compare(self.base, best, self.budget)  # again: the best was chosen
        ratio = found.ratio * size / large
        if ratio > 1 - _BATCH or found.high * size >= large:
            return reason
        few = f"{counted(size, 'input')} {'is' if size == 1 else 'are'} few"
        finding = f"{few} for {counted(get_num_threads(), 'thread')}: each takes "
        finding += f"{1e3 * found.seconds / size:.3g} ms, and {ratio:.0%} of that among {large}."
        note = "Fewer updates in an epoch: adapt the learning rate." if self.model.training else ""
        memory, line = self._saved_memory(best), f"batch_size={large}"
        return [Piece("batch size", finding, line, 1 - ratio, memory, note=note)]

    def _autotune(self) -> list[Piece] | str:
        if tuning.choices():
            return "the table of singa.tuning has choices already"
        left = self.end - time.monotonic()
        copied = Twin(self.model, self.batch)
        with tuning.only_choices(()), copied.setup():
            tuned = tuning.tune(copied.model, *copied.batch, limit=0.6 * left)
            choices = tuning.choices()
        if tuned["chosen"] == "default":
            return "the default choices are the fastest"
        other = Twin(self.model, self.batch, choices=choices)
        finding = f"other implementations are quicker here (rule {tuned['chosen']!r})."
        line = 'singa.tuning.tune(net, x, y)\nsinga.tuning.save("choices.json")'
        if not self.model.training:
            line = line.replace(", y", "")
        return self._if_quicker("autotune", other, finding, line, "Rounds differently.")

    def _data(self, loader: Any) -> list[Piece] | str:
        from . import loading  # needs all of singa.data

        found = loading.Waiting(self.base, loader)
        if found.share < _TIME:
            return f"steps wait for it {max(found.share, 0.0):.1%} of the time"
        finding = f"of {found.ms:.3g} ms for a batch, steps wait {found.wait_ms:.3g} for data."
        best = found.quickest(self.end)
        if best is not None and best.saved >= _TIME:
            return [Piece("data", finding, best.line, best.saved)]
        line = "for batch in loader: pass  # make this quicker"
        return [Piece("data", finding, line, found.share, how="at most")]

    def _typical(self) -> list[Record]:
        if not self.records:
            with self.base.setup():
                self.records = typical(self.base.step)
        return self.records


def _size(bytes: float) -> str:
    """As compile() takes it, rounded down."""
    shift, unit = _UNIT
    return f"{int(bytes) >> shift} {unit}"


def _mib(count: float) -> str:
    return f"{count / 2**20:.1f} MiB"


def _is_quicker(found: Comparison) -> bool:
    return found.ratio <= 1 - _TIME and found.high < 1


def _took(found: Comparison, times: int = 1) -> str:
    """How long a step of so many times the inputs takes per input."""
    ratio, low, high = (each / times for each in (found.ratio, found.low, found.high))
    text = f"it takes {ratio:.0%} of the time"
    if ratio <= 1 - _TIME and high >= 1:
        text += f" ({low:.0%} to {high:.0%}: other load is too large)"
    return text


def _same(x: Any) -> Any:
    return x


def _written(name: str) -> str:
    """The Python expression for a layer of this name: "blocks.0.conv" is net.blocks[0].conv."""
    parts = name.split(".")
    return "net" + "".join(f"[{part}]" if part.isdecimal() else f".{part}" for part in parts)


def _listed(names: list[str]) -> str:
    left = len(names) - 3
    more = f" and {left} other{'s' if left > 1 else ''}" if left > 0 else ""
    return ", ".join(names[:3]) + more


def _repeated(x: Tensor, times: int) -> Tensor:
    """The tensor, several times along its first axis."""
    from .. import autograd

    with autograd.no_grad():
        return autograd.cat([x] * times, axis=0).detach()
