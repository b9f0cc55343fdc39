"""singa_wrap offers what the Python modules use, SINGA's names, and little else."""

import re
from pathlib import Path

import singa
import singa_surface
from singa import singa_wrap

#: Names that neither uses, with the reason.
OTHERS = {
    # the codes of enumerations of which some are used
    *("ActivationKind_kCount", "BinaryOp_kCount", "ReduceOp_kCount"),
    *("PoolMode_kAverageExcludePad", "RnnMode_kRelu", "RnnMode_kTanh"),
    *("Preference_kFastest", "Preference_kLimitedWorkspace", "Preference_kNoWorkspace"),
    *("Preference_kReference", "PreferenceName"),
    # src/api/*.py and classes that SINGA's functions return
    *("CreateCudaDevice", "CudnnConvHandles", "DTypeName", "GetGpuProperties", "NumGpus"),
    *("Recorder", "TuningVersion"),
    # tests of kernels, of convolutions whose implementation is forced, and of plans
    *("ConvBackwardB", "ConvBackwardW", "ConvBackwardX", "FoldBatchNorm"),
    *("GpuProblem", "RefusedPlansHash"),
}


def _words(text: str) -> set[str]:
    return set(re.findall(r"\w+", text))


def test_each_name_is_used() -> None:
    root = Path(singa.__file__).resolve().parent
    files = [path for path in root.rglob("*.py") if path.name != "singa_wrap.py"]
    used = _words(" ".join(path.read_text() for path in files))
    surface = [text for name, text in vars(singa_surface).items() if name.startswith("WRAP")]
    singas = _words(" ".join(surface))
    names = {name for name in dir(singa_wrap) if not name.startswith("_")}
    assert names - used - singas - OTHERS == set()
    assert names - used - singas >= OTHERS
