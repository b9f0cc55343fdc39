"""What `from_torch` and `accelerate` are given: PyTorch, a module, example inputs and axes."""

from __future__ import annotations

import operator
import re
from types import ModuleType
from typing import Any

import numpy as np

from ..networks.element_types import is_singas, numpy_type
from .refusals import instead_of_type

#: The oldest version that has been tried.
OLDEST = (2, 6)

_ALONE = "put the module into one whose forward takes tensors alone, by position"


def require_torch(function: str = "from_torch", since: tuple[int, int] = OLDEST) -> ModuleType:
    """PyTorch. Raises ImportError, with the way to get it, if it is missing or too old."""
    try:
        import torch
    except ImportError as error:
        raise ImportError(f"[{function}] {error}: pip install torch") from error
    found = tuple(int(n) for n in re.findall(r"\d+", torch.__version__)[:2])
    if found < since:
        oldest = ".".join(map(str, since))
        raise ImportError(
            f"[{function}] needs PyTorch {oldest} or newer, got {torch.__version__}: "
            "pip install --upgrade torch"
        )
    return torch


def check_module(torch: Any, function: str, module: Any) -> None:
    """Raises TypeError for what is no module of PyTorch, or has no forward."""
    if not isinstance(module, torch.nn.Module):
        kind = type(module).__name__
        if isinstance(module, type):
            kind = f"the class {module.__name__}: write {module.__name__}(...)"
        elif isinstance(module, dict):
            kind += ": make the module, and load these weights by load_state_dict"
        elif isinstance(module, torch.export.ExportedProgram):
            kind += ": give the module that was exported"
        elif isinstance(module, str):
            kind += ": make the module, and load its weights by torch.load and load_state_dict"
        elif callable(module):
            kind += ": call it in the forward of a module"
        raise TypeError(f"[{function}] expected a torch.nn.Module, got {kind}")
    if getattr(module.forward, "__func__", None) is torch.nn.Module.forward:
        kind = type(module).__name__
        raise TypeError(f"[{function}] {kind} has no forward: give a module that can be called")


def float_types(module: Any) -> set[Any]:
    """The types of floats that a module's parameters and buffers have."""
    tensors = (*module.parameters(), *module.buffers())
    return {x.dtype for x in tensors if x.is_floating_point()}


def has_other_floats(module: Any, inputs: tuple[Any, ...]) -> bool:
    """Whether an input has another type of floats than all parameters and buffers."""
    kinds = float_types(module)
    return bool(kinds) and any(x.is_floating_point() and x.dtype not in kinds for x in inputs)


def torch_inputs(torch: Any, module: Any, inputs: Any) -> tuple[Any, ...]:
    """Example inputs as tensors of PyTorch, with at least two rows. Arrays of float64, the type of
    NumPy's floats, become floats of the module's type."""
    given = inputs if isinstance(inputs, list | tuple) else (inputs,)
    floats = float_types(module)
    result = []
    for i, x in enumerate(given):
        of_numpy = not isinstance(x, torch.Tensor)
        x = _tensor(torch, x, given)
        if of_numpy and x.dtype == torch.float64 and len(floats) == 1:
            x = x.to(*floats)
        what = "the example input" if len(given) == 1 else f"example input {i}"
        _check(torch, x, f"[from_torch] {what}")
        x = x.detach().cpu().contiguous()  # other strides would be assumed of later inputs
        result.append(torch.cat([x, x]) if x.ndim and x.shape[0] == 1 else x)
    if not result:
        raise ValueError("[from_torch] there are no example inputs")
    return tuple(result)


def _tensor(torch: Any, x: Any, given: Any) -> Any:
    """An example input as a tensor of PyTorch."""
    if isinstance(x, torch.Tensor):
        return x
    if not isinstance(x, type):
        x = x.numpy() if hasattr(x, "numpy") else np.asarray(x) if hasattr(x, "__array__") else x
    if not isinstance(x, np.ndarray):
        raise TypeError(
            f"[from_torch] example inputs must be tensors or arrays, got {type(x).__name__}: "
            f"{_advice(torch, x, given)}"
        )
    if x.dtype.kind not in "biufc":
        raise TypeError(
            f"[from_torch] example inputs must be of numbers, got an array of {x.dtype}: give one "
            "such as x.astype(np.float32)"
        )
    # PyTorch's arrays are writable, and of the processor's order of bytes.
    return torch.from_numpy(np.require(x, x.dtype.newbyteorder("="), ["C", "W"]))


def _advice(torch: Any, x: Any, given: Any) -> str:
    if all(isinstance(each, int) for each in given):  # a shape
        return f"give an example such as torch.zeros({', '.join(map(str, given))})"
    if isinstance(x, torch.utils.data.DataLoader):
        return "give the inputs of a batch of it, such as next(iter(loader))[0]"
    if isinstance(x, torch.utils.data.Dataset):
        return "give the inputs of an item of it with a batch axis, such as dataset[0][0][None]"
    if x is None:
        return f"leave it out where forward has a default, or {_ALONE}"
    while isinstance(x, list) and x:
        x = x[0]
    if isinstance(x, float):
        return "give an array of numbers, such as np.array(x, np.float32)"
    return _ALONE


def _check(torch: Any, x: Any, what: str) -> None:
    """Raises for tensors that are no examples of what singa computes with."""
    if x.is_nested or x.is_quantized or x.layout != torch.strided:
        kind = "nested" if x.is_nested else "quantised" if x.is_quantized else x.layout
        raise TypeError(f"{what} is {kind}: give a dense tensor of numbers")
    if x.device.type == "meta":
        shape = ", ".join(map(str, x.shape))
        raise TypeError(f"{what} is on meta, without elements: give torch.zeros({shape})")
    kind = str(x.dtype).removeprefix("torch.")
    if not is_singas(kind):
        raise TypeError(
            f"{what} has type {kind}, which singa does not have: {instead_of_type(kind)}"
        )
    if x.ndim and not x.shape[0]:
        raise ValueError(f"{what} has no rows, got shape {tuple(x.shape)}: give one or more")


def as_array(torch: Any, x: Any) -> Any:
    """The elements of a tensor of PyTorch, copied."""
    x = x.detach().cpu()
    if x.dtype == torch.bfloat16:
        return x.to(torch.float32).numpy().astype(numpy_type("bfloat16"))
    return np.array(x.numpy())


def open_axes(dynamic: Any, inputs: tuple[Any, ...]) -> tuple[int, ...]:
    """The axes of `dynamic=`. Raises TypeError for what are no axes, and ValueError for axes that
    no input has."""
    try:
        if isinstance(dynamic, bool | dict):
            raise TypeError
        axes = tuple(map(operator.index, dynamic))
    except TypeError:
        raise TypeError(
            "[from_torch] dynamic must be axes besides the batch, such as (2, 3) for heights and "
            f"widths, got {dynamic!r:.80}"
        ) from None
    most = max(x.ndim for x in inputs)
    if not all(0 < i < most for i in axes):
        raise ValueError(
            f"[from_torch] dynamic axes must be from 1 to {most - 1}, got {axes}: axis 0 is open"
        )
    return axes
