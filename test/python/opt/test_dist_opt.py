"""DistOpt in processes of its own, beside one process that accumulates the same shards."""

import json
import os
import re
import signal
import time
import warnings
from functools import partial

import numpy as np
import pytest
import singa
from ranks import FailedRank, in_ranks
from singa import autograd, distributed, layer, model, opt, singa_wrap, tensor

pytestmark = pytest.mark.cpu("ranks are processes with memory on the CPU")

BATCH = 3
#: Numbers of ranks, and how many of them share memory (0: all).
PLACES = [(2, 0), (3, 0), (4, 0), (2, 1), (3, 1), (4, 1), (3, 2), (4, 2)]


@pytest.fixture
def on_nodes(monkeypatch):
    """Sets how many ranks share memory; the others are reached as if on another machine."""
    return lambda ranks: monkeypatch.setenv("SINGA_NODE_RANKS", str(ranks))


@pytest.fixture(scope="module", autouse=True)
def _one_thread():
    """Ranks have one thread, and layouts may depend on their number."""
    before = singa.get_num_threads()
    singa.set_num_threads(1)
    yield
    singa.set_num_threads(before)


class Net(model.Model):
    """A residual block of convolutions with batch norms, and a classifier."""

    def __init__(self, dropout: bool = False) -> None:
        super().__init__()
        self.first = layer.Conv2d(16, 3, padding=1, bias=False)
        self.norm = layer.BatchNorm2d()
        self.second = layer.Conv2d(16, 3, padding=1, bias=False)
        self.norm2 = layer.BatchNorm2d()
        self.flat = layer.Flatten()
        self.dropout = layer.Dropout(0.4) if dropout else None
        self.classify = layer.Linear(5)
        self.loss = layer.SoftMaxCrossEntropy()

    def forward(self, x):
        y = autograd.relu(self.norm(self.first(x)))
        y = autograd.relu(autograd.add(self.norm2(self.second(y)), y))
        y = self.flat(autograd.globalaveragepool(y))
        return self.classify(y if self.dropout is None else self.dropout(y))

    def train_one_batch(self, x, y, step=None):
        out = self.forward(x)
        loss = self.loss(out, y)
        (step or self.optimizer)(loss)
        return out, loss


def sgd(**options):
    return opt.SGD(lr=0.1, momentum=0.9, weight_decay=1e-3, **options)


def shards(step, count):
    """The shards of a step: images and classes."""
    rng = np.random.default_rng(step)
    images = rng.normal(size=(count, BATCH, 3, 6, 6)).astype(np.float32)
    return list(zip(images, rng.integers(0, 5, (count, BATCH)).astype(np.int32), strict=True))


def made(optimizer, graph=False, dropout=False, seed=1):
    singa.seed(seed)
    net = Net(dropout)
    net.set_optimizer(optimizer)
    net.compile([tensor.from_numpy(np.zeros((BATCH, 3, 6, 6), np.float32))], use_graph=graph)
    return net


def train(net, steps, count, first=0, calls=None):
    """Steps with shards `first` to `first + calls - 1` of `count`. Returns all states as bytes."""
    for step in range(steps):
        for x, y in shards(step, count)[first : first + (calls or count)]:
            net(tensor.from_numpy(x), tensor.from_numpy(y))
    return states(net)


def states(net):
    found = {name: value.numpy().tobytes() for name, value in net.get_states().items()}
    for slot, values in net.optimizer.get_states().items():
        if isinstance(values, dict):
            found |= {f"{slot}/{n}": v.numpy().tobytes() for n, v in values.items()}
        else:
            found[slot] = values
    return found


def differing(one, other):
    return sorted([name for name in one.keys() | other.keys() if one.get(name) != other.get(name)])


def trained(rank, holder, world, virtual=None, steps=6, inner=sgd, **options):
    virtual = virtual or world
    optimizer = opt.DistOpt(inner(), holder, rank, world, buffSize=3000, virtual_ranks=virtual)
    net = made(optimizer, seed=rank + 1, **options)
    calls = virtual // world
    found = train(net, steps, virtual, rank * calls, calls)
    reasons = net._graphs().reasons()
    return found if not reasons else FailedRank(str(reasons))


