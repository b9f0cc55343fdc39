"""SINGA's names of what has another name here, a row each. The modules find them when a script asks
(`raw.words.missing`), with and without SINGA's behaviour."""

from __future__ import annotations

_LAYERS = (
    *("AvgPool1d", "AvgPool2d", "MaxPool1d", "MaxPool2d", "Pooling2d"),
    *("BatchNorm2d", "Conv2d", "LSTM", "RNN_Base", "SeparableConv2d"),
)

#: {module: {SINGA's name: "module:name" here}}
ALIASES: dict[str, dict[str, str]] = {
    "singa.autograd": {
        "CTensor": "singa.singa_wrap:Tensor",
        "Operation": "singa.autograd:Operator",
        **{name: f"singa.layer:{name}" for name in _LAYERS},
    },
    "singa.layer": {"MeanSquareError": "singa.layer:MSELoss"},
    "singa.tensor": {
        "CTensor": "singa.singa_wrap:Tensor",
        "PlaceHolder": "singa.tensor:Tensor",
    },
}
