"""Configuration of all Python tests: which tests run, on which device, and the PyTorch oracle."""

import contextlib
import gc
import importlib.util
import os
import re
import shutil
import signal
import sys
import zlib
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import device_under_test
import pytest

_NO_TORCH = "PyTorch is not installed"  # reason for skipping a comparison

# Files and folders that do not test operations or tensors. They run neither on a GPU nor with
# --tensors-only. The marker `cpu` marks single tests of the CPU.
_ABOUT_THE_HOST = {
    "commands": "programs of their own, their files and options",
    "compat/test_image_batch_iter.py": "images of the host",
    "compat/test_image_tool.py": "images of the host",
    "compat/test_snapshot.py": "files",
    "data": "arrays and files of the host",
    "distributed": "several processes, and files that they share",
    "docs": "documents",
    "drawing/test_table.py": "what is printed",
    "examples": "programs of their own, their files and options",
    "files/test_atomic.py": "files",
    "launcher": "processes",
    "raw/test_tracebacks.py": "what is printed",
    "test_commands.py": "the command line",
    "test_docstrings.py": "documents",
    "test_exported_symbols.py": "names",
    "test_faults.py": "programs of their own",
    "test_figures.py": "documents",
    "test_formula_tables.py": "what a compiler says",
    "test_fuzz.py": "programs of their own",
    "test_golden.py": "files of earlier versions, and bits of the CPU",
    "test_guard.py": "statistics of times",
    "test_install.py": "programs of their own",
    "test_metric.py": "arrays of the host",
    "test_notebook.py": "what a notebook shows",
    "test_package.py": "the package and its settings",
    "test_readme.py": "documents",
    "test_required_gpu.py": "the tests themselves",
    "test_singa_surface.py": "names and arguments",
    "test_soak.py": "programs of their own, and files",
    "training/test_curves.py": "pictures",
    "training/test_log.py": "files",
    "training/test_picture_classifier.py": "files and pictures of the host",
    "training/test_pretrained.py": "files and pictures of the host",
    "training/test_progress.py": "what is printed",
    "wrong_calls/test_files.py": "files",
}

# Files about objects of Python: their tests compute little. They run on a GPU, but not with
# --tensors-only.
_ABOUT_PYTHON = {
    "graph/test_calls.py": "calls of Python",
    "graph/test_effects.py": "effects in Python",
    "graph/test_memory_picture.py": "pictures",
    "graph/test_obstacles.py": "what the code of a step does",
    "graph/test_reachable.py": "what the code of a step can reach",
    "graph/test_same_objects.py": "objects of Python",
    "graph/test_settings.py": "what the code of a step reads",
    "layer/test_base.py": "names, states and copies",
    "layer/test_containers.py": "names, states and copies",
    "layer/test_hooks.py": "functions of Python",
    "layer/test_late.py": "names and states",
    "layer/test_settings.py": "attributes",
    "models/test_description.py": "JSON values",
    "wrong_calls/test_table.py": "the tests themselves",
}


def pytest_addoption(parser: pytest.Parser) -> None:
    """Options for runs that repeat tests with another build, processor or device."""
    parser.addoption(
        "--tensors-only",
        action="store_true",
        help="leave out tests of files, pictures, programs and names, which only Python affects",
    )
    parser.addoption(
        "--part",
        type=int,
        default=1,
        metavar="N",
        help="of the tests of each operator, layer and network of the tables run every N-th",
    )


def pytest_configure() -> None:
    """Makes programs that tests start find the same singa from any folder. Without a GPU, tests
    that need one get the emulated GPU of the build folder."""
    # Shells start background jobs with SIGINT ignored, and programs that tests start inherit that.
    if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if paths := os.environ.get("PYTHONPATH"):
        absolute = [os.path.abspath(path) for path in paths.split(os.pathsep) if path]
        os.environ["PYTHONPATH"] = os.pathsep.join(absolute)
    found = importlib.util.find_spec("singa")
    if found is None or found.origin is None or Path("/dev/nvidia0").exists():
        return
    library = Path(found.origin).parents[2] / "lib" / "libsinga_cuda_emulated.so"
    if library.exists():
        os.environ.setdefault("SINGA_CUDA_LIBRARY", str(library))


