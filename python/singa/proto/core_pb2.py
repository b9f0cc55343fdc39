"""SINGA's element types, as `core_pb2.kFloat32`; `singa.tensor` has them by their usual names."""

from ..singa_wrap import kChar, kDouble, kFloat16, kFloat32, kInt, kUChar

__all__ = ["kChar", "kDouble", "kFloat16", "kFloat32", "kInt", "kUChar"]
