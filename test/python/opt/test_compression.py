"""Compression of the gradients that ranks exchange, and its error feedback."""

import math
import warnings
from functools import partial

import numpy as np
import pytest
from rank_training import differing, half, made, sgd, shards, sparse, states, train
from ranks import in_ranks, succeed
from singa import distributed, opt, singa_wrap, tensor
from singa.opt.compression import Residuals, sum_of_halves, sum_of_largest
from singa.training import checkpoint

pytestmark = [
    pytest.mark.cpu("ranks are processes with memory on the CPU"),
    pytest.mark.usefixtures("one_thread"),
]


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
                warnings.simplefilter("ignore")  # the partial is no recorded setting
                losses.append(net(tensor.from_numpy(x), tensor.from_numpy(y))[1].item())
        params = {n: p.numpy().tobytes() for n, p in net.get_params().items()}
        return params, losses, sorted(optimizer.get_states().get("residuals", {}))

    results = succeed(in_ranks(2, body))
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


def test_halves_send_what_rounding_has_left():
    rng = np.random.default_rng(4)
    grads = rng.normal(size=(2, 3, 50)).astype(np.float32)  # of ranks and steps

    def body(rank, holder):
        communicator = singa_wrap.Communicator(rank, 2, holder, 0)
        residuals = Residuals({})
        found = []
        for grad in grads[rank]:
            raw = tensor.from_numpy(grad).data
            (mean,) = sum_of_halves(communicator, ["w"], [raw], residuals)
            kept = residuals.of("w", raw)
            found.append([tensor.from_raw_tensor(t).numpy().copy() for t in (mean, kept)])
        return found

    results = succeed(in_ranks(2, body))
    kept = np.zeros((2, 50), np.float32)
    for step in range(3):
        wanted = kept + grads[:, step]
        sent = wanted.astype(np.float16)
        kept = wanted - sent
        mean = (sent[0] * np.float32(0.5) + sent[1] * np.float32(0.5)).astype(np.float16)
        for rank, found in enumerate(results):
            np.testing.assert_array_equal(found[step][0], mean)
            np.testing.assert_array_equal(found[step][1], kept[rank])
        assert np.abs(kept).max() > 0


@pytest.mark.parametrize(
    ("threshold", "buffers"),
    [
        (1, [[0], [1], [2], [3]]),
        (3, [[1], [2], [0, 3]]),
        (6, [[0, 1], [2], [3]]),
        (99, [[0, 1, 2, 3]]),
    ],
)
def test_the_fraction_is_taken_over_each_buffer(threshold, buffers):
    """Buffers are those of SINGA's backward_and_sparse_update, in which larger gradients come by
    themselves, and others fill one until it has more than `threshold` elements."""
    shapes = [(3,), (2, 2), (7,), (2,)]
    rng = np.random.default_rng(8)
    grads = [[rng.integers(-9, 9, s).astype(np.float32) for s in shapes] for _ in range(4)]

    def body(rank, holder):
        communicator = singa_wrap.Communicator(rank, 2, holder, 0)
        sent = []
        gather = communicator.all_gather
        communicator.all_gather = lambda raw: (sent.append(raw.size() * 4), gather(raw))[1]
        residuals = Residuals({})
        found = []
        for step in range(2):
            raw = [tensor.from_numpy(g).data for g in grads[2 * step + rank]]
            names = list("abcd")
            means = sum_of_largest(communicator, names, raw, 0.3, True, threshold, residuals)
            kept = [residuals.of(*each) for each in zip(names, raw, strict=True)]
            found.append([tensor.from_raw_tensor(t).numpy().copy() for t in (*means, *kept)])
        return found, sent[1::2]

    results = in_ranks(2, body)
    sizes = [sum([int(np.prod(shapes[i])) for i in places]) for places in buffers]
    counts = [math.ceil(0.3 * size) for size in sizes]
    residual = [[np.zeros(s, np.float32) for s in shapes] for _ in range(2)]
    for step in range(2):
        means = [np.zeros(s, np.float32) for s in shapes]
        for rank in range(2):
            for places, count in zip(buffers, counts, strict=True):
                wanted = [(i, j) for i in places for j in np.ndindex(shapes[i])]
                for i in places:
                    residual[rank][i] += grads[2 * step + rank][i]
                wanted.sort(key=lambda at: -abs(residual[rank][at[0]][at[1]]))  # stable
                for i, j in wanted[:count]:
                    means[i][j] += residual[rank][i][j] / 2
                    residual[rank][i][j] = 0
        for rank, (found, _) in enumerate(results):
            for got, want in zip(found[step], [*means, *residual[rank]], strict=True):
                np.testing.assert_array_equal(got, want)
    for _, sent in results:
        assert sent == [8 * count for count in counts] * 2


