"""Element types by SINGA's names, such as `core_pb2.kFloat32`. See also `singa.dtypes`."""

from ..singa_wrap import kChar, kDouble, kFloat16, kFloat32, kInt, kUChar

__all__ = ["kChar", "kDouble", "kFloat16", "kFloat32", "kInt", "kUChar"]
