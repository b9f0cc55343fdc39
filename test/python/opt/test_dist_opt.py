"""DistOpt in processes of its own, beside one process that accumulates the same shards."""

import inspect
import json
import os
import re
import warnings
from functools import partial

import numpy as np
import pytest
import singa
from rank_training import (
    clipped_adam,
    differing,
    expect_equal,
    made,
    rmsprop_by_the_largest,
    scaled,
    sgd,
    shards,
    states,
    train,
    trained,
)
from ranks import in_ranks, succeed
from singa import autograd, data, layer, model, opt, singa_wrap, tensor
from singa.graph import GraphWarning
from singa.opt import dist_opt

pytestmark = [
    pytest.mark.cpu("ranks are processes with memory on the CPU"),
    pytest.mark.usefixtures("one_thread"),
]

#: Numbers of ranks, and how many of them share memory (0: all).
PLACES = [(2, 0), (3, 0), (4, 0), (2, 1), (3, 1), (4, 1), (3, 2), (4, 2)]


def test_it_uses_public_methods_of_the_optimizer() -> None:
    source = inspect.getsource(dist_opt)
    assert "opt.apply_gradients" in source
    assert re.findall(r"\bopt\._\w+", source) == []


# --- the bits of one process


@pytest.mark.parametrize("graph", [False, True])
@pytest.mark.parametrize(("world", "node"), PLACES)
def test_ranks_have_the_bits_of_accumulation(world, node, graph, on_nodes):
    on_nodes(node)
    want = train(made(sgd(accumulate=world)), 6, world)
    expect_equal(in_ranks(world, partial(trained, world=world, graph=graph)), want)


def grouped(**options):
    groups = [opt.ParamGroup(opt.norm_and_bias, weight_decay=0.0, lr_scale=2.0)]
    return opt.SGD(lr=opt.StepDecay(0.1, 2), momentum=0.9, groups=groups, **options)


def amsgrad_with_limits(**options):
    return opt.Adam(lr=0.01, amsgrad=True, clip_value=0.1, **options)


def limited(**options):
    return opt.SGD(lr=0.1, momentum=0.9, clip_value=0.02, **options)


@pytest.mark.parametrize("graph", [False, True])
@pytest.mark.parametrize(
    "inner",
    [clipped_adam, grouped, scaled, limited, amsgrad_with_limits, rmsprop_by_the_largest],
)
def test_with_other_optimizers(inner, graph):
    want = train(made(inner(accumulate=2)), 6, 2)
    expect_equal(in_ranks(2, partial(trained, world=2, graph=graph, inner=inner)), want)


@pytest.mark.parametrize("virtual", [2, 4])
@pytest.mark.parametrize("inner", [sgd, clipped_adam, scaled])
def test_a_rank_audits_a_step_that_others_replay(inner, virtual):
    """Audits come when they take little of a rank's time, so not at the same calls of all ranks."""
    run = partial(
        trained, world=2, virtual=virtual, steps=12, inner=inner, graph=True, dropout=True
    )

    def body(rank, holder, audits):
        os.environ["SINGA_AUDIT"] = audits[rank]
        with warnings.catch_warnings():
            warnings.simplefilter("error", GraphWarning)
            return run(rank, holder)

    want, same = in_ranks(2, partial(body, audits="00"))
    expect_equal([want, same], want)
    expect_equal(in_ranks(2, partial(body, audits="01")), want)


@pytest.mark.parametrize("graph", [False, True])
def test_an_overflow_on_one_rank_leaves_out_the_update_of_all(graph):
    def training(optimizer, first, calls):
        net = made(optimizer, graph)
        scales = []
        for step in range(4):
            images, labels = zip(*shards(step, 2), strict=True)
            images[1][0, 0, 0, 0] = np.inf if step == 1 else 0
            for shard in range(first, first + calls):
                net(tensor.from_numpy(images[shard]), tensor.from_numpy(labels[shard]))
            scales.append(net.optimizer.scaler.get_scale())
        # The running statistics have seen the infinity.
        return {n: v for n, v in states(net).items() if "running" not in n}, scales

    want, scales = training(scaled(accumulate=2), 0, 2)
    assert scales == [1024, 512, 512, 512]
    assert want["step_counter"] == 3
    run = lambda rank, holder: training(opt.DistOpt(scaled(), holder, rank, 2), rank, 1)  # noqa: E731
    for found, of_rank in in_ranks(2, run):
        assert of_rank == scales
        assert differing(found, want) == []


class Plain(model.Model):
    """A network without batch norms, so that a batch may be cut anywhere."""

    def __init__(self):
        super().__init__()
        self.conv, self.flat, self.fc = layer.Conv2d(4, 3), layer.Flatten(), layer.Linear(3)
        self.loss = autograd.softmax_cross_entropy

    def forward(self, x):
        return self.fc(self.flat(autograd.relu(self.conv(x))))


