"""The operators, one module for each family: classes, and the functions that apply them."""

from typing import TYPE_CHECKING

from . import (
    arithmetic,
    attention,
    conv,
    elementwise,
    gating,
    indexing,
    linalg,
    loss,
    loss_functions,
    movement,
    normalization,
    pooling,
    reduction,
    resampling,
    rotary,
    sampling,
    searching,
    sorting,
    statistics,
    transcendental,
)
from . import rnn as recurrent
from .arithmetic import *
from .attention import *
from .base import BuiltinOperator as BuiltinOperator
from .conv import *
from .elementwise import *
from .elementwise import Scalar as Scalar
from .gating import *
from .indexing import *
from .linalg import *
from .loss import *
from .loss_functions import *
from .methods import Methods as Methods
from .movement import *
from .movement import Clone as Clone
from .movement import Contiguous as Contiguous
from .movement import Index as Index
from .normalization import *
from .pooling import *
from .raw_signs import SIGNS as SIGNS
from .reduction import *
from .resampling import *
from .rnn import *
from .rotary import *
from .sampling import *
from .searching import *
from .sorting import *
from .statistics import *
from .transcendental import *

if not TYPE_CHECKING:  # mypy reads no computed list; it follows the imports
    __all__ = [
        *arithmetic.__all__,
        *attention.__all__,
        *conv.__all__,
        *elementwise.__all__,
        *gating.__all__,
        *indexing.__all__,
        *linalg.__all__,
        *loss.__all__,
        *loss_functions.__all__,
        *movement.__all__,
        *normalization.__all__,
        *pooling.__all__,
        *reduction.__all__,
        *resampling.__all__,
        *recurrent.__all__,
        *rotary.__all__,
        *sampling.__all__,
        *searching.__all__,
        *sorting.__all__,
        *statistics.__all__,
        *transcendental.__all__,
    ]
