"""The program of docs/coming_from/pytorch_modules.md runs, and does what the page says."""

from __future__ import annotations

import re
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

PAGE = Path(__file__).parents[3] / "docs" / "coming_from" / "pytorch_modules.md"


def test_the_program(torch: ModuleType) -> None:
    (program,) = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    names: dict[str, Any] = {"__name__": "page"}
    exec(compile(program, PAGE, "exec"), names)
    module = names["module"].eval()
    with torch.no_grad():
        wanted = module(torch.from_numpy(names["images"])).numpy()
    np.testing.assert_allclose(names["scores"].numpy(), wanted, rtol=1e-3, atol=1e-5)
    assert int(module[1].norm.num_batches_tracked) == 4
