"""`python -m singa launch`: starts, output, signals, failures, restarts, and what is left."""

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from singa import __main__ as command_line
from singa.launcher.processes import ask_for_stack

STATES = """
import os
names = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_SIZE", "TIMEOUT", "RESTART")
print(*[os.environ["SINGA_" + name] for name in names], sep=",")
print(os.environ["SINGA_JOB"], sorted(os.sched_getaffinity(0)), os.environ["OMP_NUM_THREADS"])
"""

# Each rank waits until all have started: a file for each in the working folder.
TOGETHER = """
import os, signal, subprocess, sys, time
from pathlib import Path
rank, size = int(os.environ["SINGA_RANK"]), int(os.environ["SINGA_WORLD_SIZE"])
restart = int(os.environ["SINGA_RESTART"])
Path(f"{restart}-{rank}").write_text(str(os.getpid()))
while len(list(Path(".").glob(f"{restart}-*"))) < size:
    time.sleep(0.01)
"""


def _errors_of_launcher(errors):
    return re.sub(r" \(process \d+\)|, \d+\.\d s after the start", "", errors)


def test_place_of_each_rank(jobs):
    status, output, errors = jobs.run("-n", 3, "--timeout", 7, jobs.script(STATES))
    lines = output.splitlines()
    places = sorted(line for line in lines if "," in line.split(" ")[1] and "singa" not in line)
    assert places == [f"[{rank}] {rank},3,{rank},3,7,0" for rank in range(3)]
    others = sorted(line for line in lines if "singa-" in line)
    assert len({line.split()[1] for line in others}) == 1
    assert [line[:4] for line in others] == ["[0] ", "[1] ", "[2] "]
    assert all(line.endswith(" 1") for line in others)  # the user's OMP_NUM_THREADS
    assert status == 0
    assert "Error" not in errors


def test_cores_are_split(jobs):
    cores = sorted(os.sched_getaffinity(0))
    del jobs.variables["OMP_NUM_THREADS"]
    ranks = min(len(cores), 2)
    status, output, errors = jobs.run("-n", ranks, jobs.script(STATES))
    assert (status, errors) == (0, "")
    found = re.findall(r"\[([\d, ]+)\] (\d+)$", output, re.M)
    own = [[int(core) for core in text.split(",")] for text, _ in found]
    assert sorted(sum(own, [])) == cores  # noqa: RUF017
    assert all(1 <= int(threads) <= len(cores) for _, threads in found)


def test_more_ranks_than_cores_share_them(jobs):
    count = len(os.sched_getaffinity(0))
    status, output, errors = jobs.run("-n", count + 1, jobs.script("print('here')"))
    plural = "s" if count > 1 else ""
    assert errors == f"singa launch: {count + 1} ranks share {count} core{plural}\n"
    assert sorted(output.splitlines()) == [f"[{rank}] here" for rank in range(count + 1)]
    assert status == 0


def test_lines_are_whole(jobs):
    script = jobs.script(
        TOGETHER
        + """
for i in range(300):
    sys.stdout.write(f"{rank}:{i}:")
    sys.stdout.flush()
    sys.stdout.write("x" * (i % 7 * 1500) + "\\n")
    print(f"error {rank}:{i}", file=sys.stderr)
print("no end", end="")
"""
    )
    status, output, errors = jobs.run("-n", 2, script)
    assert status == 0
    for rank in range(2):
        lines = [line for line in output.split("\n") if line.startswith(f"[{rank}] ")]
        want = [f"[{rank}] {rank}:{i}:{'x' * (i % 7 * 1500)}" for i in range(300)]
        assert lines == [*want, f"[{rank}] no end"]
        lines = [line for line in errors.split("\n") if line.startswith(f"[{rank}] ")]
        assert lines == [f"[{rank}] error {rank}:{i}" for i in range(300)]


def test_module_and_arguments(jobs):
    (jobs.folder / "tool.py").write_text("import sys; print(__name__, sys.argv[1:])")
    jobs.variables["PYTHONPATH"] = f"{jobs.variables.get('PYTHONPATH', '')}:{jobs.folder}"
    status, output, _ = jobs.run("-n", 1, "-m", "tool", "-n", "5", "--help", "a b")
    assert (status, output) == (0, "[0] __main__ ['-n', '5', '--help', 'a b']\n")


