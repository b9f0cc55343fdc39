"""Export of forward passes that write to tensors: augmented assignments become operators."""

import numpy as np
import pytest
import singa.onnx
from singa import autograd, layer, model, tensor

onnxruntime = pytest.importorskip("onnxruntime")


class Net(model.Model):
    def __init__(self, function):
        super().__init__()
        self.inner, self.function = layer.Linear(4), function
        self.w = tensor.Tensor(data=[1.0, 2.0, 3.0, 4.0], stores_grad=True)

    def forward(self, x):
        return self.function(self, x)


def images(seed):
    return np.random.default_rng(seed).standard_normal((3, 4)).astype(np.float32)


def exported(function, x, path):
    """The model, and the file in ONNX Runtime."""
    net = Net(function)
    net.compile([tensor.from_numpy(x)], is_train=False)
    net.eval()
    singa.onnx.save(net, path, [tensor.from_numpy(x)])
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    return net, lambda x: session.run(None, {session.get_inputs()[0].name: x})[0]


def residual(net, x):
    y = net.inner(x)
    y += x
    y *= 2.0
    y -= 1
    y /= net.w
    return y


def total(net, x):
    y = tensor.zeros((3, 4))
    for factor in (1.0, 2.0):
        y += x * factor
    return y


def only(net, x):
    y = tensor.zeros((3, 4))
    y += x
    return y


def on_the_input(net, x):
    x += 1.0
    return net.inner(x)


def of_a_wider_type(net, x):
    y = net.inner(x)
    y += tensor.Tensor(data=[0.1, 0.2, 0.3, 0.4], dtype="float64")
    return y


@pytest.mark.parametrize("function", [residual, total, only, on_the_input, of_a_wider_type])
def test_augmented_assignments_are_operators(function, tmp_path):
    net, run = exported(function, images(0), str(tmp_path / "net.onnx"))
    for seed in (0, 1):
        expected = net(tensor.from_numpy(images(seed))).numpy()
        found = run(images(seed))
        assert found.dtype == expected.dtype
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)


def by_two_names(net, x):
    y = net.inner(x)
    other = y
    y += x
    return y * other


def without_a_name(net, x):
    y = tensor.zeros((3, 4))
    y.__iadd__(x)
    return y


@pytest.mark.parametrize("function", [by_two_names, without_a_name])
def test_what_another_name_sees_is_refused(function, tmp_path):
    with pytest.raises(singa.onnx.ExportError, match="by another name"):
        exported(function, images(0), str(tmp_path / "net.onnx"))
    assert not list(tmp_path.iterdir())


def copied(net, x):
    y = tensor.zeros((3, 4))
    y.copy_data(x)
    return y


def test_an_output_without_an_operator_is_refused(tmp_path):
    with pytest.raises(singa.onnx.ExportError, match="whose values are others where input"):
        exported(copied, images(0), str(tmp_path / "net.onnx"))


def test_numbers_just_below_a_half_are_rounded_down(tmp_path):
    below = np.nextafter(np.float32(0.5), np.float32(0))
    x = np.float32(
        [below, -below, 0.5, -1.5, 2.5, 2**23 + 1, -(2**23 + 3), 8.5, np.inf, -3.2, 0, 4]
    )
    _, run = exported(lambda net, x: autograd.round(x), x.reshape(3, 4), str(tmp_path / "a.onnx"))
    expected = autograd.round(tensor.from_numpy(x)).numpy()
    assert expected.tolist()[:6] == [0.0, 0.0, 1.0, -2.0, 3.0, 2**23 + 1]
    np.testing.assert_array_equal(run(x.reshape(3, 4)).reshape(-1), expected)
