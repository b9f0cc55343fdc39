"""DataLoader: order, determinism, resuming, and the end of threads."""

import gc
import json
import os
import re
import subprocess
import sys
import textwrap
import threading
import time
import traceback

import numpy as np
import pytest
from singa import device, tensor
from singa.data import (
    ArrayDataset,
    DataLoader,
    ImageSet,
    Normalize,
    RandomHorizontalFlip,
    WeightedSampler,
    standard_augmentation,
)

COUNT = 53


@pytest.fixture
def data():
    """Images whose first pixel is their own number, so that a batch shows its indices."""
    images = np.random.default_rng(0).integers(0, 256, (COUNT, 3, 6, 6), dtype=np.uint8)
    images[:, 0, 0, 0] = np.arange(COUNT)
    return ImageSet(images, (np.arange(COUNT) % 10).astype(np.int32), tuple("0123456789"))


def raw(images, rng):
    return images.astype(np.float32)


def indices(batch):
    return batch[0][:, 0, 0, 0].astype(int).tolist()


def passes(loader, count):
    return [[indices(batch) for batch in loader] for _ in range(count)]


def loader_threads():
    return [t for t in threading.enumerate() if t.name.startswith("singa-loader")]


@pytest.fixture(autouse=True)
def no_threads_left(quick_collections):
    yield
    gc.collect()
    assert loader_threads() == []


@pytest.mark.parametrize("dtype", ["i8", "u1", "i2", ">i4", "u8"])
def test_labels_of_any_integer_type(data, dtype):
    labels = data.labels.astype(dtype)
    for given in ((data.images, labels), ImageSet(data.images, labels, data.classes)):
        _, batch = next(iter(DataLoader(given, COUNT)))
        assert batch.dtype == np.int32
        np.testing.assert_array_equal(batch, data.labels)


def test_labels_out_of_range_are_refused_before_they_are_converted(data):
    labels = data.labels.astype(np.int64)
    labels[3] += 1 << 32
    with pytest.raises(ValueError, match="label 4294967299 of record 3"):
        ImageSet(data.images, labels, data.classes)


LABELS = np.zeros(4, np.int64)
CHANNELS_LAST = [(4, 32, 32, 3), (4, 20, 30, 4), (4, 28, 28, 1)]
CHANNELS_FIRST = [(4, 3, 32, 32), (4, 1, 28, 3), (4, 64, 3, 3), (4, 16, 100, 1), (4, 3, 4, 4)]


@pytest.mark.parametrize("workers", [0, 1])
@pytest.mark.parametrize("shape", CHANNELS_LAST)
def test_channels_last_is_named_and_not_guessed_at(shape, workers):
    images = np.zeros(shape, np.uint8)
    loader = DataLoader((images, LABELS), 2, num_workers=workers)
    with pytest.warns(UserWarning, match=re.escape(f"({', '.join(map(str, (2, *shape[1:])))})")):
        batches = list(loader)
    assert batches[0][0].shape == (2, *shape[1:])
    assert len(list(loader)) == 2  # said once
    with pytest.warns(UserWarning, match="set.*transpose"):
        ImageSet(images, LABELS, ("a",), "set")


@pytest.mark.parametrize("shape", CHANNELS_FIRST)
def test_channels_first_is_no_mistake(shape):
    images = np.zeros(shape, np.uint8)
    list(DataLoader((images, LABELS), 2))
    ImageSet(images, LABELS, ("a",))


def test_a_transform_may_take_channels_last():
    images = np.zeros((4, 32, 32, 3), np.uint8)
    loader = DataLoader((images, LABELS), 4, transform=lambda x, rng: x.transpose(0, 3, 1, 2))
    assert next(iter(loader))[0].shape == (4, 3, 32, 32)


