"""Random chains of nodes that are computed together: the results of the nodes one by one.

All values have the shape (2, 4, 4, 4), so that any piece may follow any other, and any earlier
value may be read again.
"""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

pytest.importorskip("onnx", reason="the package onnx is not installed")
import singa.onnx
from onnx_files import info, network, node
from recorded import graphs
from singa import autograd, opt, tensor
from singa.networks.fusion import MERGED
from singa.onnx.fusion import OnnxFusion

SHAPE = (2, 4, 4, 4)


class Chain:
    """A network under construction. A piece adds nodes behind `x`, and returns its result."""

    def __init__(self, seed: int, kind: str = "float64") -> None:
        self.random = np.random.default_rng(seed)
        self.kind = kind
        self.nodes: list[Any] = []
        self.weights: dict[str, Any] = {}
        self.values = ["x"]

    def add(self, op: str, inputs: str, **attributes: Any) -> str:
        name = f"v{len(self.nodes)}"
        self.nodes.append(node(op, inputs, name, **attributes))
        return name

    def swapped(self, a: str, b: str) -> str:
        return " ".join(self.random.permutation([a, b]))

    def kept(self, value: Any) -> str:
        name = f"w{len(self.weights)}"
        self.weights[name] = np.asarray(value)
        return name

    def number(self, value: float) -> str:
        return self.kept(np.array(value, self.kind))

    def weight(self, *shape: int) -> str:
        return self.kept(self.random.uniform(-1, 1, shape).astype(self.kind))

    def earlier(self) -> str:
        return str(self.random.choice(self.values))

    def model(self) -> Any:
        ends = info("x", ["n", *SHAPE[1:]], self.kind), info(self.values[-1], None, self.kind)
        return network(self.nodes, ends[:1], ends[1:], self.weights, opset=24)


def _batch_norm(c: Chain, x: str) -> str:
    var = c.kept(c.random.uniform(0.5, 2, 4).astype(c.kind))
    names = [x, *(c.weight(4) for _ in range(3)), var]
    return c.add("BatchNormalization", " ".join(names))


def _affine(c: Chain, x: str) -> str:
    scaled = c.add("Mul", c.swapped(x, c.weight(4, 1, 1)))
    return c.add("Add", c.swapped(scaled, c.weight(1, 4, 1, 1)))


def _normed(c: Chain, x: str) -> str:
    """A norm in front of an activation, often with a sum between them."""
    pieces: list[Callable[[Chain, str], str]] = [_batch_norm, _affine]
    y = pieces[c.random.integers(2)](c, x)
    if c.random.random() < 0.5:
        y = c.add("Add", c.swapped(y, c.earlier()))
    return _ACTIVATIONS[c.random.integers(len(_ACTIVATIONS))](c, y)


def _gelu(c: Chain, x: str) -> str:
    divided = c.random.random() < 0.5
    root = c.number(2**0.5 if divided else 0.5**0.5)
    inner = c.add("Div", f"{x} {root}") if divided else c.add("Mul", c.swapped(x, root))
    more = c.add("Add", c.swapped(c.add("Erf", inner), c.number(1)))
    return c.add("Mul", c.swapped(c.add("Mul", c.swapped(x, more)), c.number(0.5)))


def _transposed(c: Chain, x: str) -> str:
    orders = [0, 2, 3, 1], [0, 3, 1, 2], [0, 2, 1, 3]
    return c.add("Transpose", x, perm=list(orders[c.random.integers(3)]))


def _layer_norm(c: Chain, x: str) -> str:
    bias = c.weight(4) if c.random.random() < 0.5 else ""
    return c.add("LayerNormalization", f"{x} {c.weight(4)} {bias}")


def _channel_norm(c: Chain, x: str) -> str:
    y = _layer_norm(c, c.add("Transpose", x, perm=[0, 2, 3, 1]))
    return c.add("Transpose", y, perm=[0, 3, 1, 2])


def _shuffle(c: Chain, x: str) -> str:
    apart, together = (c.kept(np.array([-1, *s])) for s in ((2, 2, 4, 4), SHAPE[1:]))
    y = c.add("Transpose", c.add("Reshape", f"{x} {apart}"), perm=[0, 2, 1, 3, 4])
    return c.add("Reshape", f"{y} {together}")


def _linear(c: Chain, x: str) -> str:
    y = c.add("MatMul", f"{x} {c.weight(4, 4)}")
    return c.add("Add", c.swapped(y, c.weight(4) if c.random.random() < 0.7 else c.earlier()))


def _position(c: Chain, x: str) -> str:
    return c.add("Add", c.swapped(x, c.weight(1, 4, 4)))


def _pad(c: Chain, x: str) -> str:
    pads = c.kept(np.array([0, 0, 1, 1, 0, 0, 1, 1]))
    return c.add("Pad", f"{x} {pads}")