def expect_equal(results, want):
    for rank, found in enumerate(results):
        assert not isinstance(found, FailedRank), (rank, found)
        assert differing(found, want) == [], rank


# --- the bits of one process


@pytest.mark.parametrize("graph", [False, True])
@pytest.mark.parametrize(("world", "node"), PLACES)
def test_ranks_have_the_bits_of_accumulation(world, node, graph, on_nodes):
    on_nodes(node)
    want = train(made(sgd(accumulate=world)), 6, world)
    expect_equal(in_ranks(world, partial(trained, world=world, graph=graph)), want)


def clipped_adam(**options):
    return opt.Adam(lr=0.01, clip_norm=0.5, **options)


def grouped(**options):
    groups = [opt.ParamGroup(opt.norm_and_bias, weight_decay=0.0, lr_scale=2.0)]
    return opt.SGD(lr=opt.StepDecay(0.1, 2), momentum=0.9, groups=groups, **options)


def scaled(**options):
    return opt.SGD(lr=0.1, momentum=0.9, scaler=opt.GradScaler(1024.0), **options)


@pytest.mark.parametrize("graph", [False, True])
@pytest.mark.parametrize("inner", [clipped_adam, grouped, scaled])
def test_with_other_optimizers(inner, graph):
    want = train(made(inner(accumulate=2)), 6, 2)
    expect_equal(in_ranks(2, partial(trained, world=2, graph=graph, inner=inner)), want)


@pytest.mark.parametrize("node", [0, 1])
@pytest.mark.parametrize("graph", [False, True])
def test_virtual_ranks_have_the_same_bits_on_any_number_of_ranks(graph, node, on_nodes):
    on_nodes(node)
    (want,) = in_ranks(1, partial(trained, world=1, virtual=4, dropout=True, graph=graph))
    for world in (2, 4):
        run = partial(trained, world=world, virtual=4, dropout=True, graph=graph)
        expect_equal(in_ranks(world, run), want)


def test_virtual_ranks_of_one_process_are_its_accumulation():
    optimizer = opt.DistOpt(sgd(), virtual_ranks=3)
    want = train(made(sgd(accumulate=3)), 4, 3)
    assert differing(train(made(optimizer), 4, 3), want) == []
    assert (optimizer.accumulate, optimizer.steps, optimizer.world_size) == (3, 4, 1)


def test_accumulation_goes_on_inside_a_rank():
    def body(rank, holder):
        optimizer = opt.DistOpt(sgd(accumulate=2), holder, rank, 2)
        return train(made(optimizer), 3, 4, 2 * rank, 2)

    expect_equal(in_ranks(2, body), train(made(sgd(accumulate=4)), 3, 4))


def test_alone_it_is_its_optimizer():
    optimizer = opt.DistOpt(sgd())
    assert differing(train(made(optimizer), 3, 1), train(made(sgd()), 3, 1)) == []
    optimizer.lr = 0.5
    assert optimizer.opt.now("lr") == optimizer.now("lr") == 0.5


def test_dropout_differs_between_ranks():
    def body(rank, holder):
        optimizer = opt.DistOpt(sgd(), holder, rank, 2)
        net = made(optimizer, dropout=True)
        net.dropout.forward, seen = partial(noted, net.dropout.forward, found := []), found
        x, y = shards(0, 1)[0]
        for _ in range(2):
            net(tensor.from_numpy(x), tensor.from_numpy(y))
        return seen

    one, other = in_ranks(2, body)
    assert one[0] != other[0]
    assert one[0] != one[1]


def noted(forward, found, x):
    y = forward(x)
    found.append((y.numpy() == 0).tobytes())
    return y


def test_other_backends_of_the_step_agree():
    """SINGA's names for a step: executed, with thresholds."""

    def body(rank, holder):
        optimizer = opt.DistOpt(sgd(), holder, rank, 2)
        net = made(optimizer, seed=rank + 1)
        for step in range(3):
            x, y = shards(step, 2)[rank]
            arguments = tensor.from_numpy(x), tensor.from_numpy(y)
            net(*arguments, partial(optimizer.backward_and_update, threshold=100))
        return states(net)

    expect_equal(in_ranks(2, body), train(made(sgd(accumulate=2)), 3, 2))


