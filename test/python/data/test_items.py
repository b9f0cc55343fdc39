"""DataLoader over a Dataset: items that are read one by one."""

import threading

import numpy as np
import pytest
from picture_folders import write_colours
from singa import data, device, tensor
from singa.data import DataLoader

COUNT = 23


class Numbers:
    """Regression: two inputs and a target, which show their index."""

    def __len__(self):
        return COUNT

    def __getitem__(self, index):
        return np.full((2, 3), index, np.float64), np.arange(4) + index, index / 2.0


class Pictures:
    """Images of different sizes, whose pixels are their index."""

    has_masks = False

    def __len__(self):
        return COUNT

    def __getitem__(self, index):
        return np.full((3, 10 + index % 3, 12), index, np.uint8), index


def noisy(images, rng):
    return images[:, :, :8, :8] + rng.random((len(images), 1, 8, 8), np.float32)


def run(dataset, batch_size=4, **settings):
    return list(DataLoader(dataset, batch_size, True, 5, **settings))


def test_parts_of_items_are_stacked():
    assert isinstance(Numbers(), data.Dataset)
    batches = run(Numbers())
    assert [len(batch[0]) for batch in batches] == [4] * 5 + [3]
    for first, second, target in batches:
        assert (first.dtype, second.dtype, target.dtype) == (np.float32, np.int32, np.float32)
        assert first.shape[1:] == (2, 3)
        np.testing.assert_array_equal(
            second - first[:, 0, :1], np.arange(4)[None].repeat(len(first), 0)
        )
        np.testing.assert_array_equal(target * 2, first[:, 0, 0])
    seen = np.concatenate([batch[1][:, 0] for batch in batches])
    assert sorted(seen) == list(range(COUNT))


def test_the_order_is_that_of_arrays():
    images = np.zeros((COUNT, 1, 2, 2), np.uint8)
    expected = [labels for _, labels in run((images, np.arange(COUNT)))]
    for batch, labels in zip(run(Numbers()), expected, strict=True):
        np.testing.assert_array_equal(batch[1][:, 0], labels)


def test_items_without_a_tuple():
    class Single(Numbers):
        def __getitem__(self, index):
            return np.full(2, index)

    (first, *_) = run(Single())
    assert isinstance(first, np.ndarray)
    assert (first.shape, first.dtype) == ((4, 2), np.int32)
    (first, *_) = run(Single(), device=device.get_default_device())
    assert isinstance(first, tensor.Tensor)


def test_a_list_of_tuples_is_one_of_items():
    x, y = np.arange(10.0).reshape(5, 2), np.arange(5)
    batches = list(DataLoader(list(zip(x, y, strict=True)), 2))
    wanted = list(DataLoader(data.ArrayDataset(x, y), 2))
    assert len(batches) == len(wanted) == 3
    for got, want in zip(batches, wanted, strict=True):
        for one, other in zip(got, want, strict=True):
            np.testing.assert_array_equal(one, other)
            assert one.dtype == other.dtype
    for wrong in ([], list(x), x):
        with pytest.raises(TypeError, match=r"a list of items \(x, y\).*data\.ArrayDataset"):
            DataLoader(wrong, 2)


def test_images_are_scaled_and_tensors_made():
    class Equal(Pictures):
        def __getitem__(self, index):
            return np.full((3, 4, 5), index, np.uint8).transpose(0, 2, 1), index

    for images, labels in run(Equal(), device=device.get_default_device()):
        assert (images.shape[1:], images.dtype, labels.dtype) == (
            (3, 5, 4),
            tensor.float32,
            tensor.int32,
        )
        expected = np.broadcast_to(labels.numpy()[:, None, None, None], images.shape) / 255.0
        np.testing.assert_allclose(images.numpy(), expected, rtol=1e-6)