def pytest_sessionstart(session: pytest.Session) -> None:
    """Raises an error if PyTorch or a GPU is required and missing, because tests would be
    skipped."""
    if os.environ.get("SINGA_REQUIRE_TORCH") == "1" and importlib.util.find_spec("torch") is None:
        pytest.exit("SINGA_REQUIRE_TORCH=1, but PyTorch is not installed", returncode=1)
    if missing := device_under_test.missing_gpu():
        pytest.exit(missing, returncode=1)


def pytest_report_header() -> list[str]:
    """Prints that the GPU is emulated, if it is, because tests prove less then."""
    if "emulated" not in Path(os.environ.get("SINGA_CUDA_LIBRARY", "")).name:
        return []
    return ["the GPU is emulated: tests marked cudnn test the emulation of cuDNN"]


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_terminal_summary(terminalreporter: Any) -> Iterator[None]:
    """Prints one line for all comparisons with PyTorch that were skipped, instead of one for
    each."""
    stats = terminalreporter.stats
    skipped = stats.get("skipped", [])
    comparisons = [report for report in skipped if report.longrepr[2].endswith(_NO_TORCH)]
    if not comparisons:
        return (yield)
    stats["skipped"] = [report for report in skipped if report not in comparisons]
    try:
        yield
    finally:
        stats["skipped"] = skipped
        terminalreporter.write_line(
            f"{len(comparisons)} comparisons with PyTorch skipped: "
            "scripts/venv.sh .venv torch installs it"
        )


def pytest_collection(session: pytest.Session) -> None:
    """Sets the default device before tests are collected, because some modules create tensors."""
    _problem.append(device_under_test.make_default())


_problem: list[str] = []


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Removes tests of the CPU from runs on a GPU, and all tests if there is no GPU."""
    left_out = _not_in_part(items, config.getoption("--part"))
    if config.getoption("--tensors-only"):
        left_out |= {item for item in items if _about_the_host(item) or _about(_ABOUT_PYTHON, item)}
    if left_out:
        items[:] = [item for item in items if item not in left_out]
        config.hook.pytest_deselected(items=[*left_out])
    if not device_under_test.ON_GPU:
        return
    for item in items:
        if reason := _problem[0] or _about_the_cpu(item):
            item.add_marker(pytest.mark.skip(reason=reason))


def _not_in_part(items: list[pytest.Item], part: int) -> set[pytest.Item]:
    """What `--part` leaves out: of each operator and layer all but every N-th test, where rows
    begin with different ones, so that each test runs for some of them; of the networks all but
    every N-th."""
    seen: Counter[str] = Counter()
    left_out = set()
    for item in items:
        parameters = getattr(getattr(item, "callspec", None), "params", {})
        case = parameters.get("case")
        row = getattr(case, "name", "")
        network = item.path.parent.name == "models" and (
            parameters.get("executed") or parameters.get("name")
        )
        if not row and not network:
            continue
        if (zlib.crc32(str(row or network).encode()) + seen[row]) % part:
            left_out.add(item)
        seen[row] += bool(row)
    return left_out


def _about_the_host(item: pytest.Item) -> str:
    return _about(_ABOUT_THE_HOST, item)


def _about(files: dict[str, str], item: pytest.Item) -> str:
    """The reason of the file or folder to which a test belongs."""
    path = item.path.relative_to(Path(__file__).parent)
    return next((reason for name, reason in files.items() if path.is_relative_to(name)), "")


def _about_the_cpu(item: pytest.Item) -> str:
    marker = item.get_closest_marker("cpu")
    reason = _about_the_host(item) or (marker.args[0] if marker else "")
    return f"about the CPU: {reason}" if reason else ""


_failed: list[str] = []


@pytest.hookimpl(trylast=True)
def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Ends a worker of pytest-xdist whose GPU is unusable after a failure: after an illegal access
    all further calls of the process fail. pytest-xdist starts another worker."""
    if report.failed:
        _failed.append(report.nodeid)
    if report.when != "teardown" or not _failed:
        return
    _failed.clear()
    on_worker = device_under_test.ON_GPU and "PYTEST_XDIST_WORKER" in os.environ
    if on_worker and (problem := device_under_test.spoiled()):
        print(f"{report.nodeid}: the GPU is unusable: {problem}", file=sys.__stderr__)
        os._exit(1)


