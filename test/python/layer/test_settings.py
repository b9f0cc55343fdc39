"""Attributes of layers that are changed after the first call: they count from the next one, also in
recorded steps, or are refused."""

import copy

import numpy as np
import pytest
import singa
from singa import autograd, layer, model, opt, tensor

IMAGES = (2, 4, 9, 9)


def images(shape, seed=0):
    x = np.random.default_rng(seed).standard_normal(shape) * 3 + 1
    return tensor.from_numpy(x.astype(np.float32))


#: class, arguments, attribute, value, shape of the input
CHANGES = [
    (layer.BatchNorm2d, {"momentum": 0.1}, "momentum", 0.7, IMAGES),
    (layer.BatchNorm2d, {}, "eps", 10.0, IMAGES),
    (layer.SyncBatchNorm, {}, "eps", 10.0, IMAGES),
    (layer.Conv2d, {"nb_kernels": 4, "kernel_size": 3}, "stride", 2, IMAGES),
    (layer.Conv2d, {"nb_kernels": 4, "kernel_size": 3}, "padding", (1, 0, 2, 1), IMAGES),
    (layer.Conv2d, {"nb_kernels": 4, "kernel_size": 3}, "dilation", (2, 1), IMAGES),
    (layer.Conv2d, {"nb_kernels": 4, "kernel_size": 3}, "pad_mode", "SAME_LOWER", IMAGES),
    (layer.Conv2d, {"nb_kernels": 4, "kernel_size": 3}, "activation", "RELU", IMAGES),
    (
        layer.Conv2d,
        {"nb_kernels": 4, "kernel_size": 3, "pad_mode": "SAME_UPPER"},
        "stride",
        2,
        IMAGES,
    ),
    (layer.Conv1d, {"in_channels": 4, "out_channels": 3, "kernel_size": 3}, "stride", 2, (2, 4, 9)),
    (
        layer.Conv3d,
        {"in_channels": 2, "out_channels": 3, "kernel_size": 2},
        "padding",
        (1, 0, 1),
        (1, 2, 4, 4, 4),
    ),
    (
        layer.ConvTranspose2d,
        {"in_channels": 4, "out_channels": 3, "kernel_size": 3, "stride": 2},
        "output_padding",
        1,
        IMAGES,
    ),
    (layer.SeparableConv2d, {"nb_kernels": 4, "kernel_size": 3}, "stride", 2, IMAGES),
    (layer.SeparableConv2d, {"nb_kernels": 4, "kernel_size": 3}, "padding", 1, IMAGES),
    (layer.MaxPool2d, {"kernel_size": 2, "stride": 2}, "kernel_size", 3, IMAGES),
    (layer.MaxPool2d, {"kernel_size": 2}, "stride", 1, IMAGES),
    (layer.MaxPool2d, {"kernel_size": 3, "stride": 2}, "padding", 1, IMAGES),
    (layer.MaxPool2d, {"kernel_size": 2}, "ceil_mode", True, IMAGES),
    (layer.MaxPool2d, {"kernel_size": 2}, "dilation", 2, IMAGES),
    (layer.AvgPool2d, {"kernel_size": 3, "padding": 1}, "count_include_pad", True, IMAGES),
    (layer.Pooling2d, {"kernel_size": 3}, "is_max", False, IMAGES),
    (layer.MaxPool1d, {"kernel_size": 2, "stride": 1}, "kernel_size", 3, (2, 4, 9)),
    (layer.AvgPool1d, {"kernel_size": 2}, "stride", 1, (2, 4, 9)),
    (layer.AvgPool3d, {"kernel_size": 2}, "padding", 1, (1, 2, 4, 4, 4)),
    (layer.LPPool2d, {"norm_type": 2.0, "kernel_size": 2}, "norm_type", 3.0, IMAGES),
    (layer.AdaptiveAvgPool2d, {"output_size": 3}, "output_size", (2, 2), IMAGES),
    (layer.Upsample, {"scale_factor": 2}, "scale_factor", 3, IMAGES),
    (layer.Dropout, {}, "ratio", 0.9, IMAGES),
    (layer.LayerNorm, {"normalized_shape": 9}, "eps", 10.0, IMAGES),
    (layer.GroupNorm, {"num_groups": 2, "num_channels": 4}, "eps", 10.0, IMAGES),
    (layer.Flatten, {}, "axis", 2, IMAGES),
    (layer.Gemm, {"nb_kernels": 4}, "alpha", 2.0, (3, 4)),
    (layer.CudnnRNN, {"hidden_size": 3, "rnn_mode": "tanh"}, "rnn_mode", "relu", (2, 5, 4)),
    (layer.CudnnRNN, {"hidden_size": 3}, "batch_first", False, (2, 5, 4)),
    (layer.CudnnRNN, {"hidden_size": 3, "num_layers": 2}, "dropout", 0.5, (2, 5, 4)),
    (layer.CudnnRNN, {"hidden_size": 3}, "return_sequences", False, (2, 5, 4)),
    (layer.RotaryEmbedding, {"dim": 4}, "base", 7.0, (1, 2, 5, 8)),
    (layer.RotaryEmbedding, {"dim": 4}, "dim", 8, (1, 2, 5, 8)),
    (layer.RotaryEmbedding, {"dim": 4}, "interleaved", True, (1, 2, 5, 8)),
    (layer.GELU, {}, "approximate", "tanh", IMAGES),
]
NAMES = [f"{kind.__name__}.{name}-{i}" for i, (kind, _, name, _, _) in enumerate(CHANGES)]


