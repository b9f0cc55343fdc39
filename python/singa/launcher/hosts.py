"""Commands that start ranks on several machines: those of an MPI, or SLURM's srun.

Each rank is run by `python -m singa launch SCRIPT ...` without -n, which reads its place from the
variables of the MPI or of srun, takes its cores, and passes on whole lines of the script's output.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Mapping, Sequence

_MPI = ("mpiexec", "mpirun")
_SLURM = "SLURM"


def parse(text: str) -> list[str]:
    """Names of hosts from a list "a,b". Raises ValueError for empty or repeated names."""
    hosts = [name.strip() for name in text.split(",")]
    if not all(hosts) or any(set(name) & set(" :\t") for name in hosts):
        raise ValueError(f"[launch] --hosts must be names separated by commas, got {text!r}")
    if len(set(hosts)) != len(hosts):
        raise ValueError(f"[launch] --hosts names a machine twice: {text!r}")
    return hosts


def find() -> tuple[str, str]:
    """The command that starts ranks on hosts, and what it is: _SLURM, or an MPI's answer to
    --version.

    It is srun within an allocation of SLURM that has it, otherwise mpiexec or mpirun. srun lets the
    other ranks live, and report, when one fails; an MPI ends them. Raises OSError if there is
    neither.
    """
    srun = shutil.which("srun") if "SLURM_JOB_ID" in os.environ else None
    if srun:
        return srun, _SLURM
    for name in _MPI:
        if found := shutil.which(name):
            answer = subprocess.run([found, "--version"], capture_output=True, text=True)
            return found, answer.stdout
    raise OSError(
        "[launch] --hosts needs mpiexec, mpirun, or srun within an allocation of SLURM; none is on "
        "PATH"
    )


def command(
    found: tuple[str, str],
    hosts: Sequence[str],
    ranks: int,
    program: Sequence[str],
    variables: Mapping[str, str],
) -> list[str]:
    """The command that runs `program` as `ranks` ranks on the hosts, as evenly as possible, where
    it is started with these variables. `found` is what `find` returns."""
    path, version = found
    if version == _SLURM:
        return srun_command(path, hosts, ranks, program)
    return mpi_command(path, version, hosts, ranks, program, variables)


def told_by(version: str) -> str:
    """How signals reach the launchers of ranks that such a command starts.

    "input"    by standard input: srun kills its tasks when it gets SIGTERM
    "SIGUSR2"  by this signal: Open MPI's mpirun kills its processes a second after SIGTERM
    "signal"   as they are
    """
    if version == _SLURM:
        return "input"
    return "SIGUSR2" if _is_open_mpi(version) else "signal"


def _is_open_mpi(version: str) -> bool:
    return any(name in version for name in ("Open MPI", "OpenRTE", "PRTE", "prrte"))


def srun_command(srun: str, hosts: Sequence[str], ranks: int, program: Sequence[str]) -> list[str]:
    """The command of SLURM."""
    return [
        srun,
        f"--ntasks={ranks}",
        f"--nodes={len(hosts)}",
        f"--nodelist={','.join(hosts)}",
        "--distribution=block",
        "--kill-on-bad-exit=0",
        "--no-kill",
        "--cpu-bind=none",
        *program,
    ]


def mpi_command(
    mpiexec: str,
    version: str,
    hosts: Sequence[str],
    ranks: int,
    program: Sequence[str],
    variables: Mapping[str, str],
) -> list[str]:
    """The command of an MPI, which `version`, the answer to --version, tells apart."""
    each = -(-ranks // len(hosts))
    if _is_open_mpi(version):
        return [
            mpiexec,
            *("-n", str(ranks)),
            *("--host", ",".join(f"{host}:{each}" for host in hosts)),
            *("--map-by", "slot:OVERSUBSCRIBE"),
            *("--bind-to", "none"),
            *(word for name in _passed(variables) for word in ("-x", name)),
            *program,
        ]
    return [  # Hydra, of MPICH and Intel
        mpiexec,
        *("-n", str(ranks)),
        *("-hosts", ",".join(hosts)),
        *("-ppn", str(each)),
        "-genvall",
        *program,
    ]


def _passed(variables: Mapping[str, str]) -> list[str]:
    """Those variables that Open MPI does not pass on by itself."""
    names = ("PATH", "PYTHONPATH", "LD_LIBRARY_PATH", "VIRTUAL_ENV")
    return sorted(
        name for name in variables if name in names or name.startswith(("SINGA_", "OMP_"))
    )