@pytest.mark.parametrize("workers", [0, 1, 3])
def test_draws_do_not_depend_on_workers_batches_or_ranks(workers):
    def by_label(batches):
        return {
            int(y): image
            for images, labels in batches
            for image, y in zip(images, labels, strict=True)
        }

    expected = by_label(run(Pictures(), COUNT, transform=noisy, num_workers=0))
    assert len(expected) == COUNT
    assert len({float(image[0, 0, 0] % 1) for image in expected.values()}) > COUNT - 3
    alone = by_label(run(Pictures(), transform=noisy, num_workers=workers))
    ranks = by_label(
        batch
        for rank in range(2)
        for batch in run(
            Pictures(), transform=noisy, num_workers=workers, shard=(rank, 2), virtual_ranks=4
        )
    )
    for label, image in expected.items():
        np.testing.assert_array_equal(alone[label], image)
        np.testing.assert_array_equal(ranks[label], image)


def test_a_resumed_loader_continues_with_the_same_draws():
    whole = DataLoader(Pictures(), 4, True, 5, noisy)
    expected = [list(whole), list(whole)]
    begun = DataLoader(Pictures(), 4, True, 5, noisy)
    list(begun)
    for _ in zip(range(2), begun, strict=False):
        pass
    state = begun.state_dict()
    assert (state["epoch"], state["batch"]) == (1, 2)
    again = DataLoader(Pictures(), 4, True, 5, noisy)
    again.load_state_dict(state)
    for (images, labels), (x, y) in zip(again, expected[1][2:], strict=True):
        np.testing.assert_array_equal(images, x)
        np.testing.assert_array_equal(labels, y)


def test_a_part_without_items_has_the_shape_of_others():
    loader = DataLoader(Pictures(), 11, transform=noisy, shard=(1, 2))
    *_, (images, labels) = loader
    assert (images.shape, labels.shape, labels.dtype) == ((0, 3, 8, 8), (0,), np.int32)
    assert loader.weight == 0.0
    assert loader.batch_images == 1


def test_threads_read_items_at_the_same_time():
    meeting = threading.Barrier(2, timeout=20)

    class Waiting(Numbers):
        def __getitem__(self, index):
            if index in (0, 4):
                meeting.wait()
            return index

    assert len(list(DataLoader(Waiting(), 4, num_workers=2))) == 6


def test_mix_takes_images_and_labels():
    fixed = data.Compose(data.CenterCrop(8))
    for images, targets in run(Pictures(), transform=fixed, mix=data.MixUp(COUNT)):
        assert images.shape[1:] == (3, 8, 8)
        expected = targets @ np.arange(COUNT) / 255.0
        np.testing.assert_allclose(images[:, 0, 0, 0], expected, rtol=1e-5, atol=1e-6)
    with pytest.raises(ValueError, match="mix takes images and labels, and the items have 3 parts"):
        run(Numbers(), mix=data.MixUp(3))


def test_collate_pads_text():
    class Text(Numbers):
        def __getitem__(self, index):
            return list(range(index % 4 + 1)), index

    def pad(items):
        longest = max(len(words) for words, _ in items)
        words = [row + [-1] * (longest - len(row)) for row, _ in items]
        return np.array(words, np.int32), np.array([label for _, label in items])

    batches = run(Text(), collate=pad)
    assert sum(len(words) for words, _ in batches) == COUNT
    for words, labels in batches:
        np.testing.assert_array_equal((words >= 0).sum(1), labels % 4 + 1)
    with pytest.raises(ValueError, match=r"part 0 of the items has different shapes.*collate="):
        run(Text())
    with pytest.raises(ValueError, match="collate returned shapes"):
        run(Text(), collate=lambda items: (np.zeros(2), np.zeros(3)))


