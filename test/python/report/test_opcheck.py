"""OPCHECK finds kernels that are wrong on purpose. They run in processes of their own."""

import json
import os
import struct
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import replay_calls
from replay_mutations import save
from singa.files.replay_file import replay
from singa.files.state_files import read_safetensors

pytestmark = [
    pytest.mark.cpu("the wrong kernels are the CPU's"),
    pytest.mark.skipif(not replay_calls.LIBRARY.exists(), reason="singa was built without tests"),
]
SUPPORT = Path(__file__).parents[1] / "support" / "calls"
BEGIN = """
import json, os, sys
import numpy as np
import singa
from singa import autograd, layer, model, singa_wrap as wrap, tensor
from replay_calls import ALWAYS, NEVER, WHERE_OPAQUE, add_wrong_kernels, bfloat16, integers, make

def images(*shape):
    return tensor.from_numpy(np.random.default_rng(0).uniform(size=shape).astype(np.float32))
"""


def child(program: str, *arguments: str | os.PathLike[str]) -> subprocess.CompletedProcess[str]:
    """Runs a program that has the names of BEGIN."""
    paths = [str(SUPPORT), *os.environ.get("PYTHONPATH", "").split(os.pathsep)]
    return subprocess.run(
        [sys.executable, "-c", BEGIN + program, *map(str, arguments)],
        env=os.environ | {"PYTHONPATH": os.pathsep.join(paths)},
        capture_output=True,
        text=True,
        timeout=300,
    )


def result_of(program: str, *arguments: str | os.PathLike[str]) -> dict[str, object]:
    """The JSON object that the program prints last."""
    done = child(program, *arguments)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def command(spec: str, wrong: int, file: Path) -> subprocess.CompletedProcess[str]:
    """Runs `python -m singa replay FILE` with a kernel that is wrong in the given way."""
    return child(
        f"add_wrong_kernels({spec!r}, {wrong})\n"
        "from singa.__main__ import main\n"
        "sys.argv = ['singa', 'replay', sys.argv[1]]\n"
        "sys.exit(main())",
        file,
    )


@pytest.fixture(scope="module")
def mismatch(tmp_path_factory: pytest.TempPathFactory) -> dict[str, object]:
    """A wrong convolution: the error, the statistics, and the file."""
    folder = tmp_path_factory.mktemp("mismatch")
    return result_of(
        """
add_wrong_kernels("ConvSpec")
class Net(layer.Layer):
    def __init__(self):
        super().__init__()
        self.conv = layer.Conv2d(4, 3)
    def forward(self, x):
        return self.conv(x)
net, x = Net(), images(2, 3, 6, 6)
error = None
with singa.opcheck(directory=sys.argv[1]) as check:
    try:
        net(x)
    except RuntimeError as raised:
        error = str(raised)
files = [os.path.join(sys.argv[1], name) for name in os.listdir(sys.argv[1])]
print(json.dumps({"error": error, "stats": check.stats()["ConvForward"], "files": files}))
""",
        folder,
    )


def test_the_error_names_operation_layer_implementation_and_worst_element(mismatch) -> None:
    error = mismatch["error"]
    assert error.startswith("[ConvForward] wrong ")
    (file,) = mismatch["files"]
    for part in (
        " disagrees with reference in layer conv: output y at (0, 0, 0, 0) of (2, 4, 4, 4): ",
        ", allowed difference ",
        "; inputs x (2, 3, 6, 6) float32 on cpu, W (4, 3, 3, 3) float32 on cpu",
        f". Run again: python -m singa replay {file}",
    ):
        assert part in error


def test_a_mismatch_is_counted(mismatch) -> None:
    stats = mismatch["stats"]
    assert (stats["checked"], stats["failed"], stats["uncompared"]) == (1, 1, 0)
    assert stats["worst_ratio"] > 100


