"""Networks of `from_torch` with open axes besides the batch."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import numpy as np
import pytest
import singa
from singa import opt
from singa.onnx import UnsupportedError
from singa.torch_networks import guards


def _images(height: int, width: int, rows: int = 2) -> Any:
    random = np.random.default_rng(0)
    return random.standard_normal((rows, 3, height, width)).astype(np.float32)


def _pooling(torch: Any, nn: Any) -> Any:
    class Pooling(nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.down, self.norm = nn.Conv2d(3, 4, 3, 2, 1), nn.BatchNorm2d(4)
            self.up, self.last = nn.ConvTranspose2d(4, 4, 2, 2), nn.Linear(5, 5)

        def forward(self, x: Any) -> Any:
            y = torch.relu(self.norm(self.down(x)))
            y = nn.functional.interpolate(self.up(y), size=x.shape[-2:], mode="bilinear")
            y = torch.cat([y, nn.functional.max_pool2d(x[:, :1], 3, 1, 1)], 1)
            return self.last(nn.functional.adaptive_avg_pool2d(y, 1).flatten(1))

    return Pooling()


def _windows(torch: Any, nn: Any) -> Any:
    class Windows(nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.conv = nn.Conv2d(3, 4, 1)

        def forward(self, x: Any) -> Any:
            x = self.conv(x)
            x = nn.functional.pad(x, (0, (4 - x.shape[3] % 4) % 4, 0, (4 - x.shape[2] % 4) % 4))
            b, c, h, w = x.shape
            x = x.view(b, c, h // 4, 4, w // 4, 4).permute(0, 2, 4, 3, 5, 1).reshape(-1, 16, c)
            return x.softmax(1).reshape(b, -1).sum(1, keepdim=True) + x.mean()

    return Windows()


@pytest.mark.parametrize("make", [_pooling, _windows])
def test_heights_and_widths_are_open(torch: ModuleType, make: Any) -> None:
    module = make(torch, torch.nn)
    net = singa.from_torch(module, _images(8, 12), dynamic=(2, 3))
    net.save("net.singa")
    module.eval()
    for each in (net, singa.load("net.singa")):
        for height, width, rows in ((8, 12, 2), (9, 15, 3), (21, 10, 1), (9, 15, 3)):
            x = _images(height, width, rows)
            with torch.no_grad():
                wanted = module(torch.from_numpy(x)).numpy()
            np.testing.assert_allclose(each(x).numpy(), wanted, rtol=1e-4, atol=1e-5)


def test_steps_of_several_sizes(torch: ModuleType) -> None:
    module = _pooling(torch, torch.nn)
    net = singa.from_torch(module, _images(8, 12), dynamic=(2, 3))
    net.set_optimizer(opt.SGD(lr=0.1))
    net.compile([_images(8, 12)], is_train=True, use_graph=True)
    sgd = torch.optim.SGD(module.train().parameters(), 0.1)
    y = np.array([1, 4], np.int32)
    for height, width in ((8, 12), (10, 9), (8, 12), (10, 9), (8, 12)):
        x = _images(height, width)
        _, loss = net(x, y)
        sgd.zero_grad()
        wanted = torch.nn.functional.cross_entropy(
            module(torch.from_numpy(x)), torch.from_numpy(y).long()
        )
        wanted.backward()
        sgd.step()
        assert float(loss) == pytest.approx(wanted.item(), rel=1e-4)


def test_what_is_assumed_of_lengths_is_checked(torch: ModuleType) -> None:
    class Branch(torch.nn.Module):  # type: ignore[misc, name-defined]
        def forward(self, x: Any) -> Any:
            return x * 2 if x.shape[2] % 2 == 0 else x

    module = torch.nn.Identity()
    if not hasattr(torch.export.export(module, (torch.ones(2),)), "_guards_code"):
        with pytest.raises(UnsupportedError, match=r"Constraints violated"):
            singa.from_torch(Branch(), _images(8, 8), dynamic=(2,))
        return  # it assumes no more than ranges
    net = singa.from_torch(Branch(), _images(8, 8), dynamic=(2,))
    x = _images(6, 8, 1)
    np.testing.assert_array_equal(net(x).numpy(), x * 2)
    with pytest.raises(ValueError, match=r"x\.shape\[2\] % 2.*got shapes \(2, 3, 7, 8\)"):
        net(_images(7, 8))
    with pytest.raises(ValueError, match="has shape"):
        net(_images(8, 7))


def test_what_cannot_be_open_is_refused(torch: ModuleType) -> None:
    class Fixed(torch.nn.Module):  # type: ignore[misc, name-defined]
        def forward(self, x: Any) -> Any:
            return x + torch.ones(8, 1)

    with pytest.raises(
        UnsupportedError,
        match=r"axis 2 of x has one length in this module, 8: leave it out of dynamic",
    ):
        singa.from_torch(Fixed(), _images(8, 8), dynamic=(2, 3))
    for axes in ((0,), (4,), (-1,)):
        with pytest.raises(ValueError, match="from 1 to 3"):
            singa.from_torch(Fixed(), _images(8, 8), dynamic=axes)


@pytest.mark.parametrize(
    ("text", "guard", "ones", "twos"),
    [
        ("L['x'].size()[2] >= 3", [">=", ["size", 0, 2], 3], False, False),
        ("((-1) + L['x'].size()[1]) != 0", ["!=", None, 0], False, True),
        ("L['y'].size()[1] % 2 == 0 or max(1, L['x'].size()[0]) == 1", ["or"], True, True),
        ("(4 // (L['x'].size()[0] // 2)) == 4", ["=="], False, True),
        ("1 < L['x'].size()[0]", ["<"], False, True),
    ],
)
def test_guards(text: str, guard: list[Any], ones: bool, twos: bool) -> None:
    found = guards.parsed(text, {"x": 0, "y": 1})
    assert found[0] == guard[0]
    assert bool(guards.holds(found, [(1, 1, 1), (1, 1)])) is ones
    assert bool(guards.holds(found, [(2, 2, 2), (2, 2)])) is twos
    assert "x.shape[" in guards.written(found, ["x", "y"])


def test_other_guards() -> None:
    for text in ("L['x'].size()[0] != 1", "L['x'].size()[0] >= 2", "2*L['x'].size()[0] > 1"):
        assert guards.parsed(text, {"x": 0}) is None
    for text in ("L['z'].size()[0] == 3", "open('x')", "L['x'].size()[0]()", "3"):
        with pytest.raises(ValueError, match=r"size|open|3"):
            guards.parsed(text, {"x": 0})
    for guard in (["open", 1], ["size", 3, 0], ["==", "x", ["size", 0]], [], None, {}):
        with pytest.raises((LookupError, TypeError, ValueError)):
            guards.holds(guard, [(2, 2)])
