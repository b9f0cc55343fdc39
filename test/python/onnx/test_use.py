"""Names of classes and the transform of pictures in the metadata of ONNX files."""

import json

import numpy as np
import pytest

onnx = pytest.importorskip("onnx")

import singa
from singa import data, layer, models, tensor


@pytest.fixture
def net():
    made = models.Sequential(layer.Conv2d(4, 3), layer.Flatten(), layer.Linear(2))
    made.class_names = ["cat", "Käse"]
    made.transform = data.evaluation_transform(8, data.IMAGENET_MEAN, data.IMAGENET_STD)
    made.compile([tensor.zeros((1, 3, 8, 8))], is_train=False)
    return made


IMAGES = np.random.default_rng(0).standard_normal((4, 3, 8, 8), np.float32)


def texts(path):
    return {entry.key: json.loads(entry.value) for entry in onnx.load(path).metadata_props}


def test_save_and_load(net):
    singa.onnx.save(net, "net.onnx", [IMAGES])
    described = data.describe_transform(net.transform)
    assert texts("net.onnx") == {"singa.class_names": ["cat", "Käse"], "singa.transform": described}
    for load in (singa.onnx.load, singa.load):
        loaded = load("net.onnx")
        assert loaded.class_names == ["cat", "Käse"]
        assert data.describe_transform(loaded.transform) == described
    singa.onnx.save(loaded, "again.onnx", [IMAGES])
    assert texts("again.onnx") == texts("net.onnx")
    loaded.save("net.singa")
    assert singa.load("net.singa").class_names == ["cat", "Käse"]


def test_quantize(net):
    quantized = net.quantize([IMAGES], "int8.onnx")
    assert quantized.class_names == net.class_names
    assert quantized.transform is net.transform
    assert texts("int8.onnx")["singa.class_names"] == ["cat", "Käse"]


def test_what_a_network_does_not_have_is_left_out(net):
    net.class_names = None
    net.transform = lambda images, rng: images
    with pytest.warns(UserWarning, match=r"no transform: \[describe_transform\] .*lambda"):
        singa.onnx.save(net, "net.onnx", [IMAGES])
    assert texts("net.onnx") == {}
    loaded = singa.load("net.onnx")
    assert (loaded.class_names, loaded.transform) == (None, None)


@pytest.mark.parametrize(
    ("key", "text"),
    [
        ("singa.class_names", "no JSON"),
        ("singa.class_names", '"cat"'),
        ("singa.class_names", "[1, 2]"),
        ("singa.transform", '[{"name": "Popen", "arguments": {}}]'),
        ("singa.transform", '[{"name": "Resize", "arguments": {"size": 100000}}]'),
        ("singa.transform", "[" * 100_000),
        ("singa.transform", "17"),
    ],
)
def test_damaged_texts(net, key, text):
    singa.onnx.save(net, "net.onnx", [IMAGES])
    proto = onnx.load("net.onnx")
    del proto.metadata_props[:]
    proto.metadata_props.add(key=key, value=text)
    with pytest.raises(singa.onnx.InvalidModelError, match="its use is damaged"):
        singa.onnx.load(proto)
    proto.metadata_props[0].key = key.removeprefix("singa.")  # of another program
    assert singa.onnx.load(proto).class_names is None
