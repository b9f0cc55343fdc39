"""The precision of float32 products. On CPUs without AMX, its plain model multiplies the parts."""

import json

import numpy as np
import pytest
import singa
from own_process import printed_by
from singa import autograd, tensor

#: What parts serve: a matrix product, and a convolution and a linear layer of a network.
PROGRAM = """
import json
import numpy as np
import singa
from singa import autograd, layer, model, opt, tensor

random = np.random.default_rng(0)


def drawn(*shape):
    return random.standard_normal(shape).astype(np.float32)


a, b = drawn(64, 200), drawn(200, 64)
on_device = [tensor.from_numpy(each) for each in (a, b)]


def error():
    got = tensor.to_numpy(autograd.matmul(*on_device))
    exact = a.astype(np.float64) @ b
    return float(np.max(np.abs(got - exact) / (np.abs(a) @ np.abs(b))))


class Net(model.Model):
    def __init__(self):
        super().__init__()
        self.conv = layer.Conv2d(32, 3, padding=1)
        self.fc = layer.Linear(40)
        self.loss = autograd.mse_loss

    def forward(self, x):
        return self.fc(autograd.flatten(autograd.relu(self.conv(x))))


x, y = tensor.from_numpy(drawn(8, 32, 4, 4)), tensor.from_numpy(drawn(8, 40))
net = Net()
net.set_optimizer(opt.SGD(lr=0.1))
net.compile([x], use_graph=True)
first = {name: array.copy() for name, array in net.get_states().items()}
found = {}
for key, precision, strict in (
    ("highest", "highest", False),
    ("high", "high", False),
    ("strict", "high", True),
    ("again", "highest", False),
):
    singa.set_float32_precision(precision)
    singa.set_strict(strict)
    net.set_states(first)
    with singa.opcheck(every=1, action="raise") as check:
        losses = [net(x, y)[1].item() for _ in range(4)]
    (product,) = singa.explain(lambda: autograd.matmul(*on_device))
    found[key] = {
        "error": error(),
        "matmul": product["description"],
        "refused": product["refused"],
        "losses": losses,
        "graphs": len(net.memory_plan()["graphs"]),
        "checked": sum(op["checked"] for op in check.stats().values()),
    }
print(json.dumps(found))
"""


@pytest.mark.cpu("AMX's plain model")
def test_high_precision_takes_three_products() -> None:
    found = json.loads(
        printed_by(
            PROGRAM, SINGA_AMX_FLOAT32="plain", SINGA_FLOAT32_PRECISION="highest", SINGA_STRICT="0"
        )
    )
    highest, high, strict, again = found.values()
    assert highest["matmul"] == "amx float32 of bfloat16 parts, plain"
    assert high["matmul"] == "amx float32 of bfloat16 parts, high precision, plain"
    assert highest["error"] < 2**-22
    assert 2**-22 < high["error"] < 2**-18
    # Strict mode overrides it.
    assert "parts" not in strict["matmul"]
    assert "so that high precision computes as highest" in strict["refused"]["amx"]
    # Recorded steps follow: the one of the first setting is replayed again.
    assert [each["graphs"] for each in found.values()] == [1, 2, 3, 3]
    assert again["losses"] == highest["losses"] != high["losses"]
    np.testing.assert_allclose(high["losses"], highest["losses"], rtol=3e-4)
    assert all(each["checked"] > 0 for each in found.values())


def test_processors_that_cannot_round_say_so() -> None:
    program = """
import singa
from singa import autograd, tensor
a = tensor.ones((512, 512))
(operation,) = singa.explain(lambda: autograd.matmul(a, a))
print(singa.get_float32_precision(), singa.is_tf32(), "parts" in operation["description"])
print(operation["refused"].get("amx"))
"""
    for name, value in (("SINGA_FLOAT32_PRECISION", "high"), ("SINGA_TF32", "1")):
        settings = {"SINGA_FLOAT32_PRECISION": "", "SINGA_TF32": "", "SINGA_STRICT": "0"}
        said, why = printed_by(
            program, **settings | {"SINGA_AMX_FLOAT32": "off", name: value}
        ).splitlines()
        assert said == "high True False"
        assert why == "SINGA_AMX_FLOAT32 is off, so that high precision computes as highest"


def test_the_setting() -> None:
    before = singa.get_float32_precision()
    try:
        singa.set_float32_precision("high")
        assert (singa.get_float32_precision(), singa.is_tf32()) == ("high", True)
        singa.set_tf32(False)
        assert (singa.get_float32_precision(), singa.is_tf32()) == ("highest", False)
        with pytest.raises(ValueError, match="precision must be 'highest' or 'high', got 'medium'"):
            singa.set_float32_precision("medium")
    finally:
        singa.set_float32_precision(before)


@pytest.mark.parametrize("precision", ["highest", "high"])
def test_products_of_small_matrices_stay_exact(precision: str) -> None:
    """They are too small for parts, and on GPUs whole numbers fit into TF32."""
    before = singa.get_float32_precision()
    singa.set_float32_precision(precision)
    try:
        a = np.arange(12, dtype=np.float32).reshape(3, 4)
        got = tensor.to_numpy(autograd.matmul(tensor.from_numpy(a), tensor.from_numpy(a.T.copy())))
        np.testing.assert_array_equal(got, a @ a.T)
    finally:
        singa.set_float32_precision(before)
