"""Modules that `from_torch` and `accelerate` refuse, and what they say."""

from __future__ import annotations

import functools
import random
from collections.abc import Callable
from typing import Any

import numpy as np

LINE = r"torch_refusals\.py line \d+"


def calling(torch: Any, function: Callable[[Any], Any]) -> Any:
    class Calling(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = torch.nn.Linear(6, 6)

        def forward(self, x: Any) -> Any:
            return function(self.linear(x))

    return Calling()


def _gradient(torch: Any, x: Any) -> Any:
    return torch.autograd.grad((x**3).sum(), x, create_graph=True)[0]


def _rounded(torch: Any, x: Any) -> Any:
    class Rounded(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            return x.round()

        @staticmethod
        def backward(ctx: Any, dy: Any) -> Any:
            return dy

    return Rounded.apply(x)


def _branch(torch: Any, x: Any) -> Any:
    return x * 2 if x.sum() > 0 else x


def _loop(torch: Any, x: Any) -> Any:
    for _ in range(int(x.abs().max())):
        x = x / 2
    return x


def _distribution(torch: Any, x: Any) -> Any:
    # torch.compile and torch.cond switch the default off.
    return torch.distributions.Normal(x, 1.0, validate_args=True).rsample()


@functools.cache
def _operator_of_a_library(torch: Any) -> Any:
    def twice(x):
        return x * 2

    twice.__annotations__ = {"x": torch.Tensor, "return": torch.Tensor}
    operator = torch.library.custom_op("refusals::twice", twice, mutates_args=())
    operator.register_fake(torch.empty_like)
    return operator


def _without_gradients(torch: Any, x: Any) -> Any:
    with torch.inference_mode():
        return x * 2


VALUES = rf"{LINE}: what Python does depends on elements .* take torch\.where"
#: A function of a tensor, and what the message says.
OF_FUNCTIONS: dict[str, tuple[Callable[[Any, Any], Any], str]] = {
    "operator": (
        lambda t, x: t.special.i0(x),
        rf"\(i0\): singa has no such operator, called at .*{LINE}: write it with others",
    ),
    "item": (
        lambda t, x: x * x.mean().item(),
        rf"Python reads an element, called at .*{LINE}: compute with the tensor itself",
    ),
    "mask": (
        lambda t, x: x[x > 0].sum(),
        rf"a mask as an index.*, called at .*{LINE}: take torch\.where",
    ),
    "several elements": (
        lambda t, x: t.masked_select(x, x > 0).sum() + x.unique().sum(),
        rf"\(masked_select\): the number of elements depends on values, called at .*{LINE}: take "
        r"torch\.where(?s:.*)\(_unique2\): the number of elements",
    ),
    "masked scatter": (
        lambda t, x: x.masked_scatter(x > 0, x.exp()),
        rf"which element comes where depends on values, called at .*{LINE}: take torch\.where",
    ),
    "cond": (
        lambda t, x: t.cond(x.sum() > 0, t.sin, t.cos, (x,)),
        rf"{LINE}: singa has no cond: write it with others",
    ),
    "inference_mode": (_without_gradients, rf"{LINE}: inference_mode: use no_grad"),
    "pooling": (
        lambda t, x: t.nn.functional.avg_pool2d(x[None], 2, ceil_mode=True, divisor_override=3),
        rf"divisor_override with ceil_mode, called at .*{LINE}: take ceil_mode=False",
    ),
    "places of maxima": (
        lambda t, x: x[:, t.nn.functional.adaptive_max_pool1d(x, 3, return_indices=True)[1][0]],
        rf"a result other than the first, called at .*{LINE}: compute it with others",
    ),
    "lengths": (
        lambda t, x: x.narrow(1, x[0, 0].long(), 2),
        rf"{LINE}: elements of a tensor are lengths: decide them outside",
    ),
    "attention": (
        lambda t, x: t.nn.functional.scaled_dot_product_attention(x, x, x, dropout_p=0.5),
        rf"dropout of attention in inference, called at .*{LINE}: give dropout_p if",
    ),
    "integers": (
        lambda t, x: x.long().scatter_reduce(0, x.long(), x.long(), "amax"),
        rf"it takes floats alone, got int64, called at .*{LINE}: take x\.float",
    ),
    "small floats": (
        lambda t, x: x.to(t.float8_e4m3fn).float(),
        rf"no tensors of type float8_e4m3fn, called at .*{LINE}: take bfloat16",
    ),
    "results": (
        lambda t, x: (x, "name"),
        "results are tensors, or lists or dicts of them, got 'name'",
    ),
    "branch": (_branch, VALUES),
    "loop": (_loop, VALUES),
    "distribution": (_distribution, rf"{VALUES}.* validate_args=False"),
    "sparse": (lambda t, x: t.sparse.mm(x.to_sparse(), x.T), rf"{LINE}: singa has no sparse tens"),
    "complex": (
        lambda t, x: x.to(t.complex64).abs(),
        rf"no tensors of type complex64, called at .*{LINE}: compute with both parts",
    ),
    "function": (_rounded, rf"{LINE}: Rounded is a custom autograd\.Function: write it with"),
    "gradient": (_gradient, rf"{LINE}: torch\.autograd\.grad inside the module: write the deriv"),
    "backward": (
        lambda t, x: (x.sum().backward(), x)[1],
        rf"{LINE}: backward inside the module: write the derivative out",
    ),
    "func": (
        lambda t, x: t.func.vjp(t.square, x)[1](x)[0],
        rf"{LINE}: a gradient inside the module \(torch\.func\): write the derivative out",
    ),
    "hook": (
        lambda t, x: (x.register_hook(t.neg), x)[1],
        rf"{LINE}: register_hook inside the module: give the hook to the result",
    ),
    "checkpoint": (
        lambda t, x: t.utils.checkpoint.checkpoint(t.sin, x, use_reentrant=True),
        rf"{LINE}: torch\.utils\.checkpoint: give it use_reentrant=False",
    ),
    "parameter": (
        lambda t, x: x * t.nn.Parameter(t.ones(6)),
        rf"{LINE}: a call makes a Parameter: make it in __init__",
    ),
    "values in an operator": (
        lambda t, x: t.cov(x),
        rf"{LINE}: what equal gives depends on elements of a tensor: write it with others",
    ),
    "address": (
        lambda t, x: x + x.data_ptr() % 2,
        rf"{LINE}: Python reads where a tensor lies: leave data_ptr out",
    ),
    "checked operator": (
        lambda t, x: t.linalg.inv(x.mT @ x),
        rf"\(linalg_inv_ex\): singa has no such operator, called at .*{LINE}: write it with",
    ),
    "operator of a library": (
        lambda t, x: _operator_of_a_library(t)(x),
        r"\(refusals\.twice\): singa has no such operator, called at .*: write it with",
    ),
    "generator": (
        lambda t, x: x + t.rand(6, generator=t.Generator()),
        rf"\(rand\.generator\): a torch\.Generator at .*{LINE}: leave it out",
    ),
    "short integers": (
        lambda t, x: x.to(t.int16),
        rf"no tensors of type int16, called at .*{LINE}: take int32 or int64",
    ),
    "numpy": (
        lambda t, x: x * t.from_numpy(np.sort(x.detach().numpy())),
        rf"{LINE}: a tensor becomes an array of NumPy.*: write this with operators of PyTorch",
    ),
    "random": (
        lambda t, x: x * 2 if random.random() < 0.5 else x,
        rf"draws from Python's random at .*{LINE}, which .*: take torch\.rand",
    ),
    "numpy.random": (
        lambda t, x: x * float(np.random.rand()),  # noqa: NPY002
        rf"draws from Python's numpy\.random at .*{LINE}, which .*: take torch\.rand",
    ),
}


def _quantised(torch: Any) -> Any:
    nn, quantization = torch.nn, torch.ao.quantization
    module = nn.Sequential(
        quantization.QuantStub(), nn.Linear(6, 3), quantization.DeQuantStub()
    ).eval()
    module.qconfig = quantization.default_qconfig
    quantization.prepare(module, inplace=True)
    module(torch.ones(4, 6))
    return quantization.convert(module)


def _with_buffer(torch: Any, value: Any) -> Any:
    module = torch.nn.Linear(6, 6)
    module.register_buffer("table", value)
    return module


def _hooked(torch: Any) -> Any:
    module = torch.nn.Sequential(torch.nn.Linear(6, 3))
    module[0].register_full_backward_hook(lambda *_: None)
    return module


def _rows(torch: Any, channels: int = 0) -> Any:
    """Gives integers, or images of so many channels."""

    class Rows(torch.nn.Module):  # type: ignore[misc, name-defined]
        def forward(self, x: Any) -> Any:
            return x.reshape(-1, channels, 2) if channels else x.long()

    return Rows()


def _sharded(torch: Any) -> Any:
    """A module as that of fully sharded training is named."""
    names = {"__module__": "torch.distributed.fsdp.fully_sharded_data_parallel"}
    return type("Sharded", (torch.nn.Linear,), names)(6, 3)


def _with_hook(torch: Any, register: Callable[[Any], Any]) -> Any:
    module = torch.nn.Linear(6, 3)
    register(module.weight)
    return module


def _with_parts(torch: Any) -> Any:
    from torch.testing._internal.two_tensor import TwoTensor

    module = torch.nn.Linear(6, 3)
    weight = module.weight.detach()
    module.weight = torch.nn.Parameter(TwoTensor(weight, weight.clone()))
    return module


def _late(torch: Any) -> Any:
    class Late(torch.nn.Module):  # type: ignore[misc, name-defined]
        def forward(self, x: Any) -> Any:
            if not hasattr(self, "linear"):
                self.linear = torch.nn.Linear(6, 3)
            return self.linear(x)

    return torch.nn.Sequential(Late())


#: Those that `accelerate` takes: any results, and dropout of a module that trains.
TAKEN = ("results", "attention")
#: A module, and what the message says for `from_torch` and for `accelerate`; "" where this is not
#: looked at.
OF_MODULES: dict[str, tuple[Callable[[Any], Any], str, str]] = {
    "quantised": (_quantised, *["'1'.*a quantised module: .* take Model.quantize"] * 2),
    "parallel": (
        lambda t: t.nn.Sequential(t.nn.DataParallel(t.nn.Linear(6, 3))),
        *[r"'0' \(DataParallel\): it trains on several devices: give its \.module; opt\.DistOpt"]
        * 2,
    ),
    "sharded": (
        _sharded,
        r"'the module' \(Sharded\): it trains on several devices: give its \.module",
        "Sharded is not supported: take singa.from_torch and opt.DistOpt",
    ),
    "script": (
        lambda t: t.jit.trace(t.nn.Linear(6, 3), t.ones(4, 6)),
        *["a module of torch.jit: give the one that was scripted or traced"] * 2,
    ),
    "lazy": (
        lambda t: t.nn.LazyLinear(3),
        *["weight.* has no elements yet: call the module once in PyTorch"] * 2,
    ),
    "sparse": (
        lambda t: _with_buffer(t, t.eye(6).to_sparse()),
        "'table'.* it is sparse",
        r"table is on cpu \(torch.sparse_coo\): .* dense",
    ),
    "meta": (lambda t: t.nn.Linear(6, 3, device="meta"), *["weight.* is on meta"] * 2),
    "written parameter": (
        lambda t: t.nn.Sequential(_rows(t), t.nn.Embedding(9, 3, max_norm=1.0)),
        *["it writes to its parameter 1.weight: write outside of the module"] * 2,
    ),
    "late part": (_late, *["a call makes 0.linear: make it in __init__, or call the module"] * 2),
    "values in a part": (
        lambda t: t.nn.Sequential(t.nn.Linear(6, 3), t.nn.BatchNorm1d(3, momentum=None)),
        *[r"'1' \(BatchNorm1d\): what Python does depends on elements of a tensor"] * 2,
    ),
    "backward hook": (
        _hooked,
        r"'0' \(Linear\): a backward hook, .*: singa\.accelerate",
        "0 .* has a backward hook",
    ),
    "hook of a gradient": (
        lambda t: _with_hook(t, lambda p: p.register_hook(t.neg)),
        r"'weight' \(Parameter\): a hook of its gradient, .*: singa\.accelerate",
        "",
    ),
    "hook of a sum of gradients": (
        lambda t: _with_hook(t, lambda p: p.register_post_accumulate_grad_hook(lambda p: None)),
        r"'weight' \(Parameter\): a hook of its gradient",
        "",
    ),
    "complex buffer": (
        lambda t: _with_buffer(t, t.ones(2, dtype=t.complex64)),
        "'table' .* no tensors of type complex64: compute with both parts",
        "table",
    ),
    "parts of a tensor": (
        _with_parts,
        r"'weight' .*: it is made of other tensors: take a plain one",
        "",
    ),
    "quantised buffer": (
        lambda t: _with_buffer(t, t.quantize_per_tensor(t.ones(4), 0.1, 0, t.qint8)),
        "'table' .* it is quantised: give the module of floats",
        "",
    ),
    "statistics": (
        lambda t: t.nn.Sequential(_rows(t, 3), t.nn.InstanceNorm1d(3, track_running_stats=True)),
        *["instance norm that updates running statistics.*: give it track_running_stats=False"] * 2,
    ),
    "bags": (
        lambda t: t.nn.Sequential(_rows(t), t.nn.EmbeddingBag(9, 3, mode="max")),
        *["bags with mode='max'.*: take nn.Embedding, and the maximum of its rows"] * 2,
    ),
    "norm across channels": (
        lambda t: t.nn.Sequential(_rows(t), t.nn.CrossMapLRN2d(3)),
        *["CrossMapLRN2d, whose gradient.*: take nn.LocalResponseNorm"] * 2,
    ),
    "counted gradients": (
        lambda t: t.nn.Sequential(_rows(t), t.nn.Embedding(9, 3, scale_grad_by_freq=True)),
        *["scale_grad_by_freq.*: turn it off"] * 2,
    ),
}