def test_overflow_reaches_the_other_ranks():
    """NaN and infinity are the largest elements, so every rank sees that a loss has overflowed."""

    def body(rank, holder):
        communicator = singa_wrap.Communicator(rank, 2, holder, 0)
        grad = np.array([5, np.nan, -np.inf, 7], np.float32) if rank else np.zeros(4, np.float32)
        raw = tensor.from_numpy(grad).data
        (mean,) = sum_of_largest(communicator, ["w"], [raw], 0.5, True, 9, None)
        return tensor.from_raw_tensor(mean).numpy().tolist()

    for found in in_ranks(2, body):
        np.testing.assert_array_equal(found, [0, np.nan, -np.inf, 0])


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

    for equal, largest, joined in in_ranks(2, body):
        assert equal
        assert joined
        assert largest > 0


@pytest.mark.parametrize("way", [half, sparse])
def test_a_run_with_compression_goes_on_from_its_checkpoint(way, tmp_path):
    def body(rank, holder):
        optimizer = opt.DistOpt(sgd(), holder, rank, 2)
        distributed.use(optimizer.communicator)
        net = made(optimizer)

        def steps(net, numbers):
            for step in numbers:
                x, y = (tensor.from_numpy(v) for v in shards(step, 2)[rank])
                net(x, y, partial(way, net.optimizer))
            return states(net)

        steps(net, range(3))
        checkpoint.save(tmp_path / "state", net, optimizer)
        want = steps(net, range(3, 6))
        # Another process would have the same communicator, and other parameters.
        again = made(opt.DistOpt(sgd(), singa_wrap.NcclIdHolder(f"{holder.id}-2"), rank, 2), seed=7)
        distributed.use(again.optimizer.communicator)
        checkpoint.load(tmp_path / "state", again, again.optimizer)
        return differing(steps(again, range(3, 6)), want), sorted(want)

    for found, names in succeed(in_ranks(2, body)):
        assert found == []
        assert [name for name in names if name.startswith("residuals/1/")]


# --- with a GradScaler


def test_halves_with_a_scale_have_the_bits_of_those_without():
    rng = np.random.default_rng(4)
    grads = rng.normal(size=(2, 3, 50)).astype(np.float32)  # of ranks and steps

    def body(rank, holder):
        communicator = singa_wrap.Communicator(rank, 2, holder, 0)
        distributed.use(communicator)
        kept = [Residuals({}), Residuals({})]
        found = []
        for step, scale in enumerate((1024.0, 64.0, 0.5)):
            for residuals, factor in zip(kept, (scale, None), strict=True):
                raw = tensor.from_numpy(grads[rank][step].copy()).data
                (mean,) = sum_of_halves(communicator, ["w"], [raw], residuals, factor)
                mean = tensor.from_raw_tensor(mean).numpy() / (factor or 1.0)
                left = tensor.from_raw_tensor(residuals.of("w", raw)).numpy()
                found.append((mean.tobytes(), left.tobytes()))
        return found

    for found in succeed(in_ranks(2, body)):
        assert found[::2] == found[1::2]


