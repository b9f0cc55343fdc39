"""Commands for several machines. The stand-ins for mpiexec and srun start the ranks here."""

import re
import signal
import sys
import time
from pathlib import Path

import pytest
from singa.launcher import hosts

PROGRAM = ["python", "x.py"]


def test_hydra():
    command = hosts.mpi_command("mpiexec", "HYDRA build details:", ["a", "b"], 5, PROGRAM, {})
    assert command == [
        *("mpiexec", "-n", "5", "-hosts", "a,b", "-ppn", "3"),
        *("-genvall", "python", "x.py"),
    ]


def test_open_mpi():
    given = {"SINGA_JOB": "x", "PYTHONPATH": "y", "HOME": "z"}
    command = hosts.mpi_command("mpirun", "mpirun (Open MPI) 5.0.3", ["a", "b"], 4, PROGRAM, given)
    assert command == [
        *("mpirun", "-n", "4", "--host", "a:2,b:2", "--map-by", "slot:OVERSUBSCRIBE"),
        *("--bind-to", "none", "-x", "PYTHONPATH", "-x", "SINGA_JOB", "python", "x.py"),
    ]


def test_srun():
    command = hosts.srun_command("srun", ["a", "b"], 4, PROGRAM)
    assert command[:4] == ["srun", "--ntasks=4", "--nodes=2", "--nodelist=a,b"]
    assert command[-2:] == PROGRAM
    assert {"--kill-on-bad-exit=0", "--no-kill"} <= set(command)


# Starts the program at the end of its arguments for each rank, as srun does with its variables.
# Each gets its standard input. It kills them when it gets SIGTERM.
SRUN = """#!{python}
import os, re, signal, subprocess, sys, threading
ranks = int(re.search(r"--ntasks=(\\d+)", " ".join(sys.argv))[1])
program = sys.argv[sys.argv.index("--cpu-bind=none") + 1 :]
started = []
for rank in range(ranks):
    place = dict(SLURM_PROCID=rank, SLURM_STEP_NUM_TASKS=ranks, SLURM_LOCALID=rank, SLURM_NODEID=0)
    place["SLURM_STEP_TASKS_PER_NODE"] = f"{{ranks}}"
    values = {{name: str(value) for name, value in place.items()}}
    started.append(subprocess.Popen(program, env=os.environ | values, stdin=subprocess.PIPE))
def kill(number, frame):
    for process in started:
        process.kill()
    signal.signal(number, signal.SIG_DFL)
    os.kill(os.getpid(), number)
signal.signal(signal.SIGTERM, kill)
def copy():
    while text := os.read(0, 4096):
        for process in started:
            os.write(process.stdin.fileno(), text)
threading.Thread(target=copy, daemon=True).start()
sys.exit(max(process.wait() for process in started))
"""

SCRIPT = """
import os, sys, time
from singa import distributed
place = distributed.environment()
for i in range(50):
    sys.stdout.write(f"{i} of ")
    sys.stdout.flush()
    sys.stdout.write(f"{place.rank}/{place.world_size}\\n")
if place.restart == 0 and place.rank == 1:
    sys.exit(6)
print(distributed.gather(place.rank) if place.restart else "the first start")
"""


@pytest.fixture
def cluster(jobs):
    """Jobs within an allocation of a SLURM that is this machine."""
    folder = jobs.folder / "bin"
    folder.mkdir()
    (folder / "srun").write_text(SRUN.format(python=sys.executable))
    (folder / "srun").chmod(0o755)
    jobs.variables |= {"PATH": f"{folder}:{jobs.variables['PATH']}", "SLURM_JOB_ID": "1"}
    return jobs


def test_ranks_of_srun(cluster):
    script = cluster.script(SCRIPT)
    options = "--restarts", 1, "--log-dir", "logs"
    status, output, errors = cluster.run("-n", 2, "--hosts", "here", *options, script)
    assert status == 0, errors
    lines = output.splitlines()
    for rank in range(2):
        own = [line for line in lines if line.startswith(f"[{rank}] ")]
        count = [f"[{rank}] {i} of {rank}/2" for i in range(50)]
        assert [line for line in own if " of " in line] == count * 2
        assert own[-1] == f"[{rank}] [0, 1]"
        log = (cluster.folder / f"logs/rank-{rank}.log").read_text().splitlines()
        assert [f"[{rank}] {line}" for line in log] == own
    assert "[0] the first start" in lines
    assert re.search(r"launch: rank 1 \(process \d+\) ended with exit status 6 first", errors)
    assert "singa launch: restart 1 of 1, 2 ranks\n" in errors
    assert "has done its work" not in errors  # what the launchers tell each other


