"""Networks as JSON values, from which they are made again.

    described = describe(net)      # {"kind": "architecture", "name": "lenet", "arguments": {...}}
    net = build(described)         # not compiled yet

Only networks of `models.create`, and `models.Sequential` with layers of singa, have a description.
Layers are found by their names in `singa.layer`, and arguments are numbers and texts, so `build`
executes nothing of a file. It bounds what a file may ask for, except for the number of parameters,
which `singa.layer.creation.room_for` bounds.
"""

from __future__ import annotations

import inspect
from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from .. import layer, model
from ..layer import Layer
from . import create
from .sequential import Sequential

Described = dict[str, Any]

#: Layers that have no place in a chain, or keep tables of the size of an argument.
_EXCLUDED = {
    *("Layer", "ModuleDict", "ModuleList", "RNN_Base", "RotaryEmbedding"),
    *("TransformerDecoder", "TransformerEncoder"),
}
_KINDS: dict[str, type[Layer]] = {
    name: kind
    for name, kind in vars(layer).items()
    if isinstance(kind, type) and issubclass(kind, Layer) and name not in _EXCLUDED
}
#: Layers of files of earlier versions: {name: (name today, {argument: its name today})}.
_EARLIER: dict[str, tuple[str, dict[str, str]]] = {
    "MeanSquareError": ("MSELoss", {}),
}
#: Arguments that say nothing about a network with given parameters.
_IGNORED = {"self", "initializer"}
_NO_EFFECT = {"CudnnRNN": {"activation"}}
#: Where a layer has an argument that is not an attribute of the same name.
_CHANNELS = {"out_channels": "nb_kernels", "groups": "group"}
_AXES = {"normalized_shape": "shape", "elementwise_affine": "affine", "bias": "has_bias"}
_PLACES: dict[str, dict[str, str]] = {
    "Conv1d": _CHANNELS,
    "Conv3d": _CHANNELS,
    "ConvTranspose1d": _CHANNELS,
    "ConvTranspose2d": _CHANNELS,
    "ConvTranspose3d": _CHANNELS,
    "BatchNorm1d": {"num_features": "channels"},
    "BatchNorm3d": {"num_features": "channels"},
    "LayerNorm": _AXES,
    "RMSNorm": _AXES,
    "LayerNorm2d": {"num_channels": "shape.0"},
    "GroupNorm": {"num_groups": "groups", "num_channels": "shape.0"},
    "InstanceNorm2d": {"num_features": "shape.0"},
    "TransformerEncoderLayer": {
        "d_model": "linear2.out_features",
        "nhead": "self_attn.num_heads",
        "dim_feedforward": "linear1.out_features",
        "dropout": "dropout.ratio",
        "layer_norm_eps": "norm1.eps",
        "batch_first": "self_attn.batch_first",
        "bias": "linear1.bias",
    },
}
#: Layers whose padding may be "same".
_SAME = {"Conv1d", "Conv3d"}
#: Layers that make their own layers when they are first called.
_LATE = layer.SeparableConv2d
#: Largest number among arguments of a network, except for num_classes, and of a layer.
_LARGEST, _LARGEST_OF_LAYER = 4096, 1 << 24
#: Attributes that a compiled layer has, and that say how it is used.
_OF_USE = {"name", "graph_mode", "sequential"}


class UndescribedError(ValueError):
    """A network has no description. The message names the layer."""


def describe(net: model.Model) -> Described:
    """The description of a network. Raises UndescribedError if it has none."""
    if type(net) is Sequential:
        (loss,) = net._loss.values()
        return {"kind": "sequential", **_describe_links(net), "loss": describe_layer(loss)}
    if net.architecture is None:
        raise UndescribedError(
            f"{type(net).__name__} is neither a network of models.create nor models.Sequential"
        )
    described = {"kind": "architecture", **net.architecture}
    try:
        again = build(described)
    except (TypeError, ValueError) as error:
        raise UndescribedError(f"{type(net).__name__}: {error}") from error
    if changed := _difference(net, again):
        raise UndescribedError(f"{changed} is not what models.create({described['name']!r}) made")
    return described


def build(described: Mapping[str, Any]) -> model.Model:
    """The network of a description, not compiled. Raises ValueError, TypeError or KeyError for
    anything else."""
    kind = described["kind"]
    if kind == "architecture":
        arguments = described["arguments"]
        for name, value in arguments.items():
            if name != "num_classes":
                _check(name, value, _LARGEST)
        return create(described["name"], **arguments)
    if kind == "sequential":
        return Sequential(*_links(described), loss=build_layer(described["loss"]))
    raise ValueError(f"unknown kind {kind!r}")


