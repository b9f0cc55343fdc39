"""Which rank this process is, according to the variables of the program that started it."""

from __future__ import annotations

import dataclasses
import os
import re
import zlib
from collections.abc import Mapping
from dataclasses import dataclass

DEFAULT_TIMEOUT = 60
#: Ports of meetings in steps of SLURM, below those that systems give to connections.
_FIRST_PORT, _PORTS = 20000, 10000


@dataclass(frozen=True)
class Environment:
    """The place of a process in its job. Without a launcher, the only rank of a job of one.

    rank        from 0 to world_size - 1
    world_size  number of ranks
    local_rank  number of the rank on its machine; None: the ranks find it out when they meet
    local_size  number of ranks on this machine, or None
    job         name of this start of the job; "" if the launcher gave none
    timeout     seconds for which a rank waits for the others (default 60)
    restart     how often the job has been started again (default 0), also by torchrun or SLURM
    source      the launcher, "" without one
    meeting     "host:port" at which ranks on several machines find each other; "": by MPI

    >>> distributed.environment().rank
    0
    """

    rank: int = 0
    world_size: int = 1
    local_rank: int | None = 0
    local_size: int | None = 1
    job: str = ""
    timeout: int = DEFAULT_TIMEOUT
    restart: int = 0
    source: str = ""
    meeting: str = ""

    def variables(self) -> dict[str, str]:
        """The variables that give a process this place."""
        values: dict[str, int | str] = {
            "SINGA_RANK": self.rank,
            "SINGA_WORLD_SIZE": self.world_size,
            "SINGA_TIMEOUT": self.timeout,
            "SINGA_RESTART": self.restart,
        }
        if self.local_rank is not None and self.local_size is not None:
            values |= {"SINGA_LOCAL_RANK": self.local_rank, "SINGA_LOCAL_SIZE": self.local_size}
        if self.job:
            values["SINGA_JOB"] = self.job
        if self.meeting:
            values["SINGA_MEETING"] = self.meeting
        return {name: str(value) for name, value in values.items()}


@dataclass(frozen=True)
class _Launcher:
    """Names of a launcher's variables. `local` may be missing in a process that it started."""

    name: str
    rank: str
    world_size: str
    local: tuple[str, str]


_SINGA = _Launcher(
    "singa launch", "SINGA_RANK", "SINGA_WORLD_SIZE", ("SINGA_LOCAL_RANK", "SINGA_LOCAL_SIZE")
)
_SLURM_TASKS = "SLURM_STEP_TASKS_PER_NODE"
# A batch script of SLURM has SLURM_PROCID and SLURM_NTASKS, too; the step's variables are srun's.
_SLURM = _Launcher("SLURM", "SLURM_PROCID", "SLURM_STEP_NUM_TASKS", ("SLURM_LOCALID", _SLURM_TASKS))
_OTHERS = (
    _Launcher("torchrun", "RANK", "WORLD_SIZE", ("LOCAL_RANK", "LOCAL_WORLD_SIZE")),
    _Launcher(
        "Open MPI",
        "OMPI_COMM_WORLD_RANK",
        "OMPI_COMM_WORLD_SIZE",
        ("OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE"),
    ),
    _Launcher("MPI", "PMI_RANK", "PMI_SIZE", ("MPI_LOCALRANKID", "MPI_LOCALNRANKS")),
)