@pytest.mark.parametrize("dtype", ["f4", "f8", "i4", "u2"])
def test_unscaled_levels_are_named_and_not_guessed_at(dtype):
    images = np.arange(4 * 3 * 4 * 4).reshape(4, 3, 4, 4).astype(dtype)
    for transform in (None, RandomHorizontalFlip(0.0)):
        loader = DataLoader((images, LABELS), 4, transform=transform)
        with pytest.warns(UserWarning, match="from 0 to 191.*divide by 255"):
            (batch, _), *_ = loader
        np.testing.assert_array_equal(batch, images)
    with pytest.warns(UserWarning, match=r"\[Normalize\].*divide by 255"):
        Normalize((0.5,) * 3, (0.25,) * 3)(images)


def test_scaled_images_are_no_mistake():
    rng = np.random.default_rng(0)
    unit = rng.random((4, 3, 8, 8), np.float32)
    for images in (unit, rng.standard_normal(unit.shape), 300 * unit, 255 * unit - 128):
        list(DataLoader((images, LABELS), 2))
    Normalize((0.5,) * 3, (0.25,) * 3)(unit)
    Normalize((127.0,) * 3, (60.0,) * 3)(255 * unit)


@pytest.mark.parametrize("workers", [0, 1, 3])
def test_in_order_with_a_short_last_batch(data, workers):
    loader = DataLoader(data, 10, num_workers=workers)
    batches = list(loader)
    assert len(loader) == len(batches) == 6
    assert [len(labels) for _, labels in batches] == [10, 10, 10, 10, 10, 3]
    images, labels = (np.concatenate(parts) for parts in zip(*batches, strict=True))
    assert (images.dtype, labels.dtype) == (np.float32, np.int32)
    np.testing.assert_allclose(images, data.images / 255.0, rtol=2e-7)
    np.testing.assert_array_equal(labels, data.labels)
    for image, label in batches:
        assert image.flags.c_contiguous
        assert image.flags.writeable
        assert label.flags.writeable
        assert not np.shares_memory(label, data.labels)


@pytest.mark.parametrize("workers", [0, 2])
def test_batches_as_tensors(data, workers):
    arrays = DataLoader(data, 10, shuffle=True, seed=2, num_workers=workers)
    tensors = DataLoader(
        data, 10, shuffle=True, seed=2, num_workers=workers, device=device.create_cpu_device()
    )
    for (images, labels), (x, y) in zip(arrays, tensors, strict=True):
        assert (x.dtype, y.dtype) == (tensor.float32, tensor.int32)
        np.testing.assert_array_equal(x.numpy(), images)
        np.testing.assert_array_equal(y.numpy(), labels)
        assert tensors.state_dict() == arrays.state_dict()
    with pytest.raises(
        TypeError, match=r"\[DataLoader\] device must be a Device, such as .*, or None, got 'cpu'"
    ):
        DataLoader(data, 10, device="cpu")


def test_drop_last(data):
    assert [len(x) for x, _ in DataLoader(data, 10, drop_last=True)] == [10] * 5
    assert len(DataLoader(data, 10, drop_last=True)) == 5
    assert len(DataLoader(data, COUNT + 1, drop_last=True)) == 0
    assert list(DataLoader(data, COUNT + 1, drop_last=True)) == []
    assert [len(x) for x, _ in DataLoader(data, 1000)] == [COUNT]


def test_shuffling_shows_every_image_once_an_epoch_in_another_order(data):
    loader = DataLoader(data, 10, shuffle=True, seed=4, transform=raw)
    first, second = ([i for batch in epoch for i in batch] for epoch in passes(loader, 2))
    assert sorted(first) == sorted(second) == list(range(COUNT))
    assert first != second
    assert first != list(range(COUNT))
    for images, labels in loader:
        np.testing.assert_array_equal(images[:, 0, 0, 0].astype(int) % 10, labels)
    assert passes(DataLoader(data, 10, True, 4, raw), 1)[0][0] == first[:10]
    assert passes(DataLoader(data, 10, True, 5, raw), 1)[0][0] != first[:10]


