"""The update rules, and a few updates of three parameters by given gradients."""

import numpy as np
from singa import autograd, opt, tensor

#: The rules of singa.opt, found by themselves. What holds for every rule is tested for each.
RULES = [
    each
    for each in vars(opt).values()
    if isinstance(each, type) and issubclass(each, opt.Optimizer) and each is not opt.Optimizer
]
RULE_NAMES = [rule.__name__ for rule in RULES]
SHAPES = {"w": (4, 3), "b": (3,), "scale": (5,)}
STEPS = 6


def make_rule(rule, **kwargs):
    """An optimizer in which each hyperparameter has an effect."""
    return rule(**{"momentum": 0.9} | kwargs) if rule is opt.SGD else rule(**kwargs)


def start(seed=0):
    random = np.random.default_rng(seed)
    return {
        name: random.standard_normal(shape).astype(np.float32) for name, shape in SHAPES.items()
    }


def gradients(step):
    random = np.random.default_rng(100 + step)
    return {
        name: random.standard_normal(shape).astype(np.float32) for name, shape in SHAPES.items()
    }


def parameters(values):
    return {
        name: tensor.Tensor(data=value, stores_grad=True, name=name)
        for name, value in values.items()
    }


def loss_of(params, grads):
    """A scalar whose gradient for each parameter is the given array."""
    products = [
        autograd.reduce_sum(autograd.mul(params[name], tensor.from_numpy(grad)), keepdims=0)
        for name, grad in grads.items()
    ]
    return autograd.add_all(*products)


def run(optimizer, steps=STEPS, values=None, grads=gradients):
    params = parameters(start() if values is None else values)
    for step in range(steps):
        optimizer(loss_of(params, grads(step)))
    return {name: param.numpy() for name, param in params.items()}


def assert_close(got, expected, rtol=2e-6, atol=1e-7):
    for name, value in expected.items():
        np.testing.assert_allclose(got[name], value, rtol=rtol, atol=atol, err_msg=name)
