"""Random training steps with effects in Python, executed beside recorded.

A step reads and changes Python state in the ways that programs do: counters, global variables,
closures, the environment, arguments that the host reads, gradients, memory that NumPy writes to.
Recorded steps must give the bits of executed ones and leave the same state behind, whether they
are replayed or, with a warning, executed. Inference may differ by the rounding of folded batch
norms.
"""

from __future__ import annotations

import os
import sys
import types
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import singa
from draw import Draw
from raw_calls import differ
from singa import autograd, opt, tensor
from singa import singa_wrap as wrap
from singa.graph import GraphWarning
from targets import Finding, Target

_STEPS = 40
_MODULE, _SETTINGS, _VARIABLE = "drawn_program", "drawn_settings", "DRAWN_SCALE"


@dataclass(frozen=True)
class Effect:
    """Lines of a program, in which {k} is a drawn number. The variable `gain` multiplies the loss.

    top      of the module
    make     of the model's __init__
    before   of the step, before the loss, and of inference
    after    of the step, after the update
    outside  of the loop around it, after each step
    between  of the loop around inference, after each call
    benign   whether the step is replayed in the end
    shared   whether it needs memory that tensors share with NumPy, as on the CPU
    """

    top: str = ""
    make: str = ""
    before: str = ""
    after: str = ""
    outside: str = ""
    between: str = ""
    benign: bool = False
    shared: bool = False


_EVERY = "if i % {k} == 0: "


def _ticks(top: str, number: str, before: str = "", make: str = "") -> Effect:
    """A count that each step makes larger, by the lines `before` or by reading it."""
    return Effect(top, make, f"{before}gain *= 3.0 if {number} > {{k}} else 1.0")


def _set_outside(top: str, number: str, place: str, make: str = "") -> Effect:
    """What the step reads and the loop around it changes at `place`."""
    outside = f"{_EVERY}{place} = 1.0 + i // {{k}} % 3"
    return Effect(top, make, f"gain *= {number}", outside=outside, benign=True)


