"""Kernels that are wrong on purpose are noticed while a network of PyTorch trains, executed and
replayed: spot checks replace their results, and OPCHECK raises an error.

The kernels run in processes of their own.
"""

from __future__ import annotations

from pathlib import Path

import pytest
import replay_calls
from replay_calls import LAST_CORNER, WHERE_LARGE
from spot_calls import result_of

pytestmark = [
    pytest.mark.cpu("the wrong kernels are the CPU's"),
    pytest.mark.skipif(not replay_calls.LIBRARY.exists(), reason="singa was built without tests"),
    pytest.mark.usefixtures("torch"),
]

LOOP = """
import torch
from torch import nn
from replay_calls import NEVER, WHEN_TOLD, tell_wrong_kernel

class Loop:
    '''Steps of a network of its own: each one gives the loss. Images have `size` pixels a side.'''

    def __init__(self, way, replayed, size):
        torch.manual_seed(0)
        module = nn.Sequential(
            nn.Conv2d(3, 20, 3, padding=1), nn.Flatten(), nn.Linear(20 * size**2, 4)
        )
        self.images = torch.rand(4, 3, size, size)
        self.labels = torch.arange(4)
        if way == "from_torch":
            self.step, self.net = self.of_singa, singa.from_torch(module, self.images)
            self.net.set_optimizer(opt.SGD(lr=1e-5))
            self.net.compile([self.images.numpy()], use_graph=replayed)
            return
        self.step, self.net = self.of_torch, singa.accelerate(module)
        self.optimizer = torch.optim.SGD(self.net.parameters(), lr=1e-5)
        if not replayed:
            self.net._runner.replays.forward = lambda run: None

    def of_singa(self):
        return float(self.net(self.images.numpy(), self.labels.int().numpy())[1])

    def of_torch(self, between=lambda: None):
        self.optimizer.zero_grad()
        loss = nn.functional.cross_entropy(self.net(self.images), self.labels)
        between()
        loss.backward()
        self.optimizer.step()
        return loss.item()

def losses(way, replayed, size, large, wrong=None):
    loop, values = Loop(way, replayed, size), []
    if wrong is not None:  # runs of plans count from now on
        add_wrong_kernels("ConvSpec", wrong)
    for step in range(6):
        if step == large:
            loop.images += 200
        values.append(loop.step())
    add_wrong_kernels("ConvSpec", NEVER)
    return values
"""
WAYS = pytest.mark.parametrize("way", ["accelerate", "from_torch"])
#: Whether steps are replayed, how a kernel is wrong, and the step from which on images are large.
CASES = [
    (replayed, wrong, large)
    for replayed in (False, True)
    for wrong, large in ((LAST_CORNER, None), (WHERE_LARGE, 3))
]


@WAYS
def test_spot_checks_replace_results(way: str) -> None:
    report, said = result_of(
        f"""{LOOP}
found = []
for size, (replayed, wrong, large) in enumerate({CASES}, 8):  # of a size of its own each
    given = {way!r}, replayed, size, large
    right = losses(*given)
    singa.set_spot_checks(False)
    unchecked = losses(*given, wrong)
    singa.set_spot_checks(True)
    before = len(wrap.GetRefusedPlans())
    checked = losses(*given, wrong)
    found.append([right, unchecked, checked, len(wrap.GetRefusedPlans()) - before])
print(json.dumps(found))
"""
    )
    for case, (right, unchecked, checked, refused) in zip(CASES, report, strict=True):
        assert checked == right, case
        assert unchecked != pytest.approx(right, rel=1e-6), case
        assert refused >= 1, case
    lines = [line for line in said if line.startswith("singa: [Conv")]
    assert len(lines) == sum(refused for *_, refused in report)


@WAYS
def test_opcheck_raises_an_error(way: str, tmp_path: Path) -> None:
    """Of a step that is executed or replayed, and the steps after it are right. A step of
    `accelerate` is two calls, so the kernel can be wrong in each of them."""
    parts = ["forward", "backward"] if way == "accelerate" else ["forward"]
    report, _ = result_of(
        f"""{LOOP}
found = []
add_wrong_kernels("ConvSpec", WHEN_TOLD)
for replayed in (False, True):
    for part in {parts}:
        right, loop = (Loop({way!r}, replayed, 8) for _ in range(2))
        with singa.opcheck(directory={str(tmp_path)!r}):
            for _ in range(3):
                loop.step()
            try:
                if part == "forward":
                    tell_wrong_kernel()
                    loop.step()
                else:
                    loop.step(tell_wrong_kernel)
                error = ""
            except RuntimeError as raised:
                error = str(raised)
            after = [loop.step() for _ in range(3)]
        wanted = [right.step() for _ in range(6)][3:]
        found.append([part, error, after, wanted])
print(json.dumps(found))
"""
    )
    assert len(report) == 2 * len(parts)
    for part, error, after, wanted in report:
        name = {"forward": "ConvForward", "backward": "ConvBackward"}[part]
        assert error.startswith(f"[{name}")
        assert "] wrong " in error
        assert " disagrees with reference" in error
        assert after == wanted