def test_order_and_draws_do_not_depend_on_workers(data):
    augmentation = standard_augmentation((0.5,) * 3, (0.25,) * 3, padding=2, cutout=3)

    def uneven(images, rng):
        time.sleep(0.003 * int(images[0, 0, 0, 0] % 3))  # later batches are often finished first
        return augmentation(images, rng)

    runs = []
    for workers, prefetch in [(0, 0), (1, 1), (2, 7), (5, 2)]:
        loader = DataLoader(data, 4, True, 7, uneven, workers, prefetch)
        runs.append([batch for _ in range(2) for batch in loader])
    for run in runs[1:]:
        for (images, labels), (expected, expected_labels) in zip(run, runs[0], strict=True):
            np.testing.assert_array_equal(images, expected)
            np.testing.assert_array_equal(labels, expected_labels)


def test_every_batch_has_its_own_draws(data):
    loader = DataLoader(data, 10, transform=lambda x, rng: raw(x, rng) * 0 + rng.random(), seed=1)
    drawn = [float(images[0, 0, 0, 0]) for _ in range(2) for images, _ in loader]
    assert len(set(drawn)) == 12


def test_a_transform_that_writes_does_not_reach_the_data(data):
    def destroy(images, rng):
        images[:] = 0
        return images

    before = data.images.copy()
    for shuffle in (False, True):
        list(DataLoader(data, 10, shuffle, transform=destroy))
    np.testing.assert_array_equal(data.images, before)


def test_peeking_does_not_count(data):
    expected = passes(DataLoader(data, 10, True, 3, raw), 1)
    loader = DataLoader(data, 10, True, 3, raw)
    assert indices(next(iter(loader))) == expected[0][0]
    for batch in loader:
        if indices(batch) == expected[0][2]:
            break
    assert loader.epoch == 0
    assert passes(loader, 1) == expected
    assert loader.epoch == 1


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("epoch", [0, 1])
@pytest.mark.parametrize("after", range(7))
def test_resumes_at_any_batch(data, workers, epoch, after):
    whole = passes(DataLoader(data, 10, True, 3, raw), 3)
    loader = DataLoader(data, 10, True, 3, raw, workers, prefetch=4)
    passes(loader, epoch)
    if after:
        for number, _ in enumerate(loader, start=1):
            state = json.dumps(loader.state_dict())  # as a checkpoint inside the loop does
            if number == after:
                break
    else:
        state = json.dumps(loader.state_dict())
    resumed = DataLoader(data, 10, True, 3, raw, workers)
    resumed.load_state_dict(json.loads(state))
    assert resumed.state_dict() == json.loads(state)
    assert resumed.epoch == epoch
    rest = whole[epoch][after:]
    if rest:
        assert indices(next(iter(resumed))) == rest[0]  # peeking does not change the position
    resumed.set_epoch(epoch)
    assert passes(resumed, 3 - epoch) == [rest, *whole[epoch + 1 :]]
    assert resumed.epoch == 3


def test_state_follows_the_batches_yielded_not_those_made_ahead(data):
    loader = DataLoader(data, 10, num_workers=2, prefetch=6)
    places = [(loader.state_dict()["epoch"], loader.state_dict()["batch"])]
    places += [(loader.state_dict()["epoch"], loader.state_dict()["batch"]) for _ in loader]
    assert places == [(0, batch) for batch in range(7)]
    state = loader.state_dict()
    assert (state["epoch"], state["batch"]) == (1, 0)


def test_set_epoch(data):
    whole = passes(DataLoader(data, 10, True, 3, raw), 3)
    loader = DataLoader(data, 10, True, 3, raw)
    loader.set_epoch(2)
    assert passes(loader, 1) == whole[2:]
    loader.set_epoch(0)
    assert passes(loader, 1) == whole[:1]
    with pytest.raises(ValueError, match="epoch must not be negative"):
        loader.set_epoch(-1)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"seed": 1}, "seed 1, this one has 0"),
        ({"batch_size": 9}, "batch_size 9, this one has 10"),
        ({"images": 54}, "images 54, this one has 53"),
        ({"shuffle": True}, "shuffle True, this one has False"),
        ({"drop_last": True}, "drop_last True"),
        ({"sampler": [1, 53, True]}, r"sampler \[1, 53, True\], this one has None"),
        ({"batch": 7}, "batch 7 is outside an epoch of 6"),
        ({"batch": -1}, "batch -1 is outside"),
        ({"batch": "1"}, "not a position"),
        ({"epoch": -1}, "not a position"),
        ({"epoch": None}, "not a position"),
        ({"epoch": True}, "not a position"),
    ],
)
def test_a_state_of_another_loader_is_refused(data, change, message):
    loader = DataLoader(data, 10)
    with pytest.raises(ValueError, match=message):
        loader.load_state_dict({**loader.state_dict(), **change})
    assert loader.state_dict()["batch"] == 0


