"""Forced implementations: the memory plan of a recorded step has space for the workspace, the
copies in other layouts and the results of each implementation, except results that overwrite an
input, and for nothing else."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from math import prod

import numpy as np
import pytest
import singa
from recorded import graphs
from singa import autograd, layer, model, opt, singa_wrap, tensor, tuning

pytestmark = pytest.mark.cpu("implementations by name")

HAS_ONEDNN = singa.doctor()["onednn"] != "not in this build"


@pytest.fixture(autouse=True)
def only_what_is_forced():
    """Removes earlier choices and turns OPCHECK off, which would also run `reference`."""
    tuning.clear()
    with singa.opcheck(every=0):
        yield
    tuning.clear()


# The expected plan, computed from the listed nodes.

_NODE = re.compile(r"  \d+ (\S+).* by .*?:(?= )(.*) ->(.*)")
_TENSOR = re.compile(r"(@\d+|)\w*\(([\d, ]*)\)\w*|-")


def aligned(size):
    return max(-(-size // 64), 1) * 64


def tensors(text):
    """(place in the arena or "", bytes) of each tensor; None for a missing one. Elements have 4
    bytes, and channels fill their blocks."""
    for found in _TENSOR.finditer(text):
        numbers = [int(n) for n in re.findall(r"\d+", found[2] or "")]
        yield None if found[0] == "-" else (found[1], 4 * prod(numbers))


def planned(graph, operations):
    """(peak of live bytes, number of outputs that overwrite an input) of a graph. `operations`
    explain a replay. Fails if an output overwrites an input that its plan does not name, or does
    not overwrite one that it could."""
    tenures = []  # [bytes, first node, last node] of memory in the arena
    held = {}  # by place, at the current node
    missed = []
    pairs = 0
    lines = [_NODE.fullmatch(line) for line in graph.ToString().splitlines() if line[0] == " "]
    assert [line[1] for line in lines] == [entry["op"] for entry in operations]
    for n, (line, entry) in enumerate(zip(lines, operations, strict=True)):
        reads, writes = list(tensors(line[2])), list(tensors(line[3]))
        for read in reads:
            if read and read[0]:
                held[read[0]][2] = n
        for i, write in enumerate(writes):
            if not write or not write[0]:
                continue
            sources = [k for k, read in enumerate(reads) if read and read[0] == write[0]]
            if sources:
                assert sources == [entry["in_place"].get(i)], line[0]
                pairs += 1
                continue
            source = entry["in_place"].get(i)
            if source is not None and reads.count(reads[source]) == 1 and reads[source][0]:
                missed.append((line[0], n, held[reads[source][0]]))
            held[write[0]] = [write[1], n, n]
            tenures.append(held[write[0]])
    for text, n, tenure in missed:
        assert tenure[2] > n, f"{text}: could have taken over an input"
    live = [
        sum(aligned(size) for size, first, last in tenures if first <= n <= last)
        + (aligned(entry["workspace"]) if entry["workspace"] else 0)
        for n, entry in enumerate(operations)
    ]
    return max(live), pairs


def replayed(net, *inputs):
    """Result and operations of a replay. Checks the memory plan against the operations."""
    for _ in range(6):  # recorded until two recordings are equal, then replayed
        net(*inputs)
    with singa.explain() as operations:
        results = net(*inputs)
    (graph,) = graphs(net)
    (memory,) = net.memory_plan()["graphs"]
    assert (memory["peak"], memory["in_place"]) == planned(graph, operations)
    assert memory["peak"] <= memory["arena"]
    return results, operations, memory


# Single operations.


class Step(model.Model):
    """A function of raw tensors with operations before and after it, so that its images and results
    are temporary. Weights are arguments, because constant weights would be prepared outside of the
    step."""

    def __init__(self, function, inputs, blocked):
        super().__init__()
        self.function = function
        self.blocked = blocked
        self.compile(list(inputs), is_train=False, use_graph=True)

    def forward(self, *inputs):
        raw = [t.data for t in inputs]
        for i in range(len(raw)):
            if tuple(raw[i].shape()) != WEIGHTS:
                raw[i] = autograd.abs(inputs[i]).data
                if self.blocked:
                    raw[i] = singa_wrap.ToBlocked(raw[i])
        return autograd.abs(tensor.Tensor(data=self.function(*raw), requires_grad=False))


def values(*shape, seed=0, scale=1.0):
    random = np.random.default_rng([seed, *shape])
    return tensor.from_numpy((scale * random.standard_normal(shape)).astype(np.float32))


# 192 channels fill the blocks of all layouts of weights: 8, 16, 24, 32, 48 and 64.
X, WEIGHTS, Y, POOLED = (2, 32, 9, 7), (192, 32, 3, 3), (2, 192, 9, 7), (2, 32, 4, 3)
BIAS, SCALE, SHIFT = values(192).data, values(32).data, values(32, seed=1).data
MEAN, VAR = values(32, seed=2).data, tensor.from_numpy(np.full(32, 0.5, np.float32)).data
NORM = singa_wrap.BatchNormHandle(0.1, values(*X).data)
MAXIMUM, AVERAGE = (
    singa_wrap.PoolingHandle(values(*X).data, [3, 3], [2, 2], [0, 0], is_max)
    for is_max in (True, False)
)


def conv(prefer="", limit=1 << 30):
    window = ([3, 3], [1, 1], [1, 1])
    return singa_wrap.ConvHandle(values(*X).data, *window, 32, 192, True, 1, [1, 1], limit, prefer)


CONV = conv()

# Name, shapes of the arguments, and the call.
STEPS = {
    "convolution": (
        "ConvForward",
        (X, WEIGHTS),
        lambda x, w: singa_wrap.ConvForward(x, w, BIAS, CONV),
    ),
    "convolution, add, relu": (
        "ConvForward",
        (X, WEIGHTS, Y),
        lambda x, w, add: singa_wrap.ConvForward(x, w, BIAS, CONV, add, True),
    ),
    "input gradient": (
        "ConvBackwardX",
        (Y, X, WEIGHTS),
        lambda dy, x, w: singa_wrap.ConvBackward(dy, x, w, CONV, True, False, False)[0],
    ),
    "weight gradient": (
        "ConvBackwardW",
        (Y, X),
        lambda dy, x: singa_wrap.ConvBackward(dy, x, None, CONV, False, True, True)[1],
    ),
    "bias gradient": ("ConvBackwardB", (Y,), lambda dy: singa_wrap.ConvBackwardB(dy, CONV)),
    "batch norm": (
        "BatchNormForwardTraining",
        (X,),
        lambda x: singa_wrap.BatchNormForwardTraining(NORM, x, SCALE, SHIFT, None, None)[0],
    ),
    "batch norm's gradient": (
        "BatchNormBackward",
        (X, X),
        lambda dy, x: singa_wrap.BatchNormBackward(NORM, dy, x, SCALE, MEAN, VAR)[0],
    ),
    "maximum": ("PoolingForward", (X,), lambda x: singa_wrap.PoolingForward(MAXIMUM, x)[0]),
    "maximum's gradient": (
        "PoolingBackward",
        (POOLED, X),
        lambda dy, x: singa_wrap.PoolingBackward(MAXIMUM, dy, x, None, None),
    ),
    "average": ("PoolingForward", (X,), lambda x: singa_wrap.PoolingForward(AVERAGE, x, False)[0]),
    "average's gradient": (
        "PoolingBackward",
        (POOLED, X),
        lambda dy, x: singa_wrap.PoolingBackward(AVERAGE, dy, x, None, None),
    ),
}

#: {output: input} that an output overwrites, except in `reference`.
PAIRS = {
    "convolution, add, relu": {0: 3},
    "batch norm": {0: 0},
    "batch norm's gradient": {0: 0, 3: 0},  # dx, or the gradient of the residual
}
#: Operations whose peak depends on the implementation, if there are several.
VARIED = ("convolution", "convolution, add, relu", "batch norm", "batch norm's gradient")


@contextmanager
def preference(name) -> Iterator[None]:
    before = singa_wrap.GetPreference()
    singa_wrap.SetPreference(singa_wrap.ParsePreference(name))
    try:
        yield
    finally:
        singa_wrap.SetPreference(before)


def implementations(op, function, inputs, blocked):
    """Implementations of an operation by name, with their signatures: those that were measured, or
    one for each backend if they cannot be forced."""
    found = {}
    with preference("autotune"):
        net = Step(function, inputs, blocked)
        for _ in range(3):
            net(*inputs)
    for choice in tuning.choices():
        if choice["signature"].startswith(f"{op} "):
            for text in choice["measured"].split(", "):
                found.setdefault(text.split(" ", 2)[2], []).append(choice["signature"])
    if not found:
        (entry,) = (e for e in singa.explain(net, *inputs) if e["op"] == op)
        able = [name for name, why in entry["refused"].items() if why == "comes later in order"]
        found = {name: [entry["signature"]] for name in (entry["implementation"], *able)}
    tuning.clear()
    return found


def force(signatures, name):
    tuning.clear()
    entry = {"candidate": name, "machine": singa_wrap.TuningMachine(), "measured": ""}
    tuning.add([{**entry, "signature": signature} for signature in signatures])


def each_forced(op, shapes, function, blocked):
    """(name, explanation of the operation, memory of the graph) for each implementation."""
    inputs = [values(*shape, seed=3, scale=0.2) for shape in shapes]
    expected = None
    for name, signatures in implementations(op, function, inputs, blocked).items():
        force(signatures, name)
        result, operations, memory = replayed(Step(function, inputs, blocked), *inputs)
        (entry,) = (e for e in operations if e["op"] == op)
        assert entry["implementation"] == name.split()[0]
        expected = result.numpy() if expected is None else expected
        np.testing.assert_allclose(result.numpy(), expected, rtol=2e-4, atol=1e-4, err_msg=name)
        yield name, entry, memory


@pytest.mark.parametrize("name", STEPS)
def test_a_plan_follows_the_implementation(name):
    op, shapes, function = STEPS[name]
    seen = {}
    for candidate, entry, memory in each_forced(op, shapes, function, True):
        plain = entry["implementation"] == "reference"
        assert entry["in_place"] == ({} if plain else PAIRS.get(name, {})), candidate
        seen[candidate] = memory["peak"]
    assert "reference" in seen
    if HAS_ONEDNN:
        assert len(seen) > 1
    if HAS_ONEDNN and name in VARIED:
        assert len(set(seen.values())) > 1, seen


def test_of_row_major_images_the_peak_is_the_operation_itself():
    """Images are not copied. The peak is x, the residual, the workspace, weights in another layout
    if needed, and y, unless y overwrites the residual."""
    op, shapes, function = STEPS["convolution, add, relu"]
    x, weights, y = (4 * prod(shape) for shape in shapes)
    singa.set_layout("plain")
    try:
        for candidate, entry, memory in each_forced(op, shapes, function, False):
            results = aligned(y) * (1 if entry["in_place"] else 2)
            others = aligned(entry["workspace"]) if entry["workspace"] else 0
            if ":" in entry["inputs"][1]:
                others += aligned(weights)
            assert memory["peak"] == aligned(x) + results + others, candidate
    finally:
        singa.set_layout("auto")


def test_limits_of_the_workspace_hold():
    op, shapes, function = STEPS["convolution"]
    inputs = [values(*shape, seed=3) for shape in shapes]
    needs = {name: entry["workspace"] for name, entry, _ in each_forced(op, shapes, function, True)}
    tuning.clear()
    default = ("onednn", "cpu", "reference")
    always = {need for name, need in needs.items() if name.split()[0] in default}

    def workspace(handle):
        def limited(x, w):
            return singa_wrap.ConvForward(x, w, BIAS, handle)

        _, operations, _ = replayed(Step(limited, inputs, True), *inputs)
        (entry,) = (e for e in operations if e["op"] == op)
        return entry["workspace"]

    least = workspace(conv("no_workspace"))
    assert least <= min(always)
    for limit in sorted({0, *needs.values(), *(max(need - 1, 0) for need in needs.values())}):
        if limit >= min(always):
            assert workspace(conv("limited_workspace", limit)) <= limit
        elif limit < least:
            with pytest.raises(RuntimeError, match=r"needs \d+ bytes of workspace"):
                workspace(conv("limited_workspace", limit))


# Whole training steps.


class Net(model.Model):
    def __init__(self):
        super().__init__()
        self.conv1 = layer.Conv2d(32, 3, padding=1)
        self.bn = layer.BatchNorm2d()
        self.pool = layer.MaxPool2d(3, 2)
        self.conv2 = layer.Conv2d(48, 3, stride=2, padding=1)
        self.fc = layer.Linear(16)
        self.loss = autograd.softmax_cross_entropy

    def forward(self, x):
        y = self.pool(self.bn(self.conv1(x), relu=True))
        return self.fc(autograd.flatten(autograd.relu(self.conv2(y))))


@pytest.mark.parametrize(
    "op",
    [
        "none",
        "ConvForward",
        "ConvBackwardX",
        "ConvBackwardW",
        "BatchNormForwardTraining",
        "BatchNormBackward",
        "PoolingForward",
        "PoolingBackward",
    ],
)
def test_a_training_step_follows_the_implementation(op):
    singa.seed(0)
    x, y = values(4, 16, 12, 12), tensor.from_numpy(np.arange(4, dtype=np.int32))
    net = Net()
    net.set_optimizer(opt.SGD(lr=0.01, momentum=0.9))
    net.compile([x], is_train=True, use_graph=True)
    machine = {"candidate": "reference", "machine": singa_wrap.TuningMachine(), "measured": ""}
    for _ in range(3):  # each choice changes the layouts of inputs of the next operation
        entries = [e for e in singa.explain(net, x, y) if e["op"] == op]
        tuning.add([{**machine, "signature": e["signature"]} for e in entries])
    _, operations, _ = replayed(net, x, y)
    forced = [e["implementation"] for e in operations if e["op"] == op]
    assert set(forced) == (set() if op == "none" else {"reference"})