def test_the_file_is_safetensors_with_the_call_and_what_was_computed(mismatch) -> None:
    (file,) = mismatch["files"]
    from safetensors.numpy import load_file

    stored = load_file(file)
    assert sorted(stored) == ["input.0", "input.1", "input.2", "output.0"]
    assert stored["output.0"].shape == (2, 4, 4, 4)
    arrays, _, metadata = read_safetensors(file)
    np.testing.assert_array_equal(arrays["input.0"], stored["input.0"])
    assert metadata["op"] == "ConvForward"
    assert metadata["layer"] == "conv"
    assert metadata["implementation"] == "wrong"
    assert metadata["field.kernel_h"] == "3"
    assert metadata["field.pad_top"] == "0"


def test_the_command_says_that_it_still_differs(mismatch, tmp_path: Path) -> None:
    (file,) = mismatch["files"]
    before = sorted(Path(file).parent.iterdir())
    done = command("ConvSpec", replay_calls.ALWAYS, file)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("singa replay: [ConvForward] wrong ")
    assert " in layer conv: output y at (0, 0, 0, 0) of (2, 4, 4, 4): " in done.stderr
    assert "Run again" not in done.stderr
    assert sorted(Path(file).parent.iterdir()) == before, "a replay saves nothing"


def test_the_command_says_that_it_agrees(mismatch) -> None:
    (file,) = mismatch["files"]
    done = command("ConvSpec", replay_calls.NEVER, file)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("ConvForward on wrong ")
    assert done.stdout.endswith(" agrees with reference\n")


def test_the_command_says_that_nobody_has_the_kernel(mismatch) -> None:
    (file,) = mismatch["files"]
    done = command("SoftmaxSpec", replay_calls.ALWAYS, file)
    assert (done.returncode, done.stdout) == (1, "")
    no_such = f"[replay] this build has no wrong for ConvForward (in {file})\n"
    assert done.stderr == f"singa replay: {no_such}"


OPAQUE = {
    "ConvSpec": "layer.Conv2d(16, 3, padding=1)(images(2, 16, 6, 6))",
    "UnarySpec": "wrap.Unary(wrap.UnaryOp_kRelu, wrap.ToBlocked(make(2, 20, 3, 3)))",
    "BinarySpec": "wrap.Binary(wrap.BinaryOp_kAdd, *[wrap.ToBlocked(make(2, 20, 3, 3))] * 2)",
    "ConcatSpec": "wrap.Concat([wrap.ToBlocked(make(2, 16, 3, 3))] * 2, 1)",
    "PoolingForwardSpec": """
x = wrap.ToBlocked(make(2, 16, 6, 6))
wrap.PoolingForward(wrap.PoolingHandle(x, [2, 2], [2, 2], [0, 0]), x, True)
""",
    # The filter's resting layout is that of its gradient, and momentum has the same.
    "OptimizerSpec": """
autograd.training = True
conv = layer.Conv2d(16, 3, bias=False)
singa.opt.SGD(lr=0.1, momentum=0.9)(autograd.reduce_sum(conv(images(2, 16, 6, 6))))
""",
}


@pytest.mark.parametrize("spec", OPAQUE)
def test_a_mismatch_that_depends_on_layouts_comes_again(spec: str, tmp_path: Path) -> None:
    result = result_of(
        """
add_wrong_kernels(sys.argv[2], WHERE_OPAQUE)
with singa.opcheck(directory=sys.argv[1], action="warn") as check:
    exec(sys.argv[3])
print(json.dumps({"failed": sum(op["failed"] for op in check.stats().values())}))
""",
        tmp_path,
        spec,
        OPAQUE[spec],
    )
    if not result["failed"]:
        pytest.skip("this build, or this CPU, has no such layouts")
    for file in tmp_path.iterdir():
        _, _, metadata = read_safetensors(file)
        assert any(name.endswith(".layout") for name in metadata)
        done = command(spec, replay_calls.WHERE_OPAQUE, file)
        assert done.returncode == 1
        assert "disagrees with reference" in done.stderr


