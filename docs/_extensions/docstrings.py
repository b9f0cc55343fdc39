"""Reads the project's docstrings as reStructuredText.

Docstrings are plain text that follows three habits: an indented block after an empty line is code,
lines of a name, two or more spaces (or a colon) and a text are a list, and `name` is code.
Everything else that reStructuredText would take for markup is escaped. Sections of numpydoc are
left to napoleon.
"""

import ast
import re
import textwrap

from sphinx.application import Sphinx

ENTRY = re.compile(r"^(\S+(?:,? \S+)*?) {2,}(\S.*)$|^(\w+(?:, \w+)*): +(\S.*)$")
UNDERLINE = re.compile(r"^-{3,}$")
LIST = re.compile(r"^\s*([-*+]|\d+[.)]) ")


def escaped(line: str) -> str:
    """The line, with what is outside of `...` taken literally."""
    parts = re.split(r"(`[^`]*`)", line)
    for i in range(0, len(parts), 2):
        parts[i] = re.sub(r"(?<!\\)([*|])", r"\\\1", parts[i])
        parts[i] = re.sub(r"(\w)_(?!\w)", r"\1\\_", parts[i])
    for i in range(1, len(parts), 2):
        inside = parts[i][1:-1]
        if re.search(r"[^\w.]", inside) and not parts[i - 1].endswith((":", "`")):
            parts[i] = f"``{inside}``"  # more than a name
    return "".join(parts)


def indentation(line: str) -> int:
    return len(line) - len(line.lstrip())


def is_python(lines: list[str]) -> bool:
    try:
        ast.parse(textwrap.dedent("\n".join(lines)))
    except SyntaxError:
        return False
    return True


def as_rst(lines: list[str]) -> list[str]:
    """The docstring as reStructuredText."""
    end = next((i for i, line in enumerate(lines) if UNDERLINE.match(line)), len(lines) + 1) - 1
    out: list[str] = []
    i = 0
    while i < end:
        line = lines[i]
        before = next((text for text in reversed(out) if text.strip()), "")
        if not line.strip():
            out.append("")
        elif indentation(line) and (not out or not out[-1].strip()) and not LIST.match(before):
            block = []
            while i < end and (not lines[i].strip() or indentation(lines[i])):
                block.append(lines[i])
                i += 1
            kind = "python" if is_python(block) else "text"
            out += ["", f".. code-block:: {kind}", "", *(f"   {text}" for text in block), ""]
            continue
        elif ENTRY.match(line) and not LIST.match(line) and starts_list(lines, i, out):
            i = entries(lines, i, end, out)
            continue
        elif line.startswith(">>>"):
            while i < end and lines[i].strip():
                out.append(lines[i])
                i += 1
            continue
        else:
            listed = LIST.match(line)
            if listed and out and out[-1].strip() and not (LIST.match(before) or indentation(line)):
                out.append("")
            mark = listed.end() if listed else 0
            out.append(line[:mark] + escaped(line[mark:]))
        i += 1
    return out + numpydoc(lines[max(end, 0) :])


def starts_list(lines: list[str], i: int, out: list[str]) -> bool:
    """Whether a line that looks like an entry is one, and not prose in the middle of a text."""
    return i > 0 and (not out or not out[-1].strip() or "  " in lines[i])


def entries(lines: list[str], i: int, end: int, out: list[str]) -> int:
    """Appends a list of names and texts; returns the number of the line after it."""
    out.append("")
    while i < end and (match := ENTRY.match(lines[i])):
        out += [escaped(f"`{match[1] or match[3]}`"), f"   {escaped(match[2] or match[4])}"]
        i += 1
        while i < end and indentation(lines[i]) and lines[i].strip():
            out.append(f"   {escaped(lines[i].strip())}")
            i += 1
        out.append("")
        while i + 1 < end and not lines[i].strip() and ENTRY.match(lines[i + 1]):
            i += 1
    return i


def numpydoc(lines: list[str]) -> list[str]:
    """Sections of numpydoc: code is left as it is."""
    out, code = [], False
    for line in lines:
        code = line.lstrip().startswith((">>>", "...")) or (code and bool(line.strip()))
        out.append(line if code or UNDERLINE.match(line) else escaped(line))
    return out


def process(
    app: Sphinx, what: str, name: str, obj: object, options: object, lines: list[str]
) -> None:
    lines[:] = as_rst(lines)


def setup(app: Sphinx) -> dict[str, bool]:
    app.connect("autodoc-process-docstring", process, priority=400)  # before napoleon
    return {"parallel_read_safe": True}
