"""Pages that need nothing but themselves: no network, no other files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from .._version import __version__
from ..drawing.html import Markup, table
from ..drawing.svg import COLOURS
from ..files.atomic import atomic_write


def write_page(path: Path, template: str, **values: Any) -> None:
    """Writes a page of a template in the folder `templates`. The write is atomic.

    Raises ImportError without Jinja2, OSError if writing fails.
    """
    try:
        import jinja2
    except ImportError as error:
        raise ImportError("pages need Jinja2: pip install jinja2") from error
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent / "templates"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {"percent": percent, "picture": lambda drawn: Markup(str(drawn))}
    environment.globals |= {"table": table, "version": __version__, "colours": COLOURS}
    text = environment.get_template(template).render(**values)
    with atomic_write(path, "w") as file:
        file.write(text)


def percent(share: float) -> str:
    """A share in per cent, with one decimal."""
    return f"{share * 100:.1f} %"