def test_strides_are_those_of_the_call(tmp_path: Path) -> None:
    result_of(
        """
add_wrong_kernels("BinarySpec")
with singa.opcheck(directory=sys.argv[1], action="warn"):
    wrap.Binary(wrap.BinaryOp_kMul, make(3, 4).Transpose(), make(3).Broadcast((4, 3)))
print("{}")
""",
        tmp_path,
    )
    (file,) = tmp_path.iterdir()
    _, _, metadata = read_safetensors(file)
    assert metadata["input.0.strides"] == "(1, 4)"
    assert metadata["input.1.strides"] == "(0, 1)"
    assert "disagrees" in command("BinarySpec", replay_calls.ALWAYS, file).stderr
    assert command("BinarySpec", replay_calls.NEVER, file).returncode == 0


def test_every_type_goes_through_a_file(tmp_path: Path) -> None:
    names = ["float32", "float64", "float16", "bfloat16", "int32", "int64", "int8", "uint8"]
    result = result_of(
        """
from singa.files.replay_file import replay
add_wrong_kernels("BinarySpec")
with singa.opcheck(directory=sys.argv[1], action="warn") as check:
    for name in json.loads(sys.argv[2]):
        t = bfloat16(2, 3) if name == "bfloat16" else make(2, 3).AsType(getattr(wrap, {
            "float32": "kFloat32", "float64": "kFloat64", "float16": "kFloat16", "int32": "kInt32",
            "int64": "kInt64", "int8": "kInt8", "uint8": "kUInt8"}[name]))
        wrap.Binary(wrap.BinaryOp_kAdd, t, t)
    wrap.Binary(wrap.BinaryOp_kAnd, *[make(3).AsType(wrap.kBool)] * 2)
found = check.stats()
for name in os.listdir(sys.argv[1]):
    try:
        replay(os.path.join(sys.argv[1], name))
        raise SystemExit("it agrees")
    except RuntimeError as error:
        assert "disagrees with reference" in str(error), error
print(json.dumps(found))
""",
        tmp_path,
        json.dumps(names),
    )
    assert result["Add"]["failed"] == len(names)
    assert result["And"]["failed"] == 1
    types = {read_safetensors(file)[0]["output.0"].dtype.name for file in tmp_path.iterdir()}
    assert types == {*names, "uint16", "bool"} - {"bfloat16"}


def test_a_warning_goes_on_and_one_in_so_many_is_checked(tmp_path: Path) -> None:
    done = child(
        """
add_wrong_kernels("SoftmaxSpec")
with singa.opcheck(every=3, action="warn", directory=sys.argv[1]) as check:
    for _ in range(7):
        wrap.Softmax(make(2, 2), 1)
print(json.dumps(check.stats()["Softmax"]))
""",
        tmp_path,
    )
    assert done.returncode == 0, done.stderr
    stats = json.loads(done.stdout.splitlines()[-1])
    assert (stats["checked"], stats["failed"]) == (3, 3)
    assert done.stderr.count("singa: [Softmax] wrong ") == 3
    assert len(list(tmp_path.iterdir())) == 3


def test_nothing_to_compare_is_not_checked(tmp_path: Path) -> None:
    result = result_of(
        """
import warnings
add_wrong_kernels("SoftmaxSpec")
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    with singa.opcheck(ops=["Softmax"], directory=sys.argv[1]) as check:
        wrap.Softmax(make(0, 2), 1)
print(json.dumps(check.stats()["Softmax"] | {"warned": [str(w.message) for w in caught]}))
""",
        tmp_path,
    )
    assert (result["checked"], result["failed"], result["uncompared"]) == (0, 0, 1)
    assert result["warned"] == ["[opcheck] nothing named Softmax was checked"]


def test_a_replay_that_compares_nothing_does_not_agree(mismatch, tmp_path: Path) -> None:
    """A file of a call without elements is valid, but there is nothing to compare."""
    result_of(
        """
add_wrong_kernels("SoftmaxSpec")
with singa.opcheck(directory=sys.argv[1], action="warn"):
    wrap.Softmax(make(1, 2), 1)
print("{}")
""",
        tmp_path,
    )
    (file,) = tmp_path.iterdir()
    arrays, _, metadata = read_safetensors(file)
    save(file, ({name: a[:0] for name, a in arrays.items()}, metadata | {"field.outer": "0"}))
    done = command("SoftmaxSpec", replay_calls.NEVER, file)
    assert done.returncode == 1
    assert "gave nothing that could be compared" in done.stderr


