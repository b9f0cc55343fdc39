"""For which ranks the others of a job wait: what each has noted, and the table of all."""

from __future__ import annotations

import contextlib
import dataclasses
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Wait:
    """What a rank has waited for `rank`, which came last to the collectives of a name.

    collective  "all_reduce conv1.W and 3 more"
    times       number of collectives
    seconds     in all of them

    >>> wait = distributed.Wait(rank=1, collective="all_reduce conv1.W", times=20, seconds=0.5)
    >>> f"{1e3 * wait.seconds / wait.times:.0f} ms each"
    '25 ms each'
    """

    rank: int
    collective: str
    times: int
    seconds: float


def write(folder: str | os.PathLike[str], rank: int, waits: Iterable[Wait]) -> None:
    """Notes what `rank` has waited for, in a file of its own."""
    import json
    from pathlib import Path

    with contextlib.suppress(OSError):  # a report is no reason to fail
        text = json.dumps([dataclasses.astuple(wait) for wait in waits])
        Path(folder, f"{rank}.json").write_text(text)


def read(folder: str | os.PathLike[str]) -> dict[int, list[Wait]]:
    """What the ranks have written, by rank. Of ranks that were killed there is nothing."""
    import json
    from pathlib import Path

    found = {}
    for path in sorted(Path(folder).glob("*.json"), key=lambda path: int(path.stem)):
        with contextlib.suppress(ValueError):  # half a file
            found[int(path.stem)] = [Wait(*each) for each in json.loads(path.read_text())]
    return found


def table(of_ranks: Mapping[int, Sequence[Wait]]) -> list[str]:
    """The lines of a table: for each rank, the seconds that it has waited for others, the seconds
    that each of the others has waited for it, on average, how often it came last, and to which
    collectives mostly."""
    lines = ["rank  waits for others  awaited by others  came last  mostly to"]
    every = [wait for waits in of_ranks.values() for wait in waits]
    for rank in sorted({*of_ranks, *(wait.rank for wait in every)}):
        own = sum(wait.seconds for wait in of_ranks.get(rank, ()))
        awaited = [wait for wait in every if wait.rank == rank]
        others = max(len(of_ranks.keys() - {rank}), 1)
        seconds = sum(wait.seconds for wait in awaited) / others
        # Each of the others has counted it.
        times = round(sum(wait.times for wait in awaited) / others)
        by_name: dict[str, float] = {}
        for wait in awaited:
            by_name[wait.collective] = by_name.get(wait.collective, 0.0) + wait.seconds
        most = max(by_name, key=lambda name: by_name[name], default="")
        lines.append(f"{rank:>4}  {own:>14.3f} s  {seconds:>15.3f} s  {times:>9}  {most}")
    return [line.rstrip() for line in lines]