@pytest.fixture(scope="session", autouse=True)
def _elsewhere(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, Path]]:
    """(folder in which pytest was started, empty folder in which fixtures and tests run)."""
    start, elsewhere = Path.cwd(), tmp_path_factory.mktemp("elsewhere")
    os.chdir(elsewhere)
    yield start, elsewhere
    os.chdir(start)


#: What pytest, and tools that run beside it, write to the folder of the project. pytest makes its
#: cache under another name first.
_OF_TOOLS = re.compile(
    r"__pycache__|dist|pytest-cache-files-|\.(pytest|ruff|mypy)_cache|\.hypothesis|\.venv.*"
)


@pytest.fixture(autouse=True)
def _start_folder_is_left_alone(_elsewhere: tuple[Path, Path]) -> Iterator[None]:
    """Starts each test in an empty folder, which is emptied after the test."""
    start, elsewhere = _elsewhere
    os.chdir(elsewhere)
    before = set(os.listdir(start))
    yield
    os.chdir(elsewhere)
    for left in elsewhere.iterdir():
        shutil.rmtree(left) if left.is_dir() and not left.is_symlink() else left.unlink()
    gained = {name for name in set(os.listdir(start)) - before if not _OF_TOOLS.match(name)}
    assert not gained, f"the test wrote to the folder in which pytest was started: {gained}"


@pytest.fixture(scope="module")
def quick_collections() -> None:
    """Garbage collections look at what the module makes, not at all that was imported before."""
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="module", autouse=True)
def _thread_count_is_left_alone() -> Iterator[None]:
    """Restores the number of threads, which affects the bits of later training in this process."""
    import singa

    before = singa.get_num_threads()
    yield
    assert singa.get_num_threads() == before, "the module changed the number of threads"


@pytest.fixture(scope="module", autouse=True)
def _training_is_restored_after_a_module() -> Iterator[None]:
    """Restores `autograd.training`, which fixtures that train a network set: also those of the
    session, which are made before this one."""
    from singa import autograd

    autograd.training = False
    with _training_restored():
        yield


@pytest.fixture(autouse=True)
def _training_is_restored_after_a_test() -> Iterator[None]:
    """Restores `autograd.training`, which a model's train() sets."""
    with _training_restored():
        yield


@contextlib.contextmanager
def _training_restored() -> Iterator[None]:
    from singa import autograd

    before = autograd.training
    yield
    autograd.training = before


@pytest.fixture
def training() -> Iterator[None]:
    """Turns `autograd.training` on, so that operations are recorded for backward."""
    from singa import autograd

    before = autograd.training
    autograd.training = True
    yield
    autograd.training = before


@pytest.fixture(autouse=True)
def _same_weights_of_torch() -> None:
    """Modules of PyTorch have the same weights in each run."""
    if found := sys.modules.get("torch"):
        # Not torch.manual_seed, which formats the stack twice for GPUs that are used later.
        found.default_generator.manual_seed(0)


@pytest.fixture(scope="session")
def torch() -> ModuleType:
    """PyTorch, the oracle. A test that uses this fixture is skipped if PyTorch is not installed."""
    return pytest.importorskip("torch", reason=_NO_TORCH)