def _conv(c: Chain, x: str) -> str:
    """A convolution with its own padding, behind none, one or two others."""
    for _ in range(count := c.random.integers(3)):
        x = _pad(c, x)
    size = 3 + 2 * max(0, count - 1)
    own = 1 if count == 0 else 0
    y = c.add("Conv", f"{x} {c.weight(4, 4, size, size)}", pads=[own] * 4)
    return c.add("Add", c.swapped(y, c.weight(4, 1, 1))) if c.random.random() < 0.4 else y


def _attention(c: Chain, x: str) -> str:
    scaled = c.add("Mul", c.swapped(x, c.number(0.5)))
    keys = c.add("Transpose", c.earlier(), perm=[0, 1, 3, 2])
    scores = c.add("MatMul", f"{scaled} {keys}")
    mask = np.tri(4, dtype=bool)
    if c.random.random() < 0.4:
        scores = c.add("Where", f"{c.kept(mask)} {scores} {c.number(-np.inf)}")
    elif c.random.random() < 0.5:
        added = c.kept(np.where(mask, 0.5, -np.inf).astype(c.kind))
        scores = c.add("Add", c.swapped(scores, added))
    return c.add("MatMul", f"{c.add('Softmax', scores)} {c.earlier()}")


def _gate(op: str, **attributes: float) -> Callable[[Chain, str], str]:
    return lambda c, x: c.add("Mul", c.swapped(x, c.add(op, x, **attributes)))


def _one(op: str, **attributes: float) -> Callable[[Chain, str], str]:
    return lambda c, x: c.add(op, x, **attributes)


_SLOPE = {"alpha": 1 / 6, "beta": 0.5}
_ACTIVATIONS: list[Callable[[Chain, str], str]] = [
    _one("Relu"),
    lambda c, x: c.add("Clip", f"{x} {c.number(0)} {c.number(6)}"),
    _one("HardSwish"),
    _one("Swish"),
    _gate("Sigmoid"),
    _gate("HardSigmoid", **_SLOPE),
]
_PIECES: list[Callable[[Chain, str], str]] = [
    *_ACTIVATIONS,
    _one("Sigmoid"),
    _one("HardSigmoid", **_SLOPE),
    _one("Identity"),
    _one("Swish", alpha=0.7),
    lambda c, x: c.add("Add", c.swapped(x, c.earlier())),
    lambda c, x: c.add("Mul", c.swapped(x, c.earlier())),
    *(_batch_norm, _affine, _normed, _normed, _gelu, _transposed, _layer_norm, _channel_norm),
    *(_shuffle, _linear, _linear, _position, _conv, _attention),
]


def _quantized(c: Chain, x: str) -> str:
    """A layer or sum of integers. Scales are powers of 2, so all sums are exact, and zero points
    are even, so ties are rounded alike before and after they are added."""

    def through(value: str, kind: str) -> str:
        scale = f"{c.kept(np.float32(2.0**-4))} {c.kept(np.array(2 * c.random.integers(3), kind))}"
        return c.add("DequantizeLinear", f"{c.add('QuantizeLinear', f'{value} {scale}')} {scale}")

    def weight(*shape: int) -> str:
        integers = c.kept(c.random.integers(-9, 10, shape).astype(np.int8))
        return c.add("DequantizeLinear", f"{integers} {c.kept(np.float32(2.0**-5))}")

    kind = str(c.random.choice(["int8", "uint8"]))
    op, x = str(c.random.choice(["Conv", "MatMul", "Add"])), through(x, kind)
    if op == "Conv":
        y = c.add(op, f"{x} {weight(4, 4, 3, 3)}", pads=[1] * 4)
    else:
        y = c.add(op, f"{x} {weight(4, 4) if op == 'MatMul' else through(c.earlier(), kind)}")
    if c.random.random() < 0.5:
        y = c.add("Relu", y)
    return through(y, kind) if c.random.random() < 0.8 else y


def _chain(seed: int) -> Chain:
    c = Chain(seed)
    for _ in range(c.random.integers(2, 8)):
        piece = _PIECES[c.random.integers(len(_PIECES))]
        c.values.append(piece(c, c.values[-1]))
    return c


def _quantized_chain(seed: int) -> Chain:
    """Quantized pieces come first, where all numbers are exact: what is rounded otherwise may
    become another integer."""
    c = Chain(seed, "float32")
    pieces = [*[_quantized] * c.random.integers(1, 4)]
    pieces += [_PIECES[i] for i in c.random.integers(len(_PIECES), size=c.random.integers(4))]
    for piece in pieces:
        c.values.append(piece(c, c.values[-1]))
    return c


@pytest.fixture
def alone(monkeypatch: pytest.MonkeyPatch) -> Callable[[Any], Any]:
    """Loads a network whose nodes are computed one by one."""

    def load(model: Any) -> Any:
        with monkeypatch.context() as patch:
            patch.setattr(OnnxFusion, "run", lambda fusion: list(fusion.steps))
            return singa.onnx.load(model)

    return load


def _operators(net: Any) -> Iterator[str]:
    steps = net.network().main.steps
    return (step.node.op for step in steps if step.node.domain == MERGED)


