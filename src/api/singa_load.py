# Loads the extension, with variables that its libraries read once, when they are loaded.
#
# OPENBLAS_NUM_THREADS: OpenBLAS starts its threads then, and they spin for a while. Our copy is
# only called with one thread, so it starts no more. NumPy is imported first, so that its own copy
# is not affected.
#
# GOMP_SPINCOUNT: GNU OpenMP's threads spin while they wait for each other, for milliseconds by
# default. Where another program uses one of their cores, a thread that waits may keep the one that
# it waits for from running, and each wait takes a time slice of the system. 3,000 turns are some
# 80 µs, longer than the pauses between operations.

import os as _os

import numpy as _numpy

_wanted = {"OPENBLAS_NUM_THREADS": "1"}
if "OMP_WAIT_POLICY" not in _os.environ:
    _wanted["GOMP_SPINCOUNT"] = _os.environ.get("GOMP_SPINCOUNT", "3000")
_before = {name: _os.environ.get(name) for name in _wanted}
_os.environ.update(_wanted)
try:
    from . import _singa_wrap
finally:
    for _name, _value in _before.items():
        if _value is None:
            del _os.environ[_name]
        else:
            _os.environ[_name] = _value
