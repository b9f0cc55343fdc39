"""Pictures and curves as SVG."""

import math
import re

import pytest
from html_page import Page
from singa.drawing.chart import chart, steps
from singa.drawing.svg import COLOURS, Picture, shortened


def test_picture(tmp_path):
    picture = Picture(100, 50, 'a < "b"')
    picture.box(1, 2, 30, 4, 0, note="<i>")
    picture.text(5, 6, "x & y", colour="faint", anchor="end", tail="tail")
    picture.path([(0, 0), (1.25, 2)], 1, dashes="2 2")
    text = str(picture)
    Page(text)
    assert 'aria-label="a &lt; &quot;b&quot;"' in text
    assert '<rect x="1.0" y="2.0" width="30.0" height="4.0" class="f0"><title>&lt;i&gt;<' in text
    assert 'text-anchor="end">x &amp; y<tspan class="f-faint" font-weight="400"> tail<' in text
    assert '<path d="M0.0 0.0L1.2 2.0" class="s1" fill="none" stroke-width="1"' in text
    picture.save(tmp_path / "a.svg")
    assert (tmp_path / "a.svg").read_text() == text + "\n"
    assert repr(picture) == '<Picture 100 x 50: a < "b">'


def luminance(colour):
    """Relative luminance of a colour, by WCAG 2."""
    channels = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    return sum(w * c for w, c in zip((0.2126, 0.7152, 0.0722), linear, strict=True))


def contrast(one, other):
    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


def test_contrasts():
    """3 for lines and boxes, 4.5 for texts, in both modes (WCAG 2, AA)."""
    light, dark = str(Picture(1, 1, "")).split("@media(prefers-color-scheme:dark)")
    for number, style in enumerate((light, dark)):
        fills = dict(re.findall(r"\.f-(\w+)\{fill:(#\w{6})\}", style))
        for name in ("ink", "faint"):
            assert contrast(fills[name], fills["paper"]) >= 4.5
        for colours in COLOURS:
            assert f"fill:{colours[number]}" in style
            assert contrast(colours[number], fills["paper"]) >= 3


def test_shortened():
    assert shortened("abc", 100) == "abc"
    assert shortened("abcdefghij", 40, 10) == "abcdef…"
    assert shortened("abc", 0) == "…"


@pytest.mark.parametrize(
    ("low", "high", "expected"),
    [
        (0, 10, [0, 2, 4, 6, 8, 10]),
        (0.13, 0.88, [0.2, 0.4, 0.6, 0.8]),
        (1, 4, [1, 2, 3, 4]),
        (-3, 1e3, [0, 500, 1000]),
        (2, 2, [2]),
    ],
)
def test_steps(low, high, expected):
    assert steps(low, high) == pytest.approx(expected)


def points(text):
    """Places of the dots, by their notes."""
    found = re.findall(r'<circle cx="([\d.]+)" cy="([\d.]+)"[^>]*><title>(.*?)<', text)
    return {note: (float(x), float(y)) for x, y, note in found}


def test_chart_places_points_in_proportion():
    curves = {"train": ([1, 2, 4], [0.0, 0.25, 1.0]), "test": ([1, 2, 4], [0.5, math.nan, 0.5])}
    text = str(chart("Accuracy", curves, percent=True))
    Page(text)
    place = points(text)
    assert len(place) == 5  # NaN leaves a gap
    (x1, y1), (x2, y2), (x4, y4) = (
        place[f"train, epoch {n}: {p}%"] for n, p in ((1, "0.00"), (2, "25.00"), (4, "100.00"))
    )
    assert (x2 - x1) / (x4 - x1) == pytest.approx(1 / 3, abs=1e-3)
    assert (y1 - y2) / (y1 - y4) == pytest.approx(1 / 4, abs=2e-3)
    assert ">50 %<" in text
    assert ">train<" in text
    assert ">train<" not in str(chart("Loss", {"train": ([1], [3.0])}))  # its title says it


def test_curves_look_different():
    """By colour and by dashes, up to three times as many as there are colours."""
    count = 3 * len(COLOURS)
    curves = {f"run {n}": ([1, 2], [0.0, n]) for n in range(count)}
    lines = re.findall(r'class="s(\d)" fill="none" stroke-width="2"(.*)/>', str(chart("x", curves)))
    assert len(lines) == 2 * count  # with the legend
    assert len(set(lines)) == count
    assert lines[0][1] != lines[2][1]  # neighbours differ without colours, too


def test_chart_of_one_epoch_and_of_nothing():
    (place,) = points(str(chart("Loss", {"a": ([7], [2.0])}))).values()
    assert 52 < place[0] < 408
    with pytest.raises(ValueError, match=r"\[chart\] Loss has no finite value"):
        chart("Loss", {"a": ([1, 2], [math.inf, math.nan])})
