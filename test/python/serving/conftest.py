"""A classifier, and pictures as the bytes of files."""

import io

import numpy as np
import pytest
from picture_folders import coloured
from singa import data, models, tensor
from singa.training.picture_classifier import PictureClassifier


@pytest.fixture
def classifier():
    net = models.create("lenet", num_classes=3)
    net.compile([tensor.from_numpy(np.zeros((1, 3, 16, 16), np.float32))], is_train=False)
    transform = data.evaluation_transform(16, data.IMAGENET_MEAN, data.IMAGENET_STD)
    return PictureClassifier(net, ("a", "b", "c"), transform)


@pytest.fixture(scope="session")
def files():
    """The bytes of twelve PNG files."""
    found = []
    for seed in range(12):
        stream = io.BytesIO()
        coloured("red", seed, 20 + seed, 30).save(stream, "PNG")
        found.append(stream.getvalue())
    return found
