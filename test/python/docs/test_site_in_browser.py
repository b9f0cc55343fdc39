"""Pages of the site in headless Chromium: axe-core's rules, wide and narrow, light and dark.

SINGA_SITE names the folder that `make docs` has built; without it the tests are skipped.
"""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from browser import NARROW, WIDE, chromium, need, opened, violations

SITE = Path(os.environ.get("SINGA_SITE", ""))
PAGES = [
    "index",
    "start/install",  # tabs
    "tutorials/own_pictures",  # pictures of matplotlib
    "tutorials/memory",  # those of singa
    "how_it_works/call",  # a drawing
    "performance",  # wide tables
    "reference/python/metric",
    "reference/cpp/core_tensor",
    "search",
]

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not os.environ.get("SINGA_SITE"), reason="SINGA_SITE names no site"),
]


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    need("playwright", "axe_playwright_python", programs=["chromium"])
    with chromium() as found:
        yield found


@pytest.mark.parametrize("name", PAGES)
@pytest.mark.parametrize(("width", "scheme"), [(WIDE, "dark"), (NARROW, "light")])
def test_everyone_can_read_the_page(browser: Any, name: str, width: int, scheme: str) -> None:
    """No violation, and no scrolling to the side but within a table, a picture or code."""
    with opened(browser, SITE / f"{name}.html", width, scheme, SITE) as page:
        assert page.evaluate("document.documentElement.dataset.theme") == scheme
        assert violations(page) == []
        assert page.evaluate("document.documentElement.scrollWidth") <= width


@pytest.mark.parametrize(
    "name",
    [
        *("coming_from/pytorch", "training", "serving", "clusters"),
        *("start/install", "reference/command_line", "reference/python/layer"),
    ],
)
def test_code_is_not_cut(browser: Any, name: str) -> None:
    """Lines of programs and commands are whole in a wide window; only outputs scroll."""
    code = '.bd-article div[class*="highlight-"]:not(.highlight-none, .highlight-default) pre'
    with opened(browser, SITE / f"{name}.html", site=SITE) as page:
        found = page.eval_on_selector_all(
            code,
            """blocks => [blocks.length, blocks.filter(block =>
              block.scrollWidth > block.clientWidth).map(block => block.innerText)]""",
        )
    assert found[0] > 0
    assert found[1] == []


def test_the_site_says_from_which_commit_it_was_built(browser: Any) -> None:
    with opened(browser, SITE / "index.html", site=SITE) as page:
        assert page.locator(".commit code").inner_text().strip("+").isalnum()
        assert page.locator(".commit a", has_text="What does not work").count() == 1
