"""ONNX Runtime as an oracle."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest


def runtime_outputs(
    proto: Any, inputs: Sequence[np.ndarray[Any, Any]]
) -> list[np.ndarray[Any, Any]]:
    """The outputs of a ModelProto. Skips the test if ONNX Runtime is not installed."""
    runtime = pytest.importorskip("onnxruntime", reason="ONNX Runtime is not installed")
    options = runtime.SessionOptions()
    options.log_severity_level = 3
    options.intra_op_num_threads = 1
    session = runtime.InferenceSession(
        proto.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    names = [value.name for value in session.get_inputs()]
    return session.run(None, dict(zip(names, inputs, strict=True)))