@pytest.mark.parametrize("node", [0, 1])
def test_ranks_whose_kernels_choose_other_layouts(node, on_nodes):
    on_nodes(node)

    def body(rank, holder):
        singa.set_layout("plain" if rank == 1 else "auto")
        optimizer = opt.DistOpt(sgd(), holder, rank, 2)
        net = made(optimizer)
        x, y = shards(0, 2)[rank]
        layouts = []
        for _ in range(3):
            _, loss = net(tensor.from_numpy(x), tensor.from_numpy(y), no_step)
            layouts += [g.data.is_blocked() for _, g in autograd.backward(loss)]
            net(tensor.from_numpy(x), tensor.from_numpy(y))
        params = {name: p.numpy() for name, p in net.get_params().items()}
        return any(layouts), params

    def no_step(loss):
        pass

    (blocked, one), (plain, other) = in_ranks(2, body)
    assert not plain
    for name, values in one.items():
        np.testing.assert_array_equal(values, other[name])
    if not blocked:
        pytest.skip("this build, or this CPU, has no such layouts")


def test_a_recorded_step_communicates_beside_backward():
    def body(rank, holder):
        optimizer = opt.DistOpt(sgd(), holder, rank, 2, buffSize=1000)
        net = made(optimizer, graph=True)
        train(net, 5, 2, rank, 1)
        (graph,) = net._graphs().graphs()
        return [line.split()[1] for line in graph.ToString().splitlines() if line[:2] == "  "]

    for nodes in in_ranks(2, body):
        assert not isinstance(nodes, FailedRank), nodes
        starts = [i for i, node in enumerate(nodes) if node == "AllReduceStart"]
        waits = [i for i, node in enumerate(nodes) if node == "AllReduceWait"]
        updates = [i for i, node in enumerate(nodes) if node == "SgdUpdate"]
        backward = [i for i, node in enumerate(nodes) if node.startswith("ConvBackward")]
        assert len(starts) == len(waits) == len(updates) > 2
        assert starts[0] < backward[0] < backward[-1] < starts[-1] < waits[0]
        assert waits[0] < updates[0] < waits[-1] < updates[-1]
        assert nodes.count("UpdateStatistics") == 1


def test_a_profile_shows_communication_and_a_trace_all_ranks(tmp_path):
    def body(rank, holder):
        optimizer = opt.DistOpt(sgd(), holder, rank, 2, buffSize=1000)
        net = made(optimizer, graph=True)
        train(net, 3, 2, rank, 1)
        with singa.profile() as p:
            train(net, 1, 2, rank, 1)
        p.chrome_trace(tmp_path / "all.json", all_ranks=True)
        p.chrome_trace(tmp_path / f"{rank}.json")
        size = sum(param.size() for param in net.get_params().values()) * 4
        return size, [(r.op, r.thread, r.start, r.ms, r.bytes, r.shapes) for r in p.records]

    results = in_ranks(2, body)
    events = json.loads((tmp_path / "all.json").read_text())["traceEvents"]
    names = [event for event in events if event["ph"] == "M"]
    assert [(e["pid"], e["args"]["name"]) for e in names] == [(0, "rank 0"), (1, "rank 1")]
    assert min(event["ts"] for event in events if event["ph"] == "X") == 0
    for rank, found in enumerate(results):
        assert not isinstance(found, FailedRank), found
        size, records = found
        sent = [record for record in records if record[0] == "all_reduce"]
        starts = [record for record in records if record[0] == "AllReduceStart"]
        waits = [record for record in records if record[0] == "AllReduceWait"]
        assert len(sent) == len(starts) == len(waits) > 2
        assert sum(record[4] for record in sent) >= size  # layouts may pad
        assert {record[1] for record in sent}.isdisjoint(record[1] for record in starts)
        for start, reduced, wait in zip(starts, sent, waits, strict=True):
            assert start[2] <= reduced[2]
            assert reduced[2] + reduced[3] <= wait[2] + wait[3] + 1e-3
        assert "norm" in "".join(record[5] for record in sent)
        own = json.loads((tmp_path / f"{rank}.json").read_text())["traceEvents"]
        of_rank = [event["name"] for event in events if event["pid"] == rank]
        assert [event["name"] for event in own] == of_rank
        assert of_rank[1:] == [record[0] for record in records]


