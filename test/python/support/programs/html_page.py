"""Reads HTML pages strictly, for tests of what they show and of what they would load."""

from html.parser import HTMLParser
from pathlib import Path

VOID = {"br", "img", "meta", "input", "hr", "link"}
#: Attributes that make a browser load something.
LOADING = {"src", "href", "srcset", "data", "action", "poster", "background"}


class Page(HTMLParser):
    """A page, or a part of one. Raises AssertionError where a tag is not closed in its place, for
    an id that occurs twice, and for an external reference.

    tables    of texts: rows of cells, in the order of the page
    headings  texts of h1, h2 and h3
    texts     of all elements, joined
    images    attributes of the pictures
    """

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.tables: list[list[list[str]]] = []
        self.headings: list[str] = []
        self.images: list[dict[str, str | None]] = []
        self.ids: list[str] = []
        self.links: list[str] = []
        self.labels: list[str] = []  # of regions, which a screen reader lists
        self._open: list[str] = []
        self._texts: list[str] = []
        self.feed(text)
        self.close()
        assert self._open == []
        assert len(set(self.ids)) == len(self.ids)
        assert len(set(self.labels)) == len(self.labels)
        assert {link.removeprefix("#") for link in self.links} <= set(self.ids)
        for outside in ("<script", "<link", "<iframe", "@import", "url("):
            assert outside not in text.lower()
        self.text = " ".join(" ".join(self._texts).split())

    @classmethod
    def read(cls, path: Path) -> "Page":
        text = path.read_text()
        assert text.startswith("<!DOCTYPE html>\n<html lang=")
        return cls(text)

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        values = dict(attributes)
        assert len(values) == len(attributes), f"<{tag}> has an attribute twice"
        for name in LOADING & values.keys():
            value = values[name] or ""
            assert value.startswith(("#", "data:")), f"<{tag} {name}={value[:60]!r}>"
            if name == "href":
                self.links.append(value)
        if "id" in values:
            self.ids.append(values["id"] or "")
        if values.get("role") == "region":
            self.labels.append(values["aria-label"] or "")
        if tag == "img":
            self.images.append(values)
            assert values.get("alt")
        if tag == "svg":
            assert values.get("role") == "img"
            assert values.get("aria-label")
        if tag not in VOID:
            self._open.append(tag)
        if tag == "table":
            self.tables.append([])
        elif tag == "tr":
            self.tables[-1].append([])
        elif tag in ("td", "th"):
            self.tables[-1][-1].append("")
        elif tag in ("h1", "h2", "h3"):
            self.headings.append("")

    def handle_startendtag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attributes)
        if tag not in VOID:
            self.handle_endtag(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self._open, f"</{tag}> closes nothing"
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        inside = set(self._open)
        if not inside & {"style", "title", "svg"}:
            self._texts.append(data)
        if inside & {"td", "th"}:
            self.tables[-1][-1][-1] += data.strip()
        if inside & {"h1", "h2", "h3"}:
            self.headings[-1] += data

    def table(self, *heads: str) -> list[list[str]]:
        """The rows of the table with these heads."""
        (found,) = [table[1:] for table in self.tables if table[0] == list(heads)]
        return found