def test_no_rank_updates_where_a_value_does_not_fit_into_float16():
    def body(rank, holder):
        communicator = singa_wrap.Communicator(rank, 2, holder, 0)
        distributed.use(communicator)
        residuals = Residuals({})
        found = []
        for value, scale in ((100.1, 8.0), (100.0 if rank else 60.0, 1024.0), (100.0, 512.0)):
            raw = tensor.from_numpy(np.array([value], np.float32)).data
            means = sum_of_halves(communicator, ["w"], [raw], residuals, scale)
            mean = None if means is None else tensor.from_raw_tensor(means[0]).numpy().tolist()
            found.append((mean, tensor.from_raw_tensor(residuals.of("w", raw)).numpy().item()))
        return found

    for first, overflow, last in in_ranks(2, body):
        assert first[0] == [801.0]
        assert first[1] == pytest.approx(100.1 - 801.0 / 8, abs=1e-5)
        assert overflow == (None, first[1])  # 100 · 1024 is too large, on rank 1 alone
        assert last[0] == [51200.0]


def test_values_beyond_float16_are_sent_later():
    """Without a scaler, which would skip the update."""

    def body(rank, holder):
        communicator = singa_wrap.Communicator(rank, 2, holder, 0)
        residuals = Residuals({})
        sent = []
        for value in (100000.0, 0.0, 0.0):
            raw = tensor.from_numpy(np.array([value, -1.0], np.float32)).data
            (mean,) = sum_of_halves(communicator, ["w"], [raw], residuals)
            sent.append(tensor.from_raw_tensor(mean).numpy().tolist())
        return sent

    assert in_ranks(2, body) == [[[65504.0, -1.0], [34496.0, -1.0], [0.0, -1.0]]] * 2


def clipped_half(optimizer, loss):
    optimizer.backward_and_update_half(loss, clipping=True, clip_Value=0.01)


def by_threshold(optimizer, loss):
    optimizer.backward_and_sparse_update(loss, spars=0.01)


WAYS = [half, clipped_half, sparse, by_threshold, partly]


@pytest.mark.parametrize("graph", [False, True])
@pytest.mark.parametrize("way", WAYS)
def test_a_scale_that_changes_does_not_change_what_is_sent(way, graph):
    def body(rank, holder):
        def run(number, scaler):
            job = singa_wrap.NcclIdHolder(f"{holder.id}-{number}")
            inner = opt.SGD(lr=0.1, momentum=0.9, scaler=scaler)
            net = made(opt.DistOpt(inner, job, rank, 2), graph)
            net.train_one_batch = partial(step_by, net, partial(way, net.optimizer))
            for step in range(8):
                x, y = shards(step, 2)[rank]
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")  # the partial is no recorded setting
                    net(tensor.from_numpy(x), tensor.from_numpy(y))
            assert net.optimizer.steps == 8
            return {name: p.numpy() for name, p in net.get_params().items()}

        plain = run(0, None)
        growing = run(1, opt.GradScaler(64.0, growth_interval=2))
        return plain, growing

    for plain, growing in in_ranks(2, body):
        for name, value in plain.items():
            np.testing.assert_allclose(growing[name], value, rtol=0, atol=3e-5, err_msg=name)


@pytest.mark.parametrize("graph", [False, True])
@pytest.mark.parametrize("way", WAYS)
def test_an_overflow_on_one_rank_skips_the_update_of_all(way, graph):
    def body(rank, holder):
        inner = opt.SGD(lr=0.1, scaler=opt.GradScaler(256.0))
        net = made(opt.DistOpt(inner, holder, rank, 2), graph)
        net.train_one_batch = partial(step_by, net, partial(way, net.optimizer))
        found = []
        for step in range(5):
            x, y = shards(step, 2)[rank]
            if step == 3 and rank == 1:
                x[0, 0, 0, 0] = np.inf
            before = net.classify.W.numpy().tobytes()
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                net(tensor.from_numpy(x), tensor.from_numpy(y))
            changed = net.classify.W.numpy().tobytes() != before
            found.append((changed, net.optimizer.steps, net.optimizer.scaler.get_scale()))
        kept = net.optimizer.opt.unsent.values()
        finite = [np.isfinite(tensor.from_raw_tensor(raw).numpy()).all() for raw in kept]
        return found, all(finite)

    for found, finite in in_ranks(2, body):
        assert finite
        changed, steps, scales = zip(*found, strict=True)
        assert steps == (1, 2, 3, 3, 4)
        assert scales == (256, 256, 256, 128, 128)
        assert changed[:3] + changed[4:] == (True,) * 4
        assert way is partly or not changed[3]  # which averages a part all the same
