"""The directive `python-module`: the reference of a module, from its docstrings.

Public are the names in `__all__`, or those that the module defines. Names that several modules have
are described in the first of MODULES, and the others link there. Where a module collects the names
of others (`layer`, `opt`, the operators in `autograd`), each of these is a section.
"""

import importlib
import inspect
from typing import Any

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

#: In the order of the reference.
MODULES = [
    "singa",
    *("singa.tensor", "singa.autograd", "singa.layer", "singa.model", "singa.models"),
    *("singa.opt", "singa.metric", "singa.initializer", "singa.data", "singa.training"),
    *("singa.training.picture_classifier", "singa.training.pretrained", "singa.training.task"),
    *("singa.training.checkpoint", "singa.training.recipe", "singa.training.program"),
    "singa.serving",
    *("singa.onnx", "singa.device", "singa.distributed", "singa.graph", "singa.tuning"),
    *("singa.plan_cache", "singa.bench", "singa.einops", "singa.compat", "singa.snapshot"),
    *("singa.utils", "singa.image_tool", "singa.sonnx"),
]

#: Classes whose members stand in base classes without a page, and where these end.
_WITH_BASES = {
    "singa.data.ImageFolder": "object",
    "singa.data.MaskFolder": "object",
    "singa.data.TarShards": "object",
    "singa.tensor.Tensor": "Tensor",
    "singa.layer.Layer": "object",
    "singa.model.Model": "Layer",
    "singa.opt.DistOpt": "object",
    "singa.opt.Optimizer": "object",
    "singa.training.Trainer": "object",
}


def public(module: Any) -> list[str]:
    """The names that the module offers."""
    names = getattr(module, "__all__", None)
    if names is None:
        names = [
            name
            for name, value in vars(module).items()
            if not name.startswith("_") and getattr(value, "__module__", None) == module.__name__
        ]
    return [name for name in names if not name.startswith("_")]


def homes() -> dict[int, str]:
    """The full name of each class and function: that in the first of MODULES."""
    found: dict[int, str] = {}
    for module_name in MODULES:
        module = importlib.import_module(module_name)
        for name in public(module):
            value = getattr(module, name)
            if callable(value):
                found.setdefault(id(value), f"{module_name}.{name}")
    return found


def summary(module: Any) -> str:
    """The first line of a module's docstring, without its last dot."""
    return (inspect.getdoc(module) or "").split("\n")[0].rstrip(".:")


def page(module_name: str) -> str:
    """The reference of a module as reStructuredText."""
    module = importlib.import_module(module_name)
    home = homes()
    sections: dict[str, list[str]] = {}
    elsewhere: dict[str, str] = {}
    for name in public(module):
        value = getattr(module, name)
        if inspect.ismodule(value):
            continue
        full = home.get(id(value), f"{module_name}.{name}")
        if full != f"{module_name}.{name}":
            elsewhere[name] = full
            continue
        source = getattr(value, "__module__", None) or module_name
        part = source if source.startswith("singa.ops.") else ""
        if source.startswith(f"{module_name}.") and module_name != "singa":
            part = source
        sections.setdefault(part, []).append(name)
    lines = [f".. automodule:: {module_name}", "   :no-members:", ""]
    lines += [f".. currentmodule:: {module_name}", ""]
    for part in sorted(sections, key=lambda part: (part != "", part)):
        names = sorted(sections[part], key=str.lower)
        if part and len(sections) > 1:
            title = f"{part.rpartition('.')[2].replace('_', ' ').capitalize()}"
            lines += [title, "-" * len(title), ""]
            if text := summary(importlib.import_module(part)):
                lines += [f"{text}.".replace("`", "``").replace("*", r"\*"), ""]
        lines += [".. autosummary::", "   :nosignatures:", ""]
        lines += [f"   {name}" for name in names] + [""]
        for name in names:
            lines += member(module_name, name, getattr(module, name))
    if elsewhere:
        lines += ["Names of other modules", "-" * 22, ""]
        lines += [f"- ``{name}`` is :py:obj:`{full}`" for name, full in sorted(elsewhere.items())]
    return "\n".join(lines)


def member(module: str, name: str, value: object) -> list[str]:
    """The directive that describes a name."""
    if inspect.isclass(value):
        options = ["   :members:", "   :show-inheritance:"]
        if root := _WITH_BASES.get(f"{module}.{name}"):
            options += [f"   :inherited-members: {root}"]
        return [f".. autoclass:: {module}.{name}", *options, ""]
    kind = "function" if callable(value) and hasattr(value, "__name__") else "data"
    return [f".. auto{kind}:: {module}.{name}", ""]


class PythonModule(SphinxDirective):
    """`.. python-module:: singa.opt` describes all public names of singa.opt."""

    required_arguments = 1

    def run(self) -> list[nodes.Node]:
        self.env.note_dependency(inspect.getsourcefile(importlib.import_module(self.arguments[0])))
        return self.parse_text_to_nodes(page(self.arguments[0]), allow_section_headings=True)


def setup(app: Sphinx) -> dict[str, bool]:
    app.setup_extension("docstrings")
    app.add_directive("python-module", PythonModule)
    return {"parallel_read_safe": True}
