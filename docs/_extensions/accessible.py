"""Changes HTML of Sphinx and the theme that axe-core finds hard to read with a screen reader.

`test/python/docs/test_site_in_browser.py` runs axe-core.
"""

import re
from typing import Any

from docutils import nodes
from sphinx.application import Sphinx

#: A signature of several lines, which is written as a list of descriptions without terms.
SIGNATURE = re.compile(r"<dl>\n((?:<dd>.*</dd>\n)+)</dl>")
LINE = re.compile(r"<dd>(.*)</dd>")
#: A drawing, whose description is shown only where it cannot be.
DRAWING = re.compile(
    r'<div class="graphviz"><object (.*?)>\n<p class="warning">(.*?)</p>', re.DOTALL
)


def with_lines(match: re.Match[str]) -> str:
    lines = LINE.sub(r'<span class="sig-line">\1</span>', match[1])
    return f'<span class="sig-lines">{lines}</span>'


def with_name(match: re.Match[str]) -> str:
    name = match[2].replace('"', "&quot;")
    return (
        f'<div class="graphviz" tabindex="0"><object {match[1]} role="img" aria-label="{name}">\n'
        f'<p class="warning">{match[2]}</p>'
    )


def mend(
    app: Sphinx, page: str, template: str, context: dict[str, Any], doctree: nodes.document | None
) -> None:
    if "body" in context:
        context["body"] = DRAWING.sub(with_name, SIGNATURE.sub(with_lines, context["body"]))
    contents = context["generate_toctree_html"]

    def with_names(*args: Any, **options: Any) -> str:
        """The navigation, where the signs that open a part of it have a name."""
        return str(contents(*args, **options)).replace(
            "<summary>", '<summary aria-label="Show the pages of this part">'
        )

    context["generate_toctree_html"] = with_names


def setup(app: Sphinx) -> dict[str, bool]:
    app.connect("html-page-context", mend, priority=900)  # after the theme
    return {"parallel_read_safe": True, "parallel_write_safe": True}
