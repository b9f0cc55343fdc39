"""What is refused of a module says what it is, the line that does it, and what to write instead."""

from __future__ import annotations

import functools
import random
import re
import sys
import threading
import warnings
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import singa
from singa.graph import GraphWarning
from singa.networks.errors import UnsupportedError
from torch_refusals import OF_FUNCTIONS, OF_MODULES, TAKEN, calling

PAGE = Path(__file__).parents[3] / "docs" / "coming_from" / "pytorch_modules.md"
pytestmark = pytest.mark.cpu("PyTorch computes with memory of the CPU")


@functools.cache
def _refusal(torch: Any, name: str, is_function: bool) -> tuple[str, tuple[str, ...]]:
    """What `from_torch` says, and its reasons."""
    if is_function:
        function = OF_FUNCTIONS[name][0]
        module = calling(torch, lambda x: function(torch, x))
    else:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            module = OF_MODULES[name][0](torch)
    numbers = torch.get_rng_state()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with pytest.raises(UnsupportedError) as caught:
            singa.from_torch(module, torch.ones(4, 6))
    assert torch.equal(torch.get_rng_state(), numbers)
    assert not any(type(p).__name__ == "FakeTensor" for p in module.parameters())
    return str(caught.value), tuple(problem.reason for problem in caught.value.problems)


@pytest.mark.parametrize("name", OF_FUNCTIONS)
def test_functions(torch: ModuleType, name: str, capfd: pytest.CaptureFixture[str]) -> None:
    function, message = OF_FUNCTIONS[name]
    module, x = calling(torch, lambda x: function(torch, x)), torch.ones(4, 6)
    state = random.getstate()
    said = _refusal(torch, name, True)[0]
    assert re.search(rf"\[from_torch\] not supported:(?s:.*){message}", said), said
    if name not in TAKEN:
        numbers = torch.get_rng_state()
        with pytest.raises(UnsupportedError, match=rf"not supported:(?s:.*){message}"):
            singa.accelerate(module)(x)
        assert torch.equal(torch.get_rng_state(), numbers)
    assert name == "random" or random.getstate() == state
    printed = capfd.readouterr()
    assert (printed.out, printed.err) == ("", "")


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::UserWarning")
@pytest.mark.parametrize("name", OF_MODULES)
def test_modules(torch: ModuleType, name: str) -> None:
    make, of_from_torch, of_accelerate = OF_MODULES[name]
    said = _refusal(torch, name, False)[0]
    assert re.search(rf"(?s)\[from_torch\].*{of_from_torch}", said), said
    if not of_accelerate:
        return
    module = make(torch)
    with pytest.raises(
        (NotImplementedError, TypeError), match=rf"(?s)\[accelerate\].*{of_accelerate}"
    ):
        singa.accelerate(module)(torch.ones(4, 6))
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


#: Rows of the page that need another device, or another version of PyTorch.
_NOT_HERE = ("it is on …: call module.cpu() first, and give a device= of singa",)


@pytest.mark.slow
def test_the_page_lists_what_is_refused(torch: ModuleType) -> None:
    """Each reason is a row of the page, and each row is a reason."""
    table = PAGE.read_text().partition("## What is refused\n")[2].partition("\n## ")[0]
    rows = {
        ": ".join(row).replace("`", "") for row in re.findall(r"^\| (.*) \| (.*) \|$", table, re.M)
    }
    rows -= {"what: instead", "---: ---"}
    cases = [*((name, True) for name in OF_FUNCTIONS), *((name, False) for name in OF_MODULES)]
    reasons = {
        re.sub(r"^\S+ line \d+: |,? (called )?at \S+ line \d+", "", reason)
        for case in cases
        for reason in _refusal(torch, *case)[1]
    }
    forms = {row: re.compile(".*".join(map(re.escape, row.split("…")))) for row in rows}
    assert not [each for each in reasons if not any(f.fullmatch(each) for f in forms.values())]
    unused = {row for row, form in forms.items() if not any(map(form.fullmatch, reasons))}
    assert unused == {*_NOT_HERE}


def test_an_error_of_the_module_itself(torch: ModuleType) -> None:
    module, x = torch.nn.Linear(5, 3), torch.ones(4, 6)
    for call in (lambda: singa.from_torch(module, x), lambda: singa.accelerate(module)(x)):
        with pytest.raises(RuntimeError, match="shapes cannot be multiplied") as caught:
            call()
        (note,) = caught.value.__notes__
        assert re.fullmatch(
            r"Linear itself raises this in PyTorch, in (eval|training) mode, for inputs \(4, 6\) "
            "torch.float32",
            note,
        )


def test_results_and_inputs(torch: ModuleType) -> None:
    x = torch.ones(4, 6)
    for more, words in (("name", "got 'name'"), (None, "got None")):
        module = calling(torch, lambda x, more=more: (x, more))
        with pytest.raises(UnsupportedError, match=f"results are tensors.* {words}"):
            singa.from_torch(module, x)
    with pytest.raises(UnsupportedError, match=r"results are tensors.* got a length"):
        singa.from_torch(calling(torch, lambda x: (x, x.shape[0])), x)
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
            singa.accelerate(calling(torch, make))(torch.ones(4, 6))


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
    singa.from_torch(calling(torch, forward), torch.ones(4, 6))
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
        net = singa.from_torch(calling(torch, torch.relu), torch.ones(4, 6))
        with pytest.raises(UnsupportedError, match="draws from Python's random"):
            singa.from_torch(calling(torch, lambda x: x * random.random()), torch.ones(4, 6))
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
