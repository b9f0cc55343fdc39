"""Runs a training script with a fault in one rank of the first start of a job.

    python faulty_training.py FAULT RANK STEP SCRIPT ARGUMENTS...

The fault comes before the update number STEP + 1 of the rank:

    kill, stop   SIGKILL, SIGSTOP
    raise        an exception in Python
    exit         the rank ends, with exit status 0
    shape, type  a gradient with another shape or type than on the other ranks
    order        two gradients change places
    skip         the rank leaves out an update
    rate         another learning rate
    disk         no more room: files may have no more than 1 KiB (RLIMIT_FSIZE)
    none         nothing happens

Faults of gradients need a step that is executed: one of the first two, since later ones are
replayed without Python.
"""

import os
import resource
import runpy
import signal
import sys
import time
from pathlib import Path

import numpy as np
from singa import autograd, model, opt, tensor

#: Variable with the name of a file that gets the time of the fault (time.monotonic).
TIME = "FAULT_TIME"
FAULTS = ("kill", "stop", "raise", "exit", "shape", "type", "order", "skip", "rate", "disk")


def _broken(fault, pairs):
    """The gradients of a step, with the fault."""
    pairs = list(pairs)
    param, grad = pairs[-1]
    if fault == "shape":
        wrong = np.zeros((2, 3), np.float32)
        pairs[-1] = param, tensor.from_numpy(wrong)
    elif fault == "type":
        pairs[-1] = param, tensor.from_numpy(grad.numpy().astype(np.float64), dtype="float64")
    elif fault == "order":
        pairs[0], pairs[-1] = pairs[-1], pairs[0]
    return pairs


def _strike(fault, optimizer):
    """The fault, before a step. Returns whether the step is left out."""
    if path := os.environ.get(TIME):
        Path(path).write_text(str(time.monotonic()))
    if fault in ("kill", "stop"):
        os.kill(os.getpid(), signal.SIGKILL if fault == "kill" else signal.SIGSTOP)
    elif fault == "raise":
        raise KeyError("this rank is broken")
    elif fault == "exit":
        os._exit(0)
    elif fault == "rate":
        optimizer.opt.lr = opt.Constant(123.0)
    elif fault == "disk":
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (1024, 1024))
    return fault == "skip"


def main():
    fault, rank, step, script, *arguments = sys.argv[1:]
    first_start = os.environ.get("SINGA_RESTART") == "0"
    if fault != "none" and first_start and os.environ["SINGA_RANK"] == rank:
        call, backward = model.Model.__call__, autograd.backward
        struck = []

        def called(self, *inputs, **options):
            if struck or not self.training or self.optimizer.steps < int(step):
                return call(self, *inputs, **options)
            struck.append(fault)
            if _strike(fault, self.optimizer):
                return self.forward(inputs[0]), tensor.zeros(())
            autograd.backward = lambda *args: _broken(fault, backward(*args))
            try:
                return call(self, *inputs, **options)
            finally:
                autograd.backward = backward

        model.Model.__call__ = called
    # Without plots: a busy machine loads matplotlib in more time than the ranks wait for rank 0.
    sys.modules["matplotlib"] = None
    sys.argv = [script, *arguments]
    runpy.run_path(script, run_name="__main__")


if __name__ == "__main__":
    main()