@pytest.mark.parametrize(("end", "status"), [("sys.exit(6)", 6), ("os.kill(os.getpid(), 9)", 137)])
def test_a_rank_that_never_ends_is_ended_after_a_failure(cluster, end, status):
    """The command that starts the ranks would wait for it."""
    script = cluster.script(
        "import os, sys, time\nfrom singa import distributed\nplace = distributed.environment()\n"
        f"if place.rank == 1: {end}\ntime.sleep(300)"
    )
    found, _, errors = cluster.run("-n", 2, "--hosts", "here", "--grace", 0.5, script)
    assert found == status, errors
    assert re.search(r"srun \(process \d+\) was killed by SIGTERM by the launcher", errors), errors


def test_a_command_that_hides_that_it_has_killed_a_rank(cluster):
    """MPICH's mpiexec may do so when a rank ends before the others."""
    command = cluster.folder / "bin/srun"
    hiding = "started[0].wait(); started[1].kill(); sys.exit(0)"
    command.write_text(command.read_text().replace("sys.exit(max(", f"{hiding}; sys.exit(max("))
    script = cluster.script(
        "import time\nfrom singa import distributed\n"
        "if distributed.environment().rank == 1: time.sleep(300)"
    )
    status, _, errors = cluster.run("-n", 2, "--hosts", "here", script)
    assert status == 1
    assert errors == "singa launch: srun ended with exit status 0, but only 1 of 2 ranks did\n"


SAVING = """
import os, signal, sys, time
from pathlib import Path
from singa import distributed
rank = distributed.environment().rank
def save(number, frame):
    Path(f"saved-{rank}").write_text(signal.Signals(number).name)
    sys.exit(0)
for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2):
    signal.signal(number, save)
Path(f"up-{rank}").touch()
time.sleep(300)
"""


# Starts the ranks as Open MPI's mpirun does, which passes two signals on.
MPIRUN = """#!{python}
import os, signal, subprocess, sys
if sys.argv[1] == "--version":
    sys.exit(print("mpirun (Open MPI) 5.0.3"))
program = sys.argv[sys.argv.index("{python}") :]
ranks = int(sys.argv[sys.argv.index("-n") + 1])
started = []
for rank in range(ranks):
    place = dict(OMPI_COMM_WORLD_RANK=str(rank), OMPI_COMM_WORLD_SIZE=str(ranks))
    started.append(subprocess.Popen(program, env=os.environ | place))
def send(number, frame):
    for process in started:
        process.kill() if number == signal.SIGTERM else process.send_signal(number)
for number in (signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2):
    signal.signal(number, send)
sys.exit(max(process.wait() for process in started))
"""


@pytest.mark.parametrize("command", ["srun", "mpirun"])
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1])
def test_signals_reach_the_ranks_on_all_machines(cluster, command, number):
    if command == "mpirun":
        (cluster.folder / "bin/srun").unlink()
        mpirun = cluster.folder / "bin/mpiexec"
        mpirun.write_text(MPIRUN.format(python=sys.executable))
        mpirun.chmod(0o755)
    process = cluster.start("-n", 2, "--hosts", "here", cluster.script(SAVING))
    end = time.monotonic() + 30
    while len(list(cluster.folder.glob("up-*"))) < 2:
        assert time.monotonic() < end
        time.sleep(0.02)
    process.send_signal(number)
    _, errors = process.communicate(timeout=30)
    came = signal.SIGTERM if command == "mpirun" and number != signal.SIGUSR1 else number
    for rank in range(2):
        assert (cluster.folder / f"saved-{rank}").read_text() == came.name
    assert process.returncode == 0, errors


def test_how_signals_reach_the_ranks():
    assert hosts.told_by("SLURM") == "input"
    assert hosts.told_by("mpirun (Open MPI) 5.0.3") == "SIGUSR2"
    assert hosts.told_by("HYDRA build details:") == "signal"


def test_children_of_ranks_end_there(cluster):
    """Those of a rank's own session and environment are known to the rank's launcher alone."""
    script = cluster.script(
        "import subprocess, sys\nfrom singa import distributed\n"
        "child = [sys.executable, '-c', 'import time; time.sleep(600)']\n"
        "started = subprocess.Popen(child, env={}, start_new_session=True)\n"
        "print(started.pid)"
    )
    status, output, errors = cluster.run("-n", 2, "--hosts", "here", script)
    assert status == 0, errors
    children = [line.split()[1] for line in output.splitlines()]
    assert len(children) == 2
    assert [pid for pid in children if Path("/proc", pid).exists()] == []


def test_no_launcher(jobs):
    jobs.variables |= {"PATH": str(jobs.folder)}
    status, _, errors = jobs.run("-n", 2, "--hosts", "a,b", jobs.script(""))
    assert status == 1
    assert "[launch] --hosts needs mpiexec, mpirun, or srun" in errors
