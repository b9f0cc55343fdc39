"""Networks as JSON values, from which they are made again."""

import json

import numpy as np
import pytest
from singa import autograd, layer, model, models, tensor
from singa.layer.creation import room_for
from singa.models import description
from singa.models.description import UndescribedError, build, describe

IMAGES, ROWS, VOLUMES, TOKENS = (2, 4, 6, 6), (2, 4, 9), (1, 2, 4, 4, 4), (2, 5, 8)


def _layers(*layers, shape=IMAGES):
    return [pytest.param(each, shape, id=type(each).__name__) for each in layers]


LAYERS = [
    *_layers(
        layer.AdaptiveAvgPool2d(2), layer.AdaptiveMaxPool2d((2, 3)),
        layer.AvgPool2d(3, 2, 1, ceil_mode=True, count_include_pad=True),
        layer.AvgPool2d(2, divisor_override=3), layer.ChannelShuffle(2),
        layer.BatchNorm2d(momentum=0.3, eps=1e-2, fix_scale=True),
        layer.ConstantPad2d((1, 2, 0, 1), 2.0), layer.Conv2d(4, 3, activation="RELU"),
        layer.Conv2d(6, 3, stride=2, padding=1, dilation=2, group=2, bias=False),
        layer.Conv2d(4, 6, (3, 2), 2, (1, 0, 1, 1)), layer.Conv2d(4, 3, pad_mode="SAME_UPPER"),
        layer.ConvTranspose2d(4, 6, 3, 2, 1, 1, groups=2, dilation=2), layer.DropPath(0.3),
        layer.Dropout(0.3), layer.Dropout2d(0.2), layer.ELU(0.5), layer.Flatten(2),
        layer.GELU("tanh"), layer.GLU(1), layer.GroupNorm(2, 4, eps=1e-2, affine=False),
        layer.Hardsigmoid(), layer.Hardswish(), layer.Hardtanh(-0.5, 0.4), layer.Identity(),
        layer.InstanceNorm2d(4, affine=True), layer.LPPool2d(3, 2), layer.LayerNorm(6),
        layer.LayerNorm((6, 6), bias=False), layer.LayerNorm2d(4, eps=0.1), layer.LeakyReLU(0.3),
        layer.Linear(5, bias=False), layer.Linear(6, 3), layer.LogSoftmax(1),
        layer.MaxPool2d(3, 2, padding=1, ceil_mode=True, dilation=2), layer.Mish(),
        layer.PReLU(4, 0.1), layer.PixelShuffle(2), layer.PixelUnshuffle(2),
        layer.Pooling2d(2, is_max=False), layer.RMSNorm(6), layer.ReLU(), layer.ReLU6(),
        layer.ReflectionPad2d((1, 0, 2, 1)), layer.ReplicationPad2d(1), layer.SELU(),
        layer.CircularPad2d((1, 2, 0, 1)),
        layer.SeparableConv2d(6, 3, padding=1, bias=True), layer.SiLU(), layer.Sigmoid(),
        layer.SoftMax(), layer.Softmax(1), layer.Softplus(2.0), layer.SyncBatchNorm(), layer.Tanh(),
        layer.BatchNorm2d(affine=False), layer.Unflatten(1, (2, -1)),
        layer.ToBlocked(), layer.ToPlain(), layer.Upsample(scale_factor=2, mode="bilinear"),
        layer.Upsample(size=(7, 9)), layer.ZeroPad2d(1),
        layer.Sequential(layer.Conv2d(3, 1), layer.Sequential(layer.ReLU())),
    ),
    *_layers(
        layer.AdaptiveAvgPool1d(3), layer.AvgPool1d(2), layer.BatchNorm1d(4, 1e-3, 0.2),
        layer.BatchNorm1d(4, affine=False), layer.Conv1d(4, 3, 3, padding="same"),
        layer.Conv1d(4, 6, 3, 2, 1, groups=2, bias=False), layer.ConvTranspose1d(4, 3, 3, 2),
        layer.LPPool1d(2, 3), layer.MaxPool1d(2), layer.ZeroPad1d(1),
        shape=ROWS,
    ),
    *_layers(
        layer.AvgPool3d(2), layer.BatchNorm3d(2), layer.Conv3d(2, 3, 2), layer.MaxPool3d(2),
        shape=VOLUMES,
    ),
    *_layers(
        layer.MultiHeadAttention(8, 2, num_kv_heads=1),
        layer.CudnnRNN(3, bidirectional=True, return_sequences=False, rnn_mode="gru"),
        layer.TransformerEncoderLayer(8, 2, 16, 0.2, "gelu", 1e-3, norm_first=True, bias=False),
        shape=TOKENS,
    ),
    *_layers(layer.Gemm(5, alpha=2.0, transB=False), shape=(2, 7)),
    *_layers(layer.Embedding(11, 4, padding_idx=0), shape=None),
]  # fmt: skip


