"""Pages that need nothing but themselves: no network, no other files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from .._version import __version__
from ..drawing.html import Markup
from ..files.atomic import atomic_write, is_special


def page_template(name: str) -> Any:
    """A template in the folder `templates`. Raises OSError without Jinja2."""
    try:
        import jinja2
    except ImportError:
        raise OSError("pages need Jinja2: pip install jinja2") from None
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent / "templates"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {"percent": percent, "picture": lambda drawn: Markup(str(drawn))}
    environment.globals["version"] = __version__
    return environment.get_template(name)


def check_page(path: Path) -> None:
    """Raises ValueError for a file that is no page, which a page would replace."""
    if path.suffix.lower() not in (".html", ".htm") and not is_special(str(path)):
        raise ValueError(f"--out {path}: the name must end in .html")


def write_page(path: Path, template: Any, **values: Any) -> None:
    """Writes a page, atomically. Raises OSError if that fails."""
    text = template.render(**values)
    with atomic_write(path) as file:
        file.write(text.encode("utf-8", "backslashreplace"))  # names of files may be no text


def percent(share: float) -> str:
    """A share in per cent, with one decimal."""
    return f"{share * 100:.1f} %"
