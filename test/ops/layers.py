"""The table of layers: how each is made, PyTorch's form, and the shape of its input.

test/python/layer/test_table.py and test/python/onnx/test_save.py run each entry.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from singa import layer

SIGNAL, IMAGE, VOLUME = (2, 4, 19), (2, 4, 9, 8), (2, 4, 5, 7, 6)
ROWS = (3, 4)


@dataclass
class LayerCase:
    """`theirs(torch.nn)` makes PyTorch's module, whose weights the layer can take; None: there is
    none."""

    name: str
    make: Callable[[], layer.Layer]
    theirs: Callable[[Any], Any] | None
    shape: tuple[int, ...]
    batch_axis: int = 0
    written: bool = True  # can be exported
    exact: bool = True  # has the same bits after export and import
    folds: bool = False  # recorded inference folds a batch norm, which rounds otherwise


LAYERS: list[LayerCase] = []


def ours(name: str, make: Callable[[], layer.Layer], shape: tuple[int, ...], **kw: Any) -> None:
    """A layer that is compared with PyTorch elsewhere."""
    LAYERS.append(LayerCase(name, make, None, shape, **kw))


def pair(
    name: str,
    make: Callable[[], layer.Layer],
    theirs: Callable[[Any], Any],
    shape: tuple[int, ...],
    **kw: Any,
) -> None:
    """A layer whose arguments differ from PyTorch's."""
    LAYERS.append(LayerCase(name, make, theirs, shape, **kw))


def same(kind: str, shape: tuple[int, ...], *args: Any, **options: Any) -> None:
    """A layer with PyTorch's name and arguments. `written` and `exact` are LayerCase's."""
    kw = {key: options.pop(key) for key in ("written", "exact") if key in options}
    arguments = ", ".join([*map(str, args), *(f"{k}={v}" for k, v in options.items())])
    pair(
        f"{kind}({arguments}) of {shape}",
        lambda: getattr(layer, kind)(*args, **options),
        lambda nn: getattr(nn, kind)(*args, **options),
        shape,
        **kw,
    )


# Convolutions.

same("Conv1d", SIGNAL, 4, 6, 3)
same("Conv1d", SIGNAL, 4, 6, 5, 2, 3, 2, 2, bias=False)
same("Conv1d", SIGNAL, 4, 6, 4, padding="same", dilation=2)
same("Conv1d", SIGNAL, 4, 6, 4, padding="valid")
same("Conv3d", VOLUME, 4, 6, (3, 2, 3), stride=(1, 2, 1), padding=1)
same("Conv3d", VOLUME, 4, 8, 3, groups=2, padding=(0, 1, 2))
same("Conv3d", VOLUME, 4, 2, (3, 2, 4), padding="same")
same("ConvTranspose1d", SIGNAL, 4, 6, 4, 2, 1)
same("ConvTranspose2d", IMAGE, 4, 6, 3, stride=2, padding=1, output_padding=1, groups=2)
same(
    "ConvTranspose2d",
    IMAGE,
    *(4, 3, (2, 3)),
    stride=(1, 3),
    output_padding=(0, 2),
    dilation=2,
    bias=False,
)
same("ConvTranspose3d", VOLUME, 4, 3, 3, 2, 1, (1, 0, 1))
same("ConvTranspose1d", SIGNAL, 4, 6, 2, output_padding=2, groups=2, dilation=3)
same("ConvTranspose2d", IMAGE, 4, 3, 3, (1, 2), (1, 0), (2, 3), dilation=(3, 4))
for _options in (
    {"kernel_size": 3}, {"kernel_size": (3, 2), "stride": 2, "padding": 1},
    {"kernel_size": 3, "bias": False, "stride": (2, 1)},
    {"kernel_size": 3, "groups": 2, "padding": (0, 2)}, {"kernel_size": 3, "dilation": 2},
):  # fmt: skip
    pair(
        f"Conv2d {_options}",
        lambda options=_options: layer.Conv2d(
            6, **{"group" if k == "groups" else k: v for k, v in options.items()}
        ),
        lambda nn, options=_options: nn.Conv2d(4, 6, **options),
        IMAGE,
    )
