"""Training on a GPU, or on the emulated one, gives the results of the CPU."""

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from singa import device, layer, models, opt, tensor

if TYPE_CHECKING:
    from singa.singa_wrap import Device


def perceptron() -> list[Any]:
    return [layer.Linear(16), layer.ReLU(), layer.Linear(4)]


def convolutional() -> list[Any]:
    return [
        *(layer.Conv2d(4, 3, padding=1), layer.BatchNorm2d(), layer.ReLU(), layer.MaxPool2d(2)),
        *(layer.Conv2d(6, 3, stride=2, padding=1, bias=False), layer.Sigmoid()),
        *(layer.AvgPool2d(2), layer.Flatten(), layer.Linear(4)),
    ]


def losses_on(
    dev: "Device", layers: list[Any], shape: tuple[int, ...], use_graph: bool
) -> list[float]:
    dev.SetRandSeed(5)
    random = np.random.default_rng(3)
    x = tensor.from_numpy(random.standard_normal((8, *shape), np.float32), dev)
    y = tensor.from_numpy(random.integers(0, 4, 8).astype(np.int32), dev)
    net = models.Sequential(*layers)
    net.set_optimizer(opt.SGD(lr=0.1, momentum=0.9, weight_decay=1e-3))
    net.compile([x], is_train=True, use_graph=use_graph)
    assert {p.device.name() for p in net.get_params().values()} == {dev.name()}
    return [float(net(x, y)[1].numpy()[0]) for _ in range(5)]


@pytest.mark.parametrize("use_graph", [False, True])
def test_a_network_learns_the_same_in_float16(gpu: "Device", use_graph: bool) -> None:
    expected = losses_on(gpu, convolutional(), (2, 12, 12), use_graph=False)
    gpu.SetRandSeed(5)
    random = np.random.default_rng(3)
    x = tensor.from_numpy(random.standard_normal((8, 2, 12, 12), np.float32), gpu)
    y = tensor.from_numpy(random.integers(0, 4, 8).astype(np.int32), gpu)
    net = models.Sequential(*convolutional())
    scaler = opt.GradScaler(2.0**20)
    net.set_optimizer(opt.SGD(lr=0.1, momentum=0.9, weight_decay=1e-3, scaler=scaler))
    net.compile([x], dtype="float16", use_graph=use_graph)
    losses, skipped = [], 0
    while len(losses) < len(expected):
        steps = net.optimizer.steps
        out, loss = net(x, y)
        if net.optimizer.steps > steps:
            losses.append(loss.numpy().item())
        else:
            skipped += 1
    assert out.dtype == tensor.float16
    assert {value.dtype for value in net.get_states().values()} == {tensor.float32}
    # Gradients times the first scale overflow float16, so these steps are skipped.
    assert skipped > 0
    assert scaler.get_scale() == 2.0 ** (20 - skipped)
    np.testing.assert_allclose(losses, expected, rtol=0.02)
    assert losses[-1] < losses[0]


OPTIMIZERS = {
    "adam": lambda scaler: opt.Adam(0.01, scaler=scaler),
    "schedule": lambda scaler: opt.SGD(opt.CosineDecay(0.1, 99), momentum=0.9, scaler=scaler),
    "clipping": lambda scaler: opt.SGD(0.1, clip_norm=0.5, scaler=scaler),
    "accumulation": lambda scaler: opt.AdamW(0.01, accumulate=2, scaler=scaler),
}


@pytest.mark.parametrize("use_graph", [False, True])
@pytest.mark.parametrize("make", OPTIMIZERS.values(), ids=OPTIMIZERS.keys())
def test_nobody_waits_for_what_a_scaler_decides(
    gpu: "Device", monkeypatch: pytest.MonkeyPatch, make: Any, use_graph: bool
) -> None:
    monkeypatch.setenv("SINGA_AUDIT", "0")  # an audit waits once
    waits = []
    made = opt.GradScaler.made
    monkeypatch.setattr(opt.GradScaler, "made", lambda self: waits.append(1) or made(self))
    for scaler in (opt.GradScaler(2.0**14), None):
        gpu.SetRandSeed(5)
        x = tensor.from_numpy(np.random.default_rng(3).standard_normal((8, 10), np.float32), gpu)
        y = tensor.from_numpy(np.arange(8, dtype=np.int32) % 4, gpu)
        net = models.Sequential(*perceptron())
        net.set_optimizer(make(scaler))
        net.compile([x], use_graph=use_graph)
        losses = [net(x, y)[1] for _ in range(6)]
        waits.clear()
        losses += [net(x, y)[1] for _ in range(9)]
        assert not waits
        if scaler is not None:
            scaled = [loss.numpy().item() for loss in losses]
    assert scaled == [loss.numpy().item() for loss in losses]
    assert scaled[-1] < scaled[0]


@pytest.mark.parametrize("use_graph", [False, True])
@pytest.mark.parametrize(("layers", "shape"), [(perceptron, (10,)), (convolutional, (2, 12, 12))])
def test_a_network_learns_the_same_as_on_the_cpu(
    gpu: "Device", layers: Any, shape: tuple[int, ...], use_graph: bool
) -> None:
    cpu = device.create_cpu_device(separate=True)
    expected = losses_on(cpu, layers(), shape, use_graph=False)
    assert expected[-1] < expected[0]
    np.testing.assert_allclose(losses_on(gpu, layers(), shape, use_graph), expected, rtol=1e-4)
