"""SINGA's behaviour: what the switch changes, and what it does not change."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from own_process import printed_by
from singa import autograd, compat, layer, model, opt, tensor


@pytest.fixture
def singas_way(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compat, "enabled", True)


CUBE = np.arange(24, dtype=np.float32).reshape(2, 3, 4)


@pytest.mark.usefixtures("singas_way")
@pytest.mark.parametrize(
    ("key", "as_slices"),
    [
        (0, np.s_[0:1]),
        (-1, np.s_[1:2]),
        ((1, 2, -1), np.s_[1:2, 2:3, 3:4]),
        ((slice(None), 1), np.s_[:, 1:2]),
        ((..., 2), np.s_[..., 2:3]),
        ((None, 0, slice(1, 3)), np.s_[None, 0:1, 1:3]),
        (slice(0, 1), np.s_[0:1]),
        ((0, [2, 0]), np.s_[0:1, [2, 0]]),
        ((CUBE[:, :, 0] > 5, 1), np.s_[CUBE[:, :, 0] > 5, 1:2]),
    ],
)
def test_an_index_keeps_its_axis_and_copies(key: object, as_slices: object) -> None:
    t = tensor.from_numpy(CUBE)
    item = t[key]
    np.testing.assert_array_equal(item.numpy(), CUBE[as_slices])
    t.set_value(0.0)
    np.testing.assert_array_equal(item.numpy(), CUBE[as_slices])
    t[key] = item  # assignment follows reading
    written = np.zeros_like(CUBE)
    written[as_slices] = CUBE[as_slices]
    np.testing.assert_array_equal(t.numpy(), written)


@pytest.mark.usefixtures("singas_way")
def test_a_comparison_is_a_mask() -> None:
    t = tensor.from_numpy(CUBE)
    assert (t > 20).dtype == tensor.float32
    np.testing.assert_array_equal(t[t > 20].numpy(), [21, 22, 23])
    t[t > 20] = 1.0
    np.testing.assert_array_equal(t.numpy(), np.where(CUBE > 20, 1, CUBE))
    with pytest.raises(TypeError, match="not an index"):
        t[tensor.from_numpy(np.float32(1))]


@pytest.mark.usefixtures("singas_way")
@pytest.mark.parametrize("key", [2, -3, (0, 3), (None, 2), (slice(None), 0, 4)])
def test_an_index_outside_is_refused(key: object) -> None:
    with pytest.raises(IndexError, match=r"\[getitem\] index -?\d is outside axis \d of length"):
        tensor.from_numpy(CUBE)[key]


@pytest.mark.usefixtures("singas_way")
def test_rows_of_a_tensor() -> None:
    assert [row.shape for row in tensor.from_numpy(CUBE)] == [(1, 3, 4)] * 2
    loss = tensor.from_numpy(np.float32([2.5]))
    assert tensor.to_numpy(loss[0])[0] == 2.5


@pytest.mark.usefixtures("singas_way", "training")
def test_gradients_go_through_an_index() -> None:
    w = tensor.Tensor(data=CUBE[0], stores_grad=True)
    y = autograd.mul(w, w)[1]
    assert y.shape == (1, 4)
    gradient = autograd.gradients(y, np.ones((1, 4), np.float32))[w]
    np.testing.assert_array_equal(gradient.numpy(), [[0] * 4, [8, 10, 12, 14], [0] * 4])


@pytest.mark.usefixtures("singas_way")
def test_a_tensor_is_true() -> None:
    assert tensor.zeros((2, 2))
    assert tensor.zeros((1,))


def two_layers() -> tuple[tensor.Tensor, tensor.Tensor, tensor.Tensor]:
    """Two weights, and y = sum(x w v)."""
    w = tensor.Tensor(data=np.float32([[1.0, 2.0], [3.0, 4.0]]), stores_grad=True, name="w")
    v = tensor.Tensor(data=np.float32([[1.0], [-2.0]]), stores_grad=True, name="v")
    x = tensor.from_numpy(np.float32([[1.0, 1.0]]))
    return w, v, autograd.reduce_sum(autograd.matmul(autograd.matmul(x, w), v))


@pytest.mark.usefixtures("singas_way", "training")
def test_a_second_backward_takes_the_updated_parameters() -> None:
    w, v, y = two_layers()
    first = autograd.gradients(y)
    assert first[w].numpy().tolist() == [[1.0, -2.0], [1.0, -2.0]]
    assert first[v].numpy().tolist() == [[4.0], [6.0]]
    for p, g in autograd.backward(y):
        p -= g  # as in SINGA, during backward: v first, from which the gradient of w is computed
    assert v.numpy().tolist() == [[-3.0], [-8.0]]
    second = autograd.gradients(y)
    assert second[w].numpy().tolist() == [[-3.0, -8.0], [-3.0, -8.0]]
    assert second[v].numpy().tolist() == [[4.0], [6.0]]  # from the old result of the first layer


@pytest.mark.usefixtures("singas_way", "training")
def test_a_second_backward_through_a_convolution() -> None:
    """The update may move the parameter to another layout."""
    rng = np.random.default_rng(0)
    x = tensor.from_numpy(rng.standard_normal((2, 16, 8, 8)).astype(np.float32))
    conv = layer.Conv2d(16, 3, padding=1, bias=False)
    inner = tensor.Tensor(data=np.float32([1.0]), stores_grad=True)
    y = conv(autograd.mul(x, inner))
    dy = tensor.from_numpy(rng.standard_normal(y.shape).astype(np.float32))
    sgd = opt.SGD(lr=0.5)
    for p, g in autograd.backward(y, dy):
        if p is conv.W:
            sgd.update(p, g)
    again = autograd.gradients(y, dy)[inner].numpy()
    fresh = conv(autograd.mul(x, inner))  # with the updated weight
    expected = autograd.gradients(fresh, dy)[inner].numpy()
    np.testing.assert_allclose(again, expected, rtol=1e-4)


class Twice(model.Model):
    """Runs backward from each loss twice, with updates in between, as SINGA's first GAN does."""

    def __init__(self) -> None:
        super().__init__()
        self.fc1 = layer.Linear(4)
        self.fc2 = layer.Linear(1)
        self.loss = layer.MeanSquareError()

    def forward(self, x: tensor.Tensor) -> tensor.Tensor:
        return self.fc2(autograd.relu(self.fc1(x)))

    def train_one_batch(self, x: tensor.Tensor, y: tensor.Tensor) -> tuple[tensor.Tensor, ...]:
        out = self.forward(x)
        loss = self.loss(out, y)
        for p, g in autograd.backward(loss):
            if "fc2" in str(p.name):
                self.optimizer.apply(p.name, p, g)
        self.optimizer(loss)
        return out, loss


