"""Runs a function as the ranks of a job, each in a process of its own."""

from __future__ import annotations

import os
import pickle
import signal
import traceback
import warnings
from collections.abc import Callable
from typing import Any

from singa import set_num_threads, singa_wrap


class FailedRank(str):
    """The text of the exception that a rank has raised, or "killed"."""


Body = Callable[[int, singa_wrap.NcclIdHolder], Any]


def in_ranks(world: int, body: Body, seconds: int = 60) -> list[Any]:
    """What `body(rank, holder)` returns in each rank; a FailedRank where it raises. A rank that
    takes longer than `seconds` is killed."""
    return Job(world, body, seconds).results()


def succeed(results: list[Any]) -> list[Any]:
    """The results, if no rank has failed."""
    failed = {rank: each for rank, each in enumerate(results) if isinstance(each, FailedRank)}
    assert not failed
    return results


class Job:
    """Ranks that have been started. Jobs that mostly wait may run at the same time."""

    def __init__(self, world: int, body: Body, seconds: int = 60) -> None:
        holder = singa_wrap.NcclIdHolder()
        self._children = []
        for rank in range(world):
            read, write = os.pipe()
            with warnings.catch_warnings():  # Python warns of forks beside other threads
                warnings.simplefilter("ignore")
                child = os.fork()
            if child == 0:
                _run(rank, holder, body, write, seconds)
            os.close(write)
            self._children.append((child, read))

    def results(self) -> list[Any]:
        """As of `in_ranks`, once."""
        results = []
        for child, read in self._children:
            with os.fdopen(read, "rb") as pipe:
                text = pipe.read()
            _, status = os.waitpid(child, 0)
            results.append(pickle.loads(text) if status == 0 and text else FailedRank("killed"))
        return results


def _run(rank: int, holder: Any, body: Body, pipe: int, seconds: int) -> None:
    """The life of a child, which must not go on with the tests."""
    try:
        signal.alarm(seconds)
        set_num_threads(1)
        try:
            result = body(rank, holder)
        except Exception as error:
            result = FailedRank(str(error))
            if os.environ.get("SINGA_TEST_TRACEBACKS"):
                traceback.print_exc()
        with os.fdopen(pipe, "wb") as file:
            pickle.dump(result, file)
        os._exit(0)
    finally:
        os._exit(1)