def test_a_sampler_draws_by_weights(data):
    weights = np.zeros(COUNT)
    weights[[3, 7]] = 1, 3
    loader = DataLoader(data, 100, transform=raw, sampler=WeightedSampler(weights, 400))
    first, second = ([n for batch in epoch for n in batch] for epoch in passes(loader, 2))
    assert (len(loader), set(first), len(first)) == (4, {3, 7}, 400)
    assert 240 < first.count(7) < 350  # 300, 8.7 being its standard deviation
    assert first != second
    again = DataLoader(
        data, 100, transform=raw, sampler=WeightedSampler(weights, 400), num_workers=2
    )
    again.load_state_dict({**loader.state_dict(), "epoch": 1})
    assert [n for batch in passes(again, 1)[0] for n in batch] == second
    other = DataLoader(data, 100, sampler=WeightedSampler(weights + 1, 400))
    with pytest.raises(ValueError, match="a loader with sampler "):
        other.load_state_dict(loader.state_dict())
    with pytest.raises(ValueError, match="this one has None"):
        DataLoader(data, 100).load_state_dict(loader.state_dict())


def test_a_balanced_sampler_draws_classes_alike():
    labels = np.repeat([0, 1, 4], [900, 90, 10])
    order = WeightedSampler.balanced(labels).order(np.random.default_rng(0))
    counts = np.bincount(labels[order], minlength=5)
    assert counts.sum() == 1000
    assert (abs(counts[[0, 1, 4]] - 1000 / 3) < 75).all()  # 14.9 is the standard deviation
    once = WeightedSampler(1.0 + labels, 500, replacement=False).order(np.random.default_rng(0))
    assert len(set(once.tolist())) == 500


@pytest.mark.parametrize("state", [{}, [], None, {"epoch": 0, "batch": 0}])
def test_what_is_no_state_is_refused(data, state):
    with pytest.raises(ValueError, match="not a loader's state"):
        DataLoader(data, 10).load_state_dict(state)


@pytest.mark.parametrize("workers", [0, 3])
def test_exceptions_come_out_where_the_batch_would(data, workers):
    def fail(images, rng):
        if images[0, 0, 0, 0] == 20:
            raise LookupError("bad image")
        return raw(images, rng)

    loader = DataLoader(data, 10, transform=fail, num_workers=workers, prefetch=6)
    got = []
    with pytest.raises(LookupError, match="bad image") as caught:
        got.extend(indices(batch) for batch in loader)
    assert [batch[0] for batch in got] == [0, 10]
    text = "".join(traceback.format_exception(caught.value))
    assert "in fail" in text
    assert "[DataLoader] in batch 2 of epoch 0" in text
    assert loader.state_dict()["batch"] == 2
    del caught, text
    assert loader_threads() == []


@pytest.mark.parametrize(
    ("result", "shape"),
    [(lambda x: x[:-1], r"\(9, 3, 6, 6\)"), (lambda x: x[0], r"\(3, 6, 6\)"),
     (lambda x: x.reshape(10, -1), r"\(10, 108\)")],
)  # fmt: skip
def test_a_transform_that_loses_images_is_found(data, result, shape):
    with pytest.raises(ValueError, match=f"transform returned shape {shape} for 10 images"):
        list(DataLoader(data, 10, transform=lambda x, rng: result(x)))