@pytest.mark.parametrize(("ranks", "virtual"), [(2, 2), (4, 4), (2, 4)])
@pytest.mark.parametrize("graph", [False, True])
def test_an_uneven_tail_counts_by_its_images(ranks, virtual, graph):
    """Batches of 8, 8 and 3 images: of the last one 4 ranks have 1, 1, 1 and 0."""
    rng = np.random.default_rng(2)
    images, labels = rng.normal(size=(19, 3, 5, 5)).astype(np.float32), rng.integers(0, 3, 19)

    def training(optimizer, **shard):
        singa.seed(1)
        net = Plain()
        net.set_optimizer(optimizer)
        net.compile([tensor.from_numpy(images[:2], dtype="float64")], use_graph=graph)
        loader = data.DataLoader((images, labels), 8, shuffle=True, num_workers=0, **shard)
        for _ in range(2):
            for x, y in loader:
                x = tensor.from_numpy(x, dtype="float64")
                net(x, tensor.from_numpy(y), weight=loader.weight)
        return {name: value.numpy() for name, value in net.get_states().items()}

    def body(rank, holder):
        optimizer = opt.DistOpt(sgd(), holder, rank, ranks, virtual_ranks=virtual)
        return training(optimizer, shard=(rank, ranks), virtual_ranks=virtual)

    want = training(sgd())
    for found in succeed(in_ranks(ranks, body)):
        for name, value in want.items():
            assert value.dtype == np.float64
            np.testing.assert_allclose(found[name], value, 0, 1e-13, err_msg=name)


class Headed(Plain):
    """With a layer that only training calls, which creates its parameters in the first step."""

    def __init__(self):
        super().__init__()
        self.drop, self.head = layer.Dropout(0.3), layer.Linear(3)

    def train_one_batch(self, x, y):
        h = self.drop(self.flat(autograd.relu(self.conv(x))))
        loss = autograd.softmax_cross_entropy(self.fc(h) + self.head(h), y)
        self.optimizer(loss)
        return loss


@pytest.mark.parametrize("graph", [False, True])
def test_layers_that_come_late_are_the_same_on_all_ranks(graph):
    rng = np.random.default_rng(2)
    images = rng.normal(size=(4, 2, 3, 3, 5, 5)).astype(np.float32)
    labels = rng.integers(0, 3, (4, 2, 3)).astype(np.int32)

    def training(optimizer, seed, ours):
        singa.seed(seed)
        net = Headed()
        net.set_optimizer(optimizer)
        net.compile([tensor.from_numpy(images[0, 0])], use_graph=graph)
        assert "head.W" not in net.get_params()
        for x, y in zip(images, labels, strict=True):
            for shard in ours:
                net(tensor.from_numpy(x[shard]), tensor.from_numpy(y[shard]))
        return states(net)

    def body(rank, holder):
        optimizer = opt.DistOpt(sgd(), holder, rank, 2, virtual_ranks=2)
        return training(optimizer, rank + 1, (rank,))

    want = training(opt.DistOpt(sgd(), virtual_ranks=2), 1, (0, 1))
    assert "head.W" in want
    expect_equal(in_ranks(2, body), want)


class Listed(Plain):
    """Keeps its layers, two of which share a weight, in a list."""

    def __init__(self):
        super().__init__()
        self.layers = [self.conv, layer.Flatten(), layer.Linear(36), layer.Linear(36)]
        del self.conv, self.flat

    def forward(self, x):
        for each in self.layers:
            x = each(x)
        return self.fc(x)


@pytest.mark.parametrize("graph", [False, True])
def test_layers_in_lists_start_from_rank_0_too(graph):
    """Each rank has initial values of its own, and all train on the same batch."""
    rng = np.random.default_rng(2)
    images = tensor.from_numpy(rng.normal(size=(4, 3, 5, 5)).astype(np.float32))
    labels = tensor.from_numpy(np.array([0, 1, 2, 0], np.int32))

    def training(optimizer, seed):
        singa.seed(seed)
        net = Listed()
        net.set_optimizer(optimizer)
        net.compile([images], use_graph=graph)
        net.layers[3].W = net.layers[2].W
        for step in (net, net.train_one_batch) * 2:  # which are the same
            step(images, labels)
        return {name: value.numpy() for name, value in net.get_states().items()}

    want = training(sgd(), 0)
    assert len(want) == 8
    run = lambda rank, holder: training(opt.DistOpt(sgd(), holder, rank, 2), rank)  # noqa: E731
    for found in succeed(in_ranks(2, run)):
        for name, value in want.items():
            np.testing.assert_allclose(found[name], value, 1e-4, 1e-5, err_msg=name)