def _close(found: Any, wanted: Any, what: Any) -> None:
    """Files have 1/6 in float32."""
    assert np.isfinite(wanted).all(), what
    bound = 1e-6 if wanted.dtype == np.float64 else 1e-4
    bound *= max(1.0, float(np.abs(wanted).max(initial=0)))
    np.testing.assert_allclose(found, wanted, rtol=0, atol=bound, err_msg=str(what))


def _results(net: Any, x: Any, training: bool) -> list[Any]:
    """The output, and the gradients of the input and all parameters."""
    t = tensor.from_numpy(x, dtype=x.dtype.name)
    t.requires_grad = t.stores_grad = True
    before, autograd.training = autograd.training, training
    try:
        y = net.forward(t)
        weights = tensor.from_numpy(np.cos(np.arange(y.size(), dtype=x.dtype)), dtype=x.dtype.name)
        total = autograd.reduce_sum(autograd.reshape(y, (y.size(),)) * weights)
        gradients = autograd.gradients(total)
    finally:
        autograd.training = before
    found = [gradients.get(p) for p in (t, *net.get_params().values())]
    arrays = [np.zeros(()) if g is None else g.numpy() for g in found]
    return [y.numpy(), *arrays, *(s.numpy() for s in net.get_states().values())]


def _input(c: Chain) -> Any:
    return c.random.uniform(-2, 2, SHAPE).astype(c.kind)


@pytest.mark.parametrize("first", range(0, 200, 20))
def test_executed(first: int, alone: Callable[[Any], Any]) -> None:
    """Values, gradients and running statistics, in inference and in training."""
    for seed in range(first, first + 20):
        c = _chain(seed)
        x, nets = _input(c), (singa.onnx.load(c.model()), alone(c.model()))
        assert not any(_operators(nets[1]))
        for training in (False, True):
            found, wanted = (_results(net, x, training) for net in nets)
            for a, b in zip(found, wanted, strict=True):
                _close(a, b, (seed, [n.op_type for n in c.nodes]))


def test_all_patterns_occur() -> None:
    nets = [singa.onnx.load(_chain(seed).model()) for seed in range(200)]
    nets += [singa.onnx.load(_quantized_chain(seed).model()) for seed in range(40)]
    merged = {op for net in nets for op in _operators(net)}
    ends = ["Relu", "Clip", "HardSwish", "Swish", "Sigmoid+Mul", "HardSigmoid+Mul"]
    wanted = {f"{norm}+{end}" for norm in ("BatchNormalization", "Mul+Add") for end in ends}
    wanted |= {"BatchNormalization+Add+Relu", "Mul+Add+Add+Relu", "Mul+Add", "MatMul+Add"}
    wanted |= {"BatchNormalization+Add", "Conv+Add"}
    wanted |= {"Sigmoid+Mul", "HardSigmoid+Mul", "Mul+Erf+Add+Mul+Mul", "Div+Erf+Add+Mul+Mul"}
    wanted |= {"Transpose+LayerNormalization+Transpose", "Reshape+Transpose+Reshape", "Pad+Conv"}
    wanted |= {"Attention", "QuantizedConv", "QuantizedMatMul", "QuantizedAdd"}
    assert merged == wanted


@pytest.mark.parametrize("seed", range(200, 224))
def test_recorded(seed: int, alone: Callable[[Any], Any]) -> None:
    """Inference and training of three batches, replayed, and of a shorter one."""
    c = _chain(seed)
    c.values.append(_position(c, c.values[-1]))  # at least one parameter
    batches = [_input(c) for _ in range(3)]
    batches.append(batches[0][:1])
    results = []
    for load, use_graph in ((singa.onnx.load, True), (alone, False)):
        net = load(c.model())
        net.loss = lambda out, y: autograd.mse_loss(out, y)
        xs = [tensor.from_numpy(x, dtype=c.kind) for x in batches]
        net.compile(xs[:1], is_train=False, use_graph=use_graph)
        found = [net(x).numpy() for x in xs]
        net.set_optimizer(opt.SGD(lr=1e-3))
        net.compile(xs[:1], is_train=True, use_graph=use_graph)
        found += [net(x, x)[0].numpy() for x in xs]
        assert bool(graphs(net)) == use_graph
        results.append([*found, *(t.numpy() for t in net.get_states().values())])
    for a, b in zip(*results, strict=True):
        _close(a, b, (seed, [n.op_type for n in c.nodes]))


@pytest.mark.parametrize("seed", range(40))
def test_quantized(seed: int, alone: Callable[[Any], Any]) -> None:
    """Executed and replayed in inference; gradients in training."""
    c = _quantized_chain(seed)
    x, nets = _input(c), (singa.onnx.load(c.model()), alone(c.model()))
    t, what = tensor.from_numpy(x), (seed, [n.op_type for n in c.nodes])
    wanted = nets[1](t).numpy()
    nets[0].compile([t], is_train=False, use_graph=True)
    for _ in range(3):
        _close(nets[0](t).numpy(), wanted, what)
    for a, b in zip(*(_results(net, x, True) for net in nets), strict=True):
        _close(a, b, what)
