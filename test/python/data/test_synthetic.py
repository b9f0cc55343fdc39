"""The generated sets are deterministic, balanced, and as difficult as documented."""

import numpy as np
import pytest
from singa.data import digits, shapes

SETS = [(shapes, (3, 32, 32)), (digits, (1, 28, 28))]


@pytest.fixture(scope="module")
def sets():
    return {make: (make("train", 1000), make("test", 500)) for make, _ in SETS}


@pytest.mark.parametrize(("make", "shape"), SETS)
def test_form_and_balance(sets, make, shape):
    train, test = sets[make]
    assert train.images.shape == (1000, *shape)
    assert (train.images.dtype, train.labels.dtype) == (np.uint8, np.int32)
    assert len(train.classes) == 10
    assert np.bincount(train.labels).tolist() == [100] * 10
    assert np.bincount(test.labels).tolist() == [50] * 10
    assert len(np.unique(train.images.reshape(1000, -1), axis=0)) == 1000
    # Not sorted: each tenth of the set has all classes.
    assert all(len(set(part)) == 10 for part in train.labels.reshape(10, 100))


@pytest.mark.parametrize(("make", "_"), SETS)
def test_the_seed_decides_and_a_smaller_set_is_a_beginning(sets, make, _):
    train, test = sets[make]
    again = make("train", 1000)
    np.testing.assert_array_equal(train.images, again.images)
    np.testing.assert_array_equal(train.labels, again.labels)
    for count in (0, 1, 499, 501):
        part = make("train", count)
        np.testing.assert_array_equal(part.images, train.images[:count])
        np.testing.assert_array_equal(part.labels, train.labels[:count])
    other = make("train", 500, seed=1)
    assert (other.images != train.images[:500]).any(axis=(1, 2, 3)).all()
    assert (test.images != train.images[:500]).any(axis=(1, 2, 3)).all()


@pytest.mark.parametrize(("make", "_"), SETS)
def test_defaults_and_refusals(make, _, monkeypatch):
    monkeypatch.setattr(np, "empty", lambda shape, dtype: (_ for _ in ()).throw(MemoryError(shape)))
    for split, count in (("train", 10_000), ("test", 2_000)):
        with pytest.raises(MemoryError, match=rf"\({count}, "):
            make(split)
    with pytest.raises(ValueError, match="split must be 'train' or 'test', got 'valid'"):
        make("valid")
    with pytest.raises(ValueError, match="must not be negative, got count -1"):
        make("train", -1)
    with pytest.raises(ValueError, match="seed -2"):
        make("train", 1, seed=-2)


def linear_accuracy(train, test, penalty=1000.0):
    """Top-1 accuracy of a linear least-squares classifier of the pixels, in float64."""
    x, t = (
        np.c_[part.images.reshape(len(part), -1) / 255.0 - 0.5, np.ones(len(part))]
        for part in (train, test)
    )
    # In the dual form, with as many unknowns as images.
    weights = np.linalg.solve(x @ x.T + penalty * np.eye(len(x)), np.eye(10)[train.labels])
    return ((t @ (x.T @ weights)).argmax(1) == test.labels).mean()


def test_a_linear_model_sees_little_of_shapes(sets):
    assert 0.15 < linear_accuracy(*sets[shapes]) < 0.45


def test_a_linear_model_reads_digits(sets):
    assert linear_accuracy(*sets[digits]) > 0.6


def test_the_classes_of_shapes_can_be_told_apart_from_their_outlines():
    """Figures of a class differ from others by shape alone: template matching of noiseless figures,
    with position, size and colour removed, finds every class."""
    from singa.data import synthetic

    axis = np.linspace(-1.2, 1.2, 48, dtype=np.float32)
    u, v = np.repeat(axis[None, None], 48, 1), np.repeat(axis[None, :, None], 48, 2)
    rng = np.random.default_rng(0)
    masks = np.stack([(figure(u, v, rng)[0] > 0) for figure in synthetic._FIGURES])
    for number, mask in enumerate(masks):
        assert 0.04 < mask.mean() < 0.6, synthetic.SHAPES_CLASSES[number]
    overlap = [
        (left & right).sum() / (left | right).sum()
        for i, left in enumerate(masks)
        for right in masks[i + 1 :]
    ]
    assert max(overlap) < 0.85