def adam(**options):
    return opt.Adam(lr=0.01, **options)


def saved_state(late):
    """A state of Adam after 3 updates, of which two parameters have missed the first `late`."""
    net = made(adam())
    train(net, 3, 1)
    counts = {name: 3 - late for name in ("first.W", "classify.W")}
    return net.optimizer.get_states() | {"parameter_steps": counts}


@pytest.mark.parametrize("graph", [False, True])
def test_a_resumed_job_keeps_the_counts_of_parameters_that_have_missed_updates(graph):
    def resumed(optimizer, seed, first, calls):
        net = made(optimizer, graph, seed=seed)
        net.optimizer.set_states(saved_state(late=2))
        return train(net, 3, 2, first, calls)

    want = resumed(adam(accumulate=2), 1, 0, 2)
    assert want["parameter_steps/first.W"] == 4
    expect_equal(
        in_ranks(2, lambda rank, h: resumed(opt.DistOpt(adam(), h, rank, 2), rank + 1, rank, 1)),
        want,
    )


def test_ranks_that_resume_with_other_counts_are_told():
    def body(rank, holder):
        net = made(opt.DistOpt(adam(), holder, rank, 2))
        net.optimizer.set_states(saved_state(late=1 + rank))
        train(net, 1, 2, rank, 1)

    for text in in_ranks(2, body):
        assert "rank 0: parameter_steps/classify.W 2; rank 1: parameter_steps/classify.W 1" in text


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

    for nodes in succeed(in_ranks(2, body)):
        starts = [i for i, node in enumerate(nodes) if node == "AllReduceStart"]
        waits = [i for i, node in enumerate(nodes) if node == "AllReduceWait"]
        updates = [i for i, node in enumerate(nodes) if node == "SgdUpdate"]
        backward = [i for i, node in enumerate(nodes) if node.startswith("ConvBackward")]
        assert len(starts) == len(waits) == len(updates) > 2
        assert starts[0] < backward[0] < backward[-1] < starts[-1] < waits[0]
        assert waits[0] < updates[0] < waits[-1] < updates[-1]
        assert nodes.count("UpdateStatistics") == 1


@pytest.mark.parametrize("graph", [False, True])
def test_the_last_call_of_an_update_communicates_beside_backward(graph):
    def body(rank, holder):
        optimizer = opt.DistOpt(sgd(), holder, rank, 2, buffSize=1000, virtual_ranks=4)
        net = made(optimizer, graph)
        train(net, 3, 4, 2 * rank, 2)
        found = []
        for x, y in shards(0, 4)[2 * rank : 2 * rank + 2]:
            with singa.profile() as p:
                net(tensor.from_numpy(x), tensor.from_numpy(y))
            found.append([r.op for r in p.records if r.op != "all_reduce"])
        return found

    for first, last in succeed(in_ranks(2, body)):
        assert not [op for op in first if op.startswith("AllReduce")]
        starts = [i for i, op in enumerate(last) if op == "AllReduceStart"]
        backward = [i for i, op in enumerate(last) if op.startswith("ConvBackward")]
        assert len(starts) > 2
        assert starts[0] < backward[0] < starts[-1]
        assert last.count("AllReduceWait") == len(starts)


def test_calls_that_train_different_parameters():
    def body(rank, holder):
        net = made(opt.DistOpt(sgd(), holder, rank, 2, buffSize=10, virtual_ranks=4))
        (x, y), (x2, y2) = shards(0, 2)
        net(tensor.from_numpy(x), tensor.from_numpy(y))
        net.second.W.stores_grad = False
        net(tensor.from_numpy(x2), tensor.from_numpy(y2))

    for error in in_ranks(2, body):
        assert "the calls for an update train different parameters" in error


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

    results = succeed(in_ranks(2, body))
    events = json.loads((tmp_path / "all.json").read_text())["traceEvents"]
    names = [event for event in events if event["ph"] == "M"]
    assert [(e["pid"], e["args"]["name"]) for e in names] == [(0, "rank 0"), (1, "rank 1")]
    assert min(event["ts"] for event in events if event["ph"] == "X") == 0
    for rank, (size, records) in enumerate(results):
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
        v = tensor.from_numpy(np.array([1, 2], np.float32))
        optimizer.sparsification(v, None, 3.5, False)
        return first, u.numpy(), v.numpy().tolist()

    (one, u, none), (other, _, _) = in_ranks(2, body)
    assert none == [0, 0]
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
    assert "SINGA_WORLD_SIZE is set, SINGA_RANK is not" in text
    monkeypatch.setenv("SINGA_RANK", "1")
    (text,) = in_ranks(1, lambda rank, holder: opt.DistOpt(sgd()))
    assert "this is rank 1 of 2 of singa launch, and does not know where the others are" in text
