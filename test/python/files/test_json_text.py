"""JSON that singa writes for other programs."""

import json
from pathlib import Path

import pytest
import singa
from singa.files.json_text import json_text

#: Modules that write JSON which singa alone reads again, with NaN where there is one, or which has
#: no floats.
OWN = {
    "distributed/ranks.py",
    "files/json_text.py",
    "files/state_files.py",
    "launcher/estimate/step_profile.py",
    "launcher/waits.py",
    "opt/schedule.py",
    "training/checkpoint.py",
    "training/model_file.py",
    "tuning.py",
}


def test_nan_and_infinity_are_null():
    nan, infinity = float("nan"), float("inf")
    value = {"a": nan, "b": [1.5, (infinity, -infinity)], "c": {"d": [{"e": nan}]}, "f": "NaN"}
    expected = {"a": None, "b": [1.5, [None, None]], "c": {"d": [{"e": None}]}, "f": "NaN"}
    assert json.loads(json_text(value), parse_constant=pytest.fail) == expected
    assert json_text({"é": 1}, ensure_ascii=False, indent=1) == '{\n "é": 1\n}'
    with pytest.raises(TypeError):
        json_text({"a": {1}})


def test_all_other_writers_use_it():
    root = Path(singa.__file__).resolve().parent
    writers = {
        path.relative_to(root).as_posix()
        for path in root.rglob("*.py")
        if "json.dump" in path.read_text(encoding="utf-8")
    }
    assert writers <= OWN
