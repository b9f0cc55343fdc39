"""DistOpt with sharded optimizer state, beside DistOpt without."""

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
    sgd,
    shards,
    sparse,
    states,
    train,
    trained,
)
from ranks import in_ranks, succeed
from singa import distributed, opt, singa_wrap, tensor
from singa.opt.sharding import Owners
from singa.training import checkpoint

pytestmark = [
    pytest.mark.cpu("ranks are processes with memory on the CPU"),
    pytest.mark.usefixtures("one_thread"),
]


def adam(**options):
    return opt.Adam(lr=0.01, weight_decay=1e-3, **options)


def scaled(**options):
    return opt.AdamW(lr=opt.StepDecay(0.01, 2), scaler=opt.GradScaler(1024.0), **options)


class Mine(opt.SGD):
    """A user's optimizer."""

    def apply(self, param_name, param_value, param_grad):
        super().apply(param_name, param_value, param_grad)


def mine(**options):
    return Mine(lr=0.1, momentum=0.9, clip_value=0.1, **options)


# --- bits


@pytest.mark.parametrize("graph", [False, True])
@pytest.mark.parametrize(("world", "node"), [(2, 0), (4, 0), (2, 1), (4, 2)])
def test_sharded_state_has_the_bits_of_accumulation(world, node, graph, on_nodes):
    on_nodes(node)
    want = train(made(sgd(accumulate=world)), 6, world)
    expect_equal(in_ranks(world, partial(trained, world=world, graph=graph, shard=True)), want)


@pytest.mark.parametrize("graph", [False, True])
@pytest.mark.parametrize("inner", [adam, clipped_adam, scaled, rmsprop_by_the_largest, mine])
def test_with_other_optimizers(inner, graph):
    want = train(made(inner(accumulate=2)), 4, 2)
    run = partial(trained, world=2, steps=4, graph=graph and inner is not mine, inner=inner)
    expect_equal(in_ranks(2, partial(run, shard=True)), want)


@pytest.mark.parametrize("graph", [False, True])
def test_with_several_calls_for_an_update(graph):
    (want,) = in_ranks(1, partial(trained, world=1, virtual=4, graph=graph, inner=adam))
    run = partial(trained, world=2, virtual=4, graph=graph, inner=adam, shard=True)
    expect_equal(in_ranks(2, run), want)


def test_with_parameters_that_train_later():
    """Adam counts the updates of each parameter; half of these are frozen at first."""

    def body(optimizer, shard, calls):
        net = made(optimizer)
        for name in ("first", "classify"):
            getattr(net, name).W.stores_grad = False
        found = []
        for step in range(4):
            if step == 2:
                for name in ("first", "classify"):
                    getattr(net, name).W.stores_grad = True
            for x, y in shards(step, 2)[shard : shard + calls]:
                net(tensor.from_numpy(x), tensor.from_numpy(y))
            found = states(net)
        return found

    want = body(adam(accumulate=2), 0, 2)
    assert want["parameter_steps/first.W"] == want["parameter_steps/classify.W"] == 2
    run = lambda rank, holder: body(  # noqa: E731
        opt.DistOpt(adam(), holder, rank, 2, shard_state=True), rank, 1
    )
    expect_equal(in_ranks(2, run), want)


def half(optimizer, loss):
    optimizer.backward_and_update_half(loss)


def single(optimizer, loss):
    for param, grad in singa.autograd.backward(loss):
        optimizer.all_reduce(grad.data)
        optimizer.update(param, grad)
    optimizer.step()


@pytest.mark.parametrize("way", [half, sparse, single])
def test_singas_ways_of_a_step(way):
    def body(rank, holder, shard):
        net = made(opt.DistOpt(adam(), holder, rank, 2, shard_state=shard))
        for step in range(3):
            x, y = (tensor.from_numpy(v) for v in shards(step, 2)[rank])
            net(x, y, partial(way, net.optimizer))
        return states(net)

    want = in_ranks(2, partial(body, shard=False))
    for found, wanted in zip(succeed(in_ranks(2, partial(body, shard=True))), want, strict=True):
        assert differing(found, wanted) == []


def test_a_partial_update_is_refused():
    def body(rank, holder):
        net = made(opt.DistOpt(sgd(), holder, rank, 2, shard_state=True))
        x, y = (tensor.from_numpy(v) for v in shards(0, 2)[rank])
        net(x, y, net.optimizer.backward_and_partial_update)

    for error in in_ranks(2, body):
        assert "a partial update needs the whole state" in error


# --- memory


def kept_bytes(optimizer):
    return {
        slot: {key: value.data.bytes() for key, value in getattr(optimizer.opt, slot).items()}
        for slot in optimizer.opt.used_slots()
    }


@pytest.mark.parametrize("world", [2, 4])
def test_each_rank_keeps_its_part_of_the_state(world):
    def body(rank, holder):
        optimizer = opt.DistOpt(adam(), holder, rank, world, shard_state=True)
        net = made(optimizer)
        train(net, 2, world, rank, 1)
        largest = max(param.size() for param in net.get_params().values()) * 4
        return kept_bytes(optimizer), largest

    results = in_ranks(world, body)
    whole = sum(param.size() for param in made(sgd()).get_params().values()) * 4
    for slot in ("m", "v"):
        of_ranks = [found[slot] for found, _ in results]
        keys = [key for found in of_ranks for key in found]
        assert len(keys) == len(set(keys))  # each belongs to one rank
        sizes = [sum(found.values()) for found in of_ranks]
        assert sum(sizes) == whole
        assert max(sizes) - min(sizes) <= results[0][1]  # no more apart than a parameter


