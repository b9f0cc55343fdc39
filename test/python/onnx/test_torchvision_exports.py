"""Networks of torchvision that PyTorch's two exporters write, beside PyTorch and ONNX Runtime.

All of them need some minutes: SINGA_TEST_ALL_NETWORKS=1.
"""

from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

pytest.importorskip("onnx", reason="the package onnx is not installed")
import singa.onnx
from network_table import ALL_NETWORKS
from singa import tensor
from torch_export import check_losses, draw_statistics, exported
from torchvision_networks import networks

pytestmark = pytest.mark.slow

#: Height and width of the images; smaller ones than the networks were designed for, where they can.
_SIZES = {"alexnet": 224, "inception_v3": 96, "maxvit_t": 224, "vgg16_bn": 224, "vit_b_16": 224}
_SIZES |= dict.fromkeys(
    [
        *("convnext_tiny", "densenet121", "efficientnet_b0", "efficientnet_v2_s", "googlenet"),
        *("mnasnet1_0", "mobilenet_v2", "mobilenet_v3_large", "mobilenet_v3_small"),
        *("regnet_y_400mf", "resnet18", "resnet50", "resnext50_32x4d", "segmentation.fcn_resnet50"),
        *("shufflenet_v2_x1_0", "squeezenet1_1", "swin_t"),
    ],
    64,
)
#: Largest float64 difference. These files have 32^-0.5, the scale of the scores, as a float32.
_BOUNDS = {("swin_t", "script"): 1e-9, ("swin_t", "dynamo"): 1e-9, ("maxvit_t", "dynamo"): 1e-11}
_NAMES = sorted(_SIZES if ALL_NETWORKS else ["mobilenet_v3_small"])
_TUNED = ["convnext_tiny", "densenet121", "efficientnet_b0", "mobilenet_v2", "resnet18", "vit_b_16"]


def _made(torch: Any, name: str, **options: Any) -> Any:
    """A network with statistics that are not 0 and 1, and without weights of 0."""
    torch.manual_seed(0)
    if name in ("googlenet", "inception_v3"):
        options |= {"aux_logits": False, "init_weights": False}
    elif name.startswith("segmentation."):
        options |= {"weights_backbone": None}
    if name == "vit_b_16" and options:  # smaller, so that training steps are fast
        name = "VisionTransformer"
        options |= {"image_size": 64, "patch_size": 16, "num_layers": 3, "num_heads": 12}
        options |= {"hidden_dim": 768, "mlp_dim": 3072}
    make: Any = networks(torch)
    for part in name.split("."):
        make = getattr(make, part)
    module: Any = make(**options)
    draw_statistics(torch, module)
    with torch.no_grad():
        for parameter in module.parameters():
            if parameter.ndim > 1 and not parameter.any():
                parameter.normal_(0, 0.02)  # heads that begin with zeros would hide everything
            elif parameter.ndim and float(parameter.abs().max()) < 1e-5:
                parameter.fill_(0.1)  # scales of layers
    return module


class _Scores:
    """A network that returns a dict, as one that returns its scores."""

    @staticmethod
    def of(torch: Any, module: Any) -> Any:
        class Net(torch.nn.Module):  # type: ignore[misc]
            def __init__(self) -> None:
                super().__init__()
                self.net = module

            def forward(self, x: Any) -> Any:
                return self.net(x)["out"]

        return Net()


def _images(count: int, size: int, kind: str, seed: int) -> Any:
    return np.random.default_rng(seed).standard_normal((count, 3, size, size)).astype(kind)


def _gap(found: Any, wanted: Any) -> float:
    return float(np.abs(found - wanted).max() / np.abs(wanted).max())


@pytest.mark.parametrize("how", ["script", "dynamo"])
@pytest.mark.parametrize("name", _NAMES)
def test_outputs(torch: ModuleType, tmp_path: Path, name: str, how: str) -> None:
    """In float64 PyTorch's numbers, in float32 ONNX Runtime's, for two batch sizes."""
    size = _SIZES[name]
    module = _made(torch, name).double().eval()
    if name.startswith("segmentation."):
        module = _Scores.of(torch, module).eval()
    x = torch.tensor(_images(2, size, "float64", 0))
    path = exported(torch, module, x, how, tmp_path / "net.onnx")
    net = singa.onnx.load(path)
    gaps = []
    for count in (1, 2):
        x = _images(count, size, "float64", count)
        with torch.no_grad():
            wanted = module(torch.tensor(x)).numpy()
        gaps.append(_gap(net(tensor.from_numpy(x, dtype="float64")).numpy(), wanted))
    assert max(gaps) <= _BOUNDS.get((name, how), 1e-12)
    print(f"\n{name} {how}: float64 {max(gaps):.2g}", end="")
    del net

    runtime = pytest.importorskip("onnxruntime", reason="ONNX Runtime is not installed")
    module = module.float()
    x = torch.tensor(_images(2, size, "float32", 0))
    path = exported(torch, module, x, how, tmp_path / "net32.onnx")
    net = singa.onnx.load(path)
    session = runtime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    gaps = []
    for count in (1, 2):
        x = _images(count, size, "float32", count)
        (wanted,) = session.run(None, {session.get_inputs()[0].name: x})
        gaps.append(_gap(net(tensor.from_numpy(x)).numpy(), wanted))
    print(f", float32 {max(gaps):.2g}")
    assert max(gaps) <= 5e-6


@pytest.mark.parametrize("name", _TUNED if ALL_NETWORKS else ["resnet18"])
def test_losses_of_training(torch: ModuleType, tmp_path: Path, name: str) -> None:
    """Twenty float64 losses with live batch norm, without dropout; replayed steps give the bits of
    executed ones. Only the lane `networks` makes more than six."""
    steps = 20 if ALL_NETWORKS else 6
    options: dict[str, Any] = {"num_classes": 10}
    if name in ("efficientnet_b0", "convnext_tiny"):
        options |= {"stochastic_depth_prob": 0.0}
    module = _made(torch, name, **options).double().train()
    for part in module.modules():
        if isinstance(part, torch.nn.Dropout):
            part.p = 0.0
    # Statistics of few values, and large steps, would make any rounding grow from step to step.
    x = _images(4, 64, "float64", 0)
    labels = np.arange(4) * 3 % 10
    path = exported(torch, module, torch.tensor(x), "script", tmp_path / "net.onnx")
    losses = check_losses(torch, module, path, x, labels, steps, lr=2e-4)
    assert losses[-1] < losses[0] - 1e-4
