"""The package: cost of imports, the command line, and settings of the process."""

import ast
import gc
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import singa
from singa import __main__ as command_line
from singa import autograd, plan_cache, singa_wrap, tensor


def _python(code: str) -> str:
    return subprocess.run(
        [sys.executable, "-W", "error", "-c", code], check=True, capture_output=True, text=True
    ).stdout


def test_tests_and_their_programs_run_in_an_empty_folder() -> None:
    """The folder in which pytest was started may have files of `make train`."""
    assert os.listdir() == []
    assert _python("import os, singa; print(os.listdir())").split() == ["[]"]


def test_importing_singa_loads_nothing_else() -> None:
    code = (
        "import sys, singa\n"
        "print([name for name in sys.modules if name.startswith('singa.')], 'numpy' in sys.modules)"
    )
    assert _python(code).split() == ["['singa._version']", "False"]


def test_training_and_files_are_clean_in_development_mode(tmp_path: Path) -> None:
    """In development mode, steps of a model, files of all formats and the threads of the loader
    give no warning, leave no file or thread open, and print nothing at exit."""
    code = f"""
import sys
from pathlib import Path
import numpy as np
import singa
from singa import models, opt, tensor
from singa.data import DataLoader

singa.seed(1)
random = np.random.default_rng(0)
images = random.standard_normal((7, 1, 28, 28)).astype(np.float32)
net = models.create("lenet")
net.set_optimizer(opt.SGD(lr=0.01, momentum=0.9))
net.compile([tensor.from_numpy(images[:3])], is_train=True)
losses = []
for epoch in range(4):
    for x, y in DataLoader((images, np.arange(7)), 3, num_workers=2):
        out, loss = net(tensor.from_numpy(x), tensor.from_numpy(y))
        losses.append(float(loss.numpy()[0]))
net.eval()
x = tensor.from_numpy(images)
expected = net(x).numpy()
for name in ("a.safetensors", "a.npz", "a.zip"):
    path = Path({str(tmp_path)!r}) / name
    net.save_states(str(path))
    other = models.create("lenet")
    other.compile([x], is_train=False)
    other.load_states(str(path))
    other.eval()
    assert np.array_equal(other(x).numpy(), expected), name
print(len(losses), sum(losses[-3:]) < sum(losses[:3]))
"""
    command = [sys.executable, "-X", "dev", "-W", "error", "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.split() == ["12", "True"]


def test_a_script_that_only_computes_loads_nothing_heavy() -> None:
    """Modules for files, pictures, downloads and processes are imported only by code that uses
    them. NumPy's own imports do not count."""
    heavy = {"PIL", "asyncio", "concurrent", "html", "http", "json", "logging", "matplotlib"}
    heavy |= {"multiprocessing", "pathlib", "safetensors", "secrets", "shutil", "socket", "ssl"}
    heavy |= {"subprocess", "tempfile", "tqdm", "urllib", "zipfile"}
    own = {f"singa.{name}" for name in ("compat", "data", "files", "models", "report", "training")}
    code = (
        "import sys, numpy\n"
        "before = set(sys.modules)\n"
        "import singa\n"
        "from singa import autograd, tensor, layer, model, opt\n"
        "print(*sorted(set(sys.modules) - before))"
    )
    loaded = _python(code).split()
    assert "singa.opt.optimizer" in loaded
    assert {name.split(".")[0] for name in loaded} & heavy == set()
    assert set(loaded) & own == set()


@pytest.mark.parametrize("before", [None, "3"])
def test_importing_starts_no_threads(before: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Counts threads beyond those of NumPy's BLAS. OpenBLAS gets its number of threads from the
    environment during the import."""
    if before is None:
        monkeypatch.delenv("OPENBLAS_NUM_THREADS", raising=False)
    else:
        monkeypatch.setenv("OPENBLAS_NUM_THREADS", before)
    code = (
        "import os, numpy\n"
        "threads = len(os.listdir('/proc/self/task'))\n"
        "from singa import tensor\n"
        "print(len(os.listdir('/proc/self/task')) - threads, os.getenv('OPENBLAS_NUM_THREADS'))"
    )
    assert _python(code).split() == ["0", str(before)]


@pytest.mark.parametrize(
    ("given", "spins"),
    [({}, "3000"), ({"GOMP_SPINCOUNT": "17"}, "17"), ({"OMP_WAIT_POLICY": "passive"}, "0")],
    ids=str,
)
def test_threads_that_wait_soon_sleep(
    given: dict[str, str], spins: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """GNU OpenMP prints what it found in the environment when it is loaded."""
    for name in ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT"):
        monkeypatch.delenv(name, raising=False)
    for name, value in {**given, "OMP_DISPLAY_ENV": "verbose"}.items():
        monkeypatch.setenv(name, value)
    code = "import os\nfrom singa import tensor\nprint('left', os.getenv('GOMP_SPINCOUNT'))"
    said = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    if "GOMP_SPINCOUNT" not in said.stderr:
        pytest.skip("another OpenMP than GNU's")
    assert f"GOMP_SPINCOUNT = '{spins}'" in said.stderr
    assert said.stdout.split() == ["left", given.get("GOMP_SPINCOUNT", "None")]


def test_parts_are_there_without_an_import() -> None:
    code = "import singa\nprint(singa.tensor.ones((2,)).shape, singa.autograd.training)"
    assert _python(code).split() == ["(2,)", "False"]
    with pytest.raises(AttributeError, match="no_such_part"):
        singa.no_such_part  # noqa: B018
    assert set(singa.__all__) <= set(dir(singa))
    modules = {"autograd", "data", "device", "layer", "model", "models", "onnx", "opt", "tensor"}
    assert modules <= set(_python("import singa; print(*dir(singa))").split())
    for name in singa.__all__:
        assert getattr(singa, name) is not None


@pytest.mark.parametrize(
    ("name", "module"),
    [
        ("utils", "compat.utils"),
        ("image_tool", "compat.image_tool"),
        ("snapshot", "compat.snapshot"),
        ("sonnx", "compat.sonnx"),
        ("proto.core_pb2", "compat.core_pb2"),
        ("proto.model_pb2", "compat.model_pb2"),
        ("bench", "report.bench"),
        ("plan_cache", "report.plan_cache"),
    ],
)
def test_older_names_are_the_modules_themselves(name: str, module: str) -> None:
    code = f"import singa.{name} as one, singa.{module} as other; print(one is other)"
    assert _python(code).split() == ["True"]
    code = f"import singa; print(singa.{name}.__name__)"
    assert _python(code).split() == [f"singa.{module}"]


def test_doctor_knows_the_process() -> None:
    report = singa.doctor()
    assert report["singa"] == singa.__version__
    assert report["threads"] == singa.get_num_threads()
    assert len(report["openmp"]) >= 1
    assert str(report).splitlines()[0].split() == ["singa", singa.__version__]


def test_doctor_finds_two_openmp_runtimes_of_one_name(tmp_path: Path) -> None:
    """Packages with their own libgomp cause this."""
    code = f"""
import ctypes, shutil, singa
(first,) = singa.doctor()["openmp"]
second = shutil.copy(first, {str(tmp_path)!r})
ctypes.CDLL(second)
report = singa.doctor()
assert report["openmp"] == sorted([first, second]), report
print(report["problems"])
"""
    assert "2 OpenMP runtimes are loaded" in _python(code)


def test_threads() -> None:
    before = singa.get_num_threads()
    try:
        singa.set_num_threads(1)
        assert singa.get_num_threads() == 1
        for n in (0, -1, 100_000):
            with pytest.raises(ValueError, match="threads"):
                singa.set_num_threads(n)
    finally:
        singa.set_num_threads(before)


def test_device_memory_counts_tensors() -> None:
    gc.collect()  # what earlier tests have left in cycles must not be freed meanwhile
    before = singa.device_memory()
    t = tensor.ones((1000, 1000))
    after = singa.device_memory()
    assert after["live"] - before["live"] >= t.memsize()
    assert after["peak"] >= after["live"]
    assert after["reserved"] >= after["live"]
    assert after["allocations"] > before["allocations"]
    del t
    assert singa.device_memory()["live"] == before["live"]


def test_plan_cache() -> None:
    x = tensor.ones((3, 5))
    autograd.exp(x)
    before = plan_cache.stats()
    autograd.exp(x)
    after = plan_cache.stats()
    assert (after["hits"] - before["hits"], after["misses"]) == (1, before["misses"])
    assert after["by_op"]["Exp"]["hits"] == before["by_op"]["Exp"]["hits"] + 1
    plan_cache.clear()
    assert plan_cache.stats()["entries"] == 0
    limits = plan_cache.stats()
    try:
        plan_cache.set_limit(entries=2)
        for f in (autograd.exp, autograd.sin, autograd.cos):
            f(x)
        assert plan_cache.stats()["entries"] <= 2
        plan_cache.enable(False)
        assert not plan_cache.enabled()
        hits = plan_cache.stats()["hits"]
        autograd.cos(x)
        assert plan_cache.stats()["hits"] == hits
    finally:
        plan_cache.enable(True)
        plan_cache.set_limit(limits["max_bytes"], limits["max_entries"])
    with pytest.raises(ValueError, match="negative"):
        plan_cache.set_limit(bytes=-1)


def test_opcheck_counts_and_restores() -> None:
    from singa import singa_wrap

    before = singa_wrap.OpcheckEvery()
    with singa.opcheck(every=2) as check:
        assert singa_wrap.OpcheckEvery() == 2
        with singa.opcheck(ops=["Exp"], action="warn"):
            assert singa_wrap.OpcheckEvery() == 1
        assert singa_wrap.OpcheckEvery() == 2
    assert singa_wrap.OpcheckEvery() == before
    assert isinstance(check.stats(), dict)
    for wrong in ({"every": -1}, {"action": "stop"}):
        with pytest.raises(ValueError, match="opcheck"):
            singa.opcheck(**wrong)  # type: ignore[arg-type]


def test_layout_report() -> None:
    singa.layout_report()
    assert singa.layout_report(record=False) == []


def test_command_line(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert command_line.main(["doctor"]) == 0
    assert capsys.readouterr().out.startswith("singa")
    for command in ([], ["doctor"], ["replay"], ["cmake-dir"]):
        with pytest.raises(SystemExit) as exit_:
            command_line.main([*command, "--help"])
        assert exit_.value.code == 0
        assert "usage" in capsys.readouterr().out
    none = tmp_path / "none"
    none.write_bytes(b"no mismatch")
    for path in (none, tmp_path / "missing"):
        assert command_line.main(["replay", str(path)]) == 1
        assert capsys.readouterr().err
    assert command_line.main(["cmake-dir"]) == (0 if _installed() else 1)


def _installed() -> bool:
    return any(Path(command_line.__file__).resolve().parent.glob("lib*/cmake/singa"))


def test_interrupt_leaves_the_process_usable() -> None:
    code = """
import os, signal, threading
from singa import tensor
t = tensor.random((400, 400))
signal.signal(signal.SIGINT, signal.default_int_handler)  # background jobs may ignore it
timer = threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT))
timer.start()
try:
    while True:
        t = t @ t * 1e-3