def _example(shape):
    if shape is None:
        return tensor.from_numpy(np.arange(6, dtype=np.int32).reshape(2, 3))
    return tensor.from_numpy(np.random.default_rng(0).normal(size=shape).astype(np.float32))


def _first(output):
    return (output[0] if isinstance(output, tuple) else output).numpy()


@pytest.mark.parametrize(("each", "shape"), LAYERS)
def test_a_layer_that_is_made_again_computes_the_same(each, shape):
    x = _example(shape)
    expected = _first(each(x))
    net = models.Sequential(each)
    net.compile([x], is_train=False)
    described = describe(net)
    again = build(json.loads(json.dumps(described)))
    again.compile([tensor.Tensor((0, *x.shape[1:]), None, x.dtype)], is_train=False)
    again.set_states({name: value.numpy() for name, value in net.get_states().items()})
    np.testing.assert_array_equal(_first(again(x)), expected)
    assert describe(again) == described


@pytest.mark.parametrize(
    "name", ["lenet", "resnet20_cifar", "vit_tiny_cifar", "shufflenet_v2_x1_0"]
)
def test_a_network_by_name(name):
    net = models.create(name, num_classes=7, label_smoothing=0.1)
    net.compile([tensor.Tensor((0, *net.image_shape))], is_train=False)
    described = describe(net)
    assert described == {
        "kind": "architecture",
        "name": name,
        "arguments": {"num_classes": 7, "label_smoothing": 0.1},
    }
    assert type(build(described)) is type(net)


def _changed_head():
    net = models.create("lenet")
    net.fc2 = layer.Linear(3)
    return net


def _own_layer():
    class Double(layer.Layer):
        def forward(self, x):
            return x + x

    return models.Sequential(layer.ReLU(), layer.Sequential(Double()))


def _changed_inside():
    each = layer.TransformerEncoderLayer(8, 2, 16)
    each.norm2.eps = 0.5
    return models.Sequential(each)


def _changed_attribute():
    net = models.create("vgg16_cifar")
    next(each for each in net.sublayers() if isinstance(each, layer.Conv2d)).stride = 2
    return net


def _function():
    return models.Sequential(layer.TransformerEncoderLayer(8, 2, activation=autograd.relu))


class _Own(model.Model):
    pass


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (_changed_head, r"Linear fc2 is not what models\.create\('lenet'\) made"),
        (_own_layer, r"Double 1\.0 is not a layer of singa"),
        (_changed_inside, r"LayerNorm 0\.norm2 is not what its constructor"),
        (_changed_attribute, r"Conv2d .* is not what models\.create\('vgg16_cifar'\)"),
        (_function, "TransformerEncoderLayer 0: a file cannot have its activation"),
        (_Own, r"_Own is neither a network of models\.create nor models\.Sequential"),
    ],
)
def test_what_has_no_description_is_named(make, message):
    with pytest.raises(UndescribedError, match=message):
        describe(make())


def _chain(*layers, loss=("CrossEntropyLoss", {})):
    made = [{"layer": name, "arguments": arguments} for name, arguments in (*layers, loss)]
    return {"kind": "sequential", "layers": made[:-1], "loss": made[-1]}


