"""Golden files (test/golden): the present code reads what earlier versions have written, and gets
the same values. The first losses of networks are those of earlier versions."""

import json
import os
import random
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import replay_calls
import replay_mutations
import singa
from network_table import ALL_NETWORKS
from onnx_runtime import runtime_outputs
from ranks import FailedRank, in_ranks
from singa import autograd, opt, tensor, tuning
from singa.files.replay_file import replay
from singa.files.state_files import read_safetensors
from singa.training import JsonLinesLog, checkpoint, read_log
from singa.training.picture_classifier import PictureClassifier

sys.path.append(str(Path(__file__).parents[1] / "golden"))
import losses
import write

GOLDEN = Path(__file__).parents[1] / "golden"
SUPPORT = Path(__file__).parent / "support" / "calls"
Numbers = dict[str, Any]

FOLDERS = sorted([path.parent for path in GOLDEN.glob("*/expected.json")])
EXPECTED = {folder: json.loads((folder / "expected.json").read_text()) for folder in FOLDERS}


def cases(key: str, ranks: int = 0) -> list[Any]:
    """Parameters (folder, name) for each name that the expected values of a folder have under
    `key`. With `ranks`, only checkpoints of one rank (1) or of several (2)."""
    return [
        pytest.param(folder, name, id=f"{folder.name}-{name}")
        for folder, expected in EXPECTED.items()
        for name in expected[key]
        if not ranks or (write.RECIPES[name].ranks > 1) == (ranks > 1)
    ]


MODELS = sorted(GOLDEN.glob("*/models/*.safetensors"))
CALLS = sorted(GOLDEN.glob("*/replay/*.safetensors"))

each_folder = pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)


@pytest.fixture(scope="module", autouse=True)
def _one_thread() -> Iterator[None]:
    """The files were written with one thread, on which bits may depend."""
    before = singa.get_num_threads()
    singa.set_num_threads(1)
    yield
    singa.set_num_threads(before)


@pytest.fixture(autouse=True)
def _no_choices() -> Iterator[None]:
    """Empties the table of choices, and restores the generators of NumPy and Python."""
    states = random.getstate(), np.random.get_state()  # noqa: NPY002
    tuning.clear()
    yield
    tuning.clear()
    random.setstate(states[0])
    np.random.set_state(states[1])  # noqa: NPY002


def check_arrays(found: dict[str, np.ndarray], path: Path) -> None:
    """Checks that arrays have the names, types and bits of those in an .npz file."""
    expected = dict(np.load(path))
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        np.testing.assert_array_equal(found[name], value, strict=True, err_msg=name)
        assert found[name].tobytes() == value.tobytes(), name


def check_losses(found: list[str], wanted: list[str], folder: Path) -> None:
    """Checks losses: their bits on the processor that wrote the file, or else their values."""
    if EXPECTED[folder]["processor"] == losses.processor():
        assert found == wanted
    check_values(found, wanted)


def check_values(found: list[str], wanted: list[str]) -> None:
    np.testing.assert_allclose(
        [float.fromhex(loss) for loss in found],
        [float.fromhex(loss) for loss in wanted],
        rtol=0,
        atol=1e-5,
    )


def test_every_file_is_read() -> None:
    read = {"README.md", "losses.json", "losses.py", "write.py"}
    for folder, expected in EXPECTED.items():
        names = {"expected.json", "log.jsonl", "tuning.json", "states/expected.npz"}
        names |= {f"states/{name}" for name in expected["states"]}
        for suffix in (".safetensors", ".npz"):
            names |= {f"checkpoints/{name}{suffix}" for name in expected["checkpoints"]}
        for suffix in (".onnx", ".npz"):
            names |= {f"onnx/{name}{suffix}" for name in expected["networks"]}
        read |= {f"{folder.name}/{name}" for name in names}
    read |= {str(p.relative_to(GOLDEN).with_suffix(s)) for p in MODELS for s in (p.suffix, ".npz")}
    read |= {str(path.relative_to(GOLDEN)) for path in CALLS}
    there = {path.relative_to(GOLDEN) for path in GOLDEN.rglob("*") if path.is_file()}
    assert {str(path) for path in there if "__pycache__" not in path.parts} == read


# Checkpoints.