# --- compression


def half(optimizer, loss):
    optimizer.backward_and_update_half(loss, clipping=True, clip_Value=10)


def sparse(optimizer, loss):
    optimizer.backward_and_sparse_update(loss, spars=0.5, topK=True)


def all_elements(optimizer, loss):
    optimizer.backward_and_sparse_update(loss, spars=0.0, topK=False)


def partly(optimizer, loss):
    optimizer.backward_and_partial_update(loss, threshold=1000)


@pytest.mark.parametrize("way", [half, sparse, all_elements, partly])
@pytest.mark.parametrize(("graph", "node"), [(False, 0), (True, 0), (False, 1)])
def test_ranks_stay_equal_under_compression(way, graph, node, on_nodes):
    on_nodes(node)

    def body(rank, holder):
        optimizer = opt.DistOpt(opt.SGD(lr=0.1), holder, rank, 2)
        net = made(optimizer, graph, seed=rank + 1)
        net.train_one_batch = partial(step_by, net, partial(way, optimizer))
        losses = []
        for _ in range(20):
            x, y = shards(0, 2)[rank]
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # the partial is no captured setting
                losses.append(net(tensor.from_numpy(x), tensor.from_numpy(y))[1].item())
        params = {n: p.numpy().tobytes() for n, p in net.get_params().items()}
        return params, losses, sorted(optimizer.get_states().get("residuals", {}))

    results = in_ranks(2, body)
    for result in results:
        assert not isinstance(result, FailedRank), result
    (one, losses, kept), (other, _, _) = results
    if way is not partly:  # whose ranks differ by design
        assert differing(one, other) == []
        assert len(kept) == 2 * len(one)
    assert losses[-1] < 0.7 * losses[0]


def step_by(net, step, x, y):
    out = net.forward(x)
    loss = net.loss(out, y)
    step(loss)
    return out, loss


