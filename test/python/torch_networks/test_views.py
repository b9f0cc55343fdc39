"""Each view is made once, though `torch.export` makes one for each part that is read."""

import numpy as np
import singa
import torch_oracle
from singa import tensor


def _module(torch):
    class Parts(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.first = torch.nn.Conv2d(3, 16, 3)
            self.second = torch.nn.Conv2d(8, 8, 1)

        def forward(self, x):
            a, b = self.first(x).relu_().split(8, 1)
            c, d = a.chunk(2, dim=-1)
            one, whole = x.flatten(1).narrow(1, 0, 1), x.flatten(1).narrow(1, 0, 7)
            y = torch.cat([self.second(a), b], 1).sum((2, 3)) + (c - d).sum()
            return y + one + whole.sum(1, keepdim=True)

    torch.manual_seed(0)
    return Parts()


def test_parts_of_a_tensor_are_made_once(torch):
    x = torch.randn(2, 3, 8, 8)
    net = singa.from_torch(_module(torch), (x,))
    for network in net._networks.values():
        nodes = [step.node for graph in network.graphs.values() for step in graph.steps]
        kinds = [node.op.partition(".")[0] for node in nodes]
        assert kinds.count("split") + kinds.count("split_with_sizes") == 2
    images = tensor.from_numpy(np.asarray(x))
    net.train()
    with singa.explain() as operations:
        net.forward(images)
    # Of an image in blocks; of a row-major one, and of rows, they are views.
    parts = [each["outputs"][0] for each in operations if each["op"] == "Split"]
    shapes = sorted(str(each).partition(":")[0] for each in parts)
    assert shapes in ([], ["(2, 8, 6, 3)"] * 2 + ["(2, 8, 6, 6)"] * 2)


def test_parts_are_results_and_fill_buffers(torch):
    class Parts(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = torch.nn.Linear(4, 8)
            self.register_buffer("last", torch.zeros(2, 4))

        def forward(self, x):
            y = self.linear(x)
            a, b = y.split(4, 1)
            self.last.copy_(b.detach())
            c, d = y.split(4, 1)
            return a, b, c, d, y.view(-1), y.view(-1)

    module, x = Parts(), torch.randn(2, 4)
    net = singa.from_torch(module, (x,))
    net.train()
    for found, wanted in zip(net.forward(tensor.from_numpy(x.numpy())), module(x), strict=True):
        np.testing.assert_allclose(found.numpy(), wanted.detach().numpy(), atol=1e-6)
    np.testing.assert_allclose(net.state_dict()["last"], module.last.numpy(), atol=1e-6)


def test_values_and_gradients_are_those_of_pytorch(torch):
    compared = torch_oracle.Comparison(
        torch, _module(torch).double(), torch.randn(2, 3, 8, 8).double()
    )
    for findings in (compared.inference, compared.training, lambda: compared.steps(2)):
        for found in findings():
            assert found.ratio <= 1, found
