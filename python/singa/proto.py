"""The parts of SINGA's generated protobuf modules that scripts import."""

import sys

from .compat import core_pb2, model_pb2

sys.modules[f"{__name__}.core_pb2"] = core_pb2
sys.modules[f"{__name__}.model_pb2"] = model_pb2
