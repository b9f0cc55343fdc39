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


def parse(text: str) -> list[str]:
    """Names of hosts from a list "a,b". Raises ValueError for empty or repeated names."""
    hosts = [name.strip() for name in text.split(",")]
    if not all(hosts) or any(set(name) & set(" :\t") for name in hosts):
        raise ValueError(f"[launch] --hosts must be names separated by commas, got {text!r}")
    if len(set(hosts)) != len(hosts):
        raise ValueError(f"[launch] --hosts names a machine twice: {text!r}")
    return hosts


def command(
    hosts: Sequence[str], ranks: int, program: Sequence[str], variables: Mapping[str, str]
) -> list[str]:
    """The command that runs `program` as `ranks` ranks on the hosts, as evenly as possible, where
    it is started with these variables.

    It is srun within an allocation of SLURM that has it, otherwise mpiexec or mpirun. srun lets the
    other ranks live, and report, when one fails; an MPI ends them. Raises OSError if there is
    neither.
    """
    srun = shutil.which("srun") if "SLURM_JOB_ID" in os.environ else None
    if srun:
        return srun_command(srun, hosts, ranks, program)
    for name in _MPI:
        if found := shutil.which(name):
            version = subprocess.run(
                [found, "--version"], capture_output=True, text=True, check=False
            ).stdout
            return mpi_command(found, version, hosts, ranks, program, variables)
    raise OSError(
        "[launch] --hosts needs mpiexec, mpirun, or srun within an allocation of SLURM; none is on "
        "PATH"
    )


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
    if "Open MPI" in version or "OpenRTE" in version or "PRTE" in version or "prrte" in version:
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