def same_as(fresh, changed):
    for name, value in changed.get_states().items():
        fresh.get_states()[name].copy_from(value)


@pytest.mark.parametrize("change", CHANGES, ids=NAMES)
def test_a_changed_attribute_counts(change, training):
    """As in a new layer that has the value from the start: outputs, and running statistics."""
    kind, arguments, name, value, shape = change
    x = images(shape)
    changed, fresh = kind(**arguments), kind(**{**arguments, name: value})
    before = changed(x)
    fresh(x)
    setattr(changed, name, value)
    assert getattr(changed, name) == getattr(fresh, name)
    same_as(fresh, changed)
    singa.seed(5)
    wanted = fresh(x)
    singa.seed(5)
    found = changed(x)
    np.testing.assert_array_equal(found.numpy(), wanted.numpy())
    pairs = zip(changed.get_states().values(), fresh.get_states().values(), strict=True)
    for state, other in pairs:
        np.testing.assert_array_equal(state.numpy(), other.numpy())
    if name != "momentum":
        assert found.shape != before.shape or np.any(found.numpy() != before.numpy())
    twin = copy.deepcopy(changed)  # has the present value, and is apart
    singa.seed(5)
    wanted = fresh(x)
    singa.seed(5)
    np.testing.assert_array_equal(twin(x).numpy(), wanted.numpy())
    setattr(twin, name, getattr(kind(**arguments), name))
    assert changed(x).shape == wanted.shape


class Net(model.Model):
    def __init__(self, first):
        super().__init__()
        self.first, self.pool = first, layer.MaxPool2d(2, 1)
        self.fc, self.loss = layer.Linear(3), layer.SoftMaxCrossEntropy()

    def forward(self, x):
        return self.fc(autograd.reduce_mean(self.pool(self.first(x)), (2, 3), keepdims=0))


RECORDED = {
    "momentum": lambda net: setattr(net.first[1], "momentum", 0.7),
    "eps": lambda net: setattr(net.first[1], "eps", 10.0),
    "stride": lambda net: setattr(net.first[0], "stride", 2),
    "dilation": lambda net: setattr(net.first[0], "dilation", (2, 2)),
    "pooling": lambda net: setattr(net.pool, "kernel_size", (3, 1)),
    "fix_scale": lambda net: setattr(net.first[1], "fix_scale", True),
}


@pytest.mark.parametrize("infer", [False, True])
@pytest.mark.parametrize("name", RECORDED)
def test_recorded_steps_follow(name, infer):
    """The same as executed steps: equal bits in training."""
    outputs, y = [], tensor.from_numpy(np.array([0, 2], np.int32))
    for graph, changes in ((False, True), (True, True), (False, False)):
        singa.seed(3)
        bn = layer.BatchNorm2d(momentum=0.1)
        net = Net(layer.Sequential(layer.Conv2d(4, 3, padding=2), bn))
        net.set_optimizer(opt.SGD(lr=0.1, momentum=0.9))
        net.compile([images(IMAGES)], is_train=True, use_graph=graph)
        found = []
        for step in range(10):
            if step == 5 and changes:
                RECORDED[name](net)
            net.train()
            found.append(net(images(IMAGES, step), y)[0].numpy())
            if infer:
                net.eval()
                found.append(net(images(IMAGES, step)).numpy())
        found += [state.numpy() for state in net.get_states().values()]
        outputs.append(found)
    executed, replayed, unchanged = outputs
    for one, other in zip(executed, replayed, strict=True):
        if infer:
            np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5)
        else:
            np.testing.assert_array_equal(one, other)
    assert any(np.any(one != other) for one, other in zip(executed, unchanged, strict=True))


def test_fix_scale_freezes_the_scale(training):
    bn = layer.BatchNorm2d()
    bn(images(IMAGES))
    bn.fix_scale = True
    assert not bn.scale.requires_grad
    bn.fix_scale = False
    assert bn.scale.requires_grad


def test_padding_reads_as_it_was_given():
    """So that it can be given to another layer."""
    x = images(IMAGES)
    one = layer.Conv2d(4, 3, padding=(1, 0, 2, 1))  # top, bottom, left, right
    other = layer.Conv2d(4, 3)
    assert one(x).shape == (2, 4, 8, 10)
    other(x)
    other.padding = one.padding
    assert other(x).shape == one(x).shape
    assert other.padding == (1, 0, 2, 1)


