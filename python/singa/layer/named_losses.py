"""Losses by name, as `fit(loss="mse")` gives them, and those of PyTorch."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from ..raw.check import facts_of
from .base import Layer
from .loss import (
    BCEWithLogitsLoss,
    CrossEntropyLoss,
    FocalLoss,
    HuberLoss,
    KLDivLoss,
    L1Loss,
    MSELoss,
    NLLLoss,
    SmoothL1Loss,
)

_SCORES = "loss='cross_entropy', of scores without a softmax"

#: Losses of outputs and targets.
LOSSES: dict[str, Callable[[], Layer]] = {
    "cross_entropy": CrossEntropyLoss,
    "bce_with_logits": BCEWithLogitsLoss,
    "mse": MSELoss,
    "mae": L1Loss,
    "l1": L1Loss,
    "smooth_l1": SmoothL1Loss,
    "huber": HuberLoss,
    "nll": NLLLoss,
    "focal": FocalLoss,
}
#: Operations that take numbers of classes, as their errors call them.
_OF_CLASSES = ("SoftmaxCrossEntropyForward", "softmax_cross_entropy", "nll_loss")
_OF_NUMBERS = (MSELoss, L1Loss, SmoothL1Loss, HuberLoss)
#: Other names of losses, with what to write.
_OTHER_LOSSES = {
    "bce": "loss='bce_with_logits', of scores without a sigmoid",
    "binary_cross_entropy": "loss='bce_with_logits', of scores without a sigmoid",
    "binary_crossentropy": "loss='bce_with_logits', of scores without a sigmoid",
    "categorical_crossentropy": _SCORES,
    "crossentropy": _SCORES,
    "mean_absolute_error": "loss='mae'",
    "mean_squared_error": "loss='mse'",
    "softmax_cross_entropy": _SCORES,
    "sparse_categorical_crossentropy": _SCORES,
}
#: Losses that are PyTorch's, too, with their arguments.
_OF_PYTORCH: dict[type[Layer], tuple[str, ...]] = {
    CrossEntropyLoss: ("weight", "ignore_index", "reduction", "label_smoothing"),
    NLLLoss: ("weight", "ignore_index", "reduction"),
    BCEWithLogitsLoss: ("weight", "reduction", "pos_weight"),
    KLDivLoss: ("reduction", "log_target"),
    L1Loss: ("reduction",),
    MSELoss: ("reduction",),
    HuberLoss: ("reduction", "delta"),
    SmoothL1Loss: ("reduction", "beta"),
}
#: The same as functions of torch.nn.functional.
_FUNCTIONS: dict[str, type[Layer]] = {
    "binary_cross_entropy_with_logits": BCEWithLogitsLoss,
    "cross_entropy": CrossEntropyLoss,
    "huber_loss": HuberLoss,
    "kl_div": KLDivLoss,
    "l1_loss": L1Loss,
    "mse_loss": MSELoss,
    "nll_loss": NLLLoss,
    "smooth_l1_loss": SmoothL1Loss,
}


def named_loss(loss: Any, op: str = "Trainer") -> Any:
    """The loss of this name, or singa's in place of PyTorch's; another value comes back. Raises
    TypeError for what is no function and for another module of PyTorch, ValueError for another
    name."""
    if isinstance(loss, str):
        if loss in LOSSES:
            return LOSSES[loss]()
        advice = _OTHER_LOSSES.get(loss, f"one of {', '.join(LOSSES)}; or a layer or a function")
        if made := next((n for n, each in LOSSES.items() if each.__name__ == loss), None):
            advice = f"loss={made!r}, or layer.{loss}()"
        raise ValueError(f"[{op}] there is no loss {loss!r}: use {advice}")
    if not callable(loss) or isinstance(loss, type):
        raise TypeError(
            f"[{op}] loss: expected a layer or a function of outputs and targets, such as "
            f"layer.MSELoss() or layer.CrossEntropyLoss(), or a name, got {loss!r:.80}"
        )
    return loss if "torch" not in sys.modules else _of_pytorch(loss, op)


def _of_pytorch(loss: Any, op: str) -> Any:
    torch, kind = sys.modules["torch"], type(loss).__name__
    if name := next((n for n in _FUNCTIONS if loss is getattr(torch.nn.functional, n)), None):
        ignored = {"ignore_index": -100} if "ignore_index" in _OF_PYTORCH[_FUNCTIONS[name]] else {}
        return _FUNCTIONS[name](**ignored)
    if not isinstance(loss, torch.nn.Module):
        return loss
    for made, arguments in _OF_PYTORCH.items():
        if type(loss) is getattr(torch.nn, made.__name__):
            return made(**{name: _as_array(getattr(loss, name)) for name in arguments})
    raise TypeError(
        f"[{op}] loss: {kind} of PyTorch does not compute with tensors of singa: "
        "write a function of outputs and targets with singa.autograd, or keep your loop and its "
        "loss by singa.accelerate(module)"
    )


def _as_array(value: Any) -> Any:
    return value.detach().cpu().numpy() if hasattr(value, "detach") else value


@contextlib.contextmanager
def advising(name: str) -> Iterator[None]:
    """Context manager: errors of a loss, which may have this name, about targets that do not fit
    the outputs say what to write."""
    try:
        yield
    except (ValueError, IndexError) as error:
        if advice := _advice(name, facts_of(error)):
            of_numbers = LOSSES.get(name) in _OF_NUMBERS
            op = f"[Trainer] loss={name!r} compares outputs with numbers of the same shape: "
            raise type(error)(f"{op if of_numbers else ''}{error}; {advice}") from error
        raise


def _advice(name: str, facts: Mapping[str, Any]) -> str:
    """What to do about targets to which a loss objects with these facts; "" for other errors."""
    kind = facts.get("kind")
    if kind == "shapes":
        wanted, given = facts["x"], facts["t"]
        if wanted == (*given, 1):
            return f"give targets of shape {wanted}, such as y[:, None]"
        return "for classes use loss='cross_entropy'" if LOSSES.get(name) in _OF_NUMBERS else ""
    if kind == "no_scores":
        return "layer.Flatten() or a pooling of whole images comes before the last layer"
    if facts.get("op") not in _OF_CLASSES or kind not in ("not_whole", "outside"):
        return ""
    if kind == "not_whole":
        return "these are classes; for numbers use loss='mse'"
    count = facts["high"]
    if count == 1:
        return "one score of two classes has loss='bce_with_logits', and y[:, None] as floats"
    return (
        f"the outputs are scores of {count} classes, whose numbers begin with 0: give the last "
        "layer an output for each class, or the loss an ignore_index"
    )
