"""Settings of the site that `make docs` builds (https://www.sphinx-doc.org).

Tutorials are executed by MyST-NB while they are read. `_extensions` has the directives of our own.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

DOCS = Path(__file__).parent
ROOT = DOCS.parent
sys.path.insert(0, str(DOCS / "_extensions"))

import singa  # noqa: E402  # the reference describes the package that is imported
from singa.drawing import svg  # noqa: E402


def commit() -> str:
    """The commit that the pages are built from, with "+" where files differ from it."""
    git = ["git", "-C", str(ROOT), "describe", "--always", "--abbrev=12", "--dirty=+"]
    result = subprocess.run(git, capture_output=True, text=True, check=False)
    return result.stdout.strip() or "not from a git repository"


project = "singa"
author = "The singa developers"
copyright = author
version = release = singa.__version__

extensions = [
    "myst_nb",
    "sphinx_copybutton",
    "sphinx_design",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.graphviz",
    "sphinx.ext.napoleon",
    "accessible",
    "command_help",
    "drawings",
    "python_reference",
]
exclude_patterns = ["_*"]
nitpicky = False
default_role = "py:obj"  # docstrings say `name`
suppress_warnings = [
    "duplicate_declaration.cpp",  # each header opens the namespace
    "mystnb.unknown_mime_type",
]

# Pages in Markdown
myst_enable_extensions = ["colon_fence", "deflist", "dollarmath", "substitution"]
myst_heading_anchors = 4
myst_substitutions = {"version": version}

# Tutorials
nb_execution_mode = "force"  # whenever a page is read
nb_execution_in_temp = True
nb_execution_timeout = 120
nb_execution_raise_on_error = False  # an error is a warning, and those fail the build
nb_execution_show_tb = True
nb_merge_streams = True
os.environ["SINGA_CLONE"] = str(ROOT)  # for tutorials/_setup.py
os.environ["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
os.environ.setdefault("OMP_WAIT_POLICY", "passive")  # tutorials run beside each other

# Reference
autosummary_generate = False
autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_preserve_defaults = True
python_use_unqualified_type_names = True
python_maximum_signature_line_length = 88
napoleon_google_docstring = False
napoleon_use_rtype = False
add_module_names = False
if shutil.which("doxygen"):
    extensions.append("breathe")
    breathe_projects = {"singa": str(ROOT / "build" / "doxygen" / "xml")}
    breathe_default_project = "singa"
extensions.append("cpp_reference")

# Look
html_theme = "pydata_sphinx_theme"
html_title = "singa"
html_static_path = ["_static"]
html_css_files = ["singa.css"]
templates_path = ["_templates"]
html_copy_source = False
html_show_sourcelink = False
html_context = {
    "commit": commit(),
    "default_mode": "auto",
    "picture_style": "\n".join(
        svg._style(dark).replace(".singa-picture", f'html[data-theme="{mode}"] .singa-picture')
        for dark, mode in enumerate(("light", "dark"))
    ),
}
html_theme_options = {
    "logo": {"text": "singa"},
    "header_links_before_dropdown": 8,
    "navbar_align": "left",
    "navbar_persistent": [],
    "navbar_end": ["search-button-field", "theme-switcher"],
    "footer_start": ["commit"],
    "footer_end": [],
    "secondary_sidebar_items": ["page-toc"],
    "show_prev_next": True,
    "show_toc_level": 2,
    "pygments_light_style": "a11y-high-contrast-light",
    "pygments_dark_style": "a11y-high-contrast-dark",
}
html_sidebars = {"roadmap": [], "index": []}
graphviz_output_format = "svg"

# Links to other sites: `make linkcheck`
linkcheck_ignore = [r"http://localhost"]
linkcheck_timeout = 30
copybutton_exclude = ".linenos, .gp, .go"
