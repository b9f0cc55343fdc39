"""Layers compared with PyTorch's modules."""

import numpy as np
from singa import autograd, model, tensor
from singa.layer.torch_weights import _places


class Around(model.Model):
    """A model of one layer, whose weights load_torch can name. `call` calls it in another way."""

    def __init__(self, inner, call=None):
        super().__init__()
        self.inner, self.call = inner, call

    def forward(self, *xs):
        return self.call(self.inner, *xs) if self.call else self.inner(*xs)


def loaded(inner, theirs, *xs, call=None):
    """The layer as a model, with the weights of PyTorch's module."""
    net = Around(inner, call)
    net.compile(xs, is_train=True, use_graph=False)
    if state := theirs.state_dict():
        net.load_torch({f"inner.{name}": value for name, value in state.items()})
    return net


def check_like_torch(
    torch, inner, theirs, arrays, dtype="float32", ours=None, other=None, infers=False
):
    """Compares results, and all gradients of random sums of them, with random weights and those of
    PyTorch in float64. `ours` and `other` call the layer and the module in another way. With
    `infers`, then results in inference."""
    rng = np.random.default_rng(3)
    theirs = theirs.to(torch.float64)
    for parameter in theirs.parameters():
        values = rng.normal(0.3, 0.5, parameter.shape).astype(np.float32)
        parameter.data.copy_(torch.from_numpy(values))
    arrays = [array.astype(np.float32) for array in arrays]
    xs = [tensor.Tensor(data=array, dtype=dtype, stores_grad=True) for array in arrays]
    net = loaded(inner, theirs, *xs, call=ours)
    ys = results(net.forward(*xs))
    their_xs = [torch.tensor(array.astype(np.float64), requires_grad=True) for array in arrays]
    their_ys = results(other(theirs, *their_xs) if other else theirs(*their_xs))
    dys = [rng.normal(size=y.shape).astype(np.float32) for y in ys]
    gradients = autograd.gradients(
        autograd.add_all(*[autograd.reduce_sum(y * dy) for y, dy in zip(ys, dys, strict=True)])
    )
    sum((y * torch.tensor(dy)).sum() for y, dy in zip(their_ys, dys, strict=True)).backward()
    pairs = [(y.numpy(), their_y.detach()) for y, their_y in zip(ys, their_ys, strict=True)]
    pairs += [(gradients[x].numpy(), other.grad) for x, other in zip(xs, their_xs, strict=True)]
    places, parameters = _places(net), dict(theirs.named_parameters())
    assert len(net.get_params()) == len(parameters)
    for name, parameter in parameters.items():
        own, turned = places[f"inner.{name}"]
        found = gradients[own].numpy()
        pairs.append(((found.T if turned else found).reshape(parameter.shape), parameter.grad))
    if infers:
        net.eval(), theirs.eval()
        pairs.append((net(*xs).numpy(), theirs(*their_xs).detach()))
    limit = {"float32": 2e-5, "float64": 1e-12}[dtype]
    for got, want in pairs:
        scale = max(1.0, float(want.abs().max()))
        np.testing.assert_allclose(got, want.numpy(), rtol=0, atol=limit * scale)


def results(of):
    """What a layer returns, as a list."""
    return [y for y in (of if isinstance(of, tuple) else [of]) if y is not None]
