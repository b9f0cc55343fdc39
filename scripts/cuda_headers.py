#!/usr/bin/env python3
"""Puts the headers of cuDNN and cuBLAS into this environment, <prefix>/include/nvidia.

PyPI has them only together with the libraries, a gigabyte that building does not need: pip says
where the packages are, and only the headers are read out of them. Does nothing when they are there.
"""

import json
import subprocess
import sys
import zipfile
from pathlib import Path, PurePosixPath

PACKAGES = ["nvidia-cudnn-cu13>=9.10,<10", "nvidia-cublas>=13,<14"]


def main() -> int:
    folder = Path(sys.prefix, "include", "nvidia")
    stamp = folder / ".packages"
    wanted = "\n".join(PACKAGES)
    if stamp.exists() and stamp.read_text(encoding="utf-8") == wanted:
        return 0
    if sys.prefix == sys.base_prefix:
        print("error: needs the Python of a virtual environment", file=sys.stderr)
        return 2
    # pip's own reader of remote archives; it has no public name.
    from pip._internal.network.lazy_wheel import LazyZipOverHTTP
    from pip._internal.network.session import PipSession

    print(f"== headers of {', '.join(PACKAGES)} into {folder}")
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    command += ["--dry-run", "--no-deps", "--ignore-installed", "--report", "-", *PACKAGES]
    report = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)
    folder.mkdir(parents=True, exist_ok=True)
    session = PipSession()
    for item in report["install"]:
        with zipfile.ZipFile(LazyZipOverHTTP(item["download_info"]["url"], session)) as archive:  # type: ignore[arg-type]
            for name in archive.namelist():
                path = PurePosixPath(name)
                if path.parent.name == "include" and path.suffix == ".h":
                    (folder / path.name).write_bytes(archive.read(name))
    stamp.write_text(wanted, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
