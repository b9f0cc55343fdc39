"""Data parallel training on GPUs, one for each rank: emulated ones that the stub of NCCL joins, or
those of the machine. With SINGA_TEST_SHARED_GPU=1 all ranks use the machine's first GPU."""

import os
import re
import subprocess
import sys
import time
import warnings
from functools import cache, partial

import numpy as np
import pytest
import singa
from rank_training import FAULTS, check_fault, clipped_adam, half, scaled, sgd, sparse
from ranks import FailedRank, in_ranks, succeed
from singa import autograd, device, distributed, layer, model, opt, singa_wrap, tensor

BATCH = 2
SHARED = os.environ.get("SINGA_TEST_SHARED_GPU") == "1"
COUNT = """
from singa import device
print(device.get_num_gpus(), "emulated" in device.device_query(0))
"""


@cache
def gpus():
    """Number of GPUs, and whether they are emulated. Asked elsewhere: a process that has used CUDA
    cannot fork ranks that do."""
    found = subprocess.run([sys.executable, "-c", COUNT], capture_output=True, text=True)
    count, emulated = found.stdout.split() if found.returncode == 0 else ("0", "False")
    return int(count), emulated == "True"


def on_gpus(world, body, seconds=120):
    """in_ranks, with a GPU of its own as the default device of each rank."""
    if gpus()[0] < (1 if SHARED else world):
        pytest.skip(f"there are {gpus()[0]} GPUs")

    def run(rank, holder):
        if SHARED:
            # NCCL refuses two ranks of a host on one GPU, so it takes each for a host of its own.
            os.environ |= {"NCCL_HOSTID": f"rank{rank}", "NCCL_SOCKET_IFNAME": "lo"}
        device.set_default_device(device.create_cuda_gpu_on(0 if SHARED else rank))
        return body(rank, holder)

    return in_ranks(world, run, seconds)


@pytest.fixture
def fault(monkeypatch):
    """Plays a failure of NCCL."""
    if not gpus()[1]:
        pytest.skip("only the stub of NCCL fails on demand")
    return lambda text: monkeypatch.setenv("SINGA_CUDA_EMULATED_NCCL", text)


class Net(model.Model):
    """A convolution with batch norm, and a classifier."""

    def __init__(self, dropout=False, norm=layer.BatchNorm2d):
        super().__init__()
        self.conv = layer.Conv2d(4, 3, padding=1, bias=False)
        self.norm = norm()
        self.flat = layer.Flatten()
        self.dropout = layer.Dropout(0.4) if dropout else None
        self.classify = layer.Linear(3)
        self.loss = layer.SoftMaxCrossEntropy()

    def forward(self, x):
        y = self.flat(autograd.globalaveragepool(autograd.relu(self.norm(self.conv(x)))))
        return self.classify(y if self.dropout is None else self.dropout(y))

    def train_one_batch(self, x, y, step=None):
        out = self.forward(x)
        loss = self.loss(out, y)
        (step or self.optimizer)(loss)
        return out, loss


def shards(step, count, batch=BATCH):
    rng = np.random.default_rng(step)
    images = rng.normal(size=(count, batch, 3, 4, 4)).astype(np.float32)
    return list(zip(images, rng.integers(0, 3, (count, batch)).astype(np.int32), strict=True))


def made(optimizer, graph=False, seed=1, **options):
    singa.seed(seed)
    device.get_default_device().SetRandSeed(seed)
    net = Net(**options)
    net.set_optimizer(optimizer)
    net.compile([tensor.from_numpy(np.zeros((BATCH, 3, 4, 4), np.float32))], use_graph=graph)
    return net


def step_on(net, x, y, *more):
    gpu = device.get_default_device()
    return net(tensor.from_numpy(x, dev=gpu), tensor.from_numpy(y, dev=gpu), *more)


def train(net, steps, count, first=0, calls=None):
    for step in range(steps):
        for x, y in shards(step, count)[first : first + (calls or count)]:
            step_on(net, x, y)
    return states(net)


def states(net):
    found = {name: value.numpy() for name, value in net.get_states().items()}
    for slot, values in net.optimizer.get_states().items():
        if isinstance(values, dict):
            found |= {f"{slot}/{name}": value.numpy() for name, value in values.items()}
    return found


def differing(one, other):
    def bits(states, name):
        return states[name].tobytes() if name in states else None

    return sorted([n for n in one.keys() | other.keys() if bits(one, n) != bits(other, n)])