_SET_VARIABLE = f"{_EVERY}os.environ[{_VARIABLE!r}] = str(1.0 + i // {{k}} % 3)"
#: What a step may do. The first one is the simplest.
EFFECTS = {
    "nothing": Effect(benign=True),
    "constants": Effect(
        "SCALE = 0.5\nTABLE = {'a': [1.0, 2.0]}",
        before="gain *= SCALE * TABLE['a'][1] * sum(v for v in range({k}))",
        benign=True,
    ),
    "local state": Effect(
        before="rows = []\nfor j in range({k}): rows.append(j)\ngain *= len(rows)", benign=True
    ),
    "attribute set to the same": Effect(
        make="self.mode = 'none'", before="self.mode = 'train'", benign=True
    ),
    "made by the first step": Effect(
        make="self.made = None",
        before="if self.made is None: self.made = {k} * 0.5\ngain *= self.made",
        benign=True,
    ),
    "parameter filled": Effect(after="self.a.b.set_value(0.25)", benign=True),
    "dropout": Effect(before="x = autograd.dropout(x, 0.5)", benign=True),
    "counter": _ticks("", "self.n", "self.n += 1; ", make="self.n = 0"),
    "every k-th step": Effect(
        make="self.m = 0", before="self.m += 1\nif self.m % {k} == 0: gain *= 10.0"
    ),
    "counter that nobody reads": Effect(make="self.count = 0", before="self.count += 1"),
    "counter in a dict": _ticks("COUNT = {'n': 0}", "COUNT['n']", "COUNT['n'] += 1; "),
    "global counter": _ticks("TOTAL = 0", "TOTAL", "global TOTAL\nTOTAL += 1; "),
    "closure": _ticks(
        "def make():\n    n = 0\n    def tick():\n        nonlocal n\n        n += 1\n"
        "        return n\n    return tick\ntick = make()",
        "tick()",
    ),
    "counter of a class": _ticks("class Shared:\n    n = 0", "Shared.n", "Shared.n += 1; "),
    "counter of a function": _ticks(
        "def called():\n    called.n = getattr(called, 'n', 0) + 1\n    return called.n", "called()"
    ),
    "default argument": _ticks(
        "def remembered(v, seen=[]):\n    seen.append(v)\n    return len(seen)", "remembered(1)"
    ),
    "iterator": _ticks("import itertools\nTICKS = itertools.count()", "next(TICKS)"),
    "local of a thread": _ticks(
        "import threading\nLOCAL = threading.local()\nLOCAL.n = 0", "LOCAL.n", "LOCAL.n += 1; "
    ),
    "context variable": _ticks(
        "import contextvars\nTURN = contextvars.ContextVar('TURN', default=0)",
        *("TURN.get()", "TURN.set(TURN.get() + 1); "),
    ),
    "list": Effect(
        make="self.seen = []",
        after="self.seen.append(loss)",
        before="gain *= 3.0 if len(self.seen) > {k} else 1.0",
    ),
    "stored result": Effect(
        make="self.last = None",
        before="if self.last is not None: x = x + self.last * 0.01",
        after="self.last = autograd.reduce_mean(out, [0, 1], 1).detach()",
    ),
    "freeze": Effect(
        make="self.f = 0",
        before="self.f += 1\nif self.f == 1: self.a.freeze()\n"
        "if self.f == {k} + 2: self.a.freeze(False)",
    ),
    "rate set inside": Effect(
        make="self.r = 0", before="self.r += 1\nself.optimizer.lr = 0.1 / self.r"
    ),
    "rate read inside": Effect(
        before="gain *= 1.0 + self.optimizer.lr.init_value",
        outside=_EVERY + "net.optimizer.lr = 0.01 * (1 + i // {k} % 3)",
        benign=True,
    ),
    "optimizer's steps": _ticks("", "self.optimizer.steps"),
    "global number": _set_outside("RATE = 1.0", "RATE", "module.RATE"),
    "global through a function": _set_outside(
        "LIMIT = [1.0]\ndef inner(): return LIMIT[0]\ndef outer(): return inner()",
        *("outer()", "module.LIMIT[0]"),
    ),
    "object": _set_outside(
        "class Config: pass\nCONFIG = Config()\nCONFIG.scale = 1.0",
        *("CONFIG.scale", "module.CONFIG.scale"),
    ),
    "environment": Effect(
        f"import os\nos.environ[{_VARIABLE!r}] = '1'",
        before=f"gain *= float(os.environ.get({_VARIABLE!r}, '1'))",
        outside=_SET_VARIABLE,
        benign=True,
    ),
    "getenv": Effect(
        f"from os import environ, getenv\nenviron[{_VARIABLE!r}] = '1'",
        before=f"gain *= float(getenv({_VARIABLE!r}, '1'))",
        outside=_SET_VARIABLE,
        benign=True,
    ),
    "module": _set_outside(f"import {_SETTINGS}", f"{_SETTINGS}.RATE", "settings.RATE"),
    "import inside": Effect(
        before=f"from {_SETTINGS} import SIZES\nimport {_SETTINGS} as s\ngain *= SIZES[0] * s.RATE",
        benign=True,
        outside=_EVERY + "settings.SIZES[0] = 1.0 + i // {k} % 3",
    ),
    "attribute set outside": _set_outside("", "self.scale", "net.scale", make="self.scale = 1.0"),
    "flag taken back": Effect(
        make="self.pending = False",
        before="if self.pending:\n    gain *= 3.0\n    self.pending = False",
        benign=True,
        outside=_EVERY + "net.pending = True",
    ),
    "argument read": Effect(
        before="gain *= 2.0 if tensor.to_numpy(k)[0] > 0 else 1.0", benign=True
    ),
    "argument as a number": Effect(before="gain *= 1.0 + float(k)", benign=True),
    "argument shared": Effect(before="gain *= 2.0 if np.asarray(k)[0] > 0 else 1.0", shared=True),
    "parameter read": Effect(before="gain *= 2.0 if self.a.W.numpy().sum() > 0 else 1.0"),
    "tensor read": Effect(
        make="self.table = tensor.from_numpy(np.float32([1.0, 2.0]))",
        benign=True,
        before="gain *= float(self.table.numpy()[1])",
        outside=_EVERY + "net.table.set_value(1.0 + i // {k} % 3)",
    ),
    "tensor written": Effect(
        make="self.table = tensor.from_numpy(np.float32([1.0])); self.t = 0",
        before="self.t += 1\nself.table.copy_from_numpy(np.float32([self.t]))\nx = x * self.table",
    ),
    "tensor written by NumPy": Effect(
        make="self.mask = tensor.from_numpy(np.float32([1.0]))",
        before="np.asarray(self.mask)[...] *= 0.9\nx = x * self.mask",
        shared=True,
    ),
    "weights written by NumPy": Effect(
        outside=_EVERY + "np.asarray(net.c.W)[...] *= 0.5",
        between="np.asarray(net.conv.W)[...] *= 0.9; np.asarray(net.norm.bias)[...] += 0.1",
        benign=True,
    ),
    "weights written by DLPack": Effect(
        between="by_dlpack(net.conv.W, 0.9); by_dlpack(net.norm.running_mean, 1.1)",
        benign=True,
        shared=True,
    ),
    "weights that NumPy holds": Effect(
        outside="settings.held = getattr(settings, 'held', np.asarray(net.conv.W))",
        between="settings.held[...] *= 0.9",
        benign=True,
    ),
    "gradients returned": Effect(
        make="self.returned = True", outside="by_memory(net, results[2:])", benign=True
    ),
    "weights filled": Effect(outside=_EVERY + "net.a.W.set_value(0.1)", benign=True),
    "random": Effect("import random", before="gain *= 3.0 if random.random() > 0.9 else 1.0"),
    "NumPy's random": Effect(before="gain *= 3.0 if np.random.random() > 0.9 else 1.0"),
    "seed": Effect(before="x.device.SetRandSeed({k})\nx = autograd.dropout(x, 0.5)"),
    "gradients kept": Effect(
        make="self.by_hand = True", benign=True, outside="by_hand(net, i % {k} == 0)"
    ),
    "gradients dropped inside": Effect(
        make="self.by_hand = True",
        before="for p in self.get_params().values(): p.grad = None",
        outside="by_hand(net, False)",
    ),
    "computed argument": Effect(make="self.view = 'whole'"),
    "strided view of a computed argument": Effect(make="self.view = 'strided'"),
    "transposed computed argument": Effect(make="self.view = 'transposed'"),
}
_BENIGN = [name for name, effect in EFFECTS.items() if effect.benign]