def restored(
    folder: Path, name: str, graph: bool = False
) -> tuple[write.Net, opt.EMA | None, dict[str, Any]]:
    """(network, averages, progress) of a checkpoint, in a network that was different before."""
    recipe = write.RECIPES[name]
    net = write.made(recipe.optimizer(), seed=77, graph=graph)
    ema = write.average(net, recipe)
    write.train(net, 0, 3, ema)  # whole updates, also with accumulate=3
    path = folder / "checkpoints" / f"{name}.safetensors"
    optimizer = None if recipe.alone else net.optimizer
    if recipe.alone:
        net.set_optimizer(recipe.optimizer())
    return net, ema, checkpoint.load(path, net, optimizer, ema=ema)


@pytest.mark.parametrize(("folder", "name"), cases("checkpoints", ranks=1))
def test_a_checkpoint_restores_all_values(folder: Path, name: str) -> None:
    expected = EXPECTED[folder]["checkpoints"][name]
    net, ema, progress = restored(folder, name)
    check_arrays(write.arrays_of(net, ema), folder / "checkpoints" / f"{name}.npz")
    if not write.RECIPES[name].alone:
        numbers = write.numbers_of(net.optimizer)
        newer = {}  # what files of 67e0d72 lack
        if calls := expected["numbers"].get("accumulated_calls"):
            newer = {"accumulated_targets": float(calls), "accumulated_unit": 0.0}
        assert numbers == newer | expected["numbers"]
    if ema is not None:
        assert ema.updates == write.RECIPES[name].steps
    assert tuning.choices() == expected["tuning"]
    assert progress == EXPECTED[folder]["progress"]
    path = folder / "checkpoints" / f"{name}.safetensors"
    assert checkpoint.read_progress(path) == progress


@pytest.mark.parametrize(("folder", "name"), cases("checkpoints", ranks=1))
def test_random_numbers_go_on(folder: Path, name: str) -> None:
    net, _, _ = restored(folder, name)
    assert write.draws(net) == EXPECTED[folder]["checkpoints"][name]["draws"]


#: How many losses of a restored run are still those of the version that wrote the file. Since then
#: the random numbers of DistOpt follow from the update alone, so its dropout differs after one.
_SAME_LOSSES = {"distopt_accumulating": 3}


@pytest.mark.parametrize("graph", [False, True], ids=["executed", "recorded"])
@pytest.mark.parametrize(("folder", "name"), cases("checkpoints", ranks=1))
def test_training_goes_on(folder: Path, name: str, graph: bool) -> None:
    net, ema, _ = restored(folder, name, graph)
    tuning.clear()
    start = write.RECIPES[name].steps
    found = write.train(net, start, start + 5, ema)
    wanted = EXPECTED[folder]["checkpoints"][name]["losses"]
    if graph and ema is not None:  # every second loss is of inference, which folds batch norm
        check_values(found[1::2], wanted[1::2])
        found, wanted = found[::2], wanted[::2]
    same = _SAME_LOSSES.get(name)
    check_losses(found[:same], wanted[:same], folder)


@pytest.mark.parametrize(("folder", "name"), cases("checkpoints", ranks=2))
def test_ranks_go_on(folder: Path, name: str) -> None:
    recipe, path = write.RECIPES[name], folder / "checkpoints" / f"{name}.safetensors"

    def body(rank: int, holder: Any) -> Numbers:
        optimizer = opt.DistOpt(recipe.optimizer(), holder, rank, recipe.ranks)
        net = write.made(optimizer, seed=70 + rank)
        assert checkpoint.load(path, net, optimizer) == EXPECTED[folder]["progress"]
        check_arrays(write.arrays_of(net), path.with_suffix(".npz"))
        numbers = write.numbers_of(optimizer)
        return {"numbers": numbers, **write.restored_rank(path, recipe, rank, holder)}

    results = in_ranks(recipe.ranks, body)
    for result, wanted in zip(results, EXPECTED[folder]["checkpoints"][name], strict=True):
        assert not isinstance(result, FailedRank), result
        assert {**result, "losses": None} == {**wanted, "losses": None}
        # Since then topK chooses among all gradients of a buffer, so only the first loss is equal.
        check_losses(result["losses"][:1], wanted["losses"][:1], folder)