@pytest.mark.usefixtures("singas_way")
def test_graphs_replay_a_second_backward() -> None:
    rng = np.random.default_rng(0)
    x = tensor.from_numpy(rng.standard_normal((8, 3)).astype(np.float32))
    y = tensor.from_numpy(rng.standard_normal((8, 1)).astype(np.float32))
    losses = {}
    for graph in (False, True):
        x.device.SetRandSeed(1)
        net = Twice()
        net.set_optimizer(opt.SGD(lr=0.05, momentum=0.9))
        net.compile([x], is_train=True, use_graph=graph)
        losses[graph] = [net(x, y)[1].numpy().tobytes() for _ in range(8)]
    assert losses[True] == losses[False]
    assert len(set(losses[False])) == 8
    assert len(net.memory_plan()["graphs"]) == 1


def test_elsewhere_a_second_backward_is_an_error() -> None:
    x, y = tensor.ones((2, 3)), tensor.ones((2, 1))
    net = Twice()
    net.set_optimizer(opt.SGD(lr=0.05))
    net.compile([x])
    with pytest.raises(RuntimeError, match="retain_graph=True"):
        net(x, y)


_STATE = "import singa; from singa import compat, tensor; print(compat.enabled, 'tensor' in dir())"


@pytest.mark.parametrize(("value", "enabled"), [("1", True), ("0", False), ("", False)])
def test_the_environment_turns_it_on(value: str, enabled: bool) -> None:
    assert printed_by(_STATE, SINGA_COMPAT=value) == f"{enabled} True\n"


_SCRIPT = """
import os
import subprocess
import sys

from singa import device, tensor

class Local:
    pass

print(sys.argv, sys.path[0], __name__, __file__, sys.modules["__main__"].Local is Local)
print(tensor.ones((2, 3))[0].shape, os.environ.get("SINGA_DEVICE"), sys.flags.dev_mode)
child = "from singa import compat; print(compat.enabled)"
print(subprocess.check_output([sys.executable, "-c", child], text=True).strip())
if "fail" in sys.argv:
    raise ValueError("as it was told")
sys.exit(7)
"""


def _run(
    *arguments: str, flags: tuple[str, ...] = (), cwd: Path | None = None
) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, *flags, "-m", "singa", "run", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=cwd)
    if np.lib.NumpyVersion(np.__version__) >= "2.4.0":
        note, done.stderr = done.stderr.split("\n", 1)
        assert note.startswith(f"[run] NumPy {np.__version__} refuses '%f' % array")
        assert note.endswith("pip install 'numpy<2.4'")
        with pytest.raises(TypeError):
            "%f" % np.ones(1)  # noqa: UP031
    return done


def test_run_is_python_with_the_switch_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SINGA_COMPAT", "")
    monkeypatch.delenv("SINGA_DEVICE", raising=False)
    script = tmp_path / "script.py"
    script.write_text(_SCRIPT)
    arguments = ["--", "-b", "--device", "--help"]
    done = _run("--device", "cpu", str(script), *arguments, flags=("-X", "dev"))
    assert done.returncode == 7
    assert done.stderr == ""
    assert done.stdout.splitlines() == [
        f"{[str(script), *arguments]} {tmp_path} __main__ {script} True",
        "(1, 3) cpu True",
        "True",
    ]


def test_run_fails_as_python_does(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SINGA_COMPAT", "1")
    monkeypatch.delenv("SINGA_DEVICE", raising=False)
    (tmp_path / "script.py").write_text(_SCRIPT)
    done = _run("script.py", "fail", cwd=tmp_path)
    command = [sys.executable, "script.py", "fail"]
    python = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path)
    assert (done.returncode, done.stderr) == (python.returncode, python.stderr)
    assert done.returncode == 1
    assert done.stderr.endswith("ValueError: as it was told\n")
    assert "(1, 3) None False" in done.stdout
    missing = _run("no_such.py", cwd=tmp_path)
    assert missing.returncode == 2
    assert "No such file" in missing.stderr