def trained(rank, holder, world, virtual=None, steps=6, inner=sgd, graph=False, **options):
    """All states, and what was captured."""
    virtual = virtual or world
    optimizer = opt.DistOpt(inner(), holder, rank, world, buffSize=60, virtual_ranks=virtual)
    net = made(optimizer, graph, seed=rank + 1, **options)
    calls = virtual // world
    found = train(net, steps, virtual, rank * calls, calls)
    reasons = net._graphs().reasons()
    return FailedRank(str(reasons)) if reasons else (found, captured(net))


def captured(net):
    """The lines of the graphs of a net, those of the nodes as names of operations."""
    lines = []
    for graph in net._graphs().graphs():
        lines += graph.ToString().splitlines()
    return [line.split()[1] if line[:2] == "  " else line for line in lines]


def accumulated(count, steps=6, inner=sgd, **options):
    """One process on a GPU that accumulates the same shards."""
    (want,) = on_gpus(
        1, lambda rank, holder: train(made(inner(accumulate=count), **options), steps, count)
    )
    assert isinstance(want, dict), want
    return want


def expect_equal(results, want):
    for rank, found in enumerate(succeed(results)):
        assert differing(found[0], want) == [], rank


# --- the bits of one process


@pytest.mark.parametrize("graph", [False, True])
@pytest.mark.parametrize("world", [2, 3, 4])
def test_ranks_have_the_bits_of_accumulation(world, graph):
    results = on_gpus(world, partial(trained, world=world, graph=graph))
    expect_equal(results, accumulated(world))
    for _, lines in results:
        text = "\n".join(lines)
        assert ("captured: 1 branches" in text) == graph, text
        assert "AllReduceStart:" not in text, text  # the reason why it was queued by itself
        if graph:
            starts = [i for i, line in enumerate(lines) if line == "AllReduceStart"]
            waits = [i for i, line in enumerate(lines) if line == "AllReduceWait"]
            backward = [i for i, line in enumerate(lines) if line.startswith("ConvBackward")]
            assert len(starts) == len(waits) > 1
            assert starts[0] < backward[0] < waits[0]


@pytest.mark.parametrize("inner", [clipped_adam, scaled])
def test_with_other_optimizers(inner):
    results = on_gpus(2, partial(trained, world=2, graph=True, inner=inner))
    expect_equal(results, accumulated(2, inner=inner))


@pytest.mark.parametrize("graph", [False, True])
def test_virtual_ranks_have_the_same_bits_on_any_number_of_ranks(graph):
    run = partial(trained, virtual=4, dropout=True, graph=graph)
    ((want, _),) = on_gpus(1, partial(run, world=1))
    for world in (2, 4):
        expect_equal(on_gpus(world, partial(run, world=world)), want)


def test_branches_and_blocking_change_no_bit(monkeypatch):
    want = accumulated(2)
    for name, value in (("SINGA_CUDA_BRANCHES", "4"), ("SINGA_CUDA_BLOCKING", "1")):
        with monkeypatch.context() as patch:
            patch.setenv(name, value)
            expect_equal(on_gpus(2, partial(trained, world=2, graph=True)), want)


@pytest.mark.parametrize("order", ["early", "shuffled"])
def test_orders_of_streams_change_no_bit(order, monkeypatch, fault):
    monkeypatch.setenv("SINGA_CUDA_EMULATED_STREAMS", order)
    expect_equal(on_gpus(2, partial(trained, world=2)), accumulated(2))


@pytest.mark.parametrize("graph", [False, True])
def test_nccls_own_sums_are_close(graph):
    def body(rank, holder):
        singa.set_deterministic(False)
        optimizer = opt.DistOpt(sgd(), holder, rank, 3)
        return train(made(optimizer, graph, seed=rank + 1), 6, 3, rank, 1)

    want = accumulated(3)
    results = succeed(on_gpus(3, body))
    for found in results:
        assert differing(found, results[0]) == []
        for name, value in want.items():
            np.testing.assert_allclose(found[name], value, 1e-4, 1e-6, err_msg=name)


def test_virtual_ranks_need_sums_in_order():
    def body(rank, holder):
        singa.set_deterministic(False)
        optimizer = opt.DistOpt(sgd(), holder, rank, 2, virtual_ranks=2)
        train(made(optimizer), 1, 2, rank, 1)

    for text in on_gpus(2, body):
        assert "virtual_ranks" in text
        assert "set_deterministic" in text


# --- ranks that are not at the same point


