"""Shards of a DataLoader: the images of one process, each on one rank, on any number of ranks."""

import numpy as np
import pytest
from singa import data

COUNT = 43  # images; each has its number in every pixel


def _noise(images, rng):
    return images + rng.random((len(images), 1, 1, 1)).astype(np.float32) / 2


def _loader(shard=(0, 1), batch_size=10, **options):
    images = np.arange(COUNT, dtype=np.float32).reshape(-1, 1, 1, 1).repeat(2, 2)
    options = {"shuffle": True, "seed": 3, "num_workers": 0} | options
    return data.DataLoader((images, np.arange(COUNT)), batch_size, shard=shard, **options)


def _labels(loader):
    return [labels.tolist() for _, labels in loader]


def _joined(parts):
    """The labels of each batch, from those of its parts in strides."""
    width = len(parts)
    joined = [None] * sum(map(len, parts))
    for i, part in enumerate(parts):
        joined[i::width] = part
    return joined


@pytest.mark.parametrize("drop_last", [False, True])
@pytest.mark.parametrize("shuffle", [False, True])
@pytest.mark.parametrize("batch_size", [1, 7, 10, 43, 50])
@pytest.mark.parametrize("ranks", [1, 2, 3, 4, 11])
def test_batches_are_those_of_one_process(ranks, batch_size, shuffle, drop_last):
    options = {"batch_size": batch_size, "shuffle": shuffle, "drop_last": drop_last}
    whole = _loader(**options)
    loaders = [_loader((rank, ranks), **options) for rank in range(ranks)]
    for _ in range(2):  # epochs
        want = _labels(whole)
        per_rank = [_labels(loader) for loader in loaders]
        assert [len(batches) for batches in per_rank] == [len(whole)] * ranks
        assert [_joined(parts) for parts in zip(*per_rank, strict=True)] == want


@pytest.mark.parametrize("ranks", [2, 3, 4, 11])
def test_weighted_means_are_those_of_the_batch(ranks):
    loaders = [_loader((rank, ranks)) for rank in range(ranks)]
    loops = [iter(loader) for loader in loaders]
    for want in _labels(_loader()):
        parts = [next(loop)[1] for loop in loops]
        assert {loader.batch_images for loader in loaders} == {len(want)}
        means = [part.mean() if len(part) else 0.0 for part in parts]
        weighted = sum(m * loader.weight for m, loader in zip(means, loaders, strict=True)) / ranks
        assert weighted == pytest.approx(np.mean(want), rel=1e-14)


def test_weight_is_one_where_parts_are_equal():
    loader = _loader((1, 2))
    assert loader.weight == 1.0
    weights = [loader.weight for _ in loader]
    assert weights == [1.0, 1.0, 1.0, 1.0, 2 / 3]  # 43 = 4 · 10 + 3
    whole = _loader()
    assert {whole.weight for _ in whole} == {1.0}


def test_a_short_batch_leaves_a_rank_without_images():
    *_, (images, labels) = _loader((3, 4))
    assert images.shape == (0, 1, 2, 1)
    assert labels.shape == (0,)


@pytest.mark.parametrize("workers", [0, 2])
def test_any_number_of_ranks_continues(workers):
    options = {"num_workers": workers, "transform": _noise}
    epochs = [_labels(_loader(**options))]
    first = [_loader((rank, 2), **options) for rank in range(2)]
    for loader in first:
        for number, _ in enumerate(loader):
            if number == 1:
                break
    states = [loader.state_dict() for loader in first]
    assert states[0] == states[1] == {
        "epoch": 0, "batch": 2, "seed": 3, "batch_size": 10, "images": COUNT, "shuffle": True,
        "drop_last": False,
    }  # fmt: skip
    for ranks in (1, 2, 3):
        loaders = [_loader((rank, ranks), **options) for rank in range(ranks)]
        for loader in loaders:
            loader.load_state_dict(states[0])
        rest = zip(*[_labels(loader) for loader in loaders], strict=True)
        assert [_joined(parts) for parts in rest] == epochs[0][2:]


@pytest.mark.parametrize("ranks", [1, 2, 4])
def test_virtual_ranks_see_the_same_on_any_number_of_ranks(ranks):
    options = {"virtual_ranks": 4, "transform": _noise, "mix": data.MixUp(COUNT)}
    each = [list(_loader((rank, 4), transform=_noise, mix=options["mix"])) for rank in range(4)]
    calls = 4 // ranks
    for rank in range(ranks):
        loader = _loader((rank, ranks), **options)
        got = list(loader)
        assert len(got) == calls * len(loader)
        for number, (images, labels) in enumerate(got):
            batch, call = divmod(number, calls)
            want = each[rank * calls + call][batch]
            np.testing.assert_array_equal(images, want[0])
            np.testing.assert_array_equal(labels, want[1])


def test_a_position_within_a_batch_is_its_beginning():
    loader = _loader(virtual_ranks=2)
    loop = iter(loader)
    positions = []
    for _ in range(4):
        next(loop)
        positions.append(loader.state_dict()["batch"])
    assert positions == [0, 1, 1, 2]


def test_parts_are_augmented_by_draws_of_their_own():
    parts = [next(iter(_loader((rank, 2), transform=_noise)))[0] % 1.0 for rank in range(2)]
    assert np.unique(np.concatenate(parts)).size == 10


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"shard": (2, 2)}, ValueError, "rank of shard must lie in [0, 2), got 2"),
        ({"shard": (-1, 2)}, ValueError, "rank of shard must lie in [0, 2), got -1"),
        ({"shard": (0, 0)}, ValueError, "world_size of shard must be at least 1, got 0"),
        ({"shard": (0,)}, ValueError, "shard must be (rank, world_size), got (0,)"),
        ({"shard": None}, TypeError, "shard must be integers, got NoneType"),
        ({"shard": (0.5, 1)}, ValueError, "shard must be a whole number, got 0.5"),
        (
            {"shard": (0, 2), "virtual_ranks": 3},
            ValueError,
            "virtual_ranks must be a multiple of the 2 ranks, got 3",
        ),
        ({"virtual_ranks": 1000}, ValueError, "virtual_ranks 1000 is more than batch_size "),
    ],
)
def test_wrong_shards(options, error, message):
    with pytest.raises(error) as raised:
        _loader(**options)
    assert message in str(raised.value)
