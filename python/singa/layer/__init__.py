"""Layers: functions of tensors with parameters.

    conv = layer.Conv2d(16, 3, padding=1, bias=False)
    y = conv(x)  # the first call creates conv.W for the channels of x

A network is a Layer or a Model with layers in attributes, also in lists, tuples and dicts there.
`Layer` describes how to write one.
"""

from typing import TYPE_CHECKING, Any

from ..raw import calls, words
from ..raw.exports import defined, modules_of

#: Modules whose names are not offered.
_INTERNAL_MODULES = frozenset(
    [
        "head",
        "hooks",
        "late",
        "named_losses",
        "names",
        "observers",
        "parameters",
        "summary",
        "torch_weights",
        "types",
        "window",
    ]
)
#: What the modules define for each other.
_INTERNAL = frozenset(
    [
        *("TransformerLayer", "checked_layer", "first_tensor", "room_for", "take_room"),
        "zeros",
    ]
)

#: SINGA's names of what has another one here (`compat.names`).
_ALIASES = ("MeanSquareError",)

if TYPE_CHECKING:  # type checkers follow the imports
    from .activation import *
    from .attention import *
    from .base import *
    from .cells import *
    from .containers import *
    from .conv import *
    from .creation import *
    from .layout import *
    from .linear import *
    from .loss import *
    from .norm import *
    from .padding import *
    from .pooling import *
    from .resampling import *
    from .rnn import *
    from .rotary import *
    from .sequences import *
    from .simple import *
    from .transformer import *
else:
    _public = defined(*modules_of(__name__, _INTERNAL_MODULES), internal=_INTERNAL)
    globals().update(_public)
    calls.answers_calls(_public.values())
    words.answers(_public["Layer"], {**words.LAYERS, **words.PARTS}, words.UNASSIGNED["Layer"])
    __all__ = [*_public, *_ALIASES]


def __getattr__(name: str) -> Any:
    return words.missing(__name__, name)
