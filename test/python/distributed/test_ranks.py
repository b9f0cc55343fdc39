"""What ranks ask each other: with a plain communicator, and with the engine in real jobs."""

import os
import socket
import subprocess
import sys

import numpy as np
import pytest
from memory_ranks import on_ranks
from singa import dist, distributed
from singa.launcher.environment import FOREIGN, Environment


def _sums(communicator):
    rank = communicator.global_rank
    texts = {"rank": rank, "text": "é\n" * rank, "none": None}
    return (
        distributed.total({"a": 0.1 * (rank + 1), "b": 1e16 if rank == 0 else 1.0}),
        distributed.any_rank(rank == 1),
        distributed.any_rank(False),
        distributed.gather(texts),
        (distributed.rank(), distributed.world_size(), distributed.is_main(), distributed.shard()),
    )


@pytest.mark.parametrize("ranks", [2, 3, 4])
def test_sums_and_values(ranks):
    results = on_ranks(ranks, _sums)
    for rank, (sums, some, none, texts, place) in enumerate(results):
        total = 0.0
        for other in range(ranks):
            total += 0.1 * (other + 1)  # in the order of the ranks
        assert sums == {"a": total, "b": 1e16}  # 1e16 + 1.0 is 1e16
        assert (some, none) == (True, False)
        assert texts == [{"rank": r, "text": "é\n" * r, "none": None} for r in range(ranks)]
        assert place == (rank, ranks, rank == 0, (rank, ranks))


def _other_keys(communicator):
    with pytest.raises(RuntimeError, match="the ranks disagree"):
        distributed.total({"a": 1.0, f"b{communicator.global_rank}": 2.0})


def test_other_keys():
    on_ranks(2, _other_keys)


def _on_main(communicator, error):
    calls = []

    def function():
        calls.append(distributed.rank())
        if error:
            raise error

    try:
        distributed.on_main(function, "save")
    except Exception as raised:
        return calls, type(raised).__name__, str(raised)
    return calls, "", ""


def test_main_alone_runs_a_function():
    assert on_ranks(3, _on_main, None) == [([0], "", ""), ([], "", ""), ([], "", "")]
    full = OSError(28, "No space left on device", "x")
    text = "[Errno 28] No space left on device: 'x'"
    others = ([], "RuntimeError", f"[save] rank 0 failed: OSError: {text}")
    assert on_ranks(3, _on_main, full) == [([0], "OSError", text), others, others]


def test_one_process_is_a_job_of_one_rank(monkeypatch):
    for name in (*FOREIGN, *Environment(job="-").variables()):
        monkeypatch.delenv(name, raising=False)
    assert dist.shard() == (0, 1)
    assert dist is distributed
    assert distributed.total({"a": np.float32(2.5), "b": 3}) == {"a": 2.5, "b": 3.0}
    assert distributed.gather({"a": (1, 2)}) == [{"a": [1, 2]}]
    assert distributed.any_rank([1]) is True
    distributed.barrier()
    distributed.abort("nobody listens")
    with pytest.raises(TypeError):
        distributed.gather(object())
    with pytest.raises(KeyError):
        distributed.on_main(lambda: {}["x"], "save")


JOB = """
import sys
from singa import distributed
rank = distributed.rank()
print(distributed.total({"ranks": 1.0})["ranks"], distributed.gather(rank), flush=True)
if sys.argv[1] == "raise" and rank == 1:
    raise ArithmeticError("of rank 1")
distributed.barrier()
"""


def _variables(**more):
    own = {*FOREIGN, *Environment(job="-").variables()}
    kept = {key: value for key, value in os.environ.items() if key not in own}
    return kept | {"OMP_NUM_THREADS": "1"} | more


@pytest.fixture
def script(tmp_path):
    path = tmp_path / "job.py"
    path.write_text(JOB)
    return str(path)


def _finished(process):
    output, errors = process.communicate(timeout=60)
    return process.returncode, output, errors


def _start(*arguments, **variables):
    return subprocess.Popen(
        [sys.executable, "-m", "singa", "launch", *arguments],
        env=_variables(**variables),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


@pytest.mark.parametrize("node", ["0", "1", "2"])
def test_ranks_of_the_launcher(script, node):
    started = _start("-n", "3", "--timeout", "20", script, "run", SINGA_NODE_RANKS=node)
    status, output, _ = _finished(started)
    assert status == 0
    assert sorted(output.splitlines()) == [f"[{rank}] 3.0 [0, 1, 2]" for rank in range(3)]


@pytest.mark.parametrize("node", ["0", "1"])
def test_an_exception_is_the_reason_of_all(script, node):
    started = _start("-n", "2", "--timeout", "20", script, "raise", SINGA_NODE_RANKS=node)
    status, _, errors = _finished(started)
    assert status == 1
    assert "[1] ArithmeticError: of rank 1\n" in errors
    assert "[0] RuntimeError: rank 1: ArithmeticError: of rank 1\n" in errors


def _free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def _torchrun(rank, port):
    """Variables of one of two ranks, each on a machine of its own, that meet at `port`."""
    local = {"LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "1"}
    place = {"RANK": str(rank), "WORLD_SIZE": "2"} | local
    return place | {"MASTER_ADDR": "localhost", "MASTER_PORT": str(port - 1)}


@pytest.mark.parametrize("node", ["0", "1"])
def test_ranks_of_torchrun_on_several_machines(script, node):
    # They find each other at rank 0's machine. With `node` 0 they notice that it is the same.
    port = _free_port()
    places = [_torchrun(rank, port) | {"SINGA_NODE_RANKS": node} for rank in (1, 0)]
    ranks = [_start("--timeout", "20", script, "run", **place) for place in places]
    for rank in ranks:
        assert _finished(rank) == (0, "2.0 [0, 1]\n", "")


def test_a_rank_that_is_missing_at_the_meeting_is_named(script):
    status, _, errors = _finished(
        _start("--timeout", "1", script, "run", **_torchrun(0, _free_port()))
    )
    assert status == 1
    assert "rank 1 has not joined the job; rank 0 has waited for 1 s at localhost:" in errors


@pytest.mark.parametrize(
    "place", [("RANK", "WORLD_SIZE"), ("SLURM_PROCID", "SLURM_STEP_NUM_TASKS")]
)
def test_ranks_that_do_not_know_each_other_are_an_error(script, place):
    command = [sys.executable, script, "run"]
    variables = _variables(**dict(zip(place, ("1", "2"), strict=True)))
    ended = subprocess.run(command, env=variables, capture_output=True, text=True, check=False)
    assert ended.returncode == 1
    assert "this is rank 1 of 2 that" in ended.stderr
    assert "start `python -m singa launch SCRIPT`" in ended.stderr


@pytest.mark.parametrize(
    "names",
    [
        ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
        ("RANK", "WORLD_SIZE"),
        ("PMI_RANK", "PMI_SIZE"),
    ],
)
def test_ranks_of_another_launcher(script, names):
    # This process plays the launcher: the parent of all ranks.
    places = [dict(zip(names, (str(rank), "2"), strict=True)) for rank in range(2)]
    port = {"MASTER_PORT": str(os.getpid())}
    ranks = [_start("--timeout", "20", script, "run", **place, **port) for place in places]
    for rank in ranks:
        assert _finished(rank) == (0, "2.0 [0, 1]\n", "")