def test_breaking_off_ends_the_threads_at_once(data):
    for _ in DataLoader(data, 4, num_workers=3, prefetch=8):
        break
    assert loader_threads() == []
    iterator = iter(DataLoader(data, 4, num_workers=3, prefetch=8))
    next(iterator)
    assert 1 <= len(loader_threads()) <= 3
    iterator.close()
    assert loader_threads() == []
    with pytest.raises(ZeroDivisionError):
        any(1 / 0 for _ in DataLoader(data, 4, num_workers=3))
    assert loader_threads() == []


def test_no_more_is_made_ahead_than_asked_for(data):
    made = []

    def count(images, rng):
        made.append(int(images[0, 0, 0, 0]))
        return raw(images, rng)

    iterator = iter(DataLoader(data, 2, transform=count, num_workers=2, prefetch=5))
    next(iterator)
    deadline = time.monotonic() + 10
    while len(made) < 6 and time.monotonic() < deadline:
        time.sleep(0.001)
    time.sleep(0.02)
    assert sorted(made) == [0, 2, 4, 6, 8, 10]
    iterator.close()


def test_two_passes_at_once(data):
    loader = DataLoader(data, 10, True, 2, raw, num_workers=2)
    for left, right in zip(loader, loader, strict=True):
        assert indices(left) == indices(right)
    assert loader.epoch == 1


def test_a_garbage_cycle_ends_the_threads(data):
    iterator = iter(DataLoader(data, 4, num_workers=2))
    next(iterator)
    cycle = [iterator]
    cycle.append(cycle)
    del iterator, cycle
    gc.collect()
    assert loader_threads() == []


def test_plain_arrays_and_float_images():
    images = np.random.default_rng(0).random((5, 1, 4, 4))
    batches = list(DataLoader((images, np.arange(5)), 2))
    assert batches[0][0].dtype == np.float32
    np.testing.assert_array_equal(
        np.concatenate([x for x, _ in batches]), images.astype(np.float32)
    )
    assert batches[2][1].tolist() == [4]
    mean = Normalize((0.5,), (0.25,))
    np.testing.assert_allclose(
        next(iter(DataLoader((images, [0] * 5), 5, transform=mean)))[0],
        (images - 0.5) / 0.25,
        atol=1e-6,
    )


@pytest.mark.parametrize(
    ("data", "options", "error", "message"),
    [
        ((np.zeros((2, 3, 4, 4)), np.zeros(3, int)), {}, ValueError, r"got \(2, 3, 4, 4\) and \(3"),
        ((np.zeros((2, 3, 4)), np.zeros(2, int)), {}, ValueError, r"got \(2, 3, 4\)"),
        ((np.zeros((2, 3, 4, 4)), np.zeros(2)), {}, TypeError, "float64 and float64"),
        ((np.array([["a"]]), np.zeros(1, int)), {}, TypeError, "<U1"),
        (3, {}, TypeError, "got int"),
        ((1, 2, 3), {}, TypeError, "got tuple"),
        (None, {"batch_size": 0}, ValueError, "batch_size must be at least 1, got 0"),
        (None, {"batch_size": 2.5}, TypeError, "batch_size must be an integer"),
        (None, {"num_workers": -1}, ValueError, "num_workers must be at least 0"),
        (None, {"prefetch": -1}, ValueError, "prefetch must be at least 0"),
        (None, {"seed": -1}, ValueError, "seed must be at least 0"),
        (None, {"seed": True}, TypeError, "seed must be an integer"),
        (None, {"transform": 3}, TypeError, "cannot be called: 3"),
        (None, {"sampler": [1, 0]}, TypeError, r"must be a data\.WeightedSampler"),
        (None, {"sampler": WeightedSampler([1])}, ValueError, "1 weights for 2 items"),
        (
            None,
            {"sampler": WeightedSampler([1, 0]), "shuffle": True},
            ValueError,
            "leave shuffle away",
        ),
    ],
)
def test_refusals(data, options, error, message):
    arrays = (np.zeros((2, 3, 4, 4), np.uint8), np.zeros(2, int)) if data is None else data
    with pytest.raises(error, match=message):
        DataLoader(arrays, **{"batch_size": 2, **options})