ours("Conv2d SAME_LOWER", lambda: layer.Conv2d(4, 4, stride=2, pad_mode="SAME_LOWER"), IMAGE)
ours("Conv2d with ReLU", lambda: layer.Conv2d(4, 3, activation="RELU"), IMAGE)
ours("Conv2d of groups", lambda: layer.Conv2d(4, (3, 2), stride=2, group=2, dilation=2), IMAGE)
pair(
    "SeparableConv2d",
    lambda: layer.SeparableConv2d(6, 3, padding=1),
    lambda nn: nn.Sequential(
        OrderedDict(
            depthwise_conv=nn.Conv2d(4, 4, 3, padding=1, groups=4, bias=False),
            point_conv=nn.Conv2d(4, 6, 1, bias=False),
        )
    ),
    IMAGE,
)

# Products.

pair("Linear", lambda: layer.Linear(5), lambda nn: nn.Linear(4, 5), ROWS)
pair(
    *("Linear without bias", lambda: layer.Linear(5, bias=False)),
    *(lambda nn: nn.Linear(4, 5, bias=False), ROWS),
)
pair("Linear of three axes", lambda: layer.Linear(5), lambda nn: nn.Linear(4, 5), (2, 3, 4))
ours("Gemm", lambda: layer.Gemm(5, alpha=0.5, beta=2.0), ROWS)
pair("Gemm like Linear", lambda: layer.Gemm(5), lambda nn: nn.Linear(4, 5), ROWS)

# Pooling.

same("MaxPool1d", SIGNAL, 3, 2, 1)
same("MaxPool1d", SIGNAL, 3, dilation=2, ceil_mode=True)
same("MaxPool2d", IMAGE, 2)
same("MaxPool2d", IMAGE, 3, 2, 1)
same("MaxPool2d", IMAGE, 3, 2, 1, dilation=2)
same("MaxPool2d", IMAGE, 3, 2, ceil_mode=True)
same("MaxPool3d", VOLUME, 2)
same("MaxPool3d", VOLUME, (2, 3, 2), (1, 2, 2), (0, 1, 1), (2, 1, 1), ceil_mode=True)
same("AvgPool1d", SIGNAL, 4, 3, ceil_mode=True)
pair(
    *("AvgPool2d", lambda: layer.AvgPool2d(3, 2, 1)),
    *(lambda nn: nn.AvgPool2d(3, 2, 1, count_include_pad=False), IMAGE),
)
same("AvgPool2d", IMAGE, 3, 1, 1, count_include_pad=True)
same("AvgPool3d", VOLUME, 3, 2, 1)
# onnx infers another size for a last window that begins in the padding.
same("AvgPool3d", VOLUME, (2, 3, 2), None, (1, 1, 0), True, False, written=False)
same("LPPool1d", SIGNAL, 2, 3, stride=2)
same("LPPool2d", IMAGE, 4, (2, 3), ceil_mode=True)
same("LPPool3d", VOLUME, 2, 2)
# Windows of several sizes are sums in another order after import.
same("AdaptiveAvgPool1d", SIGNAL, 7, exact=False)
same("AdaptiveAvgPool2d", IMAGE, (3, None))
same("AdaptiveAvgPool2d", IMAGE, (3, 4))
same("AdaptiveAvgPool3d", VOLUME, 2, exact=False)
same("AdaptiveMaxPool1d", SIGNAL, 30)
same("AdaptiveMaxPool2d", IMAGE, 1)
same("AdaptiveMaxPool3d", VOLUME, (2, 3, None))

# Padding.

for _axes, _shape in ((1, SIGNAL), (2, IMAGE), (3, VOLUME)):
    for _kind in ("ZeroPad", "ReflectionPad", "ReplicationPad", "ConstantPad", "CircularPad"):
        for _sides in (2, (2, 1, 0, 3, 1, 2)[: 2 * _axes]):
            same(f"{_kind}{_axes}d", _shape, _sides, *([1.5] if _kind == "ConstantPad" else []))

# Normalisation.

