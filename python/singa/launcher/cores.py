"""The CPU cores of each rank on a machine."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Sequence
from pathlib import Path


def available() -> list[int]:
    """The CPUs that this process may use. Threads of one core, and cores of one socket, are
    neighbours."""
    return sorted(os.sched_getaffinity(0), key=_place)


def split(cores: Sequence[int], ranks: int) -> list[list[int]]:
    """Neighbouring cores for each rank, as many for each as possible. Ranks share cores if there
    are more ranks than cores."""
    if ranks > len(cores):
        return [[cores[rank % len(cores)]] for rank in range(ranks)]
    ends = [len(cores) * rank // ranks for rank in range(ranks + 1)]
    return [list(cores[ends[rank] : ends[rank + 1]]) for rank in range(ranks)]


def threads(own: Sequence[int], ranks: int, quota: float = math.inf) -> int:
    """Threads of a rank with these cores, in a cgroup with a quota of CPUs for all ranks."""
    return max(1, min(len(own), math.ceil(quota / ranks) if quota < math.inf else len(own)))


def quota(
    root: Path = Path("/sys/fs/cgroup"), of_process: Path = Path("/proc/self/cgroup")
) -> float:
    """CPUs that the cgroups of this process allow it; infinite without a limit."""
    folders = cgroups("cpu", root, of_process)
    return min([math.inf, *(_limit(folder, version_2) for folder, version_2 in folders)])


def cgroups(
    controller: str,
    root: Path = Path("/sys/fs/cgroup"),
    of_process: Path = Path("/proc/self/cgroup"),
) -> Iterator[tuple[Path, bool]]:
    """The folders with the limits of this process, and whether each is of cgroups' version 2."""
    try:
        lines = of_process.read_text().splitlines()
    except OSError:
        return
    for line in lines:
        _, controllers, path = line.split(":", 2)
        version_2 = not controllers
        if not version_2 and controller not in controllers.split(","):
            continue
        folder = root if version_2 else root / controller
        parts = [part for part in path.split("/") if part not in ("", "..")]
        # In a container the path may be the host's, and the limit is in the root.
        for depth in range(len(parts) + 1):
            yield folder.joinpath(*parts[:depth]), version_2


def _limit(folder: Path, version_2: bool) -> float:
    try:
        if version_2:
            most, period = (folder / "cpu.max").read_text().split()
        else:
            most = (folder / "cpu.cfs_quota_us").read_text().strip()
            period = (folder / "cpu.cfs_period_us").read_text()
        return math.inf if most in ("max", "-1") else int(most) / int(period)
    except (OSError, ValueError, ZeroDivisionError):
        return math.inf


def _place(cpu: int) -> tuple[int, int, int]:
    folder = Path(f"/sys/devices/system/cpu/cpu{cpu}/topology")
    try:
        package = int((folder / "physical_package_id").read_text())
        core = int((folder / "core_id").read_text())
    except (OSError, ValueError):
        return 0, cpu, cpu
    return package, core, cpu
