"""Networks that PyTorch exports: outputs, gradients and training beside PyTorch's own."""

from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

pytest.importorskip("onnx", reason="the package onnx is not installed")
import singa.onnx
from singa import tensor
from torch_export import check_losses, draw_statistics, exported

Tensor = tensor.Tensor


def _convolutional(torch: Any) -> Any:
    """Residual block, depthwise convolution, squeeze and excitation, pooling with ceil_mode."""
    nn = torch.nn

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.stem = nn.Conv2d(3, 8, 3, stride=2, padding=1, bias=False)
            self.bn = nn.BatchNorm2d(8)
            self.depthwise = nn.Conv2d(8, 8, 5, padding=2, groups=8, bias=False)
            self.bn2 = nn.BatchNorm2d(8)
            self.squeeze = nn.Conv2d(8, 4, 1)
            self.excite = nn.Conv2d(4, 8, 1)
            self.pool = nn.MaxPool2d(3, 2, ceil_mode=True)
            self.head = nn.Linear(8, 5)

        def forward(self, x: Any) -> Any:
            x = torch.relu(self.bn(self.stem(x)))
            y = self.bn2(self.depthwise(x))
            x = torch.relu(y + x)
            s = nn.functional.adaptive_avg_pool2d(x, 1)
            # Not hardsigmoid: PyTorch's gradient of it rounds 1/6 to float32.
            s = torch.sigmoid(self.excite(nn.functional.silu(self.squeeze(s))))
            x = self.pool(nn.functional.hardswish(x * s))
            return self.head(torch.flatten(nn.functional.adaptive_avg_pool2d(x, 1), 1))

    return Net()


def _transformer(torch: Any) -> Any:
    """Embeddings, positions, causal attention, layer norm, Gelu."""
    nn = torch.nn

    class Net(nn.Module):
        def __init__(self, width: int = 16, heads: int = 2) -> None:
            super().__init__()
            self.words, self.places = nn.Embedding(11, width), nn.Embedding(9, width)
            self.norm, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
            self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
            self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
            self.head, self.heads = nn.Linear(width, 11, bias=False), heads

        def forward(self, i: Any) -> Any:
            n, t = i.shape
            x = self.words(i) + self.places(torch.arange(t))
            parts = self.qkv(self.norm(x)).chunk(3, -1)
            q, k, v = [p.reshape(n, t, self.heads, -1).transpose(1, 2) for p in parts]
            y = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
            x = x + self.out(y.transpose(1, 2).reshape(n, t, -1))
            x = x + self.down(nn.functional.gelu(self.up(self.norm2(x))))
            return self.head(x)

    return Net()


def _unet(torch: Any) -> Any:
    """Transposed convolution, concatenation, bilinear and nearest Resize, group norm."""
    nn = torch.nn

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.down = nn.Conv2d(3, 8, 3, stride=2, padding=1)
            self.norm = nn.GroupNorm(2, 8)
            self.up = nn.ConvTranspose2d(8, 4, 3, stride=2, padding=1, output_padding=1)
            self.last = nn.Conv2d(7, 2, 1)

        def forward(self, x: Any) -> Any:
            y = self.up(nn.functional.gelu(self.norm(self.down(x))))
            y = self.last(torch.cat([x, y], 1))
            y = nn.functional.interpolate(y, scale_factor=2, mode="nearest")
            return nn.functional.interpolate(y, scale_factor=1.5, mode="bilinear")

    return Net()


def _recurrent(kind: str, **options: Any) -> Callable[[Any], Any]:
    def make(torch: Any) -> Any:
        class Net(torch.nn.Module):  # type: ignore[misc]
            def __init__(self) -> None:
                super().__init__()
                self.rnn = getattr(torch.nn, kind)(6, 8, batch_first=True, **options)
                self.head = torch.nn.Linear(8 * (2 if self.rnn.bidirectional else 1), 3)

            def forward(self, x: Any) -> Any:
                return self.head(self.rnn(x)[0])

        return Net()

    return make


_NETS: dict[str, tuple[Callable[[Any], Any], tuple[int, ...]]] = {
    "convolutional": (_convolutional, (2, 3, 16, 16)),
    "transformer": (_transformer, (2, 7)),
    "unet": (_unet, (2, 3, 8, 8)),
    "LSTM": (_recurrent("LSTM", num_layers=2), (2, 5, 6)),
    "bidirectional LSTM": (_recurrent("LSTM", bidirectional=True), (2, 5, 6)),
    "GRU": (_recurrent("GRU"), (2, 5, 6)),
    "RNN": (_recurrent("RNN", nonlinearity="relu"), (2, 5, 6)),
}


def _input(name: str, shape: tuple[int, ...], seed: int = 0) -> Any:
    random = np.random.default_rng(seed)
    if name == "transformer":
        return random.integers(0, 11, shape)
    return random.standard_normal(shape)


def _made(torch: Any, name: str) -> Any:
    torch.manual_seed(0)
    module = _NETS[name][0](torch).double()
    draw_statistics(torch, module)
    return module


def _as_tensor(x: Any) -> Tensor:
    return tensor.from_numpy(x, dtype=str(x.dtype))


@pytest.mark.parametrize("how", ["script", pytest.param("dynamo", marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", _NETS)
def test_outputs_in_float64(torch: ModuleType, tmp_path: Path, name: str, how: str) -> None:
    module = _made(torch, name).eval()
    shape = _NETS[name][1]
    x = torch.tensor(_input(name, shape))
    net = singa.onnx.load(exported(torch, module, x, how, tmp_path / "net.onnx"))
    for count in (shape[0], shape[0] + 1):
        x = _input(name, (count, *shape[1:]), count)
        with torch.no_grad():
            wanted = module(torch.tensor(x)).numpy()
        found = net(_as_tensor(x)).numpy()
        assert np.abs(found - wanted).max() <= 1e-12 * np.abs(wanted).max()


@pytest.mark.parametrize("name", _NETS)
def test_losses_of_training(torch: ModuleType, tmp_path: Path, name: str) -> None:
    module = _made(torch, name).train()
    shape = _NETS[name][1]
    x = _input(name, shape)
    path = exported(torch, module, torch.tensor(x), "script", tmp_path / "net.onnx")
    labels = np.random.default_rng(3).integers(0, 2, shape[0])
    check_losses(torch, module, path, x, labels, steps=20, lr=0.05)


def test_there_and_back(torch: ModuleType, tmp_path: Path) -> None:
    """PyTorch, import, export, ONNX Runtime."""
    from onnx_runtime import runtime_outputs
    from singa.onnx.save import to_model

    module = _made(torch, "convolutional").float().eval()
    x = torch.tensor(_input("convolutional", (2, 3, 16, 16)), dtype=torch.float32)
    net = singa.onnx.load(exported(torch, module, x, "script", tmp_path / "net.onnx"))
    proto = to_model(net, [_as_tensor(x.numpy())], dynamic_axes={"x": [0]})
    x = torch.tensor(_input("convolutional", (3, 3, 16, 16), 1), dtype=torch.float32)
    with torch.no_grad():
        wanted = module(x).numpy()
    (found,) = runtime_outputs(proto, [x.numpy()])
    assert np.abs(found - wanted).max() <= 2e-6 * np.abs(wanted).max()
