"""Writes the files that a page of docs shows in full: files_of_page.py PAGE FOLDER.

Such a file is a line with its path in backquotes, and the block of code after it.
"""

import re
import sys
from pathlib import Path

_FILE = re.compile(
    r"^`([^`\n]+)`[^\n]*:\n\n```\w+(?: fragment)?\n(.*?)^```$", re.MULTILINE | re.DOTALL
)


def files_of(page: str) -> dict[str, str]:
    """Contents by path."""
    return dict(_FILE.findall(page))


if __name__ == "__main__":
    for path, content in files_of(Path(sys.argv[1]).read_text(encoding="utf-8")).items():
        file = Path(sys.argv[2], path)
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(content, encoding="utf-8")
