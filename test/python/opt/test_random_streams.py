"""Random numbers of ranks that have differently many images: they follow from the update alone."""

from functools import partial

import numpy as np
import pytest
from rank_training import expect_equal, made, sgd, states
from ranks import in_ranks, succeed
from singa import data, device, opt, tensor

pytestmark = [
    pytest.mark.cpu("ranks are processes with memory on the CPU"),
    pytest.mark.usefixtures("one_thread"),
]

_RNG = np.random.default_rng(2)
IMAGES = _RNG.normal(size=(51, 3, 6, 6)).astype(np.float32)
LABELS = _RNG.integers(0, 5, 51).astype(np.int32)
CPU = device.get_default_device()


def uneven(rank, holder, world, virtual, graph=False):
    """Trains with dropout on batches of 32 and 19 images. Returns states, and the random state."""
    optimizer = opt.DistOpt(sgd(), holder, rank, world, virtual_ranks=virtual)
    net = made(optimizer, graph, dropout=True, seed=rank + 1)
    loader = data.DataLoader(
        (IMAGES, LABELS), 32, num_workers=0, shard=(rank, world), virtual_ranks=virtual
    )
    for _ in range(2):
        for x, y in loader:
            net(tensor.from_numpy(x), tensor.from_numpy(y))
    return states(net) | {"random": CPU.random_state()}


@pytest.mark.parametrize("graph", [False, True])
def test_virtual_ranks_have_the_same_bits_with_uneven_batches(graph):
    (want,) = in_ranks(1, partial(uneven, world=1, virtual=4, graph=graph))
    for world in (2, 4):
        expect_equal(in_ranks(world, partial(uneven, world=world, virtual=4, graph=graph)), want)


def test_a_job_goes_on_from_the_random_state_of_rank_0():
    def whole(rank, holder):
        optimizer = opt.DistOpt(sgd(), holder, rank, 2)
        net = made(optimizer, dropout=True)
        loader = data.DataLoader((IMAGES, LABELS), 32, num_workers=0, shard=(rank, 2))
        found = []
        for epoch in range(2):
            if epoch:
                found.append(CPU.random_state())
            for x, y in loader:
                net(tensor.from_numpy(x), tensor.from_numpy(y))
        return [*found, CPU.random_state()]

    results = succeed(in_ranks(2, whole))
    assert results[0] == results[1]
    between, after = results[0]
    assert after[1] - between[1] == 2 * 2**40  # two updates, however many numbers they drew


def test_draws_between_the_calls_of_an_update_are_not_repeated():
    net = made(opt.DistOpt(sgd(), virtual_ranks=2), dropout=True)
    x, y = tensor.from_numpy(IMAGES[:3]), tensor.from_numpy(LABELS[:3])
    drawn = []
    for _ in range(4):
        noise = tensor.Tensor((8,))
        noise.uniform(0.0, 1.0)
        drawn.append(noise.numpy().tobytes())
        net(x, y)
    assert len({*drawn}) == 4
