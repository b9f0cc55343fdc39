"""Jobs on two machines, which are network namespaces: how they start, and how they end.

CI runs a part. With SINGA_TEST_LAUNCHERS=1 (`.ci/run launchers`) every way to start a job meets
every fault. SINGA_REQUIRE_NAMESPACES=1 makes it an error that namespaces are not allowed.
"""

import os
import re
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path

import network_hosts
import pytest
import slurm_cluster
from singa.launcher.environment import FOREIGN, Environment

REPOSITORY = Path(__file__).parents[3]
WHOLE = os.environ.get("SINGA_TEST_LAUNCHERS") == "1"
REQUIRED = os.environ.get("SINGA_REQUIRE_NAMESPACES") == "1"
MISSING = network_hosts.missing()
pytestmark = pytest.mark.skipif(
    bool(MISSING) and not REQUIRED, reason=f"no network namespaces: {MISSING}"
)

# argv: what happens, and to which rank. The ranks leave a file when they are in the middle.
SCRIPT = """
import os, pathlib, signal, sys, time
from singa import distributed
fault, victim, folder = sys.argv[1], int(sys.argv[2]), pathlib.Path(sys.argv[3])
rank, restart = distributed.rank(), distributed.environment().restart
got = []
if fault == "term":
    signal.signal(signal.SIGTERM, lambda *_: got.append(rank))
for step in range(4):
    total = distributed.total({"ranks": 1.0})["ranks"]
if not restart:
    (folder / f"up-{rank}").touch()
    if rank == victim and fault == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    if rank == victim and fault == "stop":
        os.kill(os.getpid(), signal.SIGSTOP)
    while fault == "term" and not got:  # each rank gets it
        time.sleep(0.01)
    while fault not in ("none", "term"):
        distributed.barrier()
        time.sleep(0.01)
print("total", total, distributed.local_rank(), distributed.gather(rank), flush=True)
"""
SECRET = {"SINGA_SECRET": "a secret of many characters"}
# Seconds that ranks wait for each other: where one fails, and where all must come to a start though
# the machine is busy.
TIMEOUT, PATIENT = 2, 10