def describe_layer(each: Any) -> Described:
    """The description of a layer. Raises UndescribedError if it has none."""
    kind = type(each)
    name = kind.__name__
    if not isinstance(each, Layer):
        raise UndescribedError(f"a file cannot have the loss {each!r:.80}, which is no layer")
    if _KINDS.get(name) is not kind:
        raise UndescribedError(f"{each.title} is not a layer of singa that a file can describe")
    if isinstance(each, layer.Sequential):
        return {"layer": name, **_describe_links(each)}
    arguments = {}
    for parameter in _parameters(kind):
        value = _setting(each, _PLACES.get(name, {}).get(parameter.name, parameter.name))
        if parameter.name == "padding" and name in _SAME and _setting(each, "pad_mode") != "NOTSET":
            value = "same"
        if isinstance(value, np.generic):
            value = value.item()
        if not _is_plain(value):
            raise UndescribedError(f"{each.title}: a file cannot have its {parameter.name}")
        if value != parameter.default:
            arguments[parameter.name] = list(value) if isinstance(value, tuple) else value
    described = {"layer": name, "arguments": arguments}
    if changed := _difference(each, build_layer(described)):
        raise UndescribedError(f"{changed} is not what its constructor makes of its settings")
    return described


def _describe_links(chain: layer.Sequential) -> Described:
    """The layers of a chain, with their names if these are not their numbers."""
    names = list(chain._layers)
    described: Described = {"layers": [describe_layer(each) for each in chain]}
    return described if names == [*map(str, range(len(names)))] else {**described, "names": names}


def _links(described: Mapping[str, Any]) -> list[Any]:
    """The layers of such a description, as Sequential takes them."""
    layers = [build_layer(each) for each in described["layers"]]
    names = described.get("names")
    return layers if names is None else [OrderedDict(zip(names, layers, strict=True))]


def _setting(each: Any, place: str) -> Any:
    """The value at a path of attributes and positions; one that is not plain if there is none."""
    for part in place.split("."):
        each = each[int(part)] if part.isdigit() else getattr(each, part, _setting)
    return each


def _parameters(kind: type[Layer]) -> list[inspect.Parameter]:
    init: Callable[..., None] = kind.__init__
    apart = _IGNORED | _NO_EFFECT.get(kind.__name__, set())
    return [
        each
        for each in inspect.signature(init).parameters.values()
        if each.kind not in (each.VAR_POSITIONAL, each.VAR_KEYWORD) and each.name not in apart
    ]


def build_layer(described: Mapping[str, Any]) -> Layer:
    """The layer of a description. Raises as `build` does."""
    name, renamed = _EARLIER.get(described["layer"], (described["layer"], {}))
    if name not in _KINDS:
        raise ValueError(f"there is no layer {name!r}")
    kind = _KINDS[name]
    if kind is layer.Sequential:
        return kind(*_links(described))
    arguments = {renamed.get(key, key): value for key, value in described["arguments"].items()}
    if unknown := arguments.keys() - {each.name for each in _parameters(kind)}:
        raise ValueError(f"{name} has no arguments {sorted(unknown)}")
    for key, value in arguments.items():
        _check(f"{key} of {name}", value, _LARGEST_OF_LAYER)
    return kind(**{k: tuple(v) if isinstance(v, list) else v for k, v in arguments.items()})


def _check(name: str, value: Any, most: int) -> None:
    """Raises TypeError if the value is none of JSON's numbers and texts, or a list of them, and
    ValueError for a number beyond `most`."""
    if not _is_plain(value):
        raise TypeError(f"{name} is {value!r:.80}")
    for number in value if isinstance(value, list | tuple) else [value]:
        if isinstance(number, int | float) and abs(number) > most and abs(number) != float("inf"):
            raise ValueError(f"{name} is {number}: at most {most}")


def _is_plain(value: Any) -> bool:
    if isinstance(value, list | tuple):
        return all(isinstance(item, bool | int | float | str) for item in value)
    return value is None or isinstance(value, bool | int | float | str)


def _difference(net: Layer, again: Layer) -> str:
    """The title of a layer of `net` that `again` does not have like it; "" if there is none."""
    ours, theirs = ({"": top, **dict(top._all_sublayers())} for top in (net, again))
    for path in sorted(ours.keys() | theirs.keys()):
        mine, other = ours.get(path), theirs.get(path)
        if other is None and isinstance(ours.get(path.rpartition(".")[0]), _LATE):
            continue
        if mine is None or other is None or type(mine) is not type(other):
            return f"{type(mine or other).__name__} {path}"
        if any(mine.__dict__.get(k) != v for k, v in _settings(other).items()):
            return mine.title
    return ""


def _settings(new: Layer) -> dict[str, Any]:
    """What determines a layer that was not called yet: attributes that are numbers and texts."""
    apart = {*_OF_USE, *new.not_settings}
    return {
        name: value
        for name, value in new.__dict__.items()
        if not name.startswith("_") and name not in apart and value is not None and _is_plain(value)
    }