def test_ranks_find_this_singa_and_have_no_input(jobs):
    text = "import singa, sys; print(singa.__file__, repr(sys.stdin.read()))"
    status, output, errors = jobs.run("-n", 1, jobs.script(text))
    import singa

    assert (status, output, errors) == (0, f"[0] {singa.__file__} ''\n", "")


def test_exit_status_of_the_first_failure(jobs):
    script = jobs.script(
        TOGETHER + "sys.exit(7) if rank == 1 else time.sleep(600)  # the others never end"
    )
    began = time.monotonic()
    status, output, errors = jobs.run("-n", 3, "--grace", 1, script)
    assert status == 7
    assert time.monotonic() - began < 30
    assert output == ""
    lines = _errors_of_launcher(errors).splitlines()
    first, *others = [line for line in lines if "share" not in line]
    assert [first, *sorted(others)] == [
        "singa launch: rank 1 ended with exit status 7 first",
        "singa launch: rank 0 was killed by SIGTERM by the launcher",
        "singa launch: rank 2 was killed by SIGTERM by the launcher",
    ]


def test_the_others_may_report_a_failure(jobs):
    script = jobs.script(
        TOGETHER
        + """
if rank == 1:
    os.kill(os.getpid(), signal.SIGKILL)
time.sleep(0.5)
sys.exit(f"rank 1 is gone, says {rank}")
"""
    )
    status, _, errors = jobs.run("-n", 2, script)
    assert status == 128 + signal.SIGKILL
    lines = _errors_of_launcher(errors).splitlines()
    assert lines == [
        "singa launch: rank 1 was killed by SIGKILL first",
        "[0] rank 1 is gone, says 0",
        "singa launch: rank 0 ended with exit status 1",
    ]


def test_what_ignores_sigterm_is_killed(jobs):
    script = jobs.script(
        TOGETHER
        + """
signal.signal(signal.SIGTERM, signal.SIG_IGN)
Path(f"ready-{rank}").touch()
while not Path("ready-0").exists():
    time.sleep(0.01)
sys.exit(3) if rank else time.sleep(600)
"""
    )
    status, _, errors = jobs.run("-n", 2, "--grace", 0.3, script)
    assert status == 3
    assert "rank 0 was killed by SIGKILL by the launcher" in _errors_of_launcher(errors)


def test_a_stopped_rank_is_killed_at_once(jobs):
    script = jobs.script(
        TOGETHER
        + """
if rank == 1:
    os.kill(os.getpid(), signal.SIGSTOP)
while open(f"/proc/{Path('0-1').read_text()}/stat").read().rpartition(")")[2].split()[0] != "T":
    time.sleep(0.01)
sys.exit("rank 1 does not answer")
"""
    )
    status, _, errors = jobs.run("-n", 2, "--grace", 500, script)
    assert status == 1
    lines = _errors_of_launcher(errors).splitlines()
    assert lines == [
        "[0] rank 1 does not answer",
        "singa launch: rank 0 ended with exit status 1 first",
        "singa launch: rank 1 is stopped, it will be killed",
        "singa launch: rank 1 was killed by SIGKILL by the launcher",
    ]


CHILDREN = """
child = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(600)"
for new_session in (False, True):
    subprocess.Popen([sys.executable, "-c", child], start_new_session=new_session)
Path(f"/dev/shm/{os.environ['SINGA_JOB']}-test-{rank}").touch()
"""


@pytest.mark.parametrize("end", ["", "sys.exit(4) if rank else time.sleep(600)"])
def test_processes_of_ranks_end_too(jobs, end):
    status, _, _ = jobs.run("-n", 2, "--grace", 0.5, jobs.script(TOGETHER + CHILDREN + end))
    assert status == (4 if end else 0)


def test_a_child_with_a_session_and_an_environment_of_its_own_ends_too(jobs):
    script = jobs.script(
        TOGETHER
        + """
child = "import time; open('child', 'w').close(); time.sleep(600)"
started = subprocess.Popen([sys.executable, "-c", child], env={}, start_new_session=True)
Path("pid").write_text(str(started.pid))
while not Path("child").exists():
    time.sleep(0.01)
"""
    )
    status, _, errors = jobs.run("-n", 1, script)
    assert status == 0, errors
    assert not Path("/proc", (jobs.folder / "pid").read_text()).exists()