@pytest.mark.parametrize(
    ("described", "message"),
    [
        ({"kind": "pickle"}, "unknown kind 'pickle'"),
        ({"kind": "architecture", "name": "os", "arguments": {}}, "no model 'os'"),
        ({"kind": "architecture", "name": "unet", "arguments": {"width": 10**9}}, "at most 4096"),
        ({"kind": "architecture", "name": "unet", "arguments": {"width": {}}}, "width is {}"),
        (_chain(("eval", {})), "no layer 'eval'"),
        (_chain(("Layer", {})), "no layer 'Layer'"),
        (_chain(("RotaryEmbedding", {"dim": 2})), "no layer 'RotaryEmbedding'"),
        (_chain(("Linear", {"out_features": 10**9})), "out_features of Linear is 10+: at most"),
        (_chain(("Linear", {"out_features": 3, "initializer": "x"})), "no arguments"),
        (_chain(("Linear", {"out_features": [[2]]})), "out_features of Linear is"),
    ],
)
def test_hostile_descriptions(described, message):
    with pytest.raises((ValueError, TypeError), match=message):
        build(described)


@pytest.mark.parametrize("name", ["Linear", "Conv2d", "BatchNorm2d", "LayerNorm"])
def test_parameters_take_no_more_room_than_there_is(name):
    made = {
        "Linear": lambda: layer.Linear(1 << 20),
        "Conv2d": lambda: layer.Conv2d(1 << 20, 1),
        "BatchNorm2d": layer.BatchNorm2d,
        "LayerNorm": lambda: layer.LayerNorm(1 << 20),
    }[name]()
    x = tensor.Tensor((0, 1 << 20, 1, 1) if name != "LayerNorm" else (0, 1 << 20))
    room = room_for(1 << 20 if name == "BatchNorm2d" else 1000)
    message = rf"\[{name}\] there are no values for parameters"
    with room, pytest.raises(ValueError, match=message):
        made(x)
    with room_for(64):
        layer.Linear(8)(tensor.Tensor((0, 7)))
    layer.Linear(8)(tensor.Tensor((0, 100)))  # the bound has gone


def test_losses_of_earlier_files():
    """MSELoss once had another name."""
    assert type(build(_chain(loss=("MeanSquareError", {}))).loss) is layer.MSELoss
    made = build(_chain(loss=("SoftMaxCrossEntropy", {"smoothing": 0.25}))).loss
    assert type(made) is layer.SoftMaxCrossEntropy
    assert made.smoothing == 0.25
    with pytest.raises(ValueError, match="CrossEntropyLoss has no arguments"):
        build(_chain(loss=("CrossEntropyLoss", {"smoothing": 0.25})))


def test_every_layer_of_singa_has_a_place():
    """A new layer gets a row above, or is one that is not used in a chain."""
    known = {type(each.values[0]).__name__ for each in LAYERS}
    alike = {
        *("AdaptiveAvgPool3d", "AdaptiveMaxPool1d", "AdaptiveMaxPool3d", "ConstantPad1d"),
        *("ConstantPad3d", "ConvTranspose3d", "LPPool3d", "ReflectionPad1d", "ReflectionPad3d"),
        *("CircularPad1d", "CircularPad3d"),
        *("ReplicationPad1d", "ReplicationPad3d", "SyncBatchNorm2d", "ZeroPad3d"),
    }
    losses = {
        *("BCEWithLogitsLoss", "BinaryCrossEntropy", "CrossEntropy", "CrossEntropyLoss"),
        *("DiceLoss", "FocalLoss", "HuberLoss", "KLDivLoss", "L1Loss", "MSELoss"),
        *("NLLLoss", "SmoothL1Loss", "SoftMaxCrossEntropy"),
    }
    of_several = {
        *("Add", "Cat", "GRU", "GRUCell", "LSTM", "LSTMCell", "RNN", "RNNCell", "Reshape"),
        *("MultiheadAttention", "TransformerDecoderLayer"),
    }
    assert set(description._KINDS) == known | alike | losses | of_several
