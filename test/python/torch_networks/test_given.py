"""What `from_torch` is given: examples and axes are used, or refused with what to write."""

from __future__ import annotations

import builtins
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import singa
from singa.torch_networks.given import open_axes, require_torch, torch_inputs
from singa.torch_networks.guards import follows, parsed

pytestmark = pytest.mark.cpu("PyTorch computes with memory of the CPU")


def _loader(t: Any) -> Any:
    return t.utils.data.DataLoader(t.utils.data.TensorDataset(t.ones(4, 6)))


@pytest.mark.filterwarnings("ignore::UserWarning", "ignore::DeprecationWarning")
@pytest.mark.parametrize(
    ("given", "error", "message"),
    [
        ("None", TypeError, "got NoneType: leave it out where forward has a default"),
        ("(x, None)", TypeError, "got NoneType: leave it out"),
        ("(x, True)", TypeError, "got bool: put the module into one"),
        ("{'x': x}", TypeError, "got dict: put the module into one"),
        ("([x, x],)", TypeError, "got list: put the module into one"),
        ("[[1.0] * 6] * 4", TypeError, r"got list: give an array .* np\.array\(x, np\.float32\)"),
        ("(4, 6)", TypeError, r"got int: give an example such as torch\.zeros\(4, 6\)"),
        ("_loader(t)", TypeError, r"got DataLoader: .* next\(iter\(loader\)\)\[0\]"),
        ("_loader(t).dataset", TypeError, r"got TensorDataset: .* dataset\[0\]\[0\]\[None\]"),
        ("t.Tensor", TypeError, "got _TensorMeta: put the module"),
        ("np.array(['a'])", TypeError, r"of numbers, got an array of <U1: .* x\.astype"),
        ("np.ones(4, np.uint16)", TypeError, "the example input has type uint16.*: take int32"),
        ("(x, x.to(t.complex64))", TypeError, "example input 1 has type complex64.*: compute with"),
        ("x.to_sparse()", TypeError, "the example input is torch.sparse_coo: give a dense tensor"),
        ("t.nested.nested_tensor([x, x[1:]])", TypeError, "is nested: give a dense tensor"),
        ("t.quantize_per_tensor(x, 0.1, 0, t.qint8)", TypeError, "is quantised: give a dense"),
        ("x.to('meta')", TypeError, r"is on meta, .*: give torch\.zeros\(4, 6\)"),
        ("x[:0]", ValueError, r"has no rows, got shape \(0, 6\): give one or more"),
        ("()", ValueError, "there are no example inputs"),
    ],
)
def test_examples_that_are_none(
    torch: ModuleType, given: str, error: type[Exception], message: str
) -> None:
    names = {"t": torch, "np": np, "x": torch.ones(4, 6), "_loader": _loader}
    with pytest.raises(error, match=rf"\[from_torch\] .*{message}"):
        singa.from_torch(torch.nn.Linear(6, 3), eval(given, names))


def test_examples_of_numpy(torch: ModuleType) -> None:
    """Of any strides, order of bytes and class; float64 counts as the module's floats."""
    x = np.arange(24.0).reshape(4, 6)
    arrays = [x, x[::-1], np.asfortranarray(x), x.astype(">f8"), np.broadcast_to(x[:1], (4, 6))]
    for kind in (torch.float32, torch.float16, torch.float64):
        module = torch.nn.Linear(6, 3).to(kind)
        for array in arrays:
            (found,) = torch_inputs(torch, module, array)
            assert found.dtype == kind
            np.testing.assert_array_equal(found.double().numpy(), array)
    (found,) = torch_inputs(torch, torch.nn.ReLU(), x)
    assert found.dtype == torch.float64
    (found,) = torch_inputs(torch, torch.nn.Linear(6, 3), singa.tensor.from_numpy(x))
    assert found.dtype == torch.float32


def test_axes(torch: ModuleType) -> None:
    inputs = (torch.ones(2, 3, 8, 8),)
    assert open_axes((2, 3), inputs) == open_axes(range(2, 4), inputs) == (2, 3)
    for wrong in (2, True, None, {2: 3}, "hw", (2.0,), ((2, 3),)):
        with pytest.raises(TypeError, match=r"dynamic must be axes .*such as \(2, 3\)"):
            open_axes(wrong, inputs)
    for wrong in ((0,), (-1,), (4,)):
        with pytest.raises(ValueError, match="dynamic axes must be from 1 to 3"):
            open_axes(wrong, inputs)
    with pytest.raises(
        NotImplementedError, match=r"axis 1 of input has one length .*, 3: leave it"
    ):
        singa.from_torch(torch.nn.Conv2d(3, 2, 3), inputs, dynamic=(1,))