except KeyboardInterrupt:
    print(tensor.ones((2,)).numpy().sum())
"""
    assert _python(code).strip() == "2.0"


@pytest.mark.parametrize("first", ["torch", "singa"])
def test_beside_pytorch_in_both_orders(first: str, torch: object) -> None:
    imports = ["import torch", "from singa import tensor"]
    code = "\n".join(imports if first == "torch" else imports[::-1])
    code += """
import singa
threads = torch.get_num_threads()
a = tensor.ones((64, 64))
b = a @ a
assert (torch.ones(64, 64) @ torch.ones(64, 64)).sum() == 64**3 == float(b.sum())
assert torch.get_num_threads() == threads
print([name for name in singa.doctor()["openmp"]])
"""
    environment = dict(os.environ)
    out = subprocess.run(
        [sys.executable, "-c", code], check=True, capture_output=True, text=True, env=environment
    ).stdout
    assert "libgomp.so.1" in out


def test_strict_mode_changes_convolutions_by_rounding_only() -> None:
    random = np.random.default_rng(0)
    x = tensor.from_numpy(random.standard_normal((8, 64, 16, 16)).astype(np.float32))
    w = tensor.from_numpy((random.standard_normal((64, 64, 3, 3)) / 24).astype(np.float32))
    handle = singa_wrap.ConvHandle(x.data, [3, 3], [1, 1], [1, 1], 64, 64, False)
    before = singa.is_strict()
    results = {}
    try:
        for strict in (True, False):
            singa.set_strict(strict)
            assert singa.is_strict() is strict
            results[strict] = tensor.to_numpy(autograd.conv2d(handle, x, w))
    finally:
        singa.set_strict(before)
    np.testing.assert_allclose(results[False], results[True], rtol=0, atol=3e-5)


def test_the_stub_of_singa_wrap_declares_what_is_there() -> None:
    """Types in singa_wrap.pyi are written by hand; the module is SWIG's."""
    stub = Path(singa.__file__).resolve().parent / "singa_wrap.pyi"
    classes = [
        node
        for node in ast.parse(stub.read_text()).body
        if isinstance(node, ast.ClassDef) and node.name != "_Wrapped"
    ]
    assert {"Tensor", "Device", "ConvHandle", "TapeTensor"} <= {node.name for node in classes}
    for node in classes:
        found = getattr(singa_wrap, node.name)
        for method in node.body:
            if isinstance(method, ast.FunctionDef):
                assert hasattr(found, method.name), f"{node.name}.{method.name}"
    raw = tensor.ones((2, 3)).data
    assert (raw.shape(), raw.strides(), raw.rank(), raw.bytes()) == ((2, 3), (3, 1), 2, 24)
    assert [type(value) for value in (raw.data_type(), raw.device().id())] == [int, int]
    assert [raw.empty(), raw.is_blocked(), raw.is_contiguous()] == [False, False, True]
    assert isinstance(raw.device(), singa_wrap.Device)
    assert isinstance(raw.device().name(), str)
