"""Runs before each tutorial: links the examples, as in a clone, and shows figures of matplotlib in
light and dark."""

import base64
import io
import os
import warnings
from html import escape
from pathlib import Path

import matplotlib as mpl
from IPython import get_ipython

mpl.use("agg")
os.environ["TQDM_DISABLE"] = "1"  # a page would show each state of a bar

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.legend import Legend
from matplotlib.text import Text

INKS = {"light": "#1f2328", "dark": "#e6edf3"}


def recolour(figure: Figure, ink: str) -> None:
    """Draws texts, axes and frames in one colour."""
    for text in figure.findobj(Text):
        text.set_color(ink)
    for axes in figure.findobj(Axes):
        axes.tick_params(colors=ink, which="both")
        axes.patch.set_alpha(0)
        for spine in axes.spines.values():
            spine.set_edgecolor(ink)
    for legend in figure.findobj(Legend):
        legend.get_frame().set_facecolor("none")


def as_html(figure: Figure) -> str:
    """Two images, of which the page shows that of its mode."""
    titles = [text.get_text() for text in figure.texts]
    titles += [axes.get_title() for axes in figure.axes]
    alt = escape(", ".join(dict.fromkeys(filter(None, titles))) or "a figure", quote=True)
    images = []
    for mode, ink in INKS.items():
        recolour(figure, ink)
        file = io.BytesIO()
        figure.savefig(file, format="svg", transparent=True, bbox_inches="tight")
        content = base64.b64encode(file.getvalue()).decode()
        images.append(
            f'<img class="tutorial-figure only-{mode}" alt="{alt}" '
            f'src="data:image/svg+xml;base64,{content}">'
        )
    return "\n".join(images)


# Without the number of the cell in a temporary file.
warnings.formatwarning = lambda message, category, *_, **__: f"{category.__name__}: {message}\n"
examples = Path("examples")
if not examples.exists():
    examples.symlink_to(Path(os.environ["SINGA_CLONE"]) / "examples")
shell = get_ipython()
shell.display_formatter.formatters["text/html"].for_type(Figure, as_html)
