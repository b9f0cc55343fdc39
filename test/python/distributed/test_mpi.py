"""Ranks whose data an MPI moves (SINGA_TRANSPORT=mpi), on one machine whose ranks count as several.

`.ci/run launchers` has both MPIs, in SINGA_TEST_MPI; otherwise it is the mpiexec on PATH, if any.
"""

import os
import re
import shutil
import subprocess
import sys

import pytest
from singa.launcher.environment import FOREIGN, Environment

WHOLE = os.environ.get("SINGA_TEST_LAUNCHERS") == "1"
FOLDERS = [
    os.path.join(os.environ["SINGA_TEST_MPI"], name, "bin") if WHOLE else os.path.dirname(found)
    for name in (("mpich", "openmpi") if WHOLE else ("mpiexec",))
    if WHOLE or (found := shutil.which(name))
]
pytestmark = pytest.mark.skipif(not FOLDERS, reason="no MPI: mpiexec is not on PATH")

# argv: what happens to the last rank: a signal in the middle, or it is stopped at the start or end.
SCRIPT = """
import atexit, os, signal, sys
import numpy as np
from singa import distributed, singa_wrap
place = distributed.environment()
stop = lambda: os.kill(os.getpid(), signal.SIGSTOP)
if sys.argv[1] == "start" and place.rank == place.world_size - 1:
    stop()
communicator = distributed.communicator()
rank, ranks = communicator.global_rank, communicator.world_size
terms = [np.random.default_rng(r).standard_normal(700001, np.float32) for r in range(ranks)]
want = np.float32(0.5) * terms[0]
for term in terms[1:]:
    want += np.float32(0.5) * term
for step in range(4):
    own = singa_wrap.from_buffer(terms[rank].copy(), True)
    communicator.all_reduce([own], ["x"], 0.5)
    assert np.array_equal(np.array(singa_wrap.Exporter(own)).view(np.uint32), want.view(np.uint32))
    assert distributed.gather(rank) == list(range(ranks))
    if step == 2 and rank == ranks - 1 and sys.argv[1].startswith("SIG"):
        os.kill(os.getpid(), getattr(signal, sys.argv[1]))
    copy = singa_wrap.from_buffer(terms[rank].copy(), True)
    communicator.broadcast([copy], ranks - 1)
    assert np.array_equal(np.array(singa_wrap.Exporter(copy)), terms[-1])
if sys.argv[1] == "end" and rank == ranks - 1:
    atexit.register(stop)
print("good", ranks, flush=True)
"""


STANDARD = """
import sys
from singa import distributed, singa_wrap
communicator = singa_wrap.Communicator._join_mpi([sys.argv[2]], 20.0)
distributed.use(communicator)
assert sys.argv[2] in open("/proc/self/maps").read()
for step in range(3):
    everyone = distributed.gather("x" * 100_000 + str(communicator.global_rank))
assert everyone == ["x" * 100_000 + str(r) for r in range(communicator.world_size)]
print("good", communicator.world_size, flush=True)
singa_wrap.Communicator._leave_mpi(communicator)
"""


def _run(folder, ranks, tmp_path, *arguments, script=SCRIPT, node_ranks="1"):
    """(status, output, errors) of ranks that `singa launch --hosts` starts by the MPI there."""
    path = tmp_path / "script.py"
    path.write_text(script)
    own = {*FOREIGN, *Environment(job="-").variables()}
    variables = {k: v for k, v in os.environ.items() if k not in own}
    variables |= {"PATH": f"{folder}:{variables['PATH']}", "OMP_NUM_THREADS": "1"}
    variables |= {"SINGA_TRANSPORT": "mpi", "SINGA_NODE_RANKS": node_ranks}
    variables |= {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    launch = [sys.executable, "-m", "singa", "launch", "-n", str(ranks), "--timeout", "4"]
    launch += ["--grace", "1", "--hosts", "localhost", str(path), *arguments]
    ended = subprocess.run(launch, env=variables, capture_output=True, text=True, timeout=60)
    return ended.returncode, ended.stdout, ended.stderr


@pytest.mark.parametrize(
    ("ranks", "node_ranks"), [(2, "1"), (3, "1"), (4, "1"), (4, "2")] if WHOLE else [(3, "1")]
)
@pytest.mark.parametrize("folder", FOLDERS)
def test_bits_are_those_of_one_process(folder, ranks, node_ranks, tmp_path):
    status, output, errors = _run(folder, ranks, tmp_path, "none", node_ranks=node_ranks)
    assert status == 0, errors
    assert sorted(output.splitlines()) == [f"[{rank}] good {ranks}" for rank in range(ranks)]


@pytest.mark.parametrize("fault", ["SIGKILL", "SIGSTOP"] if WHOLE else ["SIGKILL"])
@pytest.mark.parametrize("folder", FOLDERS)
def test_faults_end_the_job(folder, fault, tmp_path):
    """With the status that they have when TCP moves the data."""
    status, output, errors = _run(folder, 2, tmp_path, fault)
    assert status == (137 if fault == "SIGKILL" else 1), errors
    assert "good" not in output
    assert re.search(r"rank 1 (\(process|has ended|is stopped)", errors), errors


@pytest.mark.skipif(not WHOLE, reason="`.ci/run launchers` has the time")
@pytest.mark.parametrize(
    ("when", "message"),
    [
        ("start", r"this rank has waited for others in MPI_\w+ for 4 s, and ends"),
        ("end", r"rank 1 \(process \d+\) is stopped: it gave no sign of life for 4\."),
    ],
)
@pytest.mark.parametrize("folder", FOLDERS)
def test_a_rank_that_is_stopped_while_mpi_waits(folder, when, message, tmp_path):
    status, _, errors = _run(folder, 2, tmp_path, when)
    assert status == 1, errors
    assert re.search(message, errors), errors


@pytest.mark.skipif(not WHOLE, reason="`.ci/run launchers` has an MPI with the standard interface")
def test_the_standard_interface(tmp_path):
    library = os.path.join(os.environ["SINGA_TEST_MPI"], "mpich/lib/libmpi_abi.so.1")
    status, output, errors = _run(FOLDERS[0], 3, tmp_path, "none", library, script=STANDARD)
    assert status == 0, errors
    assert sorted(output.splitlines()) == [f"[{rank}] good 3" for rank in range(3)]
