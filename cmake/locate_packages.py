"""Prints, as JSON, where this interpreter's build packages lie. Used by SingaPython.cmake."""

import importlib.metadata
import json
import shutil
import sysconfig
from pathlib import Path


def file_of(distribution: str, name: str) -> Path | None:
    """The path of the file called `name` that `distribution` installed, if it is installed."""
    try:
        files = importlib.metadata.files(distribution) or []
    except importlib.metadata.PackageNotFoundError:
        return None
    for entry in files:
        if entry.name == name:
            path = Path(entry.locate()).resolve()
            if path.exists():
                return path
    return None


found: dict[str, str] = {}

dnnl = file_of("onednn-devel-cpu-gomp", "dnnl-config.cmake")
if dnnl:
    found["dnnl_DIR"] = str(dnnl.parent)

cblas = file_of("scipy-openblas32", "cblas.h")
if cblas:
    found["openblas"] = str(cblas.parent.parent)

scripts = sysconfig.get_path("scripts")
swig_h = file_of("swig", "swig.swg")
swig = shutil.which("swig", path=scripts) or (swig_h and shutil.which("swig"))
if swig:
    found["swig"] = swig

print(json.dumps(found))