#: Variables by which other launchers name a rank. `singa launch` removes them from its own ranks.
FOREIGN = frozenset(
    name for launcher in (*_OTHERS, _SLURM) for name in (launcher.rank, *launcher.local)
) | {"WORLD_SIZE", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_STEP_NUM_TASKS", "PMIX_RANK"}


def is_launched() -> bool:
    """Whether `singa launch` has started this process."""
    return bool(os.environ.get(_SINGA.rank))


def environment(variables: Mapping[str, str] | None = None) -> Environment:
    """The place of this process in its job.

    `variables` defaults to os.environ. Those of `singa launch` (SINGA_RANK, SINGA_WORLD_SIZE,
    SINGA_LOCAL_RANK, SINGA_LOCAL_SIZE) count, then torchrun's (RANK, ...), Open MPI's
    (OMPI_COMM_WORLD_RANK, ...), those of other MPIs (PMI_RANK, ...), and at last srun's
    (SLURM_PROCID, ...), which may have started an MPI's own launcher.

    Raises ValueError for values that are no numbers or out of range, for a rank without a world
    size or the reverse, and if two launchers besides SLURM disagree.

    >>> distributed.environment().world_size
    1
    """
    given = os.environ if variables is None else variables
    found = {
        launcher.name: place
        for launcher in (_SINGA, *_OTHERS)
        if (place := _global_place(launcher, given))
    }
    for name, place in found.items():
        first_name, first = next(iter(found.items()))
        if place != first:
            raise ValueError(
                f"[environment] {first_name} says rank {first[0]} of {first[1]}, {name} says rank "
                f"{place[0]} of {place[1]}: unset the variables of one of them"
            )
    source = next(iter(found), "")
    if not source:
        place = _global_place(_SLURM, given)
        source = _SLURM.name if place else ""
    else:
        place = found[source]
    restart = _restarts(source, given)
    if not place:
        job = given.get("SINGA_JOB", "")
        return Environment(timeout=_timeout(given), job=job, restart=restart)
    local_rank, local_size = _local_place(source, place, given)
    meeting = given.get("SINGA_MEETING", "") or _meeting(source, given)
    job, timeout = given.get("SINGA_JOB", ""), _timeout(given)
    return Environment(*place, local_rank, local_size, job, timeout, restart, source, meeting)


def _global_place(launcher: _Launcher, given: Mapping[str, str]) -> tuple[int, int] | None:
    present = [name for name in (launcher.rank, launcher.world_size) if given.get(name)]
    if not present:
        return None
    if len(present) == 1:
        if launcher is _SLURM:
            return None
        missing = ({launcher.rank, launcher.world_size} - set(present)).pop()
        raise ValueError(f"[environment] {present[0]} is set, {missing} is not")
    rank, size = _number(given, launcher.rank), _number(given, launcher.world_size, 1)
    if rank >= size:
        raise ValueError(
            f"[environment] {launcher.rank} must be below {launcher.world_size}, got {rank} and "
            f"{size}"
        )
    return rank, size


def completed(place: Environment, variables: Mapping[str, str] | None = None) -> Environment:
    """The place with what the ranks find each other by: a job's name where they share memory, a
    meeting and a name otherwise, or neither where MPI tells them of each other.
    """
    given = os.environ if variables is None else variables
    job = place.job or _job_of(place.source, given)
    together = place.local_size == place.world_size and not apart(place, given)
    if job and (together or (place.source == _SINGA.name and not place.meeting)):
        return dataclasses.replace(place, job=job, meeting="")
    return dataclasses.replace(place, job=job if place.meeting else "")


def apart(place: Environment, variables: Mapping[str, str] | None = None) -> bool:
    """Whether ranks of one machine, started by an MPI, meet as if they were on several
    (SINGA_NODE_RANKS)."""
    given = os.environ if variables is None else variables
    divided = given.get("SINGA_NODE_RANKS", "0") not in ("", "0")
    return divided and place.source in ("Open MPI", "MPI")


def started_by(name: str, place: Environment, variables: Mapping[str, str] | None = None) -> bool:
    """Whether the variables of the launcher `name` ("torchrun", "SLURM", ...) give a process this
    place, too. `place.source` is "singa launch" for a rank that this has started within another."""
    given = os.environ if variables is None else variables
    launcher = next(each for each in (*_OTHERS, _SLURM) if each.name == name)
    return _global_place(launcher, given) == (place.rank, place.world_size)


def _job_of(source: str, given: Mapping[str, str]) -> str:
    """A name that the launcher gives to this start of the job; "" if it does not."""
    names: tuple[str, ...] = ()
    if source == "torchrun":
        names = ("TORCHELASTIC_RUN_ID", "MASTER_PORT", "TORCHELASTIC_RESTART_COUNT")
    elif source == _SLURM.name and not given.get("PMIX_RANK"):
        names = ("SLURM_JOB_ID", "SLURM_STEP_ID", "SLURM_RESTART_COUNT")
    parts = [given.get(name, "0") for name in names]
    return "-".join(["singa", *parts]).replace("/", "_") if parts else ""


def _local_place(
    source: str, place: tuple[int, int], given: Mapping[str, str]
) -> tuple[int, int] | tuple[None, None]:
    """Number of the rank on its machine, and of all ranks there."""
    if place == (0, 1):
        return place
    launchers = [launcher for launcher in (_SINGA, *_OTHERS) if launcher.name == source]
    for launcher in launchers:
        if not all(given.get(name) for name in launcher.local):
            continue
        local, size = (_number(given, name) for name in launcher.local)
        if not local < size <= place[1]:
            raise ValueError(
                f"[environment] {launcher.local[0]} must be below {launcher.local[1]}, and that at "
                f"most {launcher.world_size}, got {local}, {size} and {place[1]}"
            )
        return local, size
    if _global_place(_SLURM, given) == place and given.get("SLURM_LOCALID"):
        tasks = _slurm_local_size(place[1], given)
        if tasks is not None:
            return _number(given, "SLURM_LOCALID"), tasks
    return None, None


def _slurm_local_size(world_size: int, given: Mapping[str, str]) -> int | None:
    """Tasks of this node, from a list such as "2(x3),1"; None if there is none."""
    tasks: list[int] = []
    for part in given.get(_SLURM_TASKS, "").split(","):
        match = re.fullmatch(r"(\d+)(?:\(x(\d+)\))?", part)
        if match is None:
            return None
        tasks += [int(match[1])] * int(match[2] or 1)
    node = _number(given, "SLURM_NODEID") if given.get("SLURM_NODEID") else 0
    if sum(tasks) != world_size or node >= len(tasks):
        raise ValueError(
            f"[environment] {_SLURM_TASKS} is {given[_SLURM_TASKS]!r}, for node {node} of a step "
            f"of {world_size} tasks"
        )
    return tasks[node]


def _meeting(source: str, given: Mapping[str, str]) -> str:
    """Where the ranks of a launcher that is no MPI's find each other; "" if it does not say."""
    if source == "torchrun" and given.get("MASTER_ADDR") and given.get("MASTER_PORT"):
        host, port = given["MASTER_ADDR"], _number(given, "MASTER_PORT")
        if given.get("TORCHELASTIC_RUN_ID"):  # torchrun itself has this port
            port += 1 if port < 65535 else -1
        return f"{f'[{host}]' if ':' in host else host}:{port}"
    if source == _SLURM.name and given.get("SLURM_STEP_NODELIST") and not given.get("PMIX_RANK"):
        # The first of a list such as "node[01-03,07],other", which has rank 0.
        first = re.sub(r"\[(\w+)[^]]*\]", r"\1", given["SLURM_STEP_NODELIST"]).partition(",")[0]
        step = f"{given.get('SLURM_JOB_ID')}.{given.get('SLURM_STEP_ID')}"
        return f"{first}:{_FIRST_PORT + zlib.crc32(step.encode()) % _PORTS}"
    return ""


def _restarts(source: str, given: Mapping[str, str]) -> int:
    """How often `singa launch`, torchrun or SLURM has started the job again."""
    names = ["SINGA_RESTART", "SLURM_RESTART_COUNT"]
    if source == "torchrun":
        names.insert(1, "TORCHELASTIC_RESTART_COUNT")
    return next((_number(given, name) for name in names if given.get(name)), 0)


def _number(given: Mapping[str, str], name: str, least: int = 0) -> int:
    text = given[name]
    if not (text.isascii() and text.isdecimal() and int(text) >= least):
        raise ValueError(f"[environment] {name} must be a number from {least} on, got {text!r}")
    return int(text)


def _timeout(given: Mapping[str, str]) -> int:
    return _number(given, "SINGA_TIMEOUT", 1) if given.get("SINGA_TIMEOUT") else DEFAULT_TIMEOUT