@pytest.mark.parametrize(("folder", "name"), cases("checkpoints", ranks=2))
def test_one_process_reads_a_checkpoint_of_ranks(folder: Path, name: str) -> None:
    """A plain optimizer has no use for residuals; a DistOpt keeps the sum over the ranks."""
    recipe, path = write.RECIPES[name], folder / "checkpoints" / f"{name}.safetensors"
    expected = dict(np.load(path.with_suffix(".npz")))
    plain = write.made(recipe.optimizer(), seed=77)
    checkpoint.load(path, plain, plain.optimizer)
    common = write.arrays_of(plain)
    for key, value in common.items():
        np.testing.assert_array_equal(value, expected[key], strict=True)
    draws = EXPECTED[folder]["checkpoints"][name][0]["draws"]
    assert write.draws(plain) == draws

    net = write.made(opt.DistOpt(recipe.optimizer()), seed=78)
    checkpoint.load(path, net, net.optimizer)
    found = write.arrays_of(net)
    assert len(found) == len(common) + len(net.get_params())
    for key in net.get_params():
        both = [expected[f"optimizer/residuals/{rank}/{key}"] for rank in range(recipe.ranks)]
        np.testing.assert_array_equal(found[f"optimizer/residuals/0/{key}"], sum(both))


# Other files.


@pytest.mark.parametrize(("folder", "name"), cases("states"))
def test_states(folder: Path, name: str) -> None:
    net = write.made(opt.SGD(0.1), seed=77)
    aux = net.load_states(folder / "states" / name)
    found = {f"model/{key}": value.numpy() for key, value in net.get_states().items()}
    found |= {f"aux/{key}": value.numpy() for key, value in aux.items()}
    check_arrays(found, folder / "states" / "expected.npz")


@each_folder
def test_tuning_choices(folder: Path) -> None:
    tuning.load(folder / "tuning.json")
    assert tuning.choices() == EXPECTED[folder]["tuning"]
    assert len(tuning.choices()) > 1


@each_folder
def test_log(folder: Path) -> None:
    records = EXPECTED[folder]["log"]
    assert read_log(folder / "log.jsonl") == records
    shutil.copyfile(folder / "log.jsonl", "log.jsonl")
    with JsonLinesLog("log.jsonl", keep=lambda record: record.get("epoch", 9) < 2) as log:
        log.append(epoch=2)
    assert read_log("log.jsonl") == [*records[:2], {"epoch": 2}]


@pytest.mark.parametrize("path", MODELS, ids=lambda path: f"{path.parts[-3]}-{path.stem}")
def test_whole_networks(path: Path) -> None:
    expected = np.load(path.with_suffix(".npz"))
    classifier = PictureClassifier.load(path)
    assert classifier.class_names == ("a", "b", "ç")
    assert classifier.channels == 1
    found = classifier.probabilities(list(expected["pictures"]))
    np.testing.assert_allclose(found, expected["probabilities"], rtol=1e-5)


