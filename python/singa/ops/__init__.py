"""The operators, one module for each family: classes, and the functions that apply them.

Users get what the modules define, without `_INTERNAL` and names with an underscore, by
`singa.autograd`.
"""

from typing import TYPE_CHECKING

from ..raw.exports import defined, modules_of
from .arithmetic import _and as _and
from .arithmetic import _or as _or
from .arithmetic import _xor as _xor
from .base import BuiltinOperator as BuiltinOperator
from .conv import _Conv as _Conv
from .conv import _Conv2d as _Conv2d
from .conv import _ConvTranspose as _ConvTranspose
from .conv import _ConvTranspose2d as _ConvTranspose2d
from .elementwise import Scalar as Scalar
from .elementwise import _not as _not
from .methods import METHODS as METHODS
from .movement import Clone as Clone
from .movement import Contiguous as Contiguous
from .movement import Index as Index
from .normalization import _BatchNorm2d as _BatchNorm2d
from .normalization import _SyncBatchNorm2d as _SyncBatchNorm2d
from .pooling import _Pooling as _Pooling
from .pooling import _Pooling2d as _Pooling2d
from .rnn import _RNN as _RNN

#: SINGA's names.
_SINGAS = (
    *("_BatchNorm2d", "_Conv", "_Conv2d", "_ConvTranspose", "_ConvTranspose2d", "_Pooling"),
    *("_Pooling2d", "_RNN", "_SyncBatchNorm2d", "_and", "_not", "_or", "_xor"),
)
#: Modules whose names are not offered.
_INTERNAL_MODULES = frozenset(["base", "contraction", "items", "methods", "signs", "types"])
#: What the modules define for each other.
_INTERNAL = frozenset(
    [
        *("Binary", "BinaryOperator", "Elementwise", "Promoting", "Reduction", "Scalar"),
        *("Clone", "Contiguous", "Index", "autocast_operands", "converted", "promoted"),
        *("beside_number", "combined", "constant_beside", "inverse", "with_operands"),
        *("cubic_far", "cubic_near", "folded", "odd_padding_of", "odd_pads", "reflected"),
        *("TargetLoss", "as_float", "function_of", "in_type", "is_one", "sampled"),
        *("floating", "softmax_along", "tap", "wider"),
    ]
)

if TYPE_CHECKING:  # type checkers follow the imports
    from .activation import *
    from .arithmetic import *
    from .attention import *
    from .bits import *
    from .conv import *
    from .conversion import *
    from .elementwise import *
    from .indexing import *
    from .joining import *
    from .layer_norm import *
    from .linalg import *
    from .loss import *
    from .loss_functions import *
    from .matrices import *
    from .movement import *
    from .normalization import *
    from .pooling import *
    from .reduction import *
    from .resampling import *
    from .rnn import *
    from .sampling import *
    from .searching import *
    from .sorting import *
    from .special import *
    from .statistics import *
    from .transcendental import *
else:
    _public = defined(*modules_of(__name__, _INTERNAL_MODULES), internal=_INTERNAL)
    globals().update(_public)
    __all__ = [*_public, *_SINGAS]