def test_all_elements_are_the_whole_sum():
    def body(rank, holder):
        optimizer = opt.DistOpt(sgd(), holder, rank, 2)
        net = made(optimizer)
        x, y = shards(0, 2)[rank]
        out = net.forward(tensor.from_numpy(x))
        all_elements(optimizer, net.loss(out, tensor.from_numpy(y)))
        return {name: p.numpy() for name, p in net.get_params().items()}

    one, _ = in_ranks(2, body)
    net = made(sgd(accumulate=2))
    train(net, 1, 2)
    for name, param in net.get_params().items():
        np.testing.assert_allclose(one[name], param.numpy(), rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("node", [0, 1])
def test_residuals_survive_a_checkpoint_and_another_number_of_ranks(node, on_nodes):
    on_nodes(node)

    def body(rank, holder):
        optimizer = opt.DistOpt(sgd(), holder, rank, 2)
        net = made(optimizer)
        x, y = shards(0, 2)[rank]
        out = net.forward(tensor.from_numpy(x))
        sparse(optimizer, net.loss(out, tensor.from_numpy(y)))
        saved = optimizer.get_states()
        optimizer.set_states(saved)
        again = optimizer.get_states()
        equal = [
            np.array_equal(saved["residuals"][name].numpy(), again["residuals"][name].numpy())
            for name in saved["residuals"]
        ]
        alone = opt.DistOpt(sgd())
        alone.set_states(saved)
        name = "classify.W"
        both = [saved["residuals"][f"{r}/{name}"].numpy() for r in range(2)]
        joined = alone.get_states()["residuals"][f"0/{name}"].numpy()
        return all(equal), float(np.abs(both[0]).max()), np.array_equal(joined, both[0] + both[1])

    for result in in_ranks(2, body):
        equal, largest, joined = result
        assert equal
        assert joined
        assert largest > 0


# --- SINGA's single operations


def test_sums_of_single_tensors():
    def body(rank, holder):
        optimizer = opt.DistOpt(sgd(), holder, rank, 3)
        values = [np.arange(4, dtype=np.float32) * (rank + 1), np.full((2, 2), 0.5, np.float32)]
        found = []
        for way in ("all_reduce", "all_reduce_half", "fused_all_reduce", "fused_all_reduce_half"):
            tensors = [tensor.from_numpy(v) for v in values]
            if way.startswith("fused"):
                getattr(optimizer, way)(tensors, send=False)
                getattr(optimizer, way)(tensors)
            else:
                for t in tensors:
                    getattr(optimizer, way)(t)
            optimizer.wait()
            found.append([t.numpy() for t in tensors])
        return found

    for found in in_ranks(3, body):
        for one, other in found:
            np.testing.assert_array_equal(one, [0, 6, 12, 18])
            np.testing.assert_array_equal(other, np.full((2, 2), 1.5))


def test_sparsification_of_single_tensors():
    def body(rank, holder):
        optimizer = opt.DistOpt(sgd(), holder, rank, 2)
        t = tensor.from_numpy(np.array([1, -4, 0.5, 3], np.float32) * (rank + 1))
        kept = tensor.from_numpy(np.array([0, 0, 0, 1], np.float32))
        optimizer.sparsification(t, kept, 0.5, True)
        first = t.numpy().tolist(), kept.numpy().tolist()
        u = tensor.from_numpy(np.array([1, -4, np.nan, 3], np.float32))
        optimizer.fused_sparsification([u], None, 3.5, False)
        return first, u.numpy()

    (one, u), (other, _) = in_ranks(2, body)
    assert one[0] == other[0] == [0, -12, 0, 11]
    assert one[1] == [1, 0, 0.5, 0]
    assert other[1] == [2, 0, 1, 0]
    np.testing.assert_array_equal(u, [0, -8, np.nan, 0])


def test_update_takes_the_mean_of_a_sum():
    def body(rank, holder):
        optimizer = opt.DistOpt(opt.SGD(lr=1.0), holder, rank, 2)
        w = tensor.from_numpy(np.zeros(2, np.float32))
        g = tensor.from_numpy(np.array([1, 3], np.float32))
        optimizer.all_reduce(g.data)
        optimizer.update(w, g)
        return w.numpy().tolist()

    assert in_ranks(2, body) == [[-1, -3]] * 2


def test_the_environment_names_the_job(monkeypatch):
    def body(rank, holder):
        monkeypatch.setenv("SINGA_JOB", holder.id)
        monkeypatch.setenv("SINGA_WORLD_SIZE", "2")
        monkeypatch.setenv("SINGA_RANK", str(rank))
        optimizer = opt.DistOpt(sgd())
        assert optimizer.communicator is singa_wrap.default_communicator()
        t = tensor.from_numpy(np.array([rank + 1.0], np.float32))
        optimizer.all_reduce(t)
        return optimizer.world_size, optimizer.global_rank, t.numpy().tolist()

    assert in_ranks(2, body) == [(2, 0, [3.0]), (2, 1, [3.0])]
    monkeypatch.setenv("SINGA_WORLD_SIZE", "2")
    (text,) = in_ranks(1, lambda rank, holder: opt.DistOpt(sgd()))
    assert "SINGA_WORLD_SIZE is 2, but SINGA_JOB is not set" in text


# --- failures


def run_and_fail(rank, holder, fault, world=3, graph=False):
    optimizer = opt.DistOpt(sgd(), holder, rank, world)
    net = made(optimizer, graph)
    for step in range(8):
        x, y = (tensor.from_numpy(v) for v in shards(step, world)[rank])
        if step == 5 and rank == 1:
            fault(net, x, y)
        net(x, y)
    return "nothing was raised"


def killed(net, x, y):
    os.kill(os.getpid(), signal.SIGKILL)


def in_python(net, x, y):
    net.graph(False)
    net.loss = lambda out, y: 1 / 0


def other_rate(net, x, y):
    net.optimizer.lr = 0.3


def skipped(net, x, y):
    net.optimizer.opt.step()


def frozen(net, x, y):
    net.second.W.stores_grad = False


def checked(net, x, y):
    net.optimizer.communicator.check("saved")


FAULTS = {
    killed: r"rank 1 \(process \d+\) has ended",
    in_python: r"\[DistOpt\] rank 1: ZeroDivisionError: division by zero",
    other_rate: r"ranks 0 and 2: update 5, call 0, learning rate 0.1; rank 1: .* rate 0.3",
    skipped: r"ranks 0 and 2: update 5, .*; rank 1: update 6",
    frozen: r"second.W|factor",
    checked: r"rank 1: check",
}


@pytest.mark.parametrize("node", [0, 1, 2])
@pytest.mark.parametrize("graph", [False, True])
@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.__name__)
def test_a_fault_in_one_rank_is_one_error_in_all(fault, graph, node, on_nodes):
    on_nodes(node)
    results = in_ranks(3, partial(run_and_fail, fault=fault, graph=graph))
    assert all([isinstance(result, FailedRank) for result in results]), results
    if fault in (killed, in_python):
        assert results.pop(1) == ("killed" if fault is killed else "division by zero")
    if fault is not killed or node != 1:  # rank 1 is between the others
        assert len({*results}) == 1, results
    for result in results:
        assert re.search(FAULTS[fault], result), result


