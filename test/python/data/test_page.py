"""The code in docs/data.md runs."""

import re
from pathlib import Path

from picture_folders import write_colours

PAGE = Path(__file__).parents[3] / "docs" / "data.md"


def test_the_code_of_the_page():
    write_colours(Path("pets"), 20)
    _, folder, cells, items = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    names = {}
    exec(folder, names)
    assert (names["images"].shape, len(names["test"])) == ((16, 3, 64, 64), 12)
    assert names["pets"].classes == ("blue", "green", "red")
    exec(cells, names)
    assert (names["images"].shape, names["masks"].shape) == ((10, 3, 32, 32), (10, 32, 32))
    exec(items, names)
    assert [names[name].shape for name in ("x1", "x2", "y")] == [(10,), (10, 2), (10,)]