def test_a_rank_that_is_stopped_when_others_have_ended(jobs):
    script = jobs.script(TOGETHER + "if rank == 1: os.kill(os.getpid(), signal.SIGSTOP)")
    status, _, errors = jobs.run("-n", 2, "--timeout", 1, "--grace", 500, script)
    assert status == 1
    lines = re.sub(r"\d+\.\d s", "S s", _errors_of_launcher(errors)).splitlines()
    assert lines == [
        "singa launch: rank 1 has been stopped for S s",
        "singa launch: rank 1 was killed by SIGKILL by the launcher",
    ]


FORKS = """
import os, sys
from singa import distributed
distributed.barrier()
if distributed.rank() == 1 and os.fork() == 0:
    {end}
if distributed.rank() == 1:
    print(os.waitstatus_to_exitcode(os.wait()[1]), flush=True)
distributed.barrier()
print("good", flush=True)
"""


@pytest.mark.parametrize(
    ("end", "status", "text"),
    [
        ("raise ValueError('of the child')", 1, "ValueError: of the child"),
        ("sys.exit(3)", 3, ""),
        ("distributed.barrier()", 1, "it belongs to the process that forked this one"),
        ("distributed.abort('of the child'); sys.exit(4)", 4, ""),
    ],
)
def test_the_end_of_a_forked_child_is_not_its_ranks(jobs, end, status, text):
    found, output, errors = jobs.run("-n", 2, jobs.script(FORKS.format(end=end)))
    assert found == 0, errors
    assert sorted(output.splitlines()) == ["[0] good", f"[1] {status}", "[1] good"]
    assert text in errors


def _wait_for(condition):
    end = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.02)


def test_a_killed_launcher_leaves_nothing(jobs):
    script = jobs.script(TOGETHER + CHILDREN + "Path(f'up-{rank}').touch(); time.sleep(600)")
    process = jobs.start("-n", 2, script)
    _wait_for(lambda: len(list(jobs.folder.glob("up-*"))) == 2)
    found, memory = jobs.left()
    assert len(found) == 8  # launcher, guard, and for each rank itself and two children
    assert len(memory) == 2
    process.kill()
    assert process.wait() == -signal.SIGKILL
    process.communicate(timeout=30)  # nobody holds the pipes any more
    _wait_for(lambda: jobs.left() == ([], []))


def test_a_killed_guard_is_not_missed(jobs):
    script = jobs.script(TOGETHER + CHILDREN + "Path(f'up-{rank}').touch(); time.sleep(2)")
    process = jobs.start("-n", 1, script)
    _wait_for(lambda: (jobs.folder / "up-0").exists())
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    rank = (jobs.folder / "0-0").read_text()
    (guard,) = set(children) - {rank}
    os.kill(int(guard), signal.SIGKILL)
    assert process.communicate(timeout=30) == ("", "")
    assert process.returncode == 0


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_signals_go_to_all_ranks(jobs, number):
    script = jobs.script(
        f"""
import signal
signal.signal({int(number)}, lambda *_: (print("got it"), sys.exit(5)))
signal.signal(signal.SIGUSR1, lambda *_: print("usr1"))
{TOGETHER}
Path(f'up-{{rank}}').touch()
while True:
    time.sleep(0.05)
"""
    )
    process = jobs.start("-n", 2, script)
    _wait_for(lambda: len(list(jobs.folder.glob("up-*"))) == 2)
    process.send_signal(signal.SIGUSR1)
    time.sleep(0.3)
    process.send_signal(number)
    output, errors = process.communicate(timeout=30)
    assert process.returncode == 5
    assert sorted(output.splitlines()) == ["[0] got it", "[0] usr1", "[1] got it", "[1] usr1"]
    assert errors == ""


def test_the_third_signal_kills(jobs):
    script = jobs.script(
        "import signal\n"
        "for number in (signal.SIGINT, signal.SIGTERM): signal.signal(number, signal.SIG_IGN)\n"
        + TOGETHER
        + "Path(f'up-{rank}').touch(); time.sleep(600)"
    )
    process = jobs.start("-n", 2, "--restarts", 5, script)
    _wait_for(lambda: len(list(jobs.folder.glob("up-*"))) == 2)
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGTERM):
        assert process.poll() is None
        process.send_signal(number)
        time.sleep(0.2)
    process.communicate(timeout=30)
    assert process.returncode == 128 + signal.SIGKILL