def test_the_temporary_file_follows_no_link(tmp_path: Path) -> None:
    """A symbolic link under a predictable name is not followed."""
    folder, victim = tmp_path / "folder", tmp_path / "victim"
    folder.mkdir()
    victim.write_text("precious")
    result_of(
        """
for number in range(1, 5):
    for suffix in (".replay", ".replay.tmp", ".safetensors", ".safetensors.tmp"):
        name = f"opcheck-Softmax-{os.getpid()}-{number}{suffix}"
        os.symlink(sys.argv[2], os.path.join(sys.argv[1], name))
add_wrong_kernels("SoftmaxSpec")
with singa.opcheck(directory=sys.argv[1], action="warn"):
    wrap.Softmax(make(2, 2), 1)
    wrap.Softmax(make(2, 2), 1)
print("{}")
""",
        folder,
        victim,
    )
    assert victim.read_text() == "precious"
    files = [path for path in folder.iterdir() if not path.is_symlink()]
    assert len(files) == 2, "two whole files of different names, and nothing temporary"
    umask = os.umask(0)
    os.umask(umask)
    assert all(file.stat().st_mode & 0o777 == 0o666 & ~umask for file in files)


# ---- files


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a file of each family."""
    folder = tmp_path_factory.mktemp("calls")
    done = subprocess.run(
        [sys.executable, SUPPORT / "replay_calls.py", folder], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return folder


def test_every_family_comes_again(files: Path) -> None:
    """Each file reproduces the mismatch of a wrong kernel; correct kernels agree."""
    program = """
from collections import Counter
from pathlib import Path
from singa.files.replay_file import replay
from singa.files.state_files import read_safetensors
report = {"specs": add_wrong_kernels("", int(sys.argv[2])), "agree": [], "differ": []}
for file in sorted(Path(sys.argv[1]).iterdir()):
    spec = read_safetensors(file)[2]["spec"]
    try:
        assert replay(file).endswith(" agrees with reference")
        report["agree"].append(spec)
    except RuntimeError as error:
        assert "disagrees with reference" in str(error), error
        report["differ"].append(spec)
