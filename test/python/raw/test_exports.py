"""Which names a package offers, and where they are listed."""

import ast
import importlib
import types
from pathlib import Path

import public_names
import pytest
import singa
from singa.raw.exports import defined, modules_of

#: Modules that users import by their names, besides those of `public_names`.
_ALSO_IMPORTED = {"singa.einops", "singa.training.program", "singa.training.recipe"}


def _module(name: str, source: str) -> types.ModuleType:
    module = types.ModuleType(name)
    exec(source, vars(module))
    return module


def test_a_package_offers_what_its_modules_define() -> None:
    first = _module("first", "def f(): ...\ndef _g(): ...\nclass C: ...\ng = _g\nN = 1")
    second = _module("second", "def h(): ...\ndef helper(): ...")
    vars(second)["f2"] = vars(first)["f"]
    assert [*defined(first, second, internal={"helper"})] == ["f", "C", "g", "h"]


@pytest.mark.parametrize("package", ["ops", "layer", "opt"])
def test_internal_names_are_those_of_the_package(package: str) -> None:
    module = importlib.import_module(f"singa.{package}")
    modules = [value for value in vars(module).values() if isinstance(value, types.ModuleType)]
    assert defined(*modules).keys() >= module._INTERNAL
    assert module._INTERNAL.isdisjoint(module.__all__)
    assert len(set(module.__all__)) == len(module.__all__)


@pytest.mark.parametrize("package", ["ops", "layer", "opt"])
def test_type_checkers_see_the_modules_whose_names_are_offered(package: str) -> None:
    module = importlib.import_module(f"singa.{package}")
    tree = ast.parse(Path(module.__file__).read_text())
    seen = {
        node.module
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and node.names[0].name == "*"
    }
    offered = modules_of(module.__name__, module._INTERNAL_MODULES)
    assert seen == {each.__name__.rpartition(".")[2] for each in offered}
    internal = {each.__name__.rpartition(".")[2] for each in modules_of(module.__name__)} - seen
    assert internal == module._INTERNAL_MODULES


def _own_names(tree: ast.Module) -> set[str]:
    """What a module defines at its top."""
    found = set()
    for node in tree.body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            found.add(node.name)
        elif isinstance(node, ast.Assign):
            found |= {target.id for target in node.targets if isinstance(target, ast.Name)}
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            found.add(node.target.id)
    return found


def _listed_names(tree: ast.Module) -> set[str]:
    """The names in its `__all__`."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign) and "__all__" in ast.unparse(node.targets[0]):
            items = node.value.elts if isinstance(node.value, ast.List) else []
            return {item.value for item in items if isinstance(item, ast.Constant)}
    return set()


def test_names_are_listed_where_users_import_them_or_they_come_from_elsewhere() -> None:
    root = Path(singa.__file__).resolve().parent
    imported = {*public_names.MODULES, *_ALSO_IMPORTED}
    needless = []
    for path in sorted(root.rglob("*.py")):
        tree = ast.parse(path.read_text())
        parts = path.relative_to(root.parent).with_suffix("").parts
        listed = _listed_names(tree)
        if listed and ".".join(parts) not in imported and listed <= _own_names(tree):
            needless.append(".".join(parts))
    assert needless == []
