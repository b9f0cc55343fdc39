"""docs/developers/architecture.md: its drawing of the C++ folders, its rows of the Python package,
and its glossary are those of the sources."""

import functools
import itertools
import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "developers" / "architecture.md").read_text()
(DRAWING,) = re.findall(r"\ndigraph house \{\n(.*?)\n\}", PAGE, re.DOTALL)
#: The folders of each box, or of a folder those with a suffix ("folder/*.h"), by the box's name.
BOXES = {
    name: label.split(r"\n") for name, label in re.findall(r'(\w+) \[label="([^"]+)"', DRAWING)
}
ARROWS = set(re.findall(r"(\w+) -> (\w+)", DRAWING))
CPP = {".h", ".cc", ".cu", ".i"}


@functools.cache
def box_of(path: Path) -> str:
    """The box with the longest folder that contains a path."""
    found = []
    for name, folders in BOXES.items():
        for each in folders:
            folder, _, suffix = each.partition("/*")
            if path.is_relative_to(folder) and path.name.endswith(suffix):
                found.append((len(each), name))
    assert found, f"{path} is in no box of the drawing in docs/developers/architecture.md"
    return max(found)[1]


def reached(box: str) -> set[str]:
    """The boxes to which arrows lead from a box, and itself."""
    found, waiting = set(), [box]
    while waiting:
        if (name := waiting.pop()) not in found:
            found.add(name)
            waiting += [end for start, end in ARROWS if start == name]
    return found


@functools.cache
def includes() -> list[tuple[Path, Path]]:
    """(file, file of the project that it includes), relative to the root."""
    found = []
    for path in sorted([*(ROOT / "include").rglob("*"), *(ROOT / "src").rglob("*")]):
        if path.suffix not in CPP:
            continue
        for name in re.findall(r'^[#%]include "(.+)"', path.read_text(), re.MULTILINE):
            for folder in (ROOT / "include", ROOT / "src", path.parent):
                if (folder / name).exists():  # else it is generated, or a library's
                    found.append((path.relative_to(ROOT), (folder / name).relative_to(ROOT)))
    return found


def test_includes_follow_the_arrows() -> None:
    allowed = {name: reached(name) for name in BOXES}
    assert len(includes()) > 1000
    wrong = [
        f"{path} includes {included}"
        for path, included in includes()
        if box_of(included) not in allowed[box_of(path)]
    ]
    assert not wrong, "\n".join(wrong)


def test_the_drawing_has_no_circle_and_no_arrow_that_nothing_needs() -> None:
    assert not [(start, end) for start, end in ARROWS if start in reached(end)]
    used = {(box_of(path), box_of(included)) for path, included in includes()}
    # Python imports what src/api makes.
    assert "singa_wrap" in (ROOT / "python/singa/device.py").read_text()
    assert ARROWS - used == {("python", "api")}


def test_the_drawing_has_all_folders() -> None:
    drawn = [folder for folders in BOXES.values() for folder in folders]
    assert len(drawn) == len({*drawn})
    assert [folder for folder in drawn if not (ROOT / folder.partition("/*")[0]).is_dir()] == []
    for path in (*ROOT.glob("include/**/*"), *ROOT.glob("src/**/*")):
        if path.suffix in CPP:
            box_of(path.relative_to(ROOT))


def test_files_of_kernels_name_the_backend_of_their_folder() -> None:
    """Nobody registers kernels of another one. A name may go on behind the folder's."""
    for path in (ROOT / "src" / "backend").rglob("*.c[cu]"):
        folder = path.relative_to(ROOT / "src" / "backend").parts[0]
        for name in re.findall(r"^SINGA_KERNELS\((\w+)\)", path.read_text(), re.MULTILINE):
            assert f"{name}_".startswith(f"{folder}_"), f"{path}: SINGA_KERNELS({name})"


def test_the_rows_of_the_python_package_are_those_of_lint() -> None:
    """In the same order. The page may join layers, and leaves out modules that are other names."""
    config = tomllib.loads((ROOT / "pyproject.toml").read_text())
    contract = config["tool"]["importlinter"]["contracts"][0]
    layers = [layer.split(" | ") for layer in contract["layers"]]
    place = {name: number for number, layer in enumerate(layers) for name in layer}
    (block,) = re.findall(r"## The Python package\n\n```\n(.*?)```", PAGE, re.DOTALL)
    rows = [
        re.sub(r"\.py\b", "", re.split(r"\s{4,}", line)[0]).split() for line in block.splitlines()
    ]
    places = [[place[name] for name in row] for row in rows]
    assert all(max(above) <= min(below) for above, below in itertools.pairwise(places))
    package = ROOT / "python" / "singa"
    folders = {path.parent.name for path in package.glob("*/__init__.py")}
    assert folders - {name for row in rows for name in row} == set()


def test_the_glossary_is_short_and_its_words_are_classes() -> None:
    words = re.findall(r"^\| \*\*(\w+)\*\* \|", PAGE, re.MULTILINE)
    assert 10 <= len(words) <= 15
    sources = "".join(
        path.read_text()
        for folder in ("include/singa/core", "include/singa/operation", "src/model/dispatch")
        for path in (ROOT / folder).glob("*.h")
    )
    classes = {*re.findall(r"^(?:class|struct) (?:SINGA_API )?(\w+)", sources, re.MULTILINE)}
    # A Spec is any of many structs, an opaque Layout an OpaqueLayout, and a Capture CUDA's.
    assert {*words} - classes == {"Layout", "Spec", "Capture"}