print(json.dumps(report))
"""
    wrong = result_of(program, files, str(replay_calls.ALWAYS))
    assert wrong["agree"] == []
    # ConvStatisticsSpec and BatchNormFromSumsSpec are called by recorded steps on a GPU alone,
    # ExpandConvSpec by recorded inference where kernels that are not wrong are the first ones.
    assert len(set(wrong["differ"])) == wrong["specs"] - 3, "a Spec has no file"
    assert result_of(program, files, str(replay_calls.NEVER))["differ"] == []


def test_hostile_files_are_refused(files: Path) -> None:
    """Well-formed files with wrong counts, types, shapes, ranges, layouts and values are
    rejected."""
    done = subprocess.run(
        [sys.executable, "-X", "faulthandler", SUPPORT / "replay_mutations.py", files, "6"],
        capture_output=True,
        text=True,
        timeout=600,
    )
    lines = done.stdout.splitlines()
    failed = [line for line in lines if line.startswith("FAILED")]
    assert done.returncode == 0, (failed, lines[-1:], done.stderr[-2000:])
    assert len(lines) > 750


@pytest.fixture
def sound(files: Path) -> tuple[Path, dict[str, np.ndarray], dict[str, str]]:
    for file in files.glob("opcheck-LinearForward-*"):
        arrays, _, metadata = read_safetensors(file)
        if metadata["field.m"] == "3":
            break
    return file, arrays, metadata | {"implementation": "reference", "description": "reference"}


def without(metadata: dict[str, str], name: str) -> dict[str, str]:
    return {key: value for key, value in metadata.items() if key != name}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda a, m: (a, m | {"field.m": "4"}), "a must have 16 elements"),
        (lambda a, m: (a, m | {"field.k": "-1"}), "negative dimension"),
        (lambda a, m: (a, m | {"field.kind": "6"}), r"kind must be in \[0, 5\], got 6"),
        (lambda a, m: (a, m | {"field.relu": "2"}), r"relu must be in \[0, 1\], got 2"),
        (lambda a, m: (a, m | {"field.threads": "0"}), "threads must be in"),
        (lambda a, m: (a, m | {"field.alignment": "3"}), "power of two"),
        (lambda a, m: (a, m | {"field.c_cols": "0"}), "does not broadcast"),
        (lambda a, m: (a, m | {"field.dtype": "4"}), "a must be float64"),
        (lambda a, m: (a, m | {"field.a_batch": "(2,)"}), "differ in rank"),
        (lambda a, m: (a, without(m, "field.n")), "no field 'n'"),
        (lambda a, m: (a, m | {"field.more": "1"}), "fields instead of"),
        (lambda a, m: (a, m | {"inputs": "2"}), "no argument is 'input.2'"),
        (lambda a, m: (a, m | {"inputs": "4"}), "the call has 4 inputs instead of 3"),
        (lambda a, m: (a, m | {"outputs": "0"}), "no argument is 'output.0'"),
        (lambda a, m: (a, m | {"output.0.is_input": "0"}), "output 0 cannot be input 0"),
        (lambda a, m: (a, m | {"input.0.strides": "(1, 3)"}), "a must be contiguous"),
        (lambda a, m: (a, m | {"input.0.strides": "(99999999999, 1)"}), "cannot lie with strides"),
        (lambda a, m: (a, m | {"spec": "N5singa7NoSpecE"}), "does not have"),
        (lambda a, m: (a, m | {"device": "7"}), "device must be in"),
        (lambda a, m: (a, m | {"replay": "1"}), "no replay file of this version"),
        (lambda a, m: (a, without(m, "replay")), "no replay file of this version"),
        (lambda a, m: (a | {"input.0": a["input.0"].ravel()[:3]}, m), "a must have 12 elements"),
        (lambda a, m: (a | {"input.0": a["input.0"].astype("f8")}, m), "a must be float32"),
        (lambda a, m: (without(a, "input.1"), m), r"b is an empty tensor \(None\)"),
        (lambda a, m: (without(a, "output.0"), m), r"y is an empty tensor \(None\)"),
        (lambda a, m: (a | {"other": a["input.0"]}, m), "no argument is 'other'"),
    ],
)
def test_what_the_operation_would_not_take(
    sound: tuple[Path, dict[str, np.ndarray], dict[str, str]],
    tmp_path: Path,
    change: Callable[..., tuple[dict[str, np.ndarray], dict[str, str]]],
    message: str,
) -> None:
    _, arrays, metadata = sound
    path = tmp_path / "call.safetensors"
    save(path, (arrays, metadata))
    assert replay(path) == "LinearForward on reference agrees with reference"
    save(path, change(arrays, metadata))
    with pytest.raises(ValueError, match=message) as error:
        replay(path)
    assert str(path) in str(error.value)


def test_another_plan_than_the_one_of_the_file_is_named(
    sound: tuple[Path, dict[str, np.ndarray], dict[str, str]], tmp_path: Path
) -> None:
    _, arrays, metadata = sound
    path = tmp_path / "call.safetensors"
    save(path, (arrays, metadata | {"description": "reference of old"}))
    assert replay(path) == (
        "LinearForward on reference (the file is of reference of old) agrees with reference"
    )


def test_every_damaged_byte_is_noticed(
    sound: tuple[Path, dict[str, np.ndarray], dict[str, str]], tmp_path: Path
) -> None:
    content = sound[0].read_bytes()
    path = tmp_path / "call.safetensors"
    (length,) = struct.unpack("<Q", content[:8])
    padding = range(8 + len(content[8 : 8 + length].rstrip()), 8 + length)
    for i in sorted({*range(0, len(content), 7)} - {*padding}):
        path.write_bytes(content[:i] + bytes([content[i] ^ 1]) + content[i + 1 :])
        with pytest.raises(ValueError, match=r"call\.safetensors"):
            replay(path)
    for size in range(0, len(content), 97):
        path.write_bytes(content[:size])
        with pytest.raises(ValueError, match=r"call\.safetensors"):
            replay(path)
