"""Where Graphviz is not installed, drawings are shown as the text that they are made from."""

import shutil

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.ext.graphviz import Graphviz


class GraphvizText(Graphviz):
    """The source of the drawing."""

    def run(self) -> list[nodes.Node]:
        text = "\n".join(self.content)
        return [nodes.literal_block(text, text, language="dot")]


def setup(app: Sphinx) -> dict[str, bool]:
    app.setup_extension("sphinx.ext.graphviz")
    if shutil.which("dot") is None:
        app.add_directive("graphviz", GraphvizText, override=True)
    return {"parallel_read_safe": True}
