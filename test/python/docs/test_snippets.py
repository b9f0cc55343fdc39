"""Programs on pages. The blocks of a page run in order, as one program; blocks under the label
**PyTorch**, **Keras** or **fastai** are another one. A block that needs what its page does not have
begins with ```python fragment. Tutorials are executed with the site.
"""

import ast
import builtins
import re
from collections import defaultdict
from pathlib import Path

import numpy as np
import pytest
from picture_folders import coloured
from singa import data, models, tensor
from singa.training.picture_classifier import PictureClassifier

ROOT = Path(__file__).parents[3]
BLOCK = re.compile(
    r"(?:^\*\*(?P<label>[^*\n]+)\*\*\n\n)?^ *```(?P<kind>python[^\n]*)\n(?P<text>.*?)^ *```",
    re.DOTALL | re.MULTILINE,
)
PAGES = {
    str(page.relative_to(ROOT)): page.read_text()
    for page in sorted([*(ROOT / "docs").rglob("*.md"), ROOT / "README.md"])
    if "tutorials" not in page.parts and "```python" in page.read_text()
}
#: Pages with tests of their own, which also look at results, and give the programs what they read.
TESTED = {
    *("README.md", "docs/data.md", "docs/fine_tuning.md", "docs/index.md", "docs/training.md"),
    *(
        f"docs/coming_from/{page}.md"
        for page in ("fastai", "keras", "pytorch", "pytorch_modules", "pytorch_loops")
    ),
}


def programs(page):
    """The blocks of each program on a page that are no fragments, by its label."""
    found = defaultdict(list)
    for block in BLOCK.finditer(PAGES[page]):
        assert block["kind"] in ("python", "python fragment")
        if block["kind"] == "python":
            found[block["label"]].append(block["text"])
    return found


@pytest.mark.parametrize("page", PAGES)
def test_names_are_defined_before_they_are_used(page):
    for blocks in programs(page).values():
        known = {*vars(builtins), "__name__"}
        for block in blocks:
            nodes = list(ast.walk(ast.parse(block)))
            names = [node for node in nodes if isinstance(node, ast.Name)]
            known |= {node.id for node in names if isinstance(node.ctx, ast.Store)}
            for node in nodes:
                if isinstance(node, ast.alias):
                    known.add(node.asname or node.name.partition(".")[0])
                elif isinstance(node, ast.arg):
                    known.add(node.arg)
                elif isinstance(node, ast.FunctionDef | ast.ClassDef | ast.ExceptHandler):
                    known.add(node.name)
            assert {node.id for node in names} - known == set()


@pytest.mark.parametrize("page", sorted(PAGES.keys() - TESTED))
def test_programs_run(page):
    write_run(Path("runs/pets"))
    coloured("red", 0).save("cat.jpg")
    for blocks in programs(page).values():
        names = {"__name__": "page"}
        for number, block in enumerate(blocks, 1):
            exec(compile(block, f"{page}, block {number}", "exec"), names)


def write_run(folder):
    """A network for pictures, as a run leaves it."""
    net = models.create("lenet", num_classes=2)
    net.compile([tensor.from_numpy(np.zeros((1, 3, 16, 16), np.float32))], is_train=False)
    transform = data.evaluation_transform(16, data.IMAGENET_MEAN, data.IMAGENET_STD)
    folder.mkdir(parents=True)
    PictureClassifier(net, ("cat", "dog"), transform).save(folder / "model.safetensors")


def test_programs_of_two_libraries_are_told_apart():
    for page, other in (("pytorch", "PyTorch"), ("keras", "Keras"), ("fastai", "fastai")):
        blocks = list(BLOCK.finditer(PAGES[f"docs/coming_from/{page}.md"]))
        assert [block["label"] for block in blocks[::2]] == [other] * (len(blocks) // 2)
        assert [block["label"] for block in blocks[1::2]] == ["singa"] * (len(blocks) // 2)
