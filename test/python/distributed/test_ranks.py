"""What ranks ask each other: with a plain communicator, and with the engine in real jobs."""

import contextlib
import functools
import os
import socket
import subprocess
import sys
import threading

import numpy as np
import pytest
import singa
from memory_ranks import on_ranks
from singa import data, dist, distributed, layer, models
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


def _predicted(communicator):
    singa.seed(3)
    net = models.Sequential(layer.Linear(2))
    x = np.arange(35, dtype=np.float32).reshape(7, 5)
    net.compile([x[:2]])
    loader = data.DataLoader(data.ArrayDataset(x, x), 4, shard=distributed.shard())
    rows = net.predict(data.ArrayDataset(x), batch_size=4)
    return net.predict(x, batch_size=4), rows, net.predict(loader)


def test_each_rank_predicts_all_rows():
    ((want, _, _),) = on_ranks(1, _predicted)
    assert want.shape == (7, 2)
    results = on_ranks(2, _predicted)
    for rank, (rows, of_dataset, of_shard) in enumerate(results):
        np.testing.assert_array_equal(rows, want)
        np.testing.assert_array_equal(of_dataset, want)
        own = [[0, 2, 4, 6], [1, 3, 5]][rank]  # batches of 4 and 3 rows
        np.testing.assert_allclose(of_shard, want[own], rtol=1e-6)


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
    others = ([], "RuntimeError", "[save] rank 0 failed: KeyError: 'x'")
    assert on_ranks(2, _on_main, KeyError("x")) == [([0], "KeyError", "'x'"), others]


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
    place = {"RANK": str(rank), "WORLD_SIZE": "2", "TORCHELASTIC_RUN_ID": "x"} | local
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
    assert "this is rank 1 of 2 of " in ended.stderr
    assert "does not know where the others are. Set SINGA_MEETING" in ended.stderr


@pytest.mark.parametrize(
    "names",
    [
        tuple(f"OMPI_COMM_WORLD_{name}" for name in ("RANK", "SIZE", "LOCAL_RANK", "LOCAL_SIZE")),
        ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"),
        ("PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS"),
    ],
)
def test_ranks_of_another_launcher(script, names):
    # This process plays the launcher: the parent of all ranks.
    places = [dict(zip(names, (str(rank), "2") * 2, strict=True)) for rank in range(2)]
    port = {"MASTER_PORT": str(os.getpid())}
    ranks = [_start("--timeout", "20", script, "run", **place, **port) for place in places]
    for rank in ranks:
        assert _finished(rank) == (0, "2.0 [0, 1]\n", "")