def test_a_rank_that_records_does_so_beside_others_that_replay():
    """The last batch of an epoch may be smaller on some ranks."""

    def body(rank, holder):
        net = made(opt.DistOpt(sgd(), holder, rank, 2), graph=True)
        for step in range(16):
            batch = 1 if rank == 1 and step in (5, 9, 10) else BATCH
            step_on(net, *shards(step, 2, batch)[rank])
        return states(net), captured(net)

    def alone(rank, holder):
        # Accumulation would weigh the calls by their rows.
        net = made(opt.DistOpt(sgd(), holder, rank, 1, virtual_ranks=2))
        for step in range(16):
            for shard in range(2):
                batch = 1 if shard == 1 and step in (5, 9, 10) else BATCH
                step_on(net, *shards(step, 2, batch)[shard])
        return states(net)

    (want,) = on_gpus(1, alone)
    results = on_gpus(2, body)
    expect_equal(results, want)
    for _, lines in results:
        assert "captured: 1 branches" in "\n".join(lines)


# --- single collectives


def test_collectives_of_tensors_of_all_types():
    types = ["float32", "float16", "bfloat16", "float64", "int32", "int64", "uint8", "bool"]

    def body(rank, holder):
        communicator = singa_wrap.Communicator(rank, 3, holder, 0)
        gpu = device.get_default_device()

        def raw(values, dtype):
            return tensor.from_numpy(np.asarray(values)).to_device(gpu).as_type(dtype).data

        found = []
        for dtype in types:
            own = raw([[rank, rank % 2, 1]], dtype)
            every = tensor.from_raw_tensor(communicator.all_gather(own)).as_type("float32").numpy()
            other = raw(np.arange(12.0).reshape(3, 4).T * rank, dtype)
            communicator.broadcast([own, other], 2, ["own", "other"])
            summed = None
            if dtype not in ("uint8", "bool"):
                t = raw([1, 2, 3 * rank], dtype)
                communicator.all_reduce([t, t.Clone()])
                summed = tensor.from_raw_tensor(t).as_type("float32").numpy().tolist()
            same = [tensor.from_raw_tensor(t).as_type("float32").numpy() for t in (own, other)]
            found.append((every, same, summed))
        communicator.barrier()
        return found

    for results in succeed(on_gpus(3, body)):
        for dtype, (every, (own, other), summed) in zip(types, results, strict=True):
            ranks = [[r, r % 2, 1] for r in range(3)]
            want = np.array(ranks, bool if dtype == "bool" else float)
            np.testing.assert_array_equal(every, want.astype(np.float32).reshape(3, 1, 3))
            np.testing.assert_array_equal(own, every[2])
            want = np.arange(12.0).reshape(3, 4).T * 2
            np.testing.assert_array_equal(other, want != 0 if dtype == "bool" else want)
            assert summed in (None, [3, 6, 9])


def test_scripts_ask_the_other_ranks():
    def body(rank, holder):
        distributed.use(singa_wrap.Communicator(rank, 2, holder, 0))
        sums = distributed.total({"a": rank + 0.5})
        return sums, distributed.gather([rank]), distributed.any_rank(rank == 1)

    assert on_gpus(2, body) == [({"a": 2.0}, [[0], [1]], True)] * 2


def partly(optimizer, loss):
    optimizer.backward_and_partial_update(loss, threshold=30)


def with_threshold(optimizer, loss):
    optimizer.backward_and_update(loss, threshold=50)


@pytest.mark.parametrize("way", [half, sparse, partly, with_threshold])
def test_the_other_ways_of_a_step(way):
    """SINGA's ways: the engines of the CPU and of GPUs give the same results."""

    def body(rank, holder):
        optimizer = opt.DistOpt(opt.SGD(lr=0.1), holder, rank, 2)
        net = made(optimizer, seed=rank + 1)
        losses = []
        for step in range(8):
            x, y = shards(step % 2, 2)[rank]
            losses.append(step_on(net, x, y, partial(way, optimizer))[1].item())
        return states(net), losses

    results = succeed(on_gpus(2, body))
    for rank, (found, (want, losses)) in enumerate(zip(results, in_ranks(2, body), strict=True)):
        np.testing.assert_allclose(found[1], losses, 1e-4)
        for name, value in want.items():
            np.testing.assert_allclose(found[0][name], value, 2e-3, 1e-4, err_msg=f"{rank} {name}")
    if way is not partly:  # whose ranks differ by design
        assert differing(results[0][0], results[1][0]) == []


# --- SyncBatchNorm


