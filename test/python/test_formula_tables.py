"""src/model/formula: an elementwise function without a row in its table does not compile."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
COMPILER = shutil.which("c++")

PROGRAM = """
#include "model/formula/activation.h"
#include "model/formula/binary.h"
namespace singa::formula {
template float Unary(UnaryOp, float, float, float);
template int Unary(UnaryOp, int, int, int);
template float UnaryGradient(UnaryOp, float, float, float, float);
template float Binary(BinaryOp, float, float);
template float BinaryGradient(BinaryOp, bool, float, float, float);
}
"""
UNARY, BINARY = "src/model/formula/unary.def", "src/model/formula/binary.def"
OPERATIONS, ACTIVATIONS = (
    f"include/singa/operation/{name}.h" for name in ("elementwise", "activation")
)
NOT_HANDLED = "enumeration value '{}' not handled in switch"


@pytest.mark.skipif(COMPILER is None, reason="needs a compiler")
@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ([], []),
        (
            [(UNARY, "SINGA_FLOATS(Tan,", "// (Tan,"), (BINARY, "SINGA_TRUTH(Or,", "// (Or,")],
            [*(3 * [NOT_HANDLED.format("kTan")]), *(2 * [NOT_HANDLED.format("kOr")])],
        ),
        (
            [
                (OPERATIONS, "  kTan,", "  kTan, kNew,"),
                (OPERATIONS, "  kSub,", "  kSub, kNewer,"),
                (ACTIVATIONS, "  kCount", "  kNewest, kCount"),
            ],
            [
                *(3 * [NOT_HANDLED.format("kNew")]),
                *(2 * [NOT_HANDLED.format("kNewer")]),
                "ActivationsFollowEnumeration",
            ],
        ),
    ],
    ids=["all rows", "no row", "a new function"],
)
def test_a_function_without_a_row_does_not_compile(
    tmp_path: Path, changes: list[tuple[str, str, str]], expected: list[str]
) -> None:
    for file, old, new in changes:
        changed = tmp_path / file
        changed.parent.mkdir(parents=True, exist_ok=True)
        text = (changed if changed.exists() else ROOT / file).read_text(encoding="utf-8")
        assert text.count(old) == 1
        changed.write_text(text.replace(old, new), encoding="utf-8")
    includes = [f"-I{base / name}" for base in (tmp_path, ROOT) for name in ("src", "include")]
    command = [str(COMPILER), "-std=c++20", "-fsyntax-only", *includes, "-x", "c++", "-"]
    environment = {**os.environ, "LC_ALL": "C"}
    run = subprocess.run(
        command, input=PROGRAM, capture_output=True, text=True, check=False, env=environment
    )
    assert (run.returncode == 0) == (not changes), run.stderr
    for message in expected:
        assert run.stderr.count(message) >= expected.count(message), run.stderr
