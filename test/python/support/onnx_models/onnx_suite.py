"""The test cases of the onnx package: what singa makes of each."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
from singa import tensor
from singa.networks.element_types import HELD, is_singas, name_of
from singa.networks.tensors import as_tensor
from singa.onnx import InvalidModelError, UnsupportedError, load

PASSED, REFUSED, WRONG = "passed", "refused", "wrong"
#: Kinds of cases whose data are in the onnx package. Those of the kind "real" need downloads.
KINDS = ("node", "simple", "pytorch-operator", "pytorch-converted")

#: The exact imaginary part at half of the length is 0, and the expected one is float32's rounding
#: error of 2e-7, more than the case's tolerance.
_ATOL = {"test_dft_inverse": 1e-6, "test_dft_inverse_opset19": 1e-6}


@functools.cache
def cases() -> dict[str, Any]:
    """All cases by kind and name, such as "node/test_relu"."""
    from onnx.backend.test.loader import load_model_tests

    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        found = {f"{kind}/{c.name}": c for kind in KINDS for c in load_model_tests(kind=kind)}
    return dict(sorted(found.items()))


def _data_sets(case: Any) -> Iterator[tuple[list[Any], list[Any]]]:
    if case.model_dir is None:
        yield from case.data_sets
        return
    import pathlib

    import onnx
    from onnx import numpy_helper

    folder = pathlib.Path(case.model_dir)
    for data in sorted(folder.glob("test_data_set_*")):
        lists = []
        for what in ("input", "output"):
            arrays = []
            for i in range(len(list(data.glob(f"{what}_*.pb")))):
                proto = onnx.TensorProto()
                proto.ParseFromString((data / f"{what}_{i}.pb").read_bytes())
                arrays.append(numpy_helper.to_array(proto))
            lists.append(arrays)
        yield lists[0], lists[1]
        return


def _model(case: Any) -> Any:
    import pathlib

    import onnx

    if case.model is not None:
        return case.model
    return onnx.load(pathlib.Path(case.model_dir) / "model.onnx")


def outcome(case: Any) -> tuple[str, str]:
    """(PASSED, REFUSED or WRONG, why) for a case. Other errors are raised."""
    try:
        net = load(_model(case))
        net.eval()  # values() follows autograd.training
    except UnsupportedError as error:
        return REFUSED, str(error.problems[0])
    except InvalidModelError as error:
        return REFUSED, f"invalid: {error}"
    for inputs, expected in _data_sets(case):
        try:
            given = [_given(x) for x in inputs]
            results = net.values(given, net.output_names)
        except UnsupportedError as error:
            return REFUSED, str(error.problems[0])
        for i, (y, wanted) in enumerate(zip(results, expected, strict=True)):
            if why := _mismatch(y, wanted, case):
                return WRONG, f"output {i}: {why}"
    return PASSED, ""


def _given(value: Any) -> Any:
    """An input as a tensor; a list for a sequence."""
    if isinstance(value, list):
        return [_given(x) for x in value]
    array = _array(value)
    return as_tensor(array, tensor.Tensor((1,)).device) if is_singas(name_of(array)) else array


def _mismatch(y: Any, wanted: Any, case: Any) -> str:
    if not isinstance(wanted, list) or not isinstance(y, list):
        return _difference(y, _array(wanted), case)
    if len(y) != len(wanted):
        return f"{len(y)} elements, not {len(wanted)}"
    parts = zip(y, wanted, strict=True)
    return next((why for part in parts if (why := _mismatch(*part, case))), "")


def _array(value: Any) -> Any:
    from onnx import TensorProto, numpy_helper

    return numpy_helper.to_array(value) if isinstance(value, TensorProto) else np.asarray(value)


def _difference(y: Any, wanted: Any, case: Any) -> str:
    is_text = wanted.dtype.kind in "OUS"
    kind = "int32" if wanted.dtype.name in HELD else wanted.dtype.name
    if y.dtype.name != ("object" if is_text else kind):
        return f"type {y.dtype}, not {kind}"
    if tuple(y.shape) != wanted.shape:
        return f"shape {tuple(y.shape)}, not {wanted.shape}"
    if is_text:
        return "" if y.tolist() == wanted.tolist() else f"{y.tolist()}, not {wanted.tolist()}"
    found = y if isinstance(y, np.ndarray) else y.numpy()
    wanted = wanted.astype(kind) if wanted.dtype.name in HELD else wanted
    rtol = case.rtol
    # Two units in the last place of 16-bit types, as the onnx package's runner allows bfloat16.
    if wanted.dtype.name == "bfloat16":
        wanted, rtol = wanted.astype(np.float32), max(rtol, 2**-6)
    elif wanted.dtype.name == "float16":
        rtol = max(rtol, 2**-9)
    try:
        np.testing.assert_allclose(found, wanted, rtol=rtol, atol=_ATOL.get(case.name, case.atol))
    except AssertionError as error:
        return " ".join(str(error).split())[:300]
    return ""