@pytest.mark.parametrize("graph", [False, True])
def test_sync_batchnorm_is_the_batch_norm_of_all_images(graph):
    def body(rank, holder):
        optimizer = opt.DistOpt(sgd(), holder, rank, 2)
        net = made(optimizer, graph, norm=layer.SyncBatchNorm)
        with warnings.catch_warnings():
            warnings.simplefilter("error", singa.graph.GraphWarning)
            found = train(net, 6, 2, rank, 1)
        return found, captured(net)

    def alone(rank, holder):
        net = made(sgd())
        for step in range(6):
            (x1, y1), (x2, y2) = shards(step, 2)
            step_on(net, np.concatenate([x1, x2]), np.concatenate([y1, y2]))
        return states(net)

    (want,) = on_gpus(1, alone)
    for found, lines in on_gpus(2, body):
        assert ("captured: 1 branches" in "\n".join(lines)) == graph
        assert (lines.count("AllGather") > 0) == graph
        for name, value in want.items():
            np.testing.assert_allclose(found[name], value, 1e-4, 1e-5, err_msg=name)


# --- failures


def run_and_fail(rank, holder, fault, graph):
    net = made(opt.DistOpt(sgd(), holder, rank, 3), graph)
    for step in range(8):
        x, y = shards(step, 3)[rank]
        if step == 5 and rank == 1:
            fault(net)
        _, loss = step_on(net, x, y)
        loss.item()
    return "nothing was raised"


@pytest.mark.parametrize("graph", [False, True])
@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.__name__)
def test_a_fault_in_one_rank_is_one_error_in_all(fault, graph):
    results = on_gpus(3, partial(run_and_fail, fault=fault, graph=graph))
    check_fault(results, fault, FAULTS[fault])


def train_on(rank, holder, graph):
    """Steps whose errors show when the host waits for the GPU, or in the next collective."""
    began = time.monotonic()
    net = made(opt.DistOpt(sgd(), holder, rank, 2), graph)
    try:
        for step in range(8):
            _, loss = step_on(net, *shards(step, 2)[rank])
            began = time.monotonic()
            loss.item()
    except RuntimeError as error:
        return str(error), time.monotonic() - began
    return "nothing was raised", 0.0


@pytest.mark.parametrize("graph", [False, True])
@pytest.mark.parametrize(
    ("kind", "text"),
    [
        ("killed", r"rank 1 \(process \d+\) has ended; rank 0 has waited for it for"),
        # Where the emulated GPU holds up its host, another host may notice that first.
        ("stuck", r"rank \d (has work that does not end|.* does something else); rank \d has"),
        # The thread that watches finds it, or the next call.
        ("error", r"rank 1: NCCL: (cannot [a-z ]+: )?the network is down"),
    ],
)
def test_a_rank_that_fails_on_its_gpu(kind, text, graph, fault, monkeypatch):
    """In the middle of the sixth step; recorded steps are replayed as one piece of work then."""
    monkeypatch.setenv("SINGA_TIMEOUT", "3")
    fault(f"{kind} 1 18")
    results = on_gpus(2, partial(train_on, graph=graph))
    if kind == "killed":
        assert results.pop(1) == "killed"
    for found, waited in results:
        assert re.search(text, found), results
        assert waited < 3 + 3
    assert len({found for found, _ in results}) == 1, results


def test_a_rank_whose_gpu_does_not_join(fault, monkeypatch):
    monkeypatch.setenv("SINGA_TIMEOUT", "3")
    fault("absent 1")
    for found in on_gpus(2, partial(train_on, graph=False)):
        assert "has work that does not end" in found[0], found
        assert found[1] < 3 + 3


def test_without_nccl_all_ranks_say_what_to_install(fault):
    fault("missing")
    for found, _ in on_gpus(2, partial(train_on, graph=False)):
        assert "libnccl.so.2 cannot be loaded" in found


def test_two_ranks_on_one_gpu_are_refused(fault):
    def body(rank, holder):
        device.set_default_device(device.create_cuda_gpu_on(0))
        return train_on(rank, holder, False)[0]

    for text in in_ranks(2, body):
        assert "duplicate GPU" in text


def test_tensors_of_one_call_are_on_one_device():
    def body(rank, holder):
        communicator = singa_wrap.Communicator(rank, 1, holder, 0)
        ones = np.ones(2, np.float32)
        host, there = tensor.from_numpy(ones), tensor.from_numpy(ones)
        host.to_device(device.create_cpu_device())
        with pytest.raises(ValueError, match="must be on one device"):
            communicator.broadcast([host.data, there.data], 0)

    assert on_gpus(1, body) == [None]
