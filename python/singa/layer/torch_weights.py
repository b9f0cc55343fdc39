"""Conversion of PyTorch's weights: names of parameters, and transposed matrices."""

from __future__ import annotations

import fnmatch
import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from .. import layer
from ..files.fit import Mismatch, UnfitStatesError, fit
from ..files.state_files import load_safetensors
from ..tape.assignment import checked, write_all
from ..tensor import Tensor

if TYPE_CHECKING:
    from ..model import Model

# singa's attribute → PyTorch's, by class of layer. In other layers the names are the same.
_LEAVES: tuple[tuple[type[layer.Layer] | tuple[type[layer.Layer], ...], dict[str, str]], ...] = (
    ((layer.Conv1d, layer.Conv2d, layer.Conv3d), {"W": "weight", "b": "bias"}),
    (
        (layer.ConvTranspose1d, layer.ConvTranspose2d, layer.ConvTranspose3d),
        {"W": "weight", "b": "bias"},
    ),
    (layer.Linear, {"W": "weight", "b": "bias"}),
    (layer.Gemm, {"W": "weight", "b": "bias"}),
    (layer.Embedding, {"W": "weight"}),
    (
        layer.BatchNorm2d,
        {
            "scale": "weight",
            "bias": "bias",
            "running_mean": "running_mean",
            "running_var": "running_var",
        },
    ),
)


def load_torch(
    model: Model, source: str | os.PathLike[str] | Mapping[str, Any], strict: bool = True
) -> Mismatch:
    """Copies the weights of a state dict or a .safetensors file to a compiled model.

    PyTorch's name of a weight is the layer's name, changed by `model.torch_name`, and PyTorch's
    name of the attribute: "conv1.weight" for "conv1.W", "cls_token" for a parameter of the model
    itself. See `Model.load_torch` for `strict`, the result and errors.
    """
    state_dict, where = _state_dict(source)
    places = _places(model)
    ignored = {
        name
        for name in state_dict
        if name not in places
        and any(fnmatch.fnmatchcase(name, pattern) for pattern in model.torch_ignore)
    }
    values = {
        name: _array(name, value) for name, value in state_dict.items() if name not in ignored
    }
    for name, (own, _) in places.items():
        if name in values and values[name].size == own.size() and values[name].ndim == 1:
            values[name] = values[name].reshape(own.shape)  # biases of Gemm are (1, out)
    # Both in PyTorch's order, since the names and the source are PyTorch's.
    expected = {
        name: own.shape[::-1] if turned else own.shape for name, (own, turned) in places.items()
    }
    found = {name: array.shape for name, array in values.items()}
    other_shape = [n for n in found if n in expected and found[n] != tuple(expected[n])]
    if not strict:
        found = {name: shape for name, shape in found.items() if name not in other_shape}
    if not strict and values and not expected.keys() & found.keys():
        raise UnfitStatesError(
            f"[load_torch] {where}: none of its {len(values)} values fits the model, which expects "
            f"{next(iter(expected))} and others, not {next(iter(values))}"
        )
    tensors = {name: own for name, (own, _) in places.items()}
    names, apart = fit(
        f"[load_torch] {where}", tensors, found, strict, by_ends=False, expected=expected
    )
    fitting = {name: values[name].T if places[name][1] else values[name] for name in names}
    write_all(
        f"[load_torch] {where}:", tensors, checked(f"[load_torch] {where}:", tensors, fitting)
    )
    unused = apart.unexpected if strict else apart.unexpected + other_shape
    return Mismatch(apart.missing, unused)


def _places(model: Model) -> dict[str, tuple[Any, bool]]:
    """{PyTorch's name: (singa's tensor, whether PyTorch stores the transpose)}."""
    places: dict[str, tuple[Any, bool]] = {}
    for path, each in (("", model), *model._all_sublayers((id(model),))):
        prefix = model.torch_name(path) if path else ""
        begin = f"{prefix}." if prefix else ""
        if hasattr(each, "weight_views"):
            # That of an RNN or LSTM of several layers is not one for PyTorch.
            begin = begin.removesuffix("stack.")
            parts = each.weight_views() if hasattr(each, "W") else {}
            places.update({f"{begin}{name}": (part, False) for name, part in parts.items()})
            continue
        names = next((names for kind, names in _LEAVES if isinstance(each, kind)), None)
        if names is None:
            mine = (*each._own_params(), *each._own_states())
            places.update({f"{begin}{name}": (value, False) for name, value in mine})
            continue
        turned = isinstance(each, layer.Linear) or (
            isinstance(each, layer.Gemm) and not each.transB
        )
        for attribute, torch_name in names.items():
            own = getattr(each, attribute, None)
            if _is_state(each, attribute, own):
                places[f"{begin}{torch_name}"] = (own, turned and attribute == "W")
    return places


def _is_state(owner: layer.Layer, name: str, value: Any) -> bool:
    """Whether an attribute is a parameter, or a tensor that is saved with the parameters."""
    return isinstance(value, Tensor) and (value.stores_grad or name in owner.state_names)


def _state_dict(
    source: str | os.PathLike[str] | Mapping[str, Any],
) -> tuple[Mapping[str, Any], str]:
    if isinstance(source, Mapping):
        return source, "the state dict"
    if not isinstance(source, (str, os.PathLike)):
        raise TypeError(
            f"[load_torch] expected a path or a state dict, got {type(source).__name__}"
        )
    path = Path(source)
    if path.suffix.lower() != ".safetensors":
        raise ValueError(
            f"[load_torch] {path}: expected a .safetensors file; convert a pickled file with "
            "safetensors.torch.save_file(torch.load(path, weights_only=True), new_path)"
        )
    return load_safetensors(path)[0], str(path)


def _array(name: str, value: Any) -> np.ndarray:
    """Converts a PyTorch tensor, or anything that NumPy accepts, to an array. It does not import
    PyTorch."""
    if hasattr(value, "detach"):
        value = value.detach().cpu()
        if str(value.dtype) in ("torch.bfloat16", "torch.float16"):
            value = value.float()
        value = value.numpy()
    array = np.asarray(value)
    if array.dtype.kind not in "fiub":
        raise TypeError(f"[load_torch] {name}: expected numbers, got {type(value).__name__}")
    return array
