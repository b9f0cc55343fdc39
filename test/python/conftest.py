"""Shared by all Python tests: which of them run, and on which device, and the PyTorch oracle."""

import importlib.util
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import device_under_test
import pytest

_NO_TORCH = "PyTorch is not installed"  # why a comparison with it is skipped

# Files and folders that are not about operations and tensors. They run neither on a GPU nor with
# --tensors-only. Single tests that are about the CPU alone say so by the marker `cpu`.
_ABOUT_THE_HOST = {
    "data": "arrays and files of the host",
    "examples": "programs of their own, their files and options",
    "test_commands.py": "the command line",
    "test_fuzz.py": "programs of their own",
    "test_image_tool.py": "images of the host",
    "test_package.py": "the package and its settings",
    "test_readme.py": "documents",
    "test_required_gpu.py": "the tests themselves",
    "test_singa_surface.py": "names and arguments",
    "test_snapshot.py": "files",
    "test_soak.py": "programs of their own, and files",
    "training/test_curves.py": "pictures",
    "training/test_files.py": "files",
    "training/test_log.py": "files",
    "training/test_progress.py": "what is printed",
    "wrong_calls/test_files.py": "files",
}


def pytest_addoption(parser: pytest.Parser) -> None:
    """For runs in which only what C++ does can come out differently."""
    parser.addoption(
        "--tensors-only",
        action="store_true",
        help="leave out files, pictures, programs and names: what Python does by itself",
    )


def pytest_configure() -> None:
    """Programs that tests start find the same singa from any folder. Where there is no GPU, tests
    that want one get the emulated one of the build folder."""
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
    """Comparisons with PyTorch skip where it is not installed; CI must not pass that way."""
    if os.environ.get("SINGA_REQUIRE_TORCH") == "1" and importlib.util.find_spec("torch") is None:
        pytest.exit("SINGA_REQUIRE_TORCH=1, but PyTorch is not installed", returncode=1)
    if missing := device_under_test.missing_gpu():  # likewise
        pytest.exit(missing, returncode=1)


def pytest_report_header() -> list[str]:
    """Which tests prove less than their names say."""
    if "emulated" not in Path(os.environ.get("SINGA_CUDA_LIBRARY", "")).name:
        return []
    return ["the GPU is emulated: what tests marked cudnn confirm is our own emulation of cuDNN"]


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_terminal_summary(terminalreporter: Any) -> Iterator[None]:
    """One line for all comparisons with PyTorch that were skipped, instead of one for each test."""
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
    """Before the first tensor: some are made where tests are defined."""
    _problem.append(device_under_test.make_default())


_problem: list[str] = []


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leaves out on a GPU what is about the CPU, and everything where there is none."""
    if config.getoption("--tensors-only"):
        left_out = [item for item in items if _about_the_host(item)]
        items[:] = [item for item in items if not _about_the_host(item)]
        config.hook.pytest_deselected(items=left_out)
    if not device_under_test.ON_GPU:
        return
    for item in items:
        if reason := _problem[0] or _about_the_cpu(item):
            item.add_marker(pytest.mark.skip(reason=reason))


def _about_the_host(item: pytest.Item) -> str:
    path = item.path.relative_to(Path(__file__).parent)
    reasons = [reason for name, reason in _ABOUT_THE_HOST.items() if path.is_relative_to(name)]
    return reasons[0] if reasons else ""


def _about_the_cpu(item: pytest.Item) -> str:
    marker = item.get_closest_marker("cpu")
    reason = _about_the_host(item) or (marker.args[0] if marker else "")
    return f"about the CPU: {reason}" if reason else ""


@pytest.fixture(scope="session", autouse=True)
def _elsewhere(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, Path]]:
    """(the folder in which pytest was started, the empty one in which fixtures and tests run)."""
    start, elsewhere = Path.cwd(), tmp_path_factory.mktemp("elsewhere")
    os.chdir(elsewhere)
    yield start, elsewhere
    os.chdir(start)


@pytest.fixture(autouse=True)
def _start_folder_is_left_alone(_elsewhere: tuple[Path, Path]) -> Iterator[None]:
    """Each test starts in an empty folder; what it leaves there is not seen by the next one."""
    start, elsewhere = _elsewhere
    os.chdir(elsewhere)
    before = set(os.listdir(start))
    yield
    os.chdir(elsewhere)
    for left in elsewhere.iterdir():
        shutil.rmtree(left) if left.is_dir() and not left.is_symlink() else left.unlink()
    gained = set(os.listdir(start)) - before - {"__pycache__", ".pytest_cache", ".hypothesis"}
    assert not gained, f"the test wrote to the folder in which pytest was started: {gained}"


@pytest.fixture
def training() -> Iterator[None]:
    """Operations are recorded for backward, as they are while a model is trained."""
    from singa import autograd

    before = autograd.training
    autograd.training = True
    yield
    autograd.training = before


@pytest.fixture(scope="session")
def torch() -> ModuleType:
    """PyTorch, the oracle. A test that takes this fixture is skipped where there is none."""
    return pytest.importorskip("torch", reason=_NO_TORCH)
