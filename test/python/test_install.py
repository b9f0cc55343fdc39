"""What `cmake --install` installs, used by a program that is built without CMake."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import singa

_BUILD = Path(singa.__file__).parents[2]
_FOLDERS = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
_CMAKE = shutil.which("cmake", path=_FOLDERS)

PROGRAM = """
#include <cstdio>
#include <singa/singa.h>

int main() {
  const singa::Tensor x = singa::Full({2, 3}, 2), y = singa::MatMul(x, x.Transpose());
  std::printf("%s %g", y.ToString().c_str(), y.SliceAxis(0, 0, 1).SliceAxis(1, 0, 1).Item());
}
"""


def _run(*command: str, **environment: str) -> str:
    done = subprocess.run(command, env=os.environ | environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_program_is_built_with_pkg_config(tmp_path: Path) -> None:
    """From a folder that was moved after it was installed."""
    if not (_BUILD / "cmake_install.cmake").exists() or not _CMAKE:
        pytest.skip("this is not a build folder, or CMake is missing")
    if not shutil.which("pkg-config") or not shutil.which("c++"):
        pytest.skip("needs pkg-config and a compiler")
    for component in ("library", "headers"):
        _run(_CMAKE, "--install", str(_BUILD), "--prefix", "first", "--component", component)
    moved = Path("first").rename("moved").resolve()
    found = {"PKG_CONFIG_PATH": str(moved / "lib" / "pkgconfig")}
    version = _run("pkg-config", "--modversion", "singa", **found).strip()
    assert version == singa.__version__
    flags = _run("pkg-config", "--cflags", "--libs", "singa", **found).split()
    folder = Path(_run("pkg-config", "--variable=libdir", "singa", **found).strip())
    assert folder.resolve() == moved / "lib"
    Path("main.cc").write_text(PROGRAM)
    _run("c++", "-std=c++20", "main.cc", *flags, f"-Wl,-rpath,{folder}", "-o", "program")
    assert _run("./program") == "(2, 2) float32 on cpu 12"
    needed = _run("readelf", "-d", "program")
    assert f"[libsinga.so.{'.'.join(version.split('.')[:2])}]" in needed
