"""Layers: objects with parameters that are called like functions.

    conv = layer.Conv2d(16, 3, padding=1, bias=False)
    y = conv(x)  # makes conv.W for the channels of x, then convolves

A network is a Layer (or Model) with layers as attributes. See `Layer` for how to write one.
"""

from .base import Layer, LayerMeta
from .conv import (
    AvgPool1d,
    AvgPool2d,
    Conv2d,
    MaxPool1d,
    MaxPool2d,
    Pooling2d,
    SeparableConv2d,
)
from .layout import ToBlocked, ToPlain
from .linear import Embedding, Gemm, Linear
from .norm import BatchNorm2d
from .rnn import LSTM, RNN, CudnnRNN, RNN_Base
from .simple import (
    Add,
    BinaryCrossEntropy,
    Cat,
    CrossEntropy,
    Dropout,
    Flatten,
    MeanSquareError,
    ReLU,
    Reshape,
    Sequential,
    Sigmoid,
    SoftMax,
    SoftMaxCrossEntropy,
)

__all__ = [
    "LSTM",
    "RNN",
    "Add",
    "AvgPool1d",
    "AvgPool2d",
    "BatchNorm2d",
    "BinaryCrossEntropy",
    "Cat",
    "Conv2d",
    "CrossEntropy",
    "CudnnRNN",
    "Dropout",
    "Embedding",
    "Flatten",
    "Gemm",
    "Layer",
    "LayerMeta",
    "Linear",
    "MaxPool1d",
    "MaxPool2d",
    "MeanSquareError",
    "Pooling2d",
    "RNN_Base",
    "ReLU",
    "Reshape",
    "SeparableConv2d",
    "Sequential",
    "Sigmoid",
    "SoftMax",
    "SoftMaxCrossEntropy",
    "ToBlocked",
    "ToPlain",
]