_TEXT = """
import numpy as np
from singa import autograd, layer, model, tensor
{top}

class Net(model.Model):
    def __init__(self):
        super().__init__()
        self.by_hand, self.returned, self.view = False, False, None
        self.a, self.c = layer.Linear(6), layer.Linear(3)
        self.conv, self.norm = layer.Conv2d(8, 2, stride=2), layer.BatchNorm2d()
{make}

    def forward(self, x, k=None):
        gain = 1.0
        if k is not None:  # a call that infers
            pass
{inside}
        h = autograd.relu(self.norm(self.conv(autograd.reshape(x, (4, 1, 2, 4)))))
        return self.c(autograd.tanh(self.a(autograd.reshape(h, (4, -1))))) * gain

    def train_one_batch(self, x, y, k):
        gain = 1.0
{before}
        out = self.forward(x)
        loss = autograd.softmax_cross_entropy(out, y) * gain
        if self.returned:
            given = {{id(p): g for p, g in autograd.backward(loss)}}
            return [out, loss, *[given[id(p)] for p in self.get_params().values()]]
        if self.by_hand:
            loss.backward()
        else:
            self.optimizer(loss)
{after}
        return out, loss
"""


def _indented(lines: list[str], spaces: int) -> str:
    text = "\n".join(line for each in lines for line in each.split("\n") if line)
    return "\n".join(" " * spaces + line for line in text.split("\n"))


class Drawn:
    """A program with effects of these names, or with some that are drawn."""

    def __init__(self, draw: Draw, names: Sequence[str] = ()) -> None:
        if not names:
            among = _BENIGN if draw.chance(2) else list(EFFECTS)
            names = [draw.pick(among) for _ in range(draw.between(1, 3))]
        self.names = list(dict.fromkeys(names))
        self.texts = {
            part: [getattr(EFFECTS[n], part).replace("{k}", str(draw.between(3, 12)))
                   for n in self.names]
            for part in ("top", "make", "before", "after", "outside", "between")
        }  # fmt: skip

    def module(self) -> Any:
        texts = self.texts
        text = _TEXT.format(
            top=_indented(texts["top"], 0),
            make=_indented(texts["make"], 8),
            before=_indented(texts["before"], 8),
            inside=_indented(texts["before"], 12),
            after=_indented(texts["after"], 8),
        )
        module = types.ModuleType(_MODULE)
        exec(compile(text, _MODULE, "exec"), vars(module))
        return module

    def function(self, part: str, arguments: str) -> Any:
        """The lines of `part` as a function."""
        lines = _indented(self.texts[part], 4)
        found = {"by_hand": _by_hand, "by_memory": _by_memory, "by_dlpack": _by_dlpack}
        namespace: dict[str, Any] = {**found, "np": np, "os": os}
        exec(f"def {part}({arguments}):\n{lines}\n    return None", namespace)
        return namespace[part]


def _by_memory(net: Any, gradients: Any) -> None:
    """An update in the memory of the parameters."""
    for p, gradient in zip(net.get_params().values(), gradients, strict=True):
        np.asarray(p)[...] -= 0.05 * gradient.numpy()


def _by_dlpack(t: Any, factor: float) -> None:
    address = tensor.from_dlpack(t)  # another tensor over the same memory
    wrap.ScaleAll([address.data], factor)


def _by_hand(net: Any, drop: bool) -> None:
    """An update by `grad`, which stays where `drop` is False."""
    for p in net.get_params().values():
        if p.grad is not None:
            p.copy_from_numpy(p.numpy() - 0.05 * p.grad.numpy())
        if drop:
            p.grad = None


