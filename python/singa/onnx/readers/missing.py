"""Operators that singa cannot read yet, with what is missing: the text of the error."""

from __future__ import annotations

_REASONS = {
    "singa has no sampling of regions": ("MaxRoiPool",),
    "singa has no optional values": ("Optional", "OptionalGetElement", "OptionalHasElement"),
    "random numbers of the file's own": (
        *("RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike"),
        *("Multinomial", "Bernoulli"),
    ),
    "singa has no decoder of images here": ("ImageDecoder",),
    "singa has no regular expressions of RE2: ONNX Runtime computes them": ("RegexFullMatch",),
}

#: What is missing, by operator.
MISSING = {operator: reason for reason, operators in _REASONS.items() for operator in operators}