def test_collate_may_return_a_list_of_arrays():
    """As PyTorch's default_collate does. A list of numbers is one array."""

    def stacked(items):
        return [np.stack([item[part] for item in items]) for part in (0, 1)]

    x, y = next(
        iter(DataLoader(data.ArrayDataset(np.ones((4, 3)), np.arange(4)), 2, collate=stacked))
    )
    assert (x.shape, y.tolist()) == ((2, 3), [0, 1])
    numbers = DataLoader(data.ArrayDataset(np.arange(4.0)), 2, collate=list)
    np.testing.assert_array_equal(next(iter(numbers)), [0.0, 1.0])


def test_several_transforms_are_composed():
    flips = [data.RandomHorizontalFlip(), data.RandomVerticalFlip()]
    with pytest.raises(TypeError, match=r"transform cannot be called: .*; data\.Compose\(\.\.\.\)"):
        DataLoader(data.shapes("train", 4), 2, transform=flips)


def test_images_of_different_sizes_are_named():
    with pytest.raises(ValueError, match=r"such as \(3, 10, 12\) and .*data\.Resize"):
        run(Pictures())


@pytest.mark.parametrize(
    ("item", "message"),
    [
        ("abc", "part 0 of the items is <U3, not numbers: 'abc'"),
        (1 << 40, "numbers from 1099511627776 .* do not fit int32"),
    ],
)
def test_items_that_are_no_numbers(item, message):
    class Wrong(Numbers):
        def __getitem__(self, index):
            return item

    with pytest.raises((TypeError, ValueError), match=message):
        run(Wrong())


def test_wrong_transforms():
    with pytest.raises(TypeError, match=r"items that begin with an image \(C, H, W\)"):
        run(Numbers(), transform=noisy)
    with pytest.raises(ValueError, match=r"transform returned shape \(3, 8, 8\)"):
        run(Pictures(), transform=lambda images, rng: noisy(images, rng)[0])


def test_masks_move_with_their_images():
    masks = data.shapes_with_masks(count=12)
    flip = data.Compose(data.RandomHorizontalFlip(1.0), data.Normalize((0.5,) * 3, (0.5,) * 3))
    images, moved = next(iter(DataLoader(masks, 12, transform=flip)))
    assert (images.dtype, moved.dtype) == (np.float32, np.int32)
    np.testing.assert_array_equal(moved, masks.masks[:, :, ::-1])
    np.testing.assert_allclose(images, masks.images[..., ::-1] / 127.5 - 1.0, atol=1e-6)
    with pytest.raises(ValueError, match="no method with_masks"):
        next(iter(DataLoader(masks, 12, transform=noisy)))


def test_a_folder_of_pictures(tmp_path):
    folder = data.ImageFolder(write_colours(tmp_path / "colours"), cache="memory")
    transform = data.training_transform(16, data.IMAGENET_MEAN, data.IMAGENET_STD, "trivial")
    batches = [run(folder, 8, transform=transform, num_workers=n) for n in (0, 2)]
    for first, second in zip(*batches, strict=True):
        assert first[0].shape == (8, 3, 16, 16)
        assert first[0].flags.c_contiguous
        for a, b in zip(first, second, strict=True):
            np.testing.assert_array_equal(a, b)


def test_rows_of_arrays():
    x, y = np.arange(12.0).reshape(6, 2), np.arange(6)
    both = list(data.DataLoader(data.ArrayDataset(x, y), 4))
    assert [part.shape for part in both[0]] == [(4, 2), (4,)]
    np.testing.assert_array_equal(np.concatenate([batch[0] for batch in both]), x)
    np.testing.assert_array_equal(np.concatenate([batch[1] for batch in both]), y)
    (alone,) = data.DataLoader(data.ArrayDataset(tensor.from_numpy(x)), 6)
    np.testing.assert_array_equal(alone, x)
    with pytest.raises(ValueError, match=r"equally many rows, got shapes \(6, 2\), \(5,\)"):
        data.ArrayDataset(x, y[:5])
    with pytest.raises(ValueError, match="got numbers"):
        data.ArrayDataset(1.0, 2.0)
