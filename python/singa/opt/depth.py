"""Learning rates that follow the depth of a layer."""

from __future__ import annotations

import fnmatch
from collections.abc import Callable, Sequence

from ..layer import Layer, ModuleList, Sequential
from ..raw.check import number
from ..tensor import Tensor
from .parameter_group import ParamGroup


def lr_by_depth(
    model: Layer,
    decay: float,
    blocks: Sequence[str | Sequence[str]] | None = None,
    no_decay: Callable[[str, Tensor], bool] | None = None,
) -> list[ParamGroup]:
    """Groups that multiply the learning rate of the last layers by 1, and of each block before by
    `decay` more: for training a trained network further (Howard & Ruder 2018, section 3.2).

        optimizer = opt.AdamW(1e-3, groups=opt.lr_by_depth(net, 0.8, no_decay=opt.norm_and_bias))

    model     a compiled network
    decay     in (0, 1]
    blocks    patterns of names of parameters, or lists of them, from the input to the output, as
              `Layer.freeze` has them: ["conv1.*", "layer[12].*", "layer[34].*", "fc.*"]. Default:
              the layers of the model in the order of their addition, where those in a Sequential or
              ModuleList count one by one; a norm belongs to the layer before, and parameters of the
              model itself to the first block
    no_decay  which parameters have no weight decay, such as `norm_and_bias` (default: none)

    Raises ValueError for a decay out of range, a pattern that selects no parameter, a parameter
    that is in no block, and without `blocks` for a model that has no layers, such as one from an
    ONNX file; RuntimeError if there are no parameters yet.

    >>> net = models.create("lenet")
    >>> net.compile([tensor.zeros((1, 1, 28, 28))])
    >>> [group.lr_scale for group in opt.lr_by_depth(net, 0.5)]
    [0.125, 0.25, 0.5, 1.0]
    """
    if not 0.0 < number("lr_by_depth", "decay", decay) <= 1.0:
        raise ValueError(f"[lr_by_depth] decay must lie in (0, 1], got {decay}")
    params = model.get_params()
    if not params:
        raise RuntimeError("[lr_by_depth] the model has no parameters yet: call compile() first")
    names = _default_blocks(model, params) if blocks is None else _selected(blocks, params)
    groups = []
    for i, block in enumerate(names):
        scale = decay ** (len(names) - 1 - i)
        plain = [name for name in block if no_decay and no_decay(name, params[name])]
        others = [name for name in block if name not in plain]
        groups += [ParamGroup(plain, 0.0, scale)] * bool(plain)
        groups += [ParamGroup(others, None, scale)] * bool(others)
    return groups


def _selected(blocks: Sequence[str | Sequence[str]], params: dict[str, Tensor]) -> list[list[str]]:
    """The names that the patterns of each block select and no block before."""
    left = list(params)
    result = []
    for block in blocks:
        patterns = [block] if isinstance(block, str) else block
        chosen = [n for n in left if any(fnmatch.fnmatchcase(n, p) for p in patterns)]
        if not chosen:
            raise ValueError(f"[lr_by_depth] block {block!r} selects no parameter")
        left = [name for name in left if name not in chosen]
        result.append(chosen)
    if left:
        more = f" and {len(left) - 5} more" if len(left) > 5 else ""
        raise ValueError(f"[lr_by_depth] in no block: {', '.join(left[:5])}{more}")
    return result


def _default_blocks(model: Layer, params: dict[str, Tensor]) -> list[list[str]]:
    left = dict(params)
    result: list[list[str]] = []
    for path in _units(model):
        inside = [name for name in left if name.startswith(path + model.sep)]
        if not inside:
            continue
        is_norm = all(len(left[name].shape) <= 1 for name in inside)
        for name in inside:
            del left[name]
        if is_norm and result:
            result[-1] += inside
        else:
            result.append(inside)
    if not result:
        raise ValueError(f"[lr_by_depth] {model.title} has no layers: give blocks")
    result[0] = [*left, *result[0]]
    return result


def _units(model: Layer) -> list[str]:
    """Paths of the layers in the model, and of those in its containers instead of these."""
    paths = []
    for path, child in model._children():
        if isinstance(child, Sequential | ModuleList):
            paths += [f"{path}{model.sep}{inner}" for inner, _ in child._children()]
        else:
            paths.append(path)
    return paths
