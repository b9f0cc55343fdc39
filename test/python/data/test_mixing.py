"""MixUp and CutMix against formulas and PyTorch in float64, and their way through a loader."""

import numpy as np
import pytest
from bits import check_replays
from singa import autograd, data, layer, tensor
from small_net import Net

CLASSES = 3


def rng(seed=0):
    return np.random.default_rng(seed)


def batch(count=16, shape=(3, 8, 6), dtype=np.float32):
    images = rng(99).integers(1, 256, (count, *shape)).astype(dtype)
    return images, rng(7).integers(0, CLASSES, count).astype(np.int32)


def draws(alpha, count, seed):
    """What a mix draws first: the ratio and the partners."""
    generator = rng(seed)
    return generator.beta(alpha, alpha), generator.permutation(count), generator


@pytest.mark.parametrize("alpha", [0.2, 1.0, 4.0])
@pytest.mark.parametrize("dtype", [np.float32, np.uint8])
def test_mixup_by_formula(alpha, dtype):
    images, labels = batch(dtype=dtype)
    mixed, soft = data.MixUp(CLASSES, alpha)(images, labels, rng(5))
    ratio, partner, _ = draws(alpha, len(images), 5)
    pixels = images.astype(np.float64) / (255.0 if dtype == np.uint8 else 1.0)
    expected = ratio * pixels + (1 - ratio) * pixels[partner]
    np.testing.assert_allclose(mixed, expected, rtol=1e-5, atol=1e-6)
    one_hot = np.eye(CLASSES)[labels]
    np.testing.assert_allclose(soft, ratio * one_hot + (1 - ratio) * one_hot[partner], rtol=1e-6)
    assert mixed.dtype == soft.dtype == np.float32


@pytest.mark.parametrize("dtype", [np.float32, np.uint8])
def test_cutmix_by_pixels(dtype):
    images, labels = batch(dtype=dtype)
    images[:] = np.arange(len(images)).reshape(-1, 1, 1, 1)  # each pixel names its image
    shares = set()
    for seed in range(30):
        mixed, soft = data.CutMix(CLASSES)(images, labels, rng(seed))
        ratio, partner, generator = draws(1.0, len(images), seed)
        expected = images.copy()
        spans = []
        for length in (8, 6):
            centre, half = int(generator.integers(length)), int(length * np.sqrt(1 - ratio)) // 2
            spans.append([i for i in range(length) if centre - half <= i < centre + half])
        for row in spans[0]:
            for column in spans[1]:
                expected[:, :, row, column] = images[partner][:, :, row, column]
        np.testing.assert_array_equal(mixed, expected)
        assert mixed.dtype == dtype
        share = len(spans[0]) * len(spans[1]) / 48
        one_hot = np.eye(CLASSES)[labels]
        np.testing.assert_allclose(
            soft, (1 - share) * one_hot + share * one_hot[partner], rtol=1e-6, atol=1e-7
        )
        shares.add(share)
    assert len(shares) > 5, "the rectangles hardly vary"
    assert max(shares) > 0.4


@pytest.mark.parametrize("mix", [data.MixUp(CLASSES), data.CutMix(CLASSES)], ids=repr)
def test_rows_add_up_and_arguments_stay(mix):
    images, labels = batch()
    before = images.copy(), labels.copy()
    first, soft = mix(images, labels, rng(2))
    np.testing.assert_array_equal(images, before[0])
    np.testing.assert_array_equal(labels, before[1])
    np.testing.assert_allclose(soft.sum(1), 1.0, rtol=1e-6)
    again, _ = mix(images, labels, rng(2))
    np.testing.assert_array_equal(first, again)
    _, twice = mix(first, soft, rng(3))  # soft labels are mixed, too
    np.testing.assert_allclose(twice.sum(1), 1.0, rtol=1e-6)
    one, label = mix(images[:1], labels[:1], rng(4))
    np.testing.assert_allclose(one, images[:1], rtol=1e-6)
    np.testing.assert_allclose(label, np.eye(CLASSES)[labels[:1]], rtol=1e-6)


def test_random_choice_follows_its_weights():
    images, labels = batch(4)

    def named(number):
        return lambda images, labels, rng: (number, labels)

    generator = rng(1)
    choice = data.RandomChoice(named(0), named(1), named(2), p=[1, 0, 3])
    counts = np.bincount([choice(images, labels, generator)[0] for _ in range(400)], minlength=3)
    assert counts[1] == 0
    assert 70 < counts[0] < 130
    even = data.RandomChoice(named(0), named(1))
    assert {even(images, labels, generator)[0] for _ in range(30)} == {0, 1}


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_loss_of_soft_labels_like_torch(torch, smoothing, training):
    images, labels = batch()
    _, soft = data.MixUp(CLASSES)(images, labels, rng(3))
    scores = rng(4).standard_normal(soft.shape)
    x = tensor.Tensor(data=scores, dtype=tensor.float64, stores_grad=True)
    loss = layer.CrossEntropyLoss(label_smoothing=smoothing)(
        x, tensor.from_numpy(soft, dtype=tensor.float64)
    )
    ((_, gradient),) = autograd.backward(loss)
    theirs = torch.tensor(scores, requires_grad=True)
    expected = torch.nn.functional.cross_entropy(
        theirs, torch.tensor(soft.astype(np.float64)), label_smoothing=smoothing
    )
    expected.backward()
    np.testing.assert_allclose(loss.numpy()[0], expected.item(), rtol=1e-12)
    np.testing.assert_allclose(gradient.numpy(), theirs.grad.numpy(), rtol=1e-10, atol=1e-14)