PRELUDE = """
import gc, os, signal, sys, threading, time
sys.path[:0] = {path!r}
import numpy as np
from singa.data import DataLoader
arrays = np.zeros((64, 3, 8, 8), np.uint8), np.zeros(64, int)
"""


def run_child(code):
    code = PRELUDE.format(path=sys.path) + textwrap.dedent(code)
    return subprocess.run(
        [sys.executable, "-X", "dev", "-W", "error", "-c", code],
        capture_output=True, text=True, timeout=60,
    )  # fmt: skip


def test_interpreter_exit_in_the_middle_of_a_pass():
    done = run_child("""
        iterator = iter(DataLoader(arrays, 2, num_workers=4, prefetch=8))
        next(iterator)
        other = iter(DataLoader(arrays, 2, num_workers=2,
                                transform=lambda x, rng: (time.sleep(0.01), x)[1]))
        next(other)
        print("end")
    """)
    assert (done.stdout, done.stderr, done.returncode) == ("end\n", "", 0)


def test_ctrl_c_while_waiting_for_a_batch():
    done = run_child("""
        def slow(images, rng):
            if images[0, 0, 0, 0] == 0 and len(seen) > 2:
                time.sleep(0.5)
            return images
        seen = []
        signal.signal(signal.SIGINT, signal.default_int_handler)  # who started us may ignore it
        threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT)).start()
        try:
            while True:
                for batch in DataLoader(arrays, 2, transform=slow, num_workers=3):
                    seen.append(1)
        except KeyboardInterrupt:
            print("interrupted")
        gc.collect()
        print([t.name for t in threading.enumerate() if t.name.startswith("singa-loader")])
        print(len(list(DataLoader(arrays, 8))))  # the process is usable
    """)
    assert (done.stdout, done.returncode) == ("interrupted\n[]\n8\n", 0), done.stderr


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_forked_child_is_told_and_can_start_its_own(data):
    done = run_child("""
        loader = DataLoader(arrays, 2, num_workers=2)
        iterator = iter(loader)
        next(iterator)
        import warnings; warnings.simplefilter("ignore", DeprecationWarning)
        pid = os.fork()
        if pid == 0:
            try:
                next(iterator)
            except RuntimeError as error:
                ok = "belongs to the process" in str(error) and len(list(loader)) == 32
                os._exit(0 if ok else 1)
            os._exit(2)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
        assert len(list(iterator)) == 31
        print("both")
    """)
    assert (done.stdout, done.returncode) == ("both\n", 0), done.stderr


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: WeightedSampler([]), "not all 0"),
        (lambda: WeightedSampler([0, 0]), "not all 0"),
        (lambda: WeightedSampler([1, -1]), "none negative"),
        (lambda: WeightedSampler([1, np.nan]), "finite"),
        (lambda: WeightedSampler([[1]]), "vector"),
        (lambda: WeightedSampler([1], 0), "count must be at least 1"),
        (lambda: WeightedSampler([1, 0], replacement=False), "1 items have a positive weight"),
        (lambda: WeightedSampler.balanced([0.5]), "class numbers"),
        (lambda: WeightedSampler.balanced([-1]), "class numbers"),
    ],
)
def test_weights_that_are_none(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def test_what_a_loader_reads(data):
    assert DataLoader(data, 8).dataset is data
    assert DataLoader(ArrayDataset(data.images), 8).dataset.arrays[0] is data.images
    pair = DataLoader((data.images, data.labels), 8).dataset
    assert len(pair) == COUNT
    assert pair[3][1] == data.labels[3]
    for wrong in ((data.images, data.labels / 2), (data.images[:, 0], data.labels)):
        with pytest.raises(
            (TypeError, ValueError), match=r"data\.ArrayDataset\(x, y\) has rows of"
        ):
            DataLoader(wrong, 8)