def arrays_of_network(folder: Path, name: str) -> list[tuple[np.ndarray, np.ndarray]]:
    """(input, output) of each call."""
    arrays = np.load(folder / "onnx" / f"{name}.npz")
    numbers = range(len(arrays.files) // 2)
    return [(arrays[f"input_{number}"], arrays[f"output_{number}"]) for number in numbers]


def check_outputs(found: np.ndarray, wanted: np.ndarray) -> None:
    assert (found.dtype, found.shape) == (wanted.dtype, wanted.shape)
    np.testing.assert_allclose(found, wanted, rtol=0, atol=1e-5)


@pytest.mark.parametrize(("folder", "name"), cases("networks"))
def test_networks_come_in(folder: Path, name: str) -> None:
    pytest.importorskip("onnx", reason="the package onnx is not installed")
    import singa.onnx

    net = singa.onnx.load(folder / "onnx" / f"{name}.onnx")
    for x, y in arrays_of_network(folder, name):
        with autograd.no_grad():
            found = net(tensor.from_numpy(x)).numpy()
        check_outputs(found, y)


@pytest.mark.parametrize(("folder", "name"), cases("networks"))
def test_networks_in_onnx_runtime(folder: Path, name: str) -> None:
    onnx = pytest.importorskip("onnx", reason="the package onnx is not installed")
    proto = onnx.load(folder / "onnx" / f"{name}.onnx")
    for x, y in arrays_of_network(folder, name):
        (found,) = runtime_outputs(proto, [x])
        check_outputs(found, y)


# Calls that OPCHECK has saved. If a later version changes their format, it has to say so.


def is_refused_by_version(text: str, path: Path) -> bool:
    return "version" in text and str(path) in text


each_call = pytest.mark.parametrize(
    "source", CALLS, ids=lambda path: f"{path.parts[-3]}-{path.stem}"
)


@each_call
def test_a_saved_call_runs_on_reference(source: Path) -> None:
    name = source.stem
    arrays, _, metadata = read_safetensors(source)
    assert (metadata["op"], metadata["implementation"]) == (name, "wrong")
    path = Path("call.safetensors")
    changes = {"implementation": "reference", "description": "reference"}
    replay_mutations.save(path, (arrays, metadata | changes))
    try:
        found = replay(path)
    except ValueError as error:
        found = str(error)
    agrees = f"{name} on reference agrees with reference"
    assert found == agrees or is_refused_by_version(found, path)


@each_call
def test_a_saved_call_needs_its_implementation(source: Path) -> None:
    path, name = source, source.stem
    command = [sys.executable, "-m", "singa", "replay", str(path)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (1, "")
    no_such = f"[replay] this build has no wrong for {name} (in {path})\n"
    assert done.stderr == f"python -m singa replay: {no_such}" or is_refused_by_version(
        done.stderr, path
    )


REPLAY_ALL = """
import json, sys
from replay_calls import add_wrong_kernels
from singa.files.replay_file import replay
add_wrong_kernels("", int(sys.argv[1]))
found = []
for path in sys.argv[2:]:
    try:
        found.append(replay(path))
    except (RuntimeError, ValueError) as error:
        found.append(str(error))
print(json.dumps(found))
"""


@pytest.mark.skipif(not replay_calls.LIBRARY.exists(), reason="singa was built without tests")
@pytest.mark.parametrize("wrong", [replay_calls.ALWAYS, replay_calls.NEVER], ids=["wrong", "right"])
def test_saved_calls_run_again(wrong: int) -> None:
    folders = [str(SUPPORT), *os.environ.get("PYTHONPATH", "").split(os.pathsep)]
    done = subprocess.run(
        [sys.executable, "-c", REPLAY_ALL, str(wrong), *map(str, CALLS)],
        env=os.environ | {"PYTHONPATH": os.pathsep.join(folders)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    read = 0
    for path, text in zip(CALLS, found, strict=True):
        if is_refused_by_version(text, path):
            continue
        name, read = path.stem, read + 1
        if wrong == replay_calls.NEVER:
            assert text.startswith(f"{name} on wrong ")
            assert text.endswith(" agrees with reference")
        else:
            assert text.startswith(f"[{name}] wrong ")
            assert " disagrees with reference" in text
    assert read >= 6  # the present format


# First losses.

_QUICK = ("lenet", "resnet20_cifar")


@pytest.mark.parametrize(
    "name",
    [
        name if name in _QUICK else pytest.param(name, marks=pytest.mark.slow)
        for name in losses.MODELS
        if ALL_NETWORKS or name != "vgg16"
    ],
)
def test_first_losses(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Bits are those of the entry of this processor; without one, values are those of the first
    entry. Of networks with large images these are the first 3, of which the last is that of a
    replayed step, or all in the lane `networks`."""
    whole = losses.MODELS[name][0] > 4 or ALL_NETWORKS
    steps = losses.STEPS if whole else 3
    command = [sys.executable, str(GOLDEN / "losses.py"), name, "--steps", str(steps)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    *_, processor, last = [json.loads(line) for line in done.stdout.splitlines()[-2:]]
    found = last[name]
    assert len(set(found)) == steps
    entries = json.loads(losses.ENTRIES.read_text())
    own = [
        entry
        for entry in entries
        if processor.items() <= entry.items() and name not in entry.get("values_only", [])
    ]
    (first, *_) = entries
    with capsys.disabled():
        way = f"bits of {own[-1]['commit']}" if own else "within 1e-4, other processor"
        print(f" {name}: {way} ", end="")
    if own:
        assert found == own[-1]["losses"][name][:steps]
    np.testing.assert_allclose(
        [float.fromhex(loss) for loss in found],
        [float.fromhex(loss) for loss in first["losses"][name][:steps]],
        rtol=0,
        atol=1e-4,
    )