def test_restarts(jobs):
    script = jobs.script(
        TOGETHER
        + """
print(f"{restart}: {rank} of {size}")
if restart < 2 and rank == size - 1:
    sys.exit(9)
if restart < 2:
    time.sleep(600)
"""
    )
    status, output, errors = jobs.run(
        "-n", 3, "--restarts", 3, "--restart-with", 2, "--grace", 1, script
    )
    assert status == 0
    assert sorted(output.splitlines()) == sorted(
        f"[{rank}] {restart}: {rank} of {size}"
        for restart, size in ((0, 3), (1, 2), (2, 2))
        for rank in range(size)
    )
    assert "singa launch: restart 1 of 3, 2 ranks\n" in errors
    assert "singa launch: restart 2 of 3, 2 ranks\n" in errors
    assert "restart 3" not in errors


def test_restarts_come_to_an_end(jobs):
    status, output, _ = jobs.run("-n", 1, "--restarts", 2, jobs.script("print('x'); exit(6)"))
    assert (status, output) == (6, "[0] x\n" * 3)


def test_a_reader_that_goes_away_ends_the_job(jobs):
    script = jobs.script(TOGETHER + "\nwhile True:\n    print('more')\n    time.sleep(0.001)")
    process = jobs.start("-n", 2, script)
    assert process.stdout.readline().endswith("more\n")
    process.stdout.close()
    assert process.wait(timeout=30) == 1
    assert "Broken pipe" in process.stderr.read()
    process.stderr.close()


# The launcher has failed to write when it reads on, which takes the next lines out of the pipe.
SAVES = """
def save(number, frame):
    for line in range(5000):
        print("a line for nobody", flush=True)
    Path(f"saved-{rank}").touch()
    sys.exit(0)
"""


@pytest.mark.parametrize("number", [0, signal.SIGHUP])
def test_ranks_save_when_nobody_reads_their_output(jobs, number):
    """Nobody reads: the job ends by SIGTERM. A terminal that goes away also sends SIGHUP."""
    script = jobs.script(
        TOGETHER
        + SAVES
        + "for number in (signal.SIGTERM, signal.SIGHUP): signal.signal(number, save)\n"
        + "print('up', flush=True)\n"
        + ("while True: time.sleep(0.01)" if number else "while True: print('x'); time.sleep(0.01)")
    )
    process = jobs.start("-n", 1, "--restarts", 3, script)
    assert process.stdout.readline() == "[0] up\n"
    process.stdout.close()
    if number:
        process.send_signal(number)
    assert process.wait(timeout=30) == (0 if number else 1)
    assert (jobs.folder / "saved-0").exists()
    assert ("Broken pipe" in process.stderr.read()) == (not number)
    process.stderr.close()


@pytest.mark.parametrize("closed", [">&-", "2>&-", "<&-", "<&- >&- 2>&-"])
def test_standard_streams_that_are_closed(jobs, closed):
    script = jobs.script("print('x'); open('done', 'w').close()")
    launch = f"exec {sys.executable} -m singa launch -n 1 {script} {closed}"
    ended = subprocess.run(
        ["sh", "-c", launch], env=jobs.variables, cwd=jobs.folder, capture_output=True, text=True
    )
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout == ("" if ">&- 2" in closed or closed == ">&-" else "[0] x\n")
    assert (jobs.folder / "done").exists()


def test_inside_another_launcher(jobs):
    jobs.variables |= {"OMPI_COMM_WORLD_RANK": "1", "OMPI_COMM_WORLD_SIZE": "2"}
    jobs.variables |= {"OMPI_COMM_WORLD_LOCAL_RANK": "1", "OMPI_COMM_WORLD_LOCAL_SIZE": "2"}
    status, output, errors = jobs.run("--timeout", 3, jobs.script(STATES))
    assert (status, errors) == (0, "")
    lines = output.splitlines()
    assert lines[0] == "1,2,1,2,3,0"
    # A job that it starts has ranks of its own.
    status, output, _ = jobs.run("-n", 1, jobs.script(STATES))
    assert status == 0
    assert output.splitlines()[0] == "[0] 0,1,0,1,60,0"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("", "the following arguments are required: SCRIPT"),
        ("-n 2", "the following arguments are required: SCRIPT"),
        ("-n 2 no/such/file.py", "there is no file no/such/file.py"),
        ("{file}", "-n is missing: the number of ranks"),
        ("-n 0 {file}", "argument -n/--ranks: must be 1 or more, got 0"),
        ("-n two {file}", "argument -n/--ranks: must be 1 or more, got two"),
        ("-n 2 --restarts -1 {file}", "argument --restarts: must be 0 or more"),
        ("-n 2 --restart-with 1 {file}", "--restart-with needs --restarts"),
        ("-n 2 --timeout 0 {file}", "argument --timeout: must be 1 or more"),
        ("-n 2 --hosts a,,b {file}", "--hosts must be names separated by commas, got 'a,,b'"),
        ("-n 2 --hosts a,a {file}", "--hosts names a machine twice: 'a,a'"),
        ("-n 1 --hosts a,b {file}", "--hosts names 2 machines for 1 ranks"),
        ("-n 2 --rest 1 {file}", "unrecognized arguments: --rest"),
    ],
)
def test_wrong_arguments(arguments, message, capsys, tmp_path):
    file = tmp_path / "script.py"
    file.touch()
    words = [word.format(file=file) for word in arguments.split()]
    with pytest.raises(SystemExit) as ended:
        command_line.main(["launch", *words])
    assert ended.value.code == 2
    assert message in capsys.readouterr().err


