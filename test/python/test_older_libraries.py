"""Libraries to link with for an older Linux (cmake/older_libraries.py)."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

_ROOT = Path(__file__).parents[2]

pytestmark = pytest.mark.skipif(
    not shutil.which("c++") or not shutil.which("readelf"), reason="needs a compiler and binutils"
)

_SOURCE = """
#include <cmath>
#include <condition_variable>
#include <filesystem>
#include <memory>
#include <mutex>
#include <sys/stat.h>

std::mutex mutex;
std::condition_variable changed;

extern "C" double Answer(double x, const char* path) {
  std::unique_lock<std::mutex> lock(mutex);
  changed.wait_for(lock, std::chrono::milliseconds(1));
  struct stat status;
  const bool there = stat(path, &status) == 0 && std::filesystem::exists(path);
  return there ? std::hypot(x, 4.0) : std::exp(x);
}
"""


def test_a_library_linked_with_them_needs_older_versions_and_works(tmp_path: Path) -> None:
    folder, library = tmp_path / "older", tmp_path / "answer.so"
    script = _ROOT / "cmake" / "older_libraries.py"
    subprocess.run([sys.executable, script, "c++", "readelf", folder], check=True)
    source = tmp_path / "answer.cc"
    source.write_text(_SOURCE)
    command = ["c++", "-std=c++20", "-O1", "-fPIC", "-shared", "-Wl,-z,defs", f"-L{folder}"]
    command += ["-Wl,--exclude-libs,libstdc++.a", source, _ROOT / "cmake" / "older_glibc.cc"]
    subprocess.run([*command, "-o", library], check=True)

    symbols = subprocess.run(
        ["readelf", "--dyn-syms", "--wide", library], check=True, capture_output=True, text=True
    ).stdout
    needed = re.findall(r" UND (\w+)@(GLIBC|GLIBCXX|CXXABI)_([\d.]+)", symbols)
    newest = {"GLIBC": (2, 28), "GLIBCXX": (3, 4, 24), "CXXABI": (1, 3, 11)}
    for name, family, version in needed:
        assert tuple(int(part) for part in version.split(".")) <= newest[family], name
    assert {"hypot", "exp", "pthread_cond_timedwait"} <= {name for name, _, _ in needed}
    assert not re.search(r" UND \w*(stat|__libc_single_threaded|clockwait)\b", symbols)

    code = f"""
import ctypes
library = ctypes.CDLL({str(library)!r})
library.Answer.restype = ctypes.c_double
library.Answer.argtypes = [ctypes.c_double, ctypes.c_char_p]
print(library.Answer(3.0, b"/"), library.Answer(0.0, b"/none"))
"""
    run = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert run.stdout.split() == ["5.0", "1.0"]