class Machines(network_hosts.Hosts):
    """Two machines, and jobs on both."""

    def __init__(self, folder):
        super().__init__(folder, ("HOME", "PATH", "PYTHONPATH", "TMPDIR"))
        self.folder = folder
        self.started = []
        self.slurm = None
        self.script = folder / "script.py"
        self.script.write_text(SCRIPT)
        own = {*FOREIGN, *Environment(job="-").variables(), "SINGA_SECRET"}
        self.variables = {k: v for k, v in os.environ.items() if k not in own}
        self.variables |= {"TMPDIR": "/var/tmp", "OMP_NUM_THREADS": "1", "HOME": str(folder)}
        self.variables["PATH"] = f"{self.bin}:{self.variables['PATH']}"
        self.wait_for(TIMEOUT)

    def wait_for(self, seconds):
        """How long the ranks of jobs started from now on wait for each other."""
        self.variables["SINGA_TIMEOUT"] = str(seconds)

    def start(self, host, *command, **more):
        """Starts a program on a machine."""
        process = subprocess.Popen(
            self.command(host, *map(str, command)),
            env=self.variables | more,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.started.append(process)
        return process

    def left(self):
        if self.slurm is not None:
            self.slurm.close()
            self.slurm = None
        return super().left()

    def close(self):
        super().close()
        for process in self.started:
            process.kill()
            process.communicate()

    def rank(self, what, rank, ranks, variables):
        """A rank that is started by hand: the first half is on the first machine."""
        place = {
            "SINGA_RANK": str(rank),
            "SINGA_WORLD_SIZE": str(ranks),
            "SINGA_MEETING": f"{self.addresses[0]}:29500",
        }
        command = [sys.executable, self.script, *what]
        return self.start(2 * rank // ranks, *command, **place, **variables)

    def by_hand(self, what, ranks=2):
        """The ranks of a job, each by itself."""
        return [self.rank(what, rank, ranks, SECRET) for rank in range(ranks)]

    def pods(self, what, ranks=2, variables=SECRET):
        """As two pods of Kubernetes."""
        command = [sys.executable, "-m", "singa", "launch", self.script, *what]
        place = {"WORLD_SIZE": "2", "MASTER_ADDR": self.addresses[0], "MASTER_PORT": "29500"}
        return [self.start(rank, *command, RANK=str(rank), **place, **variables) for rank in (0, 1)]

    def torchrun(self, what, ranks=2):
        """By PyTorch's launcher, whose store hands on the secret."""
        command = [sys.executable, "-m", "torch.distributed.run", "--nnodes=2", "--nproc-per-node"]
        command += [str(ranks // 2), f"--master-addr={self.addresses[0]}", "--master-port=29400"]
        return [
            self.start(rank, *command, f"--node-rank={rank}", self.script, *what) for rank in (0, 1)
        ]

    def launched(self, what, ranks=2, restarts=0, **more):
        """By `singa launch --hosts`, from the first machine."""
        command = [sys.executable, "-m", "singa", "launch", "-n", ranks, "--grace", 1]
        command += ["--hosts", ",".join(self.addresses), "--restarts", restarts]
        return [self.start(0, *command, self.script, *what, **more)]

    def srun(self, what, ranks=2, restarts=0):
        """The same in an allocation of SLURM, whose srun is a stand-in."""
        (self.bin / "srun").write_text(SRUN.format(python=sys.executable, kill=KILL))
        (self.bin / "srun").chmod(0o755)
        return self.launched(what, ranks, restarts, SLURM_JOB_ID="1")

    def _in_slurm(self, *command, **more):
        """Starts a program on the first machine that uses a real SLURM."""
        if missing := slurm_cluster.missing():
            pytest.skip(f"no SLURM: {missing}")
        self.slurm = self.slurm or slurm_cluster.Slurm(self, self.folder)
        return self.start(0, *command, **self.slurm.variables, **more)

    def bare_srun(self, what, ranks=2):
        """By a real srun, without `singa launch`. It ends the others a second after the first."""
        command = ["srun", f"--ntasks={ranks}", "--nodes=2", "--distribution=block", "--wait=1"]
        return [self._in_slurm(*command, sys.executable, self.script, *what)]

    def srun_in_a_batch(self, what, ranks=2):
        """By the batch script of docs/clusters.md, whose trap has SLURM send SIGTERM."""
        text = (REPOSITORY / "docs/clusters.md").read_text()
        trap = re.search(r"^trap .* TERM$", text, re.M)[0]
        srun = ["srun", f"--ntasks={ranks}", "--nodes=2", "--distribution=block", "--cpu-bind=none"]
        srun += [sys.executable, "-m", "singa", "launch", self.script, *what]
        batch = f"{shlex.join(map(str, srun))} &\n{trap}\nwait $!\nwait $!\n"
        command = ["salloc", f"--ntasks={ranks}", "--nodes=2", "bash", "-c", batch]
        return [self._in_slurm(*command)]

    def salloc(self, what, ranks=2, restarts=0):
        """By `singa launch --hosts` within an allocation of a real SLURM."""
        command = ["salloc", f"--ntasks={ranks}", "--nodes=2", sys.executable, "-m", "singa"]
        command += ["launch", "-n", ranks, "--grace", 1, "--hosts", "a,b", "--restarts", restarts]
        return [self._in_slurm(*command, self.script, *what)]

    def mpi(self, name, what, ranks=2, restarts=0):
        """The same by an MPI: "mpich", or "mpich+data" if it moves the data, too."""
        folder = os.path.join(os.environ.get("SINGA_TEST_MPI", ""), name.removesuffix("+data"))
        allowed = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
        path = f"{self.bin}:{folder}/bin:{self.variables['PATH']}"
        # The kernel is one, so MPICH's library for networks would take the machines for one.
        network = {"UCX_TLS": "tcp", "UCX_NET_DEVICES": "net"}
        transport = {"SINGA_TRANSPORT": "mpi" if name.endswith("+data") else "tcp"}
        return self.launched(what, ranks, restarts, PATH=path, **allowed, **network, **transport)


# Starts the ranks as srun does, through ssh: with all variables, and those of the step. When it is
# ended, so is the step on all machines, also if it is killed in between: SLURM's daemons do that.
KILL = """
import os, pathlib
for path in pathlib.Path("/proc").glob("[0-9]*/environ"):
    if b"SLURM_STEP_ID=0" in path.read_bytes().split(b"\\0"):
        os.kill(int(path.parent.name), 9)
"""
SRUN = """#!{python}
import os, re, shlex, signal, subprocess, sys
text = " ".join(sys.argv)
ranks = int(re.search(r"--ntasks=(\\d+)", text)[1])
hosts = re.search(r"--nodelist=(\\S+)", text)[1].split(",")
program = sys.argv[sys.argv.index("--cpu-bind=none") + 1 :]
each = ranks // len(hosts)
kept = {{k: v for k, v in os.environ.items() if k.startswith(("SINGA_", "OMP_", "PYTHON"))}}
started = []
for rank in range(ranks):
    place = dict(SLURM_PROCID=rank, SLURM_STEP_NUM_TASKS=ranks, SLURM_LOCALID=rank % each)
    place |= dict(SLURM_NODEID=rank // each, SLURM_JOB_ID=1, SLURM_STEP_ID=0)
    place |= dict(SLURM_STEP_NODELIST=",".join(hosts))
    place["SLURM_STEP_TASKS_PER_NODE"] = f"{{each}}(x{{len(hosts)}})"
    values = [f"{{k}}={{shlex.quote(str(v))}}" for k, v in (kept | place).items()]
    command = ["ssh", hosts[rank // each], "env", *values, *map(shlex.quote, program)]
    started.append(subprocess.Popen(command))
def end(number, frame):
    kill = "{python}", "-c", shlex.quote({kill!r})
    for each in [subprocess.Popen(["ssh", h, *kill], start_new_session=True) for h in hosts]:
        each.wait()
    os._exit(128 + number)
signal.signal(signal.SIGTERM, end)
sys.exit(max(process.wait() for process in started))
"""


@pytest.fixture
def machines(tmp_path):
    """Two machines that must be idle afterwards."""
    assert not MISSING, f"SINGA_REQUIRE_NAMESPACES=1, but {MISSING}"
    made = Machines(tmp_path)
    try:
        yield made
        assert made.left() == []
    finally:
        made.close()


def _finished(processes, seconds=40):
    """(status, output, errors) of each, and the seconds that they took."""
    began = time.monotonic()
    found = []
    for process in processes:
        output, errors = process.communicate(timeout=seconds)
        found.append((process.returncode, output, errors))
    return found, time.monotonic() - began


def _await_ranks(machines, ranks=2, seconds=30):
    """Returns when the ranks are in the middle of the job."""
    end = time.monotonic() + seconds
    while not all((machines.folder / f"up-{rank}").exists() for rank in range(ranks)):
        assert time.monotonic() < end
        time.sleep(0.05)
    time.sleep(0.2)


def _lines(found):
    return sorted(line for _, output, _ in found for line in output.splitlines())


GOOD = [f"total 4.0 {rank % 2} [0, 1, 2, 3]" for rank in range(4)]
MPIS = ("mpich", "openmpi", "mpich+data", "openmpi+data")
SLURM = ("bare_srun", "salloc")
ENDED, STOPPED = r"rank 1 \(process \d+\) has ended", r"rank 1 \(process \d+\) is stopped"


def _way(name):
    """A way to start a job: a method of Machines, or an MPI of an environment in build/."""
    if name in MPIS:
        return lambda machines, *arguments: machines.mpi(name, *arguments)
    return lambda machines, *arguments: getattr(machines, name)(*arguments)


def _ways(*small, whole=()):
    return pytest.mark.parametrize("way", [*small, *(whole if WHOLE else ())])


@_ways("by_hand", "srun", whole=(*MPIS, *SLURM, "torchrun"))
def test_good_jobs(machines, way):
    """The second machine's ranks have the local numbers from 0 on, too."""
    machines.wait_for(PATIENT)
    found, _ = _finished(_way(way)(machines, ("none", 0, machines.folder), 4))
    assert not any(status for status, _, _ in found), found
    lines = [line.removeprefix(f"[{line[1:2]}] ") for line in _lines(found)]  # without prefixes
    assert sorted(line for line in lines if "total" in line) == sorted(GOOD)
    assert not list(machines.folder.glob(".*secret*"))


def test_pods(machines):
    machines.wait_for(PATIENT)
    found, _ = _finished(machines.pods(("none", 0, machines.folder)))
    assert [(status, output) for status, output, _ in found] == [(0, "total 2.0 0 [0, 1]\n")] * 2


def test_nobody_starts_without_a_secret(machines):
    found, _ = _finished(machines.pods(("none", 0, machines.folder), variables={}))
    for status, _, errors in found:
        assert status == 1
        assert f"other machines can reach the meeting at {machines.addresses[0]}:29500" in errors
        assert "    export SINGA_SECRET=... " in errors


def test_a_stranger_is_no_rank(machines):
    """Rank 1 has another secret."""
    what = ("none", 0, machines.folder)
    other = {"SINGA_SECRET": "another one of many characters"}
    ranks = [machines.rank(what, 0, 2, SECRET), machines.rank(what, 1, 2, other)]
    (first, second), _ = _finished(ranks)
    assert (first[0], second[0]) == (1, 1)
    assert "rank 1 has not joined the job" in first[2]
    assert "what answers there has another secret" in second[2]


@pytest.mark.parametrize("fault", ["kill", "stop", "cut"])
@_ways("by_hand", whole=("srun", *MPIS, *SLURM, "torchrun", "pods"))
def test_faults(machines, way, fault):
    """Of the second rank, or its machine's link, in the middle of a job."""
    machines.wait_for(PATIENT if fault == "kill" else TIMEOUT)
    ranks = _way(way)(machines, (fault, 1, machines.folder), 2)
    _await_ranks(machines)
    if fault == "cut":
        machines.cut(1)
    if fault == "stop" and way in ("by_hand", "pods", "torchrun"):  # nobody ends it
        found, seconds = _finished(ranks[:1])
        ranks[1].send_signal(signal.SIGCONT)  # nsenter stops with its child
        machines.run(1, "sh", "-c", "kill -CONT -1")
        ((status, _, errors),), _ = _finished(ranks[1:])
        assert (status, "RuntimeError: " in errors) == (1, True)
    else:
        found, seconds = _finished(ranks)
    if fault == "cut":
        machines.cut(1, again=True)  # for the daemon of an MPI there
    print(f"{way:12} {fault:8} {seconds:5.1f} s, status {found[0][0]}")
    killed = (fault == "kill" and len(found) == 1) or (way, fault) == ("bare_srun", "stop")
    assert found[0][0] == (137 if killed else 1), found
    # A rank that an MPI ends at once reports nothing.
    text = "".join(errors for _, _, errors in found)
    assert re.search(ENDED if fault == "kill" else STOPPED, text) or way in MPIS
    assert seconds < 5 * TIMEOUT + 10


@_ways("by_hand", whole=("srun", *MPIS, "pods"))
def test_a_machine_that_cannot_be_reached(machines, way):
    machines.cut(1)
    found, _ = _finished(_way(way)(machines, ("none", 1, machines.folder), 2), 100)
    assert all(status != 0 for status, _, _ in found)
    if way == "by_hand":
        assert "rank 1 has not joined the job; rank 0 has waited for 2 s" in found[0][2]
        assert "port 29500: Network is unreachable" in found[1][2]


@pytest.mark.skipif(not WHOLE, reason="`.ci/run launchers` has MPIs and SLURM")
@pytest.mark.parametrize("way", [*MPIS, "salloc", "srun_in_a_batch"])
def test_sigterm_reaches_all_ranks(machines, way):
    """Of the launcher, and of the batch script in docs/clusters.md."""
    machines.wait_for(PATIENT)
    (process,) = _way(way)(machines, ("term", 0, machines.folder), 4)
    _await_ranks(machines, 4)
    own = "trap" if way == "srun_in_a_batch" else "singa launch -n"
    machines.run(0, "pkill", "-TERM", "-f", own)
    ((status, output, errors),), _ = _finished([process])
    assert status == 0, errors
    lines = [re.sub(r"^\[\d\] ", "", line) for line in output.splitlines()]
    assert sorted(line for line in lines if "total" in line) == sorted(GOOD)


@pytest.mark.parametrize("fault", ["kill", "stop"] if WHOLE else ["kill"])
@_ways("srun", whole=(*MPIS, "salloc"))
def test_restarts(machines, way, fault):
    machines.wait_for(PATIENT)
    ((status, output, errors),), _ = _finished(
        _way(way)(machines, (fault, 1, machines.folder), 2, 1), 80
    )
    assert status == 0, errors
    assert sorted(output.splitlines()) == [f"[{rank}] total 2.0 0 [0, 1]" for rank in range(2)]
    assert "singa launch: restart 1 of 1, 2 ranks\n" in errors