def test_owners_have_equally_many_elements():
    rng = np.random.default_rng(3)
    params = [tensor.Tensor((int(n),)) for n in rng.integers(1, 1000, 60)]
    owners = [Owners(rank, 4) for rank in range(4)]
    for each in owners:
        each.add(params)
        each.add(params[::-1])  # they have owners
    sums = [sum(p.size() for p in params if each.is_own(p)) for each in owners]
    assert sum(sums) == sum(p.size() for p in params)
    assert max(sums) - min(sums) < 0.01 * max(sums)
    assert all(len({each.of(p) for each in owners}) == 1 for p in params)


# --- checkpoints


def test_a_checkpoint_fits_any_number_of_ranks(tmp_path):
    """Four virtual ranks, so that any number of ranks has the same bits."""

    def on(world, first, steps, load, save):
        def body(rank, holder):
            optimizer = opt.DistOpt(adam(), holder, rank, world, virtual_ranks=4, shard_state=True)
            distributed.use(optimizer.communicator)
            net = made(optimizer, seed=first + rank)
            if load is not None:
                checkpoint.load(tmp_path / load, net, optimizer)
                kept = sum(kept_bytes(optimizer)["m"].values())
            calls = 4 // world
            for step in range(first, first + steps):
                for x, y in shards(step, 4)[rank * calls : (rank + 1) * calls]:
                    net(tensor.from_numpy(x), tensor.from_numpy(y))
            checkpoint.save(tmp_path / save, net, optimizer)
            return states(net), (0 if load is None else kept)

        return succeed(in_ranks(world, body))

    ((want, _),) = on(1, 0, 8, None, "whole")
    on(4, 0, 2, None, "a")
    on(2, 2, 2, "a", "b")
    on(1, 4, 2, "b", "c")
    results = on(4, 6, 2, "c", "d")
    whole = sum(param.size() for param in made(sgd()).get_params().values()) * 4
    for found, kept in results:
        assert differing(found, want) == []
        assert 0 < kept < whole
    assert sum(kept for _, kept in results) == whole


def test_only_rank_0_holds_the_whole_state_for_a_checkpoint():
    def body(rank, holder):
        optimizer = opt.DistOpt(adam(), holder, rank, 2, shard_state=True)
        net = made(optimizer)
        train(net, 1, 2, rank, 1)
        return sorted(optimizer.get_states(rank=0)["m"]), sorted(kept_bytes(optimizer)["m"])

    (every, _), (part, own) = in_ranks(2, body)
    assert every == sorted(made(sgd()).get_params())
    assert part == []
    assert own


# --- the engine


@pytest.mark.parametrize("node", [0, 1, 2])
def test_a_reduce_scatter_gives_owners_the_sums_of_an_all_reduce(node, on_nodes):
    on_nodes(node)
    sizes = [5, 70_000, 1, 200_000, 3000, 0]
    owners = [2, 0, 0, 1, 2, 1]

    def body(rank, holder):
        communicator = singa_wrap.Communicator(rank, 3, holder, 0)
        found = []
        for kind in ("float32", "float64", "bfloat16"):
            rng = np.random.default_rng(rank)
            values = [tensor.from_numpy(rng.normal(size=n), dtype=kind) for n in sizes]
            whole = [v.deepcopy() for v in values]
            names = [str(n) for n in sizes]
            for given, to in ((values, owners), (whole, [])):
                raw = [v.data for v in given]
                reduction = singa_wrap.Reduction(communicator, raw, names, 1, 0.3, to)
                reduction.Start()
                reduction.Wait()
            before = np.random.default_rng(rank)
            for value, total, owner, n in zip(values, whole, owners, sizes, strict=True):
                kept = tensor.from_numpy(before.normal(size=n), dtype=kind)
                want = total if owner == rank else kept
                found.append(np.array_equal(value.numpy(), want.numpy()))
            gathering = singa_wrap.Gathering(communicator, [v.data for v in values], names, owners)
            gathering.Start()
            gathering.Wait()
            for value, total in zip(values, whole, strict=True):
                found.append(np.array_equal(value.numpy(), total.numpy()))
        return found

    for found in succeed(in_ranks(3, body)):
        assert all(found), found


def test_ranks_that_disagree_about_owners():
    def body(rank, holder):
        communicator = singa_wrap.Communicator(rank, 2, holder, 0)
        raw = [tensor.from_numpy(np.zeros(3, np.float32)).data]
        singa_wrap.Gathering(communicator, raw, ["w"], [rank]).Start()
        communicator.barrier()

    for error in in_ranks(2, body):
        assert "rank 0: 1 tensors, to ranks 0; rank 1: 1 tensors, to ranks 1" in error


def test_wrong_owners_are_refused():
    def body(rank, holder):
        communicator = singa_wrap.Communicator(rank, 2, holder, 0)
        raw = [tensor.from_numpy(np.zeros(3, np.float32)).data]
        errors = []
        for owners in ([2], [-1], [0, 1]):
            for make in (
                lambda to: singa_wrap.Gathering(communicator, raw, [], to),
                lambda to: singa_wrap.Reduction(communicator, raw, [], 1, 1.0, to),
            ):
                with pytest.raises(ValueError, match="owners") as error:
                    make(owners)
                errors.append(str(error.value))
        return errors

    for errors in in_ranks(2, body):
        assert len(errors) == 6, errors
        assert "owners must be from 0 to 1, got 2" in errors[0]
        assert "1 tensors have 2 owners" in errors[5]
