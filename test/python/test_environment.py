"""Environment variables: one table defines how they are read and documented."""

import os
import re
from pathlib import Path

import pytest
import singa
from own_process import printed_by
from singa import __main__ as command_line
from singa import singa_wrap as wrap
from singa.report.diagnostics import environment_table

ROOT = Path(__file__).parents[2]
WORDS = {v.name: v.values for v in wrap.EnvironmentVariables()}
CHECKED = {name: words for name, words in WORDS.items() if re.search(r"\b(number|or|cpu)\b", words)}
for openmp in ("OMP_NUM_THREADS", "OMP_WAIT_POLICY", "GOMP_SPINCOUNT"):
    CHECKED.pop(openmp)  # OpenMP reads them, in its own way


def test_the_page_is_the_table() -> None:
    assert f"{environment_table()}\n" in (ROOT / "docs/environment.md").read_text()


def test_the_command_prints_all_variables_in_80_columns(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert command_line.main(["env"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= 80
    assert [line for line in lines if line[0] != " "] == [*WORDS]
    start = lines.index("SINGA_STRICT")
    assert lines[start + 1 : start + 3] == [
        "    0 or 1; default 0",
        "    1 disables methods that round differently (Winograd, FFT, TF32) or let NaN",
    ]


def test_everything_is_read_by_the_table() -> None:
    reading = {
        path.name
        for folder, kinds in (("src", ".cc .cu .h"), ("include", ".h"), ("python", ".py"))
        for path in (ROOT / folder).rglob("*")
        if path.suffix in kinds.split()
        and re.search(
            r"getenv\(|environ(\.get\(|\[)\"(?!PYTHONPATH|TORCH_LOGS)[^\n=]*$",
            path.read_text(),
            re.M,
        )
    }
    assert reading == {"environment.cc"}


@pytest.mark.parametrize("name", CHECKED)
def test_values(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(name, raising=False)
    unset = wrap.EnvironmentValue(name)
    words = re.findall(
        r"\w+", re.sub(r"\b(a number|from|to|or)\b|(?<=\d )on\b", " ", CHECKED[name])
    )
    assert unset in (*words, "")
    for text in ("", *words):
        monkeypatch.setenv(name, text)
        assert wrap.EnvironmentValue(name) == (text or unset)
    for text in ("or", "-1", "1x", "a number", words[0] + " ", words[0][1:] or " "):
        monkeypatch.setenv(name, text)
        expected = f"[environment] {name} must be {CHECKED[name]}, got '{text}'"
        with pytest.raises(ValueError, match=re.escape(expected)):
            wrap.EnvironmentValue(name)
        assert expected.removeprefix("[environment] ") in singa.doctor()["problems"]


def test_another_name() -> None:
    with pytest.raises(ValueError, match="SINGA_PREFFER is no variable that singa reads"):
        wrap.EnvironmentValue("SINGA_PREFFER")


def test_doctor_finds_another_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SINGA_PREFFER", "autotune")
    assert "SINGA_PREFFER is no variable that singa reads" in singa.doctor()["problems"]


def test_products_of_parts_can_be_switched_off() -> None:
    program = """
import singa
from singa import autograd, tensor
a = tensor.ones((512, 512))
print("amx" in str(singa.explain(lambda: autograd.matmul(a, a))))
"""
    limited = "ONEDNN_MAX_CPU_ISA" in os.environ
    has_amx = "amx_bf16" in str(singa.doctor()["isa"]) and not limited
    assert printed_by(program, SINGA_AMX_FLOAT32="on", SINGA_STRICT="0") == f"{has_amx}\n"
    assert printed_by(program, SINGA_AMX_FLOAT32="off", SINGA_STRICT="0") == "False\n"


@pytest.mark.parametrize(
    "name", ["SINGA_PREFER", "SINGA_LAYOUT", "SINGA_STRICT", "SINGA_OPCHECK", "SINGA_PLAN_CACHE",
             "SINGA_ALLOCATOR", "SINGA_COMPAT"]
)  # fmt: skip
def test_a_wrong_value_is_an_error_where_it_is_read(name: str) -> None:
    program = """
try:
    from singa import layer, tensor
    layer.Conv2d(3, 3)(tensor.ones((1, 2, 5, 5)))
except ValueError as error:
    print(error)
"""
    assert printed_by(program, **{name: "wrong"}) == (
        f"[environment] {name} must be {CHECKED[name]}, got 'wrong'\n"
    )