@pytest.mark.parametrize(
    "names",
    [
        ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"),
        ("SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID", "SLURM_STEP_TASKS_PER_NODE"),
    ],
)
def test_scripts_of_torchrun_and_srun_need_no_launcher(script, names):
    """On one machine they share memory, under a name that follows from the launcher's variables."""
    job = {"MASTER_ADDR": "localhost", "MASTER_PORT": str(os.getpid()), "TORCHELASTIC_RUN_ID": "x"}
    job |= {"SLURM_JOB_ID": str(os.getpid()), "SLURM_STEP_ID": "0", "SLURM_STEP_NODELIST": "a"}
    ranks = [
        subprocess.Popen(
            [sys.executable, script, "run"],
            env=_variables(**dict(zip(names, (rank, "2") * 2, strict=True)), **job),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in "01"
    ]
    for rank in ranks:
        assert _finished(rank) == (0, "2.0 [0, 1]\n", "")


PLACES = """
import singa
from singa import distributed
print(distributed.local_rank(), distributed.environment().local_rank, singa.get_num_threads())
"""


@pytest.mark.parametrize(
    ("names", "launched"),
    [(("RANK", "WORLD_SIZE"), True), (("SINGA_RANK", "SINGA_WORLD_SIZE"), False)],
)
def test_the_place_on_the_machine_comes_from_the_meeting(tmp_path, names, launched):
    """Ranks that were started by hand, or by Kubernetes."""
    script = tmp_path / "places.py"
    script.write_text(PLACES)
    port = str(_free_port())
    meeting = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "TORCHELASTIC_RUN_ID": ""}
    if names[0] != "RANK":
        meeting = {"SINGA_MEETING": f"127.0.0.1:{port}"}
    command = [sys.executable, *(["-m", "singa", "launch"] if launched else []), str(script)]
    cores = len(os.sched_getaffinity(0))
    bound = cores != os.cpu_count()
    for node in ("0", "1"):  # ranks of one machine, and of two
        places = [dict(zip(names, (rank, "2"), strict=True)) for rank in "01"]
        kept = _variables(**meeting, SINGA_NODE_RANKS=node, SINGA_TIMEOUT="20")
        del kept["OMP_NUM_THREADS"]
        ranks = [
            subprocess.Popen(command, env=kept | place, stdout=subprocess.PIPE, text=True)
            for place in places
        ]
        output = [rank.communicate(timeout=60)[0].split() for rank in ranks]
        if node == "0":
            each = str(cores if bound else max(1, cores // 2))
            assert output == [["0", "None", each], ["1", "None", each]]
        else:
            assert output == [["0", "None", str(cores)]] * 2


def _strangers(port, crowded, stop):
    """Fifty connections of each kind: silent, half a handshake, garbage, and a byte each 0.2 s."""
    kinds = (b"", b"singa meeting 2\0" + bytes(20), b"GET / HTTP/1.1\r\n\r\n" * 20, b"s")
    made = []
    while not stop.wait(0.2 if len(made) == 200 else 0.001):
        with contextlib.suppress(OSError):
            if len(made) < 200:
                made.append(socket.create_connection(("127.0.0.1", port), timeout=1))
                made[-1].sendall(kinds[len(made) % 4])
        if len(made) == 200:
            crowded.set()
            for slow in made[2::4]:
                with contextlib.suppress(OSError):
                    slow.sendall(b"s")
    for each in made:
        each.close()


def test_strangers_at_the_meeting(script):
    port = _free_port()
    place = {"SINGA_MEETING": f"127.0.0.1:{port}", "SINGA_WORLD_SIZE": "3", "SINGA_NODE_RANKS": "1"}
    place |= {"SINGA_SECRET": "a secret of many characters", "SINGA_TIMEOUT": "20"}
    start = functools.partial(
        subprocess.Popen,
        [sys.executable, script, "run"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    crowded, stop = threading.Event(), threading.Event()
    stranger = threading.Thread(target=_strangers, args=(port, crowded, stop))
    stranger.start()
    try:
        ranks = [start(env=_variables(**place, SINGA_RANK="0"))]
        assert crowded.wait(20)
        ranks += [start(env=_variables(**place, SINGA_RANK=rank)) for rank in ("1", "2")]
        for rank in ranks:
            assert _finished(rank) == (0, "3.0 [0, 1, 2]\n", "")
    finally:
        stop.set()
        stranger.join()


def test_a_job_that_is_open_to_the_network_needs_a_secret(script):
    place = {"SINGA_MEETING": "10.0.0.1:80", "SINGA_WORLD_SIZE": "2", "SINGA_RANK": "1"}
    command = [sys.executable, script, "run"]
    ended = subprocess.run(
        command, env=_variables(**place), capture_output=True, text=True, check=False
    )
    assert ended.returncode == 1
    assert "    export SINGA_SECRET=... " in ended.stderr
    assert "    export SINGA_INSECURE=1\n" in ended.stderr


def test_reports_do_not_show_the_secret(monkeypatch):
    monkeypatch.setenv("SINGA_SECRET", "a secret of many characters")
    text = str(singa.doctor())
    assert "SINGA_SECRET=(set)" in text
    assert "of many characters" not in text