@pytest.mark.parametrize("stopped", [0, 1, 2, 3])
@pytest.mark.parametrize("node", [1, 2])
def test_all_nodes_name_the_rank_that_is_stopped(stopped, node, monkeypatch, on_nodes):
    on_nodes(node)
    monkeypatch.setenv("SINGA_TIMEOUT", "2")

    def body(rank, holder):
        communicator = singa_wrap.Communicator(rank, 4, holder, 0)
        distributed.use(communicator)
        values = tensor.from_numpy(np.ones(300000, np.float32)).data
        communicator.all_reduce([values])
        pids = distributed.gather(os.getpid())
        if rank == stopped:
            os.kill(os.getpid(), signal.SIGSTOP)
        before = time.monotonic()
        with pytest.raises(RuntimeError) as raised:
            communicator.all_reduce([values])
        waited = time.monotonic() - before
        if rank == (stopped + 1) % 4:
            time.sleep(1)  # the others report, too
            os.kill(pids[stopped], signal.SIGCONT)
        return str(raised.value), waited

    for rank, (text, waited) in enumerate(in_ranks(4, body)):
        assert re.match(rf"\[distributed\] rank {stopped} \(process \d+\) is stopped", text), text
        assert rank == stopped or 1 < waited < 3


@pytest.mark.parametrize("node", [0, 1])
def test_a_stopped_rank_is_named_at_the_deadline(monkeypatch, node, on_nodes):
    on_nodes(node)
    monkeypatch.setenv("SINGA_TIMEOUT", "2")

    def body(rank, holder):
        communicator = singa_wrap.Communicator(rank, 2, holder, 0)
        communicator.barrier()
        if rank == 1:
            os.kill(os.getpid(), signal.SIGSTOP)
            communicator.barrier()
        with pytest.raises(RuntimeError) as raised:
            communicator.barrier()
        stopped = re.search(r"rank 1 \(process (\d+)\) is stopped", text := str(raised.value))
        os.kill(int(stopped[1]), signal.SIGCONT)
        return text

    one, other = in_ranks(2, body)
    assert "it gave no sign of life for" in one
    assert one.endswith("in barrier 2")
    assert other == one


def test_wrong_arguments():
    holder = singa_wrap.NcclIdHolder()
    with pytest.raises(ValueError, match="rank must be from 0 to 1, got 2"):
        opt.DistOpt(sgd(), holder, 2, 2)
    with pytest.raises(TypeError, match="nccl_id must be an NcclIdHolder"):
        opt.DistOpt(sgd(), "id", 0, 2)
    with pytest.raises(TypeError, match="opt must be an Optimizer"):
        opt.DistOpt("sgd")
    with pytest.raises(ValueError, match="accumulate=3"):
        opt.DistOpt(sgd(accumulate=2), virtual_ranks=3)
    with pytest.raises(AttributeError, match="follows from virtual_ranks"):
        opt.DistOpt(sgd()).accumulate = 2
    with pytest.raises(AttributeError, match="nothing"):
        opt.DistOpt(sgd()).nothing  # noqa: B018
    net = Net()
    net.set_optimizer(opt.DistOpt(sgd(), virtual_ranks=2))
    with pytest.raises(RuntimeError, match=r"call compile\(\) first"):
        net(*(tensor.from_numpy(v) for v in shards(0, 1)[0]))