def loader(workers=1, **kwargs):
    images, labels = batch(40, dtype=np.uint8)
    mix = data.RandomChoice(data.MixUp(CLASSES, 0.4), data.CutMix(CLASSES))
    transform = data.Normalize((0.5,) * 3, (0.25,) * 3)
    return data.DataLoader(
        (images, labels), 8, True, 3, transform, num_workers=workers, mix=mix, **kwargs
    )


def test_a_loader_mixes_the_same_way_with_any_number_of_workers():
    batches = [[(x.copy(), t.copy()) for x, t in loader(workers)] for workers in (0, 1, 3)]
    for others in batches[1:]:
        for (x, t), (x0, t0) in zip(others, batches[0], strict=True):
            np.testing.assert_array_equal(x, x0)
            np.testing.assert_array_equal(t, t0)
    resumed = loader()
    resumed.load_state_dict({**resumed.state_dict(), "batch": 3})
    for (x, t), (x0, t0) in zip(resumed, batches[0][3:], strict=True):
        np.testing.assert_array_equal(x, x0)
        np.testing.assert_array_equal(t, t0)
    assert t.shape == (8, CLASSES)
    assert t.dtype == np.float32
    plain = data.DataLoader(batch(40, dtype=np.uint8), 8, True, 3)
    order = [labels for _, labels in plain]
    for (_, t), labels in zip(batches[0], order, strict=True):  # the order stays
        assert (t[np.arange(8), labels] > 0).all()


def test_replayed_steps_on_mixed_batches_have_the_same_bits():
    check_replays(Net, [(x.copy(), t.copy()) for x, t in loader()])


IMAGES, LABELS = batch(4)


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: data.MixUp(0), ValueError, "num_classes"),
        (lambda: data.MixUp(3, 0.0), ValueError, "alpha must be positive"),
        (lambda: data.CutMix(3, -1.0), ValueError, "alpha must be positive"),
        (lambda: data.CutMix(3, float("nan")), ValueError, "alpha"),
        (lambda: data.CutMix("3"), TypeError, "num_classes"),
        (lambda: data.RandomChoice(), ValueError, "0 mixes"),
        (lambda: data.RandomChoice(3), TypeError, "cannot be called"),
        (lambda: data.RandomChoice(data.MixUp(3), p=[1, 2]), ValueError, "1 mixes"),
        (lambda: data.RandomChoice(data.MixUp(3), p=[-1]), ValueError, "negative"),
        (lambda: data.MixUp(2)(IMAGES, LABELS + 1, rng()), ValueError, "below 2"),
        (lambda: data.MixUp(3)(IMAGES, LABELS[:2], rng()), ValueError, "expected 4 class numbers"),
        (lambda: data.MixUp(3)(IMAGES, LABELS * 1.0, rng()), ValueError, "expected 4 class"),
        (lambda: data.CutMix(3)(IMAGES[0], LABELS, rng()), ValueError, r"\(N, C, H, W\)"),
        (lambda: data.DataLoader((IMAGES, LABELS), 2, mix=3), TypeError, "mix cannot be called"),
    ],
)  # fmt: skip
def test_wrong_arguments(call, error, message):
    with pytest.raises(error, match=message):
        call()


@pytest.mark.parametrize(
    ("mix", "message"),
    [
        (lambda images, labels, rng: (images, labels), "labels of shape"),
        (lambda images, labels, rng: (images[:1], np.eye(3)[labels]), "mix returned shape"),
    ],
)
def test_a_mix_of_ones_own_has_to_keep_the_batch(mix, message):
    with pytest.raises(ValueError, match=message):
        next(iter(data.DataLoader((IMAGES, LABELS), 2, mix=mix)))


def test_masks_are_cut_and_blended_with_their_images():
    drawn = data.shapes_with_masks(count=16, seed=1)
    cut, up = data.CutMix(11), data.MixUp(11)
    images, masks = cut(drawn.images, drawn.masks, np.random.default_rng(4))
    assert masks.dtype == np.int32
    generator = np.random.default_rng(4)
    generator.beta(1.0, 1.0)
    partner = generator.permutation(16)
    replaced = (images != drawn.images).any(1)
    np.testing.assert_array_equal(
        images, np.where(replaced[:, None], drawn.images[partner], drawn.images)
    )
    rectangle = replaced.any(0)
    rows, columns = np.flatnonzero(rectangle.any(1)), np.flatnonzero(rectangle.any(0))
    inside = np.zeros((32, 32), bool)
    inside[rows[0] : rows[-1] + 1, columns[0] : columns[-1] + 1] = True
    assert 0 < inside.sum() < 32 * 32
    np.testing.assert_array_equal(masks, np.where(inside, drawn.masks[partner], drawn.masks))

    images, soft = up(drawn.images, drawn.masks, np.random.default_rng(4))
    generator = np.random.default_rng(4)
    ratio, partner = generator.beta(1.0, 1.0), generator.permutation(16)
    hot = (drawn.masks[:, None] == np.arange(11)[:, None, None]).astype(np.float64)
    np.testing.assert_allclose(soft, ratio * hot + (1 - ratio) * hot[partner], atol=1e-6)
    np.testing.assert_allclose(soft.sum(1), 1.0, atol=1e-6)

    for mix, shape, dtype in ((cut, (4, 32, 32), np.int32), (up, (4, 11, 32, 32), np.float32)):
        images, masks = next(iter(data.DataLoader(drawn, 4, mix=mix)))
        assert (masks.shape, masks.dtype, images.dtype) == (shape, dtype, np.float32)
    with pytest.raises(ValueError, match=r"masks of shape \(16, 3, 32\) do not fit"):
        cut(drawn.images, drawn.masks[:, :3], np.random.default_rng(0))