def test_what_pytorch_would_not_take(torch: ModuleType) -> None:
    """Export does not look at types, and the error is the module's own."""
    for wrong in (torch.ones(4, 6).half(), torch.ones(4, 6).double()):
        with pytest.raises(RuntimeError, match="same dtype") as caught:
            singa.from_torch(torch.nn.Linear(6, 3), wrong)
        assert "Linear itself raises this in PyTorch, in eval mode" in caught.value.__notes__[-1]
    with pytest.raises(TypeError, match="must be of a float type, got") as other:
        singa.from_torch(torch.nn.Linear(6, 3), torch.ones(4, 6).long())
    assert "same dtype" in other.value.__notes__[-2]
    with pytest.raises(TypeError, match=r"forward\(\) missing 1 required .* 'input2'"):
        singa.from_torch(torch.nn.Bilinear(6, 6, 2), torch.ones(4, 6))


def test_modules_that_are_none(torch: ModuleType) -> None:
    nn, x = torch.nn, torch.ones(4, 6)
    linear = nn.Linear(6, 3)
    for wrong, message in (
        (None, "got NoneType"),
        ("model.pt", "got str: make the module, and load its weights by torch.load"),
        (linear.state_dict(), "got OrderedDict: make the module, and load these weights"),
        (torch.relu, "got builtin_function_or_method: call it in the forward of a module"),
        (torch.export.export(linear, (x,)), "got ExportedProgram: give the module that"),
        (nn.ModuleList([linear]), "ModuleList has no forward: give a module"),
    ):
        for function in (lambda m: singa.from_torch(m, x), singa.accelerate):
            with pytest.raises(TypeError, match=message):
                function(wrong)


def test_modules_that_were_exported(torch: ModuleType) -> None:
    """Their mode does not change."""
    module = torch.nn.Sequential(torch.nn.Linear(6, 3), torch.nn.ReLU()).double().eval()
    x = torch.ones(4, 6, dtype=torch.float64)
    exported = torch.export.export(module, (x,)).module()
    net = singa.from_torch(exported, x)
    np.testing.assert_allclose(net(x).numpy(), module(x).detach().numpy(), rtol=1e-6)


def test_versions_of_pytorch(torch: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(torch, "__version__", "2.5.1+cpu")
        with pytest.raises(
            ImportError, match=r"needs PyTorch 2\.6 or newer, got 2\.5\.1.*--upgrade"
        ):
            singa.from_torch(torch.nn.Linear(6, 3), torch.ones(4, 6))
    plain = builtins.__import__

    def missing(name: str, *args: Any, **options: Any) -> Any:
        if name == "torch":
            raise ModuleNotFoundError("No module named 'torch'", name="torch")
        return plain(name, *args, **options)

    monkeypatch.setattr(builtins, "__import__", missing)
    with pytest.raises(ImportError, match=r"No module named 'torch': pip install torch"):
        require_torch()


def test_bfloat16_needs_a_package(torch: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "ml_dtypes", None)
    with pytest.raises(ImportError, match=r"network of bfloat16 .*: pip install ml_dtypes"):
        singa.from_torch(torch.nn.Linear(6, 3).bfloat16(), torch.ones(4, 6).bfloat16())


def test_equal_batches_stay_open(torch: ModuleType) -> None:
    """Also where PyTorch says it in another form, as for attention between two inputs."""

    class Attending(torch.nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.attention = torch.nn.MultiheadAttention(8, 2, batch_first=True)

        def forward(self, x: Any, t: Any, words: Any) -> Any:
            y, _ = self.attention(x * t[:, None, None], words, words, need_weights=False)
            return y

    sizes = {"x": 0, "t": 1}
    guard = parsed("(224*L['x'].size()[0]) == (224*L['t'].size()[0])", sizes)
    assert follows(guard, [("n", 3), ("n",)])
    assert not follows(guard, [("n", 3), ("m",)])
    assert not follows(parsed("L['x'].size()[0] >= 4", sizes), [("n", 3), ("n",)])
    module = Attending().eval()
    xs = torch.randn(5, 3, 8), torch.rand(5), torch.randn(5, 4, 8)
    net = singa.from_torch(module, tuple(x[:2] for x in xs))
    assert net.has_open_batch
    wanted = module(*xs).detach().numpy()
    np.testing.assert_allclose(net(*[x.numpy() for x in xs]).numpy(), wanted, rtol=1e-4, atol=1e-6)
