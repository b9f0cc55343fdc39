# Loads the extension. OpenBLAS starts its threads when it is loaded, and they spin for a while. Our
# copy is only called with one thread, so OPENBLAS_NUM_THREADS keeps it from starting more. NumPy is
# imported first, so that its own copy is not affected.

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
