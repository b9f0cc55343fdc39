"""Layers: functions of tensors with parameters.

    conv = layer.Conv2d(16, 3, padding=1, bias=False)
    y = conv(x)  # the first call creates conv.W for the channels of x

A network is a Layer or a Model with layers in attributes, also in lists, tuples and dicts there.
`Layer` describes how to write one.
"""

from typing import TYPE_CHECKING

from . import (
    activation,
    attention,
    base,
    cells,
    containers,
    conv,
    decoder,
    layout,
    linear,
    loss,
    norm,
    padding,
    pooling,
    resampling,
    rnn,
    rotary,
    simple,
)
from .activation import *
from .attention import *
from .base import *
from .cells import *
from .containers import *
from .conv import *
from .decoder import *
from .layout import *
from .linear import *
from .loss import *
from .norm import *
from .padding import *
from .pooling import *
from .resampling import *
from .rnn import *
from .rotary import *
from .simple import *

if not TYPE_CHECKING:  # mypy reads no computed list; it follows the imports
    __all__ = [
        *activation.__all__,
        *attention.__all__,
        *base.__all__,
        *cells.__all__,
        *containers.__all__,
        *conv.__all__,
        *decoder.__all__,
        *layout.__all__,
        *linear.__all__,
        *loss.__all__,
        *norm.__all__,
        *padding.__all__,
        *pooling.__all__,
        *resampling.__all__,
        *rnn.__all__,
        *rotary.__all__,
        *simple.__all__,
    ]
