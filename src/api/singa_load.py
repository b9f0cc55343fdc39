# Loads the extension. An OpenBLAS starts its threads when it is loaded, and they spin for a while.
# NumPy's comes first, as it would without us; ours is only called with one thread, so it gets no
# others.

import os as _os

import numpy as _numpy

_threads = _os.environ.get("OPENBLAS_NUM_THREADS")
_os.environ["OPENBLAS_NUM_THREADS"] = "1"
try:
    from . import _singa_wrap
finally:
    if _threads is None:
        del _os.environ["OPENBLAS_NUM_THREADS"]
    else:
        _os.environ["OPENBLAS_NUM_THREADS"] = _threads
