"""What is refused of a module says what it is, the line that does it, and what to write instead."""

from __future__ import annotations

import functools
import random
import sys
import threading
import warnings
from collections.abc import Callable
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import singa
from singa.graph import GraphWarning
from singa.networks.errors import UnsupportedError

pytestmark = pytest.mark.cpu("PyTorch computes with memory of the CPU")
LINE = r"test_refusals\.py line \d+"


def _calling(torch: Any, function: Callable[[Any], Any]) -> Any:
    class Calling(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = torch.nn.Linear(6, 6)

        def forward(self, x: Any) -> Any:
            return function(self.linear(x))

    return Calling()


def _gradient(torch: Any, x: Any) -> Any:
    return torch.autograd.grad((x**3).sum(), x, create_graph=True)[0]


def _rounded(torch: Any, x: Any) -> Any:
    class Rounded(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            return x.round()

        @staticmethod
        def backward(ctx: Any, dy: Any) -> Any:
            return dy

    return Rounded.apply(x)


def _branch(torch: Any, x: Any) -> Any:
    return x * 2 if x.sum() > 0 else x


def _loop(torch: Any, x: Any) -> Any:
    for _ in range(int(x.abs().max())):
        x = x / 2
    return x


def _distribution(torch: Any, x: Any) -> Any:
    return torch.distributions.Normal(x, 1.0).rsample()


@functools.cache
def _operator_of_a_library(torch: Any) -> Any:
    def twice(x):
        return x * 2

    twice.__annotations__ = {"x": torch.Tensor, "return": torch.Tensor}
    operator = torch.library.custom_op("refusals::twice", twice, mutates_args=())
    operator.register_fake(torch.empty_like)
    return operator


def _packed(torch: Any, x: Any) -> Any:
    return torch.zeros(x.sum(0).long()[0], 2)


VALUES = rf"{LINE}: what Python does depends on elements .* take torch\.where"
#: A function of a tensor, and what the message says.
OF_FUNCTIONS: dict[str, tuple[Callable[[Any, Any], Any], str]] = {
    "operator": (
        lambda t, x: t.special.i0(x),
        rf"\(i0\): singa has no such operator, called at .*{LINE}: write it with others",
    ),
    "item": (
        lambda t, x: x * x.mean().item(),
        rf"Python reads an element, called at .*{LINE}: compute with the tensor itself",
    ),
    "mask": (
        lambda t, x: x[x > 0].sum(),
        rf"a mask as an index.*, called at .*{LINE}: take torch\.where",
    ),
    "branch": (_branch, VALUES),
    "loop": (_loop, VALUES),
    "distribution": (_distribution, rf"{VALUES}.* validate_args=False"),
    "sparse": (lambda t, x: t.sparse.mm(x.to_sparse(), x.T), rf"{LINE}: singa has no sparse tens"),
    "complex": (
        lambda t, x: x.to(t.complex64).abs(),
        rf"no tensors of type complex64, called at .*{LINE}: compute with both parts",
    ),
    "function": (_rounded, rf"{LINE}: Rounded is a custom autograd\.Function: write it with"),
    "gradient": (_gradient, rf"{LINE}: torch\.autograd\.grad inside the module: write the deriv"),
    "backward": (
        lambda t, x: (x.sum().backward(), x)[1],
        rf"{LINE}: backward inside the module: write the derivative out",
    ),
    "func": (
        lambda t, x: t.func.vjp(t.square, x)[1](x)[0],
        rf"{LINE}: a gradient inside the module \(torch\.func\): write the derivative out",
    ),
    "hook": (
        lambda t, x: (x.register_hook(t.neg), x)[1],
        rf"{LINE}: register_hook inside the module: give the hook to the result",
    ),
    "checkpoint": (
        lambda t, x: t.utils.checkpoint.checkpoint(t.sin, x, use_reentrant=True),
        rf"{LINE}: torch\.utils\.checkpoint: give it use_reentrant=False",
    ),
    "parameter": (
        lambda t, x: x * t.nn.Parameter(t.ones(6)),
        rf"{LINE}: a call makes a Parameter: make it in __init__",
    ),
    "values in an operator": (
        lambda t, x: t.cov(x),
        rf"{LINE}: what equal gives depends on elements of a tensor: write it with others",
    ),
    "address": (
        lambda t, x: x + x.data_ptr() % 2,
        rf"{LINE}: Python reads where a tensor lies: leave data_ptr out",
    ),
    "checked operator": (
        lambda t, x: t.linalg.inv(x.mT @ x),
        rf"\(linalg_inv_ex\): singa has no such operator, called at .*{LINE}: write it with",
    ),
    "operator of a library": (
        lambda t, x: _operator_of_a_library(t)(x),
        r"\(refusals\.twice\): singa has no such operator, called at .*: write it with",
    ),
    "generator": (
        lambda t, x: x + t.rand(6, generator=t.Generator()),
        rf"\(rand\.generator\): a torch\.Generator at .*{LINE}: leave it out",
    ),
    "short integers": (
        lambda t, x: x.to(t.int16),
        rf"no tensors of type int16, called at .*{LINE}: take int32 or int64",
    ),
    "numpy": (
        lambda t, x: x * t.from_numpy(np.sort(x.detach().numpy())),
        rf"{LINE}: a tensor becomes an array of NumPy.*: write this with operators of PyTorch",
    ),
    "random": (
        lambda t, x: x * 2 if random.random() < 0.5 else x,
        rf"draws from Python's random at .*{LINE}, which .*: take torch\.rand",
    ),
    "numpy.random": (
        lambda t, x: x * float(np.random.rand()),  # noqa: NPY002
        rf"draws from Python's numpy\.random at .*{LINE}, which .*: take torch\.rand",
    ),
}


@pytest.mark.parametrize("name", OF_FUNCTIONS)
def test_functions(torch: ModuleType, name: str, capfd: pytest.CaptureFixture[str]) -> None:
    function, message = OF_FUNCTIONS[name]
    module, x = _calling(torch, lambda x: function(torch, x)), torch.ones(4, 6)
    numbers = random.getstate(), torch.get_rng_state().tolist()
    for call in (lambda: singa.from_torch(module, x), lambda: singa.accelerate(module)(x)):
        with pytest.raises(UnsupportedError, match=rf"(?s)not supported.*{message}"):
            call()
    assert torch.get_rng_state().tolist() == numbers[1]
    assert name == "random" or random.getstate() == numbers[0]
    printed = capfd.readouterr()
    assert (printed.out, printed.err) == ("", "")


def _quantised(torch: Any) -> Any:
    nn, quantization = torch.nn, torch.ao.quantization
    module = nn.Sequential(
        quantization.QuantStub(), nn.Linear(6, 3), quantization.DeQuantStub()
    ).eval()
    module.qconfig = quantization.default_qconfig
    quantization.prepare(module, inplace=True)
    module(torch.ones(4, 6))
    return quantization.convert(module)


def _with_buffer(torch: Any, value: Any) -> Any:
    module = torch.nn.Linear(6, 6)
    module.register_buffer("table", value)
    return module


def _hooked(torch: Any) -> Any:
    module = torch.nn.Sequential(torch.nn.Linear(6, 3))
    module[0].register_full_backward_hook(lambda *_: None)
    return module


def _rows(torch: Any) -> Any:
    class Rows(torch.nn.Module):  # type: ignore[misc, name-defined]
        def forward(self, x: Any) -> Any:
            return x.long()

    return Rows()


def _late(torch: Any) -> Any:
    class Late(torch.nn.Module):  # type: ignore[misc, name-defined]
        def forward(self, x: Any) -> Any:
            if not hasattr(self, "linear"):
                self.linear = torch.nn.Linear(6, 3)
            return self.linear(x)

    return torch.nn.Sequential(Late())


#: A module, and what the message says for `from_torch` and for `accelerate`.
OF_MODULES: dict[str, tuple[Callable[[Any], Any], str, str]] = {
    "quantised": (_quantised, *["'1'.*a quantised module: .* take Model.quantize"] * 2),
    "parallel": (
        lambda t: t.nn.Sequential(t.nn.DataParallel(t.nn.Linear(6, 3))),
        *[r"'0' \(DataParallel\): give its \.module; opt\.DistOpt"] * 2,
    ),
    "script": (
        lambda t: t.jit.trace(t.nn.Linear(6, 3), t.ones(4, 6)),
        *["a module of torch.jit: give the one that was scripted or traced"] * 2,
    ),
    "lazy": (
        lambda t: t.nn.LazyLinear(3),
        *["weight.* has no elements yet: call the module once in PyTorch"] * 2,
    ),
    "sparse": (
        lambda t: _with_buffer(t, t.eye(6).to_sparse()),
        "'table'.* it is sparse",
        r"table is on cpu \(torch.sparse_coo\): .* dense",
    ),
    "meta": (lambda t: t.nn.Linear(6, 3, device="meta"), *["weight.* is on meta"] * 2),
    "written parameter": (
        lambda t: t.nn.Sequential(_rows(t), t.nn.Embedding(9, 3, max_norm=1.0)),
        *["it writes to its parameter 1.weight: write outside of the module"] * 2,
    ),
    "late part": (_late, *["a call makes 0.linear: make it in __init__, or call the module"] * 2),
    "values in a part": (
        lambda t: t.nn.Sequential(t.nn.Linear(6, 3), t.nn.BatchNorm1d(3, momentum=None)),
        *[r"'1' \(BatchNorm1d\): what Python does depends on elements of a tensor"] * 2,
    ),
    "backward hook": (_hooked, r"'0' \(Linear\): a backward hook", "0 .* has a backward hook"),
}


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::UserWarning")
@pytest.mark.parametrize("name", OF_MODULES)
def test_modules(torch: ModuleType, name: str) -> None:
    make, of_from_torch, of_accelerate = OF_MODULES[name]
    module, x = make(torch), torch.ones(4, 6)
    with pytest.raises(UnsupportedError, match=rf"(?s)\[from_torch\].*{of_from_torch}"):
        singa.from_torch(module, x)
    with pytest.raises(NotImplementedError, match=rf"(?s)\[accelerate\].*{of_accelerate}"):
        singa.accelerate(module)(x)
    assert not any(type(p).__name__ == "FakeTensor" for p in module.parameters())


def test_modules_that_write_to_an_input(torch: ModuleType) -> None:
    """A network of singa computes the same and leaves the input as it is; an accelerated module
    would have to change it."""

    class Writing(torch.nn.Linear):  # type: ignore[misc, name-defined]
        def forward(self, x: Any) -> Any:
            return super().forward(torch.nn.functional.relu_(x.add_(1))) + x

    values = np.random.default_rng(0).standard_normal((4, 3)).astype(np.float32)
    for module in (Writing(3, 3), torch.nn.Sequential(torch.nn.ReLU(True), torch.nn.Linear(3, 3))):
        x = values.copy()
        net = singa.from_torch(module, torch.from_numpy(values.copy()))
        np.testing.assert_allclose(
            net(x).numpy(), module(torch.from_numpy(values.copy())).detach().numpy(), atol=1e-6
        )
        np.testing.assert_array_equal(x, values)
        with pytest.raises(NotImplementedError, match=r"it writes to an input.*: write to a copy"):
            singa.accelerate(module)(torch.from_numpy(values.copy()))


def test_an_error_of_the_module_itself(torch: ModuleType) -> None:
    module, x = torch.nn.Linear(5, 3), torch.ones(4, 6)
    for call in (lambda: singa.from_torch(module, x), lambda: singa.accelerate(module)(x)):
        with pytest.raises(RuntimeError, match="shapes cannot be multiplied") as caught:
            call()
        (note,) = caught.value.__notes__
        assert note == "Linear itself raises this in PyTorch, for inputs (4, 6) torch.float32"


def test_results_and_inputs(torch: ModuleType) -> None:
    x = torch.ones(4, 6)
    for more, words in (("name", "got 'name'"), (None, "got None")):
        module = _calling(torch, lambda x, more=more: (x, more))
        with pytest.raises(UnsupportedError, match=f"results are tensors.* {words}"):
            singa.from_torch(module, x)
    with pytest.raises(UnsupportedError, match=r"results are tensors.* got a length"):
        singa.from_torch(_calling(torch, lambda x: (x, x.shape[0])), x)
    with pytest.raises(TypeError, match="got dict: put the module into one"):
        singa.from_torch(torch.nn.Linear(6, 3), {"x": x})


INPUTS: dict[str, Callable[[Any, Any], Any]] = {
    "sparse_coo": lambda t, x: x.to_sparse(),
    "quantised": lambda t, x: t.quantize_per_tensor(x, 0.1, 0, t.qint8),
    "nested": lambda t, x: t.nested.nested_tensor([x, x[1:]]),
    "on meta": lambda t, x: x.to("meta"),
}


@pytest.mark.filterwarnings("ignore::UserWarning", "ignore::DeprecationWarning")
@pytest.mark.parametrize("kind", INPUTS)
def test_inputs_of_accelerated_modules(torch: ModuleType, kind: str) -> None:
    net = singa.accelerate(torch.nn.Linear(6, 3))
    with pytest.raises(NotImplementedError, match=rf"an input is .*{kind}: give"):
        net(INPUTS[kind](torch, torch.ones(4, 6)))


def test_results_of_accelerated_modules(torch: ModuleType) -> None:
    for name, make in (("set", lambda x: {x}), ("ndarray", lambda x: [x, np.zeros(3)])):
        with pytest.raises(UnsupportedError, match=rf"a result of type {name}: return tensors"):
            singa.accelerate(_calling(torch, make))(torch.ones(4, 6))


def test_tensors_that_an_accelerated_module_keeps(torch: ModuleType) -> None:
    class Keeping(torch.nn.Linear):  # type: ignore[misc, name-defined]
        def forward(self, x: Any) -> Any:
            y = super().forward(x)
            self.loss = y.square().mean()
            return y

    net = singa.accelerate(torch.nn.Sequential(Keeping(6, 3)))
    with pytest.warns(GraphWarning, match=r"sets self\.0\.loss in its call.*: return the tens"):
        net(torch.ones(4, 6))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        net(torch.ones(4, 6))


def test_other_threads_are_not_refused(torch: ModuleType) -> None:
    """What is refused inside of a module, another thread does meanwhile."""
    done: list[Any] = []

    def work() -> None:
        x = torch.ones(6, requires_grad=True)
        x.register_hook(torch.neg)
        net(x[None]).sum().backward()
        with torch.inference_mode():
            done.append(torch.nn.Parameter(torch.ones(2)))

    def forward(x: Any) -> Any:
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
        return x

    net = singa.accelerate(torch.nn.Linear(6, 3))
    work()
    names = [(torch.Tensor, "backward"), (torch.autograd, "grad"), (torch.nn.Parameter, "__new__")]
    before = [getattr(*each) for each in names]
    singa.from_torch(_calling(torch, forward), torch.ones(4, 6))
    assert len(done) >= 3
    assert [getattr(*each) for each in names] == before


def test_what_threads_draw_is_their_own(torch: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    done = threading.Event()

    def draw() -> None:
        while not done.wait(0.0001):
            random.random()

    thread = threading.Thread(target=draw)
    thread.start()
    try:
        net = singa.from_torch(_calling(torch, torch.relu), torch.ones(4, 6))
        with pytest.raises(UnsupportedError, match="draws from Python's random"):
            singa.from_torch(_calling(torch, lambda x: x * random.random()), torch.ones(4, 6))
    finally:
        done.set()
        thread.join()
    assert net.has_open_batch


def _around(torch: Any, name: str, net: Any) -> Any:
    x = torch.ones(4, 6)
    if name == "trace":
        return torch.jit.trace(net, x)
    if name == "vmap":
        return torch.vmap(net)(x[:, None])
    return torch.func.functional_call(net, {"weight": torch.zeros(3, 6)}, x)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("trace", "torch.jit.trace .* give it the module itself"),
        ("vmap", "torch.func around .* give it the module itself"),
        ("functional_call", "weight is a Tensor and no Parameter"),
    ],
)
def test_what_is_around_accelerated_modules(torch: ModuleType, name: str, message: str) -> None:
    net = singa.accelerate(torch.nn.Linear(6, 3))
    with pytest.raises(NotImplementedError, match=message):
        _around(torch, name, net)
    assert net(torch.ones(4, 6)).shape == (4, 3)


def test_accelerated_parts_and_compilers(torch: ModuleType) -> None:
    """As a part of another module, an accelerated module is the module itself."""
    inner, x = torch.nn.Linear(6, 3), torch.ones(4, 6)
    wanted = inner(x).relu()
    outer = torch.nn.Sequential(singa.accelerate(inner), torch.nn.ReLU())
    exported = torch.export.export(outer, (x,)).module()
    nets = [singa.accelerate(each) for each in (outer, exported)]
    for net in (*nets, torch.compile(singa.accelerate(outer), backend="eager")):
        torch.testing.assert_close(net(x), wanted)
    model = singa.from_torch(outer, x)
    assert list(model.get_params()) == ["0.weight", "0.bias"]
    np.testing.assert_allclose(model(x.numpy()).numpy(), wanted.detach().numpy(), rtol=1e-5)
    assert sys.modules.get("torch") is torch
