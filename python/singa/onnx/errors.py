"""Errors of export."""

from __future__ import annotations


class ExportError(ValueError):
    """A computation that cannot be written as ONNX.

    >>> class Reads(models.Sequential):
    ...     def forward(self, x):
    ...         return x * float(x.sum())
    ...
    >>> net, x = Reads(layer.ReLU()), tensor.ones((1, 4))
    >>> net.compile([x])
    >>> try:
    ...     singa.onnx.save(net, "net.onnx", [x])
    ... except singa.onnx.ExportError as error:
    ...     print("not exported")
    ...
    not exported
    """
