"""The directive `cpp-header`: what a public header declares, from its comments.

Doxygen reads the headers before the pages are read. Where it is not installed, a page shows the
text of the header.
"""

import re
import shutil
import subprocess
from pathlib import Path

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

ROOT = Path(__file__).parents[2]
INCLUDE = ROOT / "include"
BUILD = ROOT / "build" / "doxygen"
SETTINGS = {
    "PROJECT_NAME": "singa",
    "INPUT": INCLUDE,
    "FILE_PATTERNS": "*.h",
    "RECURSIVE": "YES",
    "STRIP_FROM_INC_PATH": INCLUDE,
    "STRIP_FROM_PATH": INCLUDE,
    "OUTPUT_DIRECTORY": BUILD,
    "GENERATE_XML": "YES",
    "GENERATE_HTML": "NO",
    "GENERATE_LATEX": "NO",
    "XML_PROGRAMLISTING": "NO",
    "JAVADOC_AUTOBRIEF": "YES",
    "QUIET": "YES",
    "WARN_IF_UNDOCUMENTED": "NO",
    "WARN_IF_DOC_ERROR": "NO",
    "WARNINGS": "NO",
    "MACRO_EXPANSION": "YES",
    "EXPAND_ONLY_PREDEF": "YES",
    "PREDEFINED": "SINGA_API=",
    "EXTRACT_ALL": "YES",
    "HIDE_FRIEND_COMPOUNDS": "YES",
    "MARKDOWN_SUPPORT": "YES",
}


def run_doxygen(app: Sphinx) -> None:
    if shutil.which("doxygen") is None:
        return
    BUILD.mkdir(parents=True, exist_ok=True)
    settings = "".join(f"{name} = {value}\n" for name, value in SETTINGS.items())
    subprocess.run(["doxygen", "-"], input=settings, text=True, check=True, cwd=ROOT)
    # Breathe looks files up by these names, and several folders have a layout.h.
    index = BUILD / "xml" / "index.xml"
    text = index.read_text(encoding="utf-8")
    index.write_text(FILE.sub(with_folder, text), encoding="utf-8")


FILE = re.compile(r'(<compound refid="(\w+)" kind="file"><name>)[^<]+')


def with_folder(match: re.Match[str]) -> str:
    """The entry of a file, with the path by which programs include it."""
    content = (BUILD / "xml" / f"{match[2]}.xml").read_text(encoding="utf-8")
    location = re.findall(r'<location file="([^"]+)"', content)[-1]  # the first ones are members'
    return match[1] + location


class CppHeader(SphinxDirective):
    """`.. cpp-header:: singa/core/tensor.h` describes what the header declares."""

    required_arguments = 1

    def run(self) -> list[nodes.Node]:
        header = self.arguments[0]
        self.env.note_dependency(str(INCLUDE / header))
        if shutil.which("doxygen") is None:
            text = (INCLUDE / header).read_text(encoding="utf-8")
            return [nodes.literal_block(text, text, language="cpp")]
        return self.parse_text_to_nodes(f".. doxygenfile:: {header}\n")


def setup(app: Sphinx) -> dict[str, bool]:
    app.add_directive("cpp-header", CppHeader)
    app.connect("builder-inited", run_doxygen)
    return {"parallel_read_safe": True}
