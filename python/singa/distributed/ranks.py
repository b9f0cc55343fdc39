"""What scripts ask the other ranks, and tell them."""

from __future__ import annotations

import atexit
import os
import sys
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .. import singa_wrap
from ..launcher.environment import environment, is_launched
from ..launcher.waits import Wait
from ..launcher.waits import write as write_waits
from ..tape.elements import as_raw
from ..tape.tensor import wrap

_HOST = singa_wrap.DeviceKind_kCpu


if is_launched():  # the launcher asks for the stack of a rank that hangs
    from ..launcher.processes import show_stack_on_signal

    show_stack_on_signal()


class _State:
    """The communicator that is in use, and whether uncaught exceptions are told to the others."""

    communicator: Any = None
    process = 0  # that uses it; those that it forks do not
    reports = False


def communicator() -> Any:
    """The communicator of this process: the one of `use`, otherwise the one that the launcher's
    variables describe (`singa_wrap.default_communicator`).

    It has `world_size`, `global_rank`, `local_rank`, and the collectives `all_reduce`,
    `all_gather`, `broadcast`, `barrier`, `check` and `abort`, which all ranks have to call in the
    same order. From the first call on, an exception that ends this rank's script is the reason that
    the other ranks report.

    >>> distributed.communicator() is None  # this process is the only rank
    False
    """
    if _State.communicator is None:
        use(singa_wrap.default_communicator())
    return _State.communicator


def use(communicator: Any) -> Any:
    """Has this module use `communicator`, such as that of a `DistOpt`; None: the default one.

    Returns the previous one, or None.

    >>> before = distributed.use(None)
    >>> print(distributed.use(before))
    None
    """
    before, _State.communicator = _State.communicator, communicator
    _State.process = os.getpid()
    if communicator is not None and communicator.world_size > 1 and not _State.reports:
        _State.reports = True
        _report_exceptions()
        if folder := singa_wrap.EnvironmentValue("SINGA_WAITS"):
            atexit.register(_write_waits, folder)
    return before


def _write_waits(folder: str) -> None:
    if _State.process == os.getpid():
        write_waits(folder, rank(), waits())


def _report_exceptions() -> None:
    print_it = sys.excepthook

    def report(
        kind: type[BaseException], error: BaseException, trace: TracebackType | None
    ) -> None:
        try:
            print_it(kind, error, trace)
        finally:
            abort(f"{kind.__name__}: {error}")

    sys.excepthook = report


def waits() -> list[Wait]:
    """Which ranks this one has waited for so far, in which collectives: the longest first.

    `times` counts collectives to which another rank came later than this one, and `rank` last.

    >>> distributed.waits()  # one rank alone waits for nobody
    []
    """
    used = _State.communicator
    if used is None or not hasattr(used, "waits"):
        return []
    found = [Wait(w.rank, w.collective, w.times, w.seconds) for w in used.waits()]
    return sorted(found, key=lambda wait: -wait.seconds)


def abort(text: str) -> None:
    """Has collectives of the other ranks raise an error with this rank and text.

    Does nothing if there are no other ranks, if this rank has not used the communicator yet, and
    in processes that a rank has forked.
    """
    used = _State.communicator
    if used is not None and used.world_size > 1:
        abort_by(used, f"rank {used.global_rank}: {text}")


def abort_by(communicator: Any, text: str) -> None:
    """Has collectives of the other ranks of `communicator` raise an error with this text, unless
    this process was forked by the rank."""
    if _State.process == os.getpid():
        communicator.abort(text)


def rank() -> int:
    """Number of this process among all ranks, from 0.

    >>> distributed.rank()
    0
    """
    used = _State.communicator
    return environment().rank if used is None else used.global_rank


def world_size() -> int:
    """Number of ranks.

    >>> distributed.world_size()
    1
    """
    used = _State.communicator
    return environment().world_size if used is None else used.world_size


def local_rank() -> int:
    """Number of this process among the ranks on its machine, from 0; also that of its GPU.

    Where the launcher does not say it, the ranks meet: all have to call this, or `communicator`.

    >>> distributed.local_rank()
    0
    """
    used = _State.communicator
    known = environment().local_rank if used is None else None
    return communicator().local_rank if known is None else known


def shard() -> tuple[int, int]:
    """(rank, world_size), the argument `shard` of `data.DataLoader`.

    >>> distributed.shard()
    (0, 1)
    """
    return rank(), world_size()


def is_main() -> bool:
    """Whether this is rank 0, which prints and writes files.

    >>> distributed.is_main()
    True
    """
    return rank() == 0


def barrier() -> None:
    """Returns when all ranks have called it.

    >>> distributed.barrier()  # returns when all ranks have come here
    >>> distributed.world_size()
    1
    """
    if world_size() > 1:
        communicator().barrier()


def total(values: Mapping[str, float]) -> dict[str, float]:
    """Sums over all ranks, in float64 and in the order of the ranks, so that all get the same bits.

    Raises RuntimeError if the ranks have other keys, and errors of the communicator.

    >>> distributed.total({"loss": 1.5, "images": 10})
    {'loss': 1.5, 'images': 10.0}
    """
    if world_size() == 1:
        return {name: float(value) for name, value in values.items()}
    communicator().check(f"distributed.total of {', '.join(values)}")
    sums = as_raw(np.array(list(values.values()), np.float64))
    communicator().all_reduce([sums])
    return dict(zip(values, _array(sums).tolist(), strict=True))


def any_rank(flag: object) -> bool:
    """Whether `flag` is true on one rank at least.

    >>> distributed.any_rank(False)
    False
    """
    if world_size() == 1:
        return bool(flag)
    raised = as_raw(np.array([1.0 if flag else 0.0], np.float32))
    communicator().all_reduce([raised])
    return bool(_array(raised)[0])


def gather(value: Any) -> list[Any]:
    """The values of all ranks, in their order. A value is anything that JSON has.

    Raises TypeError for another value, and errors of the communicator.

    >>> distributed.gather("of this rank")
    ['of this rank']
    """
    import json  # computing alone does not need it

    text = json.dumps(value)
    if world_size() == 1:
        return [json.loads(text)]
    encoded = np.frombuffer(text.encode(), np.uint8)
    lengths = _gathered(np.array([len(encoded)], np.int64))[:, 0]
    # As numbers of 32 bits, a type that all collectives move.
    padded = np.zeros(-(-int(lengths.max()) // 4), np.int32)
    padded.view(np.uint8)[: len(encoded)] = encoded
    rows = np.ascontiguousarray(_gathered(padded)).view(np.uint8)
    return [json.loads(row[:n].tobytes()) for row, n in zip(rows, lengths, strict=True)]


def on_main(function: Callable[[], Any], what: str) -> None:
    """Calls `function` on rank 0, and returns on all ranks when it has returned there.

    If it raises an exception, rank 0 raises that, and the others RuntimeError with its text and
    `what`, a description for the message.

    >>> distributed.on_main(lambda: print("once"), "an example")
    once
    """
    if world_size() == 1:
        function()
        return
    error: Exception | None = None
    if is_main():
        try:
            function()
        except Exception as failed:
            error = failed
    text = gather("" if error is None else f"{type(error).__name__}: {error}")[0]
    if error is not None:
        raise error
    if text:
        raise RuntimeError(f"[{what}] rank 0 failed: {text}")


def _gathered(array: NDArray[Any]) -> NDArray[Any]:
    """(W, ...): this array of each rank."""
    return _array(communicator().all_gather(as_raw(array)))


def _array(raw: singa_wrap.Tensor) -> NDArray[Any]:
    return wrap(raw, False).numpy()