FIXED = [
    (layer.Conv2d, {"nb_kernels": 4, "kernel_size": 3}, IMAGES, "nb_kernels", 5),
    (layer.Conv2d, {"nb_kernels": 4, "kernel_size": 3}, IMAGES, "kernel_size", 5),
    (layer.Conv2d, {"nb_kernels": 4, "kernel_size": 3}, IMAGES, "group", 2),
    (layer.Conv2d, {"nb_kernels": 4, "kernel_size": 3}, IMAGES, "bias", False),
    (layer.Conv2d, {"nb_kernels": 4, "kernel_size": 3}, IMAGES, "in_channels", 3),
    (layer.SeparableConv2d, {"nb_kernels": 4, "kernel_size": 3}, IMAGES, "kernel_size", 2),
    (layer.Linear, {"out_features": 3}, (2, 4), "out_features", 5),
    (layer.Linear, {"out_features": 3}, (2, 4), "in_features", 5),
    (layer.Linear, {"out_features": 3, "bias": False}, (2, 4), "bias", True),
    (layer.Gemm, {"nb_kernels": 4}, (4, 4), "transB", 0),
    (layer.BatchNorm2d, {}, IMAGES, "channels", 3),
    (layer.LayerNorm, {"normalized_shape": 9}, IMAGES, "shape", (9, 9)),
    (layer.GroupNorm, {"num_groups": 2, "num_channels": 4}, IMAGES, "affine", False),
    (layer.CudnnRNN, {"hidden_size": 3}, (2, 5, 4), "hidden_size", 4),
    (layer.CudnnRNN, {"hidden_size": 3}, (2, 5, 4), "num_layers", 2),
    (layer.CudnnRNN, {"hidden_size": 3}, (2, 5, 4), "bidirectional", True),
    (layer.CudnnRNN, {"hidden_size": 3}, (2, 5, 4), "rnn_mode", "gru"),
    (layer.GRU, {"input_size": 4, "hidden_size": 3}, (2, 5, 4), "bias", False),
    (layer.MultiHeadAttention, {"embed_dim": 8, "num_heads": 2}, (2, 5, 8), "num_heads", 4),
]


@pytest.mark.parametrize(("kind", "arguments", "shape", "name", "value"), FIXED)
def test_what_parameters_follow_from_is_refused_once_there_are_some(
    kind, arguments, shape, name, value
):
    fixed, x = kind(**arguments), images(shape)
    early = kind(**arguments)
    if name not in ("in_channels", "in_features", "channels", "affine", "num_heads"):
        setattr(early, name, value)  # before the first call it counts
        assert getattr(early, name) in (value, (value, value))
    first = fixed(x)
    before, wanted = getattr(fixed, name), first[0] if isinstance(first, tuple) else first
    with pytest.raises(ValueError, match=rf"\[{kind.__name__}\] {name} cannot change from"):
        setattr(fixed, name, value)
    assert getattr(fixed, name) == before
    setattr(fixed, name, before)
    again = fixed(x)
    again = again[0] if isinstance(again, tuple) else again
    np.testing.assert_array_equal(again.numpy(), wanted.numpy())


WRONG = [
    (lambda: layer.BatchNorm2d(), "momentum", 2.0, ValueError),
    (lambda: layer.BatchNorm2d(), "eps", -1.0, ValueError),
    (lambda: layer.Conv2d(4, 3), "stride", 0, ValueError),
    (lambda: layer.Conv2d(4, 3), "stride", "2", TypeError),
    (lambda: layer.Conv2d(4, 3), "padding", (1, 2, 3), TypeError),
    (lambda: layer.Conv2d(4, 3), "pad_mode", "SAME", ValueError),
    (lambda: layer.Conv2d(4, 3), "activation", "relu", ValueError),
    (lambda: layer.MaxPool1d(3), "kernel_size", 0, ValueError),
    (lambda: layer.RNN(3, 4), "nonlinearity", "sigmoid", ValueError),
    (lambda: layer.LSTM(3, 4), "nonlinearity", "relu", ValueError),
    (lambda: layer.CudnnRNN(3), "rnn_mode", "rnn", ValueError),
    (lambda: layer.CudnnRNN(3), "dropout", 1.0, ValueError),
    (lambda: layer.RotaryEmbedding(4), "dim", 3, ValueError),
    (lambda: layer.RotaryEmbedding(4), "base", 0.0, ValueError),
]


@pytest.mark.parametrize(("make", "name", "value", "error"), WRONG)
def test_wrong_values_are_refused_as_in_the_constructor(make, name, value, error):
    made = make()
    before = getattr(made, name)
    with pytest.raises(error, match=name if error is not NotImplementedError else "CudnnRNN"):
        setattr(made, name, value)
    assert getattr(made, name) == before
