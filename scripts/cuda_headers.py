#!/usr/bin/env python3
"""Installs the headers of cuDNN, cuBLAS and NCCL into <prefix>/include/nvidia of this environment.

PyPI has them only in packages with the libraries, a gigabyte that a build does not need. pip finds
the packages. If the index serves parts of files, only the headers are downloaded. Does nothing if
the headers are already installed.
"""

import contextlib
import json
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

PACKAGES = ["nvidia-cudnn-cu13>=9.10,<10", "nvidia-cublas>=13,<14", "nvidia-nccl-cu13>=2.27,<3"]


PIP = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check"]


@contextlib.contextmanager
def opened(url: str) -> Iterator[zipfile.ZipFile]:
    """Opens the wheel at `url`. Reads parts of it if the index allows that, else downloads it."""
    with contextlib.ExitStack() as stack:
        try:
            # pip's reader of remote archives. It is not public, so it may change.
            from pip._internal.network.lazy_wheel import LazyZipOverHTTP
            from pip._internal.network.session import PipSession

            archive = zipfile.ZipFile(LazyZipOverHTTP(url, PipSession()))  # type: ignore[arg-type]
        except Exception as error:
            print(f"reading parts: {error!r:.200}; downloading all of {url.rpartition('/')[2]}")
            folder = stack.enter_context(tempfile.TemporaryDirectory())
            subprocess.run([*PIP, "download", "--no-deps", "-d", folder, url], check=True)
            archive = zipfile.ZipFile(next(Path(folder).iterdir()))
        yield stack.enter_context(archive)


def main() -> int:
    folder = Path(sys.prefix, "include", "nvidia")
    stamp = folder / ".packages"
    wanted = "\n".join(PACKAGES)
    if stamp.exists() and stamp.read_text(encoding="utf-8") == wanted:
        return 0
    if sys.prefix == sys.base_prefix:
        print("error: needs the Python of a virtual environment", file=sys.stderr)
        return 2
    print(f"== headers of {', '.join(PACKAGES)} into {folder}")
    command = [
        *PIP,
        "install",
        "--dry-run",
        "--no-deps",
        "--ignore-installed",
        "--report",
        "-",
        *PACKAGES,
    ]
    report = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)
    folder.mkdir(parents=True, exist_ok=True)
    for item in report["install"]:
        with opened(item["download_info"]["url"]) as archive:
            for name in archive.namelist():
                path = PurePosixPath(name)
                if path.parent.name == "include" and path.suffix == ".h":
                    (folder / path.name).write_bytes(archive.read(name))
    stamp.write_text(wanted, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
