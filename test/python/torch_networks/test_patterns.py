"""Patterns that PyTorch's nodes form, in one operation each."""

import numpy as np
import pytest
import singa
from singa import autograd, tensor
from singa.networks.fusion import MERGED

# The graph's nodes of each pattern, beside the operator of the merged step.
_MERGED = {
    "batch_norm+add",
    "permute+layer_norm+permute",
    "batch_norm+sigmoid+mul",
    "view+transpose+view",
    "sigmoid+mul",
    "mul+div+erf+add+mul",
    "Attention",
    "matmul+add",
    "hardsigmoid+mul",
}


def _network(torch):
    functional = torch.nn.functional

    class Network(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.conv = torch.nn.Conv2d(3, 8, 3)
            self.over_channels = torch.nn.LayerNorm(8)
            self.norm = torch.nn.BatchNorm2d(8)
            self.last_norm = torch.nn.BatchNorm2d(8)
            self.weight = torch.nn.Parameter(torch.randn(8, 8))
            self.bias = torch.nn.Parameter(torch.randn(8))

        def forward(self, x):
            x = self.over_channels(self.conv(x).permute(0, 2, 3, 1)).permute(0, 3, 1, 2)
            y = self.norm(x)
            x = y * torch.sigmoid(y)
            x = x + self.last_norm(x)
            n, c, h, w = x.shape
            x = x.view(n, 2, c // 2, h, w).transpose(1, 2).contiguous().view(n, c, h, w)
            x = x * torch.sigmoid(x)
            x = x * 0.5 * (1 + torch.erf(x / 2**0.5))
            rows = x.flatten(2).transpose(1, 2)
            q, k = (t.reshape(n, -1, 2, 4).transpose(1, 2) for t in (rows @ self.weight, rows))
            weights = ((q * 0.5) @ k.transpose(-2, -1)).softmax(-1)
            y = (weights @ k).transpose(1, 2).reshape(n, -1, 8) @ self.weight + self.bias
            return (y * functional.hardsigmoid(y)).mean(1)

    torch.manual_seed(0)
    return Network().double()


def _kind(op):
    if op.startswith("_native_batch_norm"):
        return "batch_norm"
    return op.partition(".")[0]


def test_patterns_are_merged_with_the_same_values_and_gradients(torch):
    module = _network(torch)
    values = torch.randn(3, 3, 8, 8, dtype=torch.float64)
    net = singa.from_torch(module, (values,))
    for network in net._networks.values():
        steps = [step.node for graph in network.graphs.values() for step in graph.steps]
        merged = ["+".join(map(_kind, s.op.split("+"))) for s in steps if s.domain == MERGED]
        assert set(merged) == _MERGED
    x = tensor.Tensor(data=values.numpy(), dtype="float64")
    for mode in (False, True):
        module.train(mode)
        net.train(mode)
        expected = module(values)
        np.testing.assert_allclose(net.forward(x).numpy(), expected.detach().numpy(), atol=1e-12)
    module.zero_grad()
    module(values).pow(2).sum().backward()
    net.train()
    y = net.forward(x)
    gradients = dict(autograd.backward(autograd.sum(y * y)))
    for name, parameter in net.get_params().items():
        wanted = dict(module.named_parameters())[name].grad.numpy()
        # The slope of PyTorch's hardsigmoid is 1/6 in float32, also for float64.
        np.testing.assert_allclose(gradients[parameter].numpy(), wanted, 1e-6, 1e-6, err_msg=name)


@pytest.mark.parametrize("half", [0.4, 0.5])
def test_a_product_that_is_not_gelu(torch, half):
    class Network(torch.nn.Module):
        def forward(self, x):
            return half * (x * (1.5 + torch.erf(x / 2**0.5))) + x * half * torch.erf(x)

    values = torch.linspace(-2, 2, 8).reshape(2, 4)
    net = singa.from_torch(Network(), (values,))
    net.eval()
    found = net(tensor.from_numpy(values.numpy()))
    np.testing.assert_allclose(found.numpy(), Network()(values).numpy(), rtol=1e-5)
