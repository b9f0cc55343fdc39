"""The operator table in recorded steps: replays have the bits of executed steps."""

from typing import Any

import numpy as np
import pytest
import singa
from ops.table import CASES, Case
from recorded import graphs
from singa import autograd, model, opt, tensor
from singa.graph import GraphWarning
from singa.tensor import Tensor

pytestmark = pytest.mark.filterwarnings("error")

#: Steps that are executed, because a tensor is made of an array in each of them: first the arrays
#: of the table's calls, then those of operators.
EXECUTED = {
    *("gather", "index by an array", "gather_elements", "take_along_axis", "gather_nd"),
    *("gather_nd of batches", "where", "scatter_elements", "scatter_elements of a parameter"),
    *(
        f"scatter_{kind}, {by}"
        for kind in ("elements", "nd")
        for by in ("add", "mul", "max", "min")
    ),
    *("scatter_nd", "cross_entropy", "binary_cross_entropy", "mse_loss"),
    *(f"softmax_cross_entropy, {t}" for t in ("classes", "probabilities", "smoothed")),
    *("repeat", "repeat by elements", "repeat flattened", "shape"),
    *(f"triu from {k}" for k in (-1, 0, 2)),
    *(f"tril to {k}" for k in (-1, 0, 2)),
}
#: Steps that are executed, with a warning: their sizes depend on values.
SIZED_BY_VALUES = {"nonzero"}


class _Net(model.Model):
    """One case: its float inputs are parameters, the loss is the sum of all outputs."""

    def __init__(self, case: Case) -> None:
        super().__init__()
        # Not the case, which holds PyTorch's function, too.
        self._apply, self._count = case.apply, len(case.inputs)
        self._differentiable = case.differentiable
        for i, x in enumerate(case.inputs):
            parameter = case.differentiable and i not in case.constants
            t = (
                Tensor(data=x, dtype="float32", stores_grad=True)
                if parameter
                else tensor.from_numpy(np.asarray(x))
            )
            setattr(self, f"x{i}", t)

    def forward(self, scale: Tensor) -> Any:
        ys = self._apply(*[getattr(self, f"x{i}") for i in range(self._count)])
        return list(ys) if isinstance(ys, tuple) else [ys]

    def train_one_batch(self, scale: Tensor) -> Any:
        ys = self.forward(scale)
        if not self._differentiable:
            return ys
        loss = autograd.add_all(*[autograd.reduce_sum(y * y * scale, None, 0) for y in ys])
        self.optimizer(loss)
        return [*ys, loss]


def _steps(case: Case, use_graph: bool) -> tuple[list[bytes], _Net]:
    singa.seed(1)
    net = _Net(case)
    net.set_optimizer(opt.SGD(lr=1e-4))
    scales = [tensor.from_numpy(np.array([1.0 + i], np.float32)) for i in range(5)]
    net.compile([scales[0]], is_train=True, use_graph=use_graph)
    results = [[y.numpy().tobytes() for y in net(scale)] for scale in scales]
    states = [t.numpy().tobytes() for t in net.get_states().values()]
    return [each for result in results for each in result] + states, net


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_replays_are_executed_steps(case: Case) -> None:
    if case.name in SIZED_BY_VALUES:
        with pytest.warns(GraphWarning, match="looks at results"):
            _steps(case, True)
        return
    executed, _ = _steps(case, False)
    recorded, net = _steps(case, True)
    assert recorded == executed
    assert bool(graphs(net)) != (case.name in EXECUTED)