pair("BatchNorm2d", lambda: layer.BatchNorm2d(momentum=0.1), lambda nn: nn.BatchNorm2d(4), IMAGE)
same("LayerNorm", (2, 5, 24), 24)
same("LayerNorm", (3, 5, 24), (5, 24), eps=1e-3, bias=False)
same("LayerNorm", (2, 24), 24, elementwise_affine=False)
same("RMSNorm", (2, 5, 24), 24, exact=False)  # the default opset has no such operator
same("GroupNorm", (2, 24, 5, 3), 3, 24)
same("GroupNorm", (2, 24, 7), 4, 24)
same("InstanceNorm2d", (2, 6, 5, 3), 6)
same("InstanceNorm2d", (2, 6, 5, 3), 6, affine=True)
ours("LayerNorm2d", lambda: layer.LayerNorm2d(4), IMAGE)

# Activations.

for _kind in (
    *("Sigmoid", "ReLU", "GELU", "SiLU", "Mish", "Hardswish", "ReLU6", "Tanh"),
    *("Hardtanh", "LeakyReLU", "ELU", "SELU", "Softplus"),
):
    same(_kind, IMAGE)
pair("GELU by tanh", lambda: layer.GELU("tanh"), lambda nn: nn.GELU(approximate="tanh"), IMAGE)
ours("Hardsigmoid", lambda: layer.Hardsigmoid(), IMAGE)  # PyTorch's slope is a float32
same("GLU", IMAGE, 1)
same("Softplus", IMAGE, 0.5, 3.0)
pair("PReLU", lambda: layer.PReLU(init=0.3), lambda nn: nn.PReLU(init=0.3), IMAGE)
pair("PReLU of channels", lambda: layer.PReLU(4, 0.3), lambda nn: nn.PReLU(4, 0.3), IMAGE)
same("Softmax", IMAGE, 1)
same("LogSoftmax", IMAGE, 1)

# Others.

same("Upsample", IMAGE, scale_factor=2)
same("Upsample", IMAGE, size=(5, 9), mode="bilinear")
same("Upsample", IMAGE, scale_factor=(1.5, 3), mode="bicubic", align_corners=True)
same("Upsample", IMAGE, scale_factor=1.3, mode="bilinear", recompute_scale_factor=True)
same("PixelShuffle", IMAGE, 2)
same("PixelUnshuffle", (2, 3, 4, 6), 2)
same("ChannelShuffle", IMAGE, 2)
ours("Dropout", lambda: layer.Dropout(0.5), IMAGE)
ours("DropPath", lambda: layer.DropPath(0.5), IMAGE)
ours("Flatten", lambda: layer.Flatten(), IMAGE)
ours("ToBlocked", lambda: layer.ToBlocked(), IMAGE)


class Activated(layer.Layer):
    """Batch norm with an activation in one operation."""

    def __init__(self, activation: str) -> None:
        super().__init__()
        self.activation = activation
        self.bn = layer.BatchNorm2d()

    def forward(self, x: Any) -> Any:
        return self.bn(x, activation=self.activation)


# After import the activation is an operation of its own.
for _name in ("hardswish", "silu"):
    ours(f"batch norm and {_name}", lambda name=_name: Activated(name), IMAGE, exact=False)
for _after in ("ReLU", "ReLU6"):
    ours(
        f"Conv2d, BatchNorm2d and {_after}",
        lambda after=_after: layer.Sequential(
            layer.Conv2d(8, 3), layer.BatchNorm2d(), getattr(layer, after)()
        ),
        IMAGE,
        folds=True,
    )
ours("LSTM of sequences", lambda: layer.CudnnRNN(5), (2, 7, 3))
ours(
    "LSTM of two layers, both ways",
    lambda: layer.CudnnRNN(5, num_layers=2, bidirectional=True),
    (2, 7, 3),
)
ours(
    "last step of a GRU",
    lambda: layer.CudnnRNN(5, rnn_mode="gru", return_sequences=False, batch_first=False),
    (7, 2, 3),
    batch_axis=1,
)
ours("RNN with ReLU", lambda: layer.CudnnRNN(5, rnn_mode="relu", bias=False), (2, 7, 3))

same("Unflatten", ROWS, 1, (2, 2))
same("Unflatten", IMAGE, -1, (2, -1, 1))
same("BatchNorm1d", ROWS, 4)
same("BatchNorm1d", SIGNAL, 4, affine=False)
same("BatchNorm3d", VOLUME, 4)
pair(
    "BatchNorm2d without weights",
    lambda: layer.BatchNorm2d(4, momentum=0.1, affine=False),
    lambda nn: nn.BatchNorm2d(4, affine=False),
    IMAGE,
)