def test_help(capsys):
    with pytest.raises(SystemExit) as ended:
        command_line.main(["launch", "--help"])
    assert ended.value.code == 0
    text = capsys.readouterr().out
    assert text.startswith("usage: python -m singa launch [-n N] [options] [-m] SCRIPT ...")
    assert all(word in text for word in ("--hosts", "--restarts", "--restart-with", "SINGA_RANK"))


HANGS = """
import sys, time
from singa import distributed
distributed.barrier()

def in_a_loop():
    while True:
        time.sleep(0.01)

if distributed.rank() == 1:
    in_a_loop()
distributed.barrier()
"""


def test_a_rank_that_hangs_shows_its_stack(jobs):
    status, _, errors = jobs.run("-n", 2, "--timeout", 1, jobs.script(HANGS))
    assert status == 1
    found = errors.splitlines()
    asked = next(i for i, line in enumerate(found) if line.endswith("its Python stack:"))
    assert re.match(r"singa launch: rank 1 \(process \d+\) still runs", found[asked])
    assert any(re.search(r"^\[1\] +File .*script.py.* in in_a_loop$", line) for line in found)
    assert re.search(r"rank 1 \(process \d+\) was killed by SIGTERM by the launcher", errors)


def test_a_process_that_shows_no_stack_is_not_asked(jobs):
    """The signal would end it."""
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    assert not ask_for_stack(child.pid)
    time.sleep(0.2)
    assert child.poll() is None
    child.kill()
    child.wait()


LOGGED = """
import sys
print(f"{rank} of {size}, start {restart}", flush=True)
print("to standard error", file=sys.stderr, flush=True)
print("no end", end="")
sys.exit(3 if rank == 1 and not restart else 0)
"""


def test_each_rank_has_a_log(jobs):
    (jobs.folder / "logs").mkdir()
    (jobs.folder / "logs/rank-0.log").write_text("of an earlier job\n")
    script = jobs.script(TOGETHER + LOGGED)
    status, output, _ = jobs.run("-n", 2, "--restarts", 1, "--log-dir", "logs", script)
    assert status == 0
    for rank in range(2):
        found = (jobs.folder / f"logs/rank-{rank}.log").read_text().splitlines()
        for start in range(2):
            assert f"{rank} of 2, start {start}" in found
        assert found.count("to standard error") == found.count("no end") == 2
        assert len(found) == 6
    assert "[1] 1 of 2, start 1\n" in output


def test_a_disk_that_is_full_costs_the_log_alone(jobs):
    os.symlink("/dev/full", jobs.folder / "rank-0.log")
    lines = jobs.script("for i in range(3): print(i, flush=True)")
    status, output, errors = jobs.run("-n", 1, "--log-dir", ".", lines)
    assert (status, output) == (0, "[0] 0\n[0] 1\n[0] 2\n")
    assert errors.count("the log of rank 0 ends here: [Errno 28]") == 1


def test_logs_that_cannot_be_made(jobs):
    status, _, errors = jobs.run("-n", 1, "--log-dir", "script.py/logs", jobs.script(""))
    assert status == 1
    assert "singa launch: [Errno 20] Not a directory: 'script.py/logs'" in errors


def test_a_rank_of_another_launcher_has_a_log(jobs):
    jobs.variables |= {"OMPI_COMM_WORLD_RANK": "1", "OMPI_COMM_WORLD_SIZE": "2"}
    status, output, errors = jobs.run("--log-dir", "logs", jobs.script("print('x'); exit(7)"))
    assert (status, output) == (7, "x\n"), errors
    assert (jobs.folder / "logs/rank-1.log").read_text() == "x\n"