@dataclass
class _Results:
    outputs: list[np.ndarray]
    scores: list[np.ndarray]
    states: dict[str, Any]
    replayed: bool  # whether training has a graph in the end
    warned: bool = False


class Effects(Target):
    format = "draws"
    declared = ()

    def run(self, data: bytes) -> str:
        drawn = Drawn(Draw(data))
        self.tell(", ".join(drawn.names))
        return f"{self.note} {compare(drawn)}"


def compare(drawn: Drawn) -> bool:
    """Runs a program executed and recorded. Returns whether it was replayed in the end. Raises
    Finding for a difference, and for a step that is executed without a warning."""
    name = ", ".join(drawn.names)
    executed, recorded = _results(drawn, False), _results(drawn, True)
    for i, (one, two) in enumerate(zip(executed.outputs, recorded.outputs, strict=True)):
        if one.tobytes() != two.tobytes():
            raise Finding(f"step {i // 2} of {name} is not as executed: {one} {two}")
    for i, (one, two) in enumerate(zip(executed.scores, recorded.scores, strict=True)):
        if difference := differ(two, one, 10.0):
            raise Finding(f"inference {i} of {name} is not as executed: {difference}")
    for place, value in executed.states.items():
        if recorded.states[place] != value:
            raise Finding(f"{place} of {name} is {recorded.states[place]}, not {value}")
    if not recorded.replayed and not recorded.warned:
        raise Finding(f"{name} is neither replayed nor warned of")
    return recorded.replayed


def _results(drawn: Drawn, use_graph: bool) -> _Results:
    settings = types.ModuleType(_SETTINGS)
    vars(settings).update(RATE=1.0, SIZES=[1.0])
    sys.modules[_SETTINGS] = settings
    before = os.environ.get(_VARIABLE)
    try:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always", GraphWarning)
            results = _run(drawn, use_graph, settings)
        results.warned = any(issubclass(each.category, GraphWarning) for each in caught)
        return results
    finally:
        del sys.modules[_SETTINGS]
        os.environ.pop(_VARIABLE, None)
        if before is not None:
            os.environ[_VARIABLE] = before
        autograd.training = False


def _run(drawn: Drawn, use_graph: bool, settings: Any) -> _Results:
    import random

    singa.seed(5)
    random.seed(5)
    np.random.seed(5)  # noqa: NPY002
    module, outside = drawn.module(), drawn.function("outside", "net, i, results, module, settings")
    between = drawn.function("between", "net, settings")
    net = module.Net()
    net.set_optimizer(opt.SGD(lr=0.05, momentum=0.9))
    x, y, k = _batch(0)
    net.compile([x], is_train=True, use_graph=use_graph)
    first = None
    if net.view is not None:
        first = tensor.from_numpy(_numbers(99, (8, 8)))
        first.requires_grad = first.stores_grad = True
        net.first = first  # the optimizer trains what the model has
    outputs, scores = [], []
    for i in range(_STEPS):
        x, y, k = _batch(i)
        if first is not None:
            x = _viewed(autograd.matmul(x, first), net.view)
        results = net(x, y, k)
        outputs += [t.numpy() for t in results]
        outside(net, i, results, module, settings)
        if i % 8 == 7:
            net.eval()
            for j in range(4):
                x, _, k = _batch(i + j)
                scores.append(net(x, k).numpy())
                between(net, settings)
            net.train()
    states: dict[str, Any] = {n: t.numpy().tobytes() for n, t in net.get_states().items()}
    states |= {n: v for n, v in vars(net).items() if type(v) in (int, float, str, bool)}
    states |= {n: len(v) for n, v in vars(net).items() if type(v) is list}
    states |= {n: v for n, v in vars(module).items() if type(v) in (int, float)}
    del states["graph_mode"]
    steps = [] if net._step_graphs is None else list(net._step_graphs._steps.items())
    replayed = any(step.graph is not None and _trains(key) for key, step in steps)
    return _Results(outputs, scores, states, replayed)


def _trains(key: Any) -> bool:
    while not isinstance(key, bool):
        key = key[0]
    return key


def _viewed(x: Any, how: str) -> Any:
    """The argument of a step as a computed tensor, or as a view of one."""
    if how == "strided":
        return autograd.cat([x, x * 2.0], 1)[:, ::2]
    return autograd.transpose(autograd.reshape(x, (8, 4)), (1, 0)) if how == "transposed" else x


def _numbers(seed: int, shape: tuple[int, ...]) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape, np.float32)


def _batch(i: int) -> tuple[Any, Any, Any]:
    labels = np.random.default_rng(i).integers(0, 3, 4).astype(np.int32)
    number = np.float32([(-1, 1, 2)[i // 5 % 3]])
    return tuple(map(tensor.from_numpy, (_numbers(i, (4, 8)), labels, number)))
