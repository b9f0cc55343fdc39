"""The operation of docs/developers/adding_an_operation.md, built from the page's own code.

test/adding_an_operation builds it. It runs in a process of its own, in whose libsinga it is.
"""

import json
from pathlib import Path

import numpy as np
import pytest
import singa
from own_process import printed_by

BUILT = Path(singa.__file__).parents[2] / "test" / "adding_an_operation"

PROGRAM = f"""
import ctypes, json, sys
ctypes.CDLL({str(BUILT / "libsinga.so")!r})  # the libsinga of all extensions, by its name
sys.path.insert(0, {str(BUILT)!r})
import numpy as np
import singa.ops
import operation_wrap
from singa import autograd, opcheck, singa_wrap, tensor
from singa.tape.gradcheck import gradcheck
singa_wrap.UnitRows, singa_wrap.UnitRowsBackward = (
    operation_wrap.UnitRows, operation_wrap.UnitRowsBackward)
singa.ops.__path__.append({str(BUILT / "tree/python/singa/ops")!r})
from singa.ops.unit_rows import unit_rows

def error(call):
    try:
        call()
    except Exception as error:
        return f"{{type(error).__name__}} {{error}}"

random = np.random.default_rng(1)
results = []
autograd.training = True
for shape in [(7,), (5, 3), (2, 3, 40), (0, 4)]:
    values, slope = random.standard_normal((2, *shape)).astype(np.float32)
    x = tensor.from_numpy(values)
    x.requires_grad = x.stores_grad = True
    y = unit_rows(x)
    ((_, dx),) = autograd.backward(y, tensor.from_numpy(slope))
    results.append([a.tolist() for a in (values, slope, tensor.to_numpy(y), tensor.to_numpy(dx))])
numbers = tensor.from_numpy(random.standard_normal((3, 4)))
print(json.dumps({{
    "results": results,
    "gradcheck": gradcheck(unit_rows, [numbers]),
    "scalar": error(lambda: unit_rows(tensor.from_numpy(np.float32(1)))),
    "integers": error(lambda: unit_rows(tensor.from_numpy(np.arange(3, dtype=np.int32)))),
    "none": error(lambda: singa_wrap.UnitRowsBackward(None, None, None)),
    "compared": sorted(op.op for op in singa_wrap.GetOpcheckStats()),
}}))
"""


@pytest.mark.cpu("the page shows no kernel for GPUs in full")
def test_the_operation_of_the_page() -> None:
    said = json.loads(printed_by(PROGRAM, SINGA_OPCHECK="1"))
    for result in said["results"]:
        x, slope, y, dx = (np.array(values, dtype=np.float64) for values in result)
        norm = np.sqrt((x * x).sum(-1, keepdims=True))
        unit = x / norm
        np.testing.assert_allclose(y, unit, rtol=1e-6)
        want = (slope - unit * (slope * unit).sum(-1, keepdims=True)) / norm
        np.testing.assert_allclose(dx, want, rtol=1e-5, atol=1e-6)
    assert said["gradcheck"]
    assert said["scalar"].startswith("ValueError [UnitRows] x must have at least one axis")
    assert said["integers"].startswith("TypeError [UnitRows] x must be of a float type")
    assert said["none"].startswith("ValueError [UnitRowsBackward] y is an empty tensor")
    assert {"UnitRows", "UnitRowsBackward"} <= set(said["compared"])
