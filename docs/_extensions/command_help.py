"""The directive `command-help`: what `python -m singa COMMAND --help` prints."""

import os
import subprocess
import sys

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective


class CommandHelp(SphinxDirective):
    """`{command-help} train` shows the help of `python -m singa train`."""

    optional_arguments = 1
    final_argument_whitespace = True

    def run(self) -> list[nodes.Node]:
        command = [sys.executable, "-m", "singa", *" ".join(self.arguments).split(), "--help"]
        environment = {**os.environ, "COLUMNS": "88", "NO_COLOR": "1"}
        result = subprocess.run(
            command, capture_output=True, text=True, check=True, env=environment
        )
        return [nodes.literal_block(result.stdout, result.stdout, language="text")]


def setup(app: Sphinx) -> dict[str, bool]:
    app.add_directive("command-help", CommandHelp)
    return {"parallel_read_safe": True}
