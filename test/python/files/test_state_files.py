"""Files of states. Writes are atomic, even if the process is killed; time and memory of reading are
bounded by the sizes of the file and of the model."""

import io
import json
import os
import signal
import stat
import struct
import subprocess
import sys
import tracemalloc
import zipfile
import zlib

import numpy as np
import pytest
import safetensors.numpy
from singa import layer, model, opt, tensor
from singa.files import state_files
from singa.snapshot import Snapshot
from singa.training import JsonLinesLog, checkpoint, read_log

pytestmark = pytest.mark.skipif(os.name != "posix", reason="signals and limits of POSIX")


class Net(model.Model):
    def __init__(self):
        super().__init__()
        self.one, self.two = layer.Linear(50), layer.Linear(4)

    def forward(self, x):
        return self.two(self.one(x))


def new():
    net = Net()
    net.set_optimizer(opt.SGD(0.1))
    net.compile([tensor.ones((2, 200))], is_train=False)
    return net


def values_of(net):
    return {name: value.numpy() for name, value in net.get_states().items()}


def check_equal(net, values):
    for name, value in values_of(net).items():
        np.testing.assert_array_equal(value, values[name], err_msg=name)


def save_snapshot(path, net):
    with Snapshot(path, True) as snapshot:
        for name, value in net.get_states().items():
            snapshot.write(name, value)


SAVES = {
    "a.zip": lambda path, net: net.save_states(path),
    "a.npz": lambda path, net: net.save_states(path),
    "a.safetensors": lambda path, net: net.save_states(path),
    "snapshot.npz": save_snapshot,
    "checkpoint.safetensors": lambda path, net: checkpoint.save(path, net, net.optimizer),
}


# Writing.


@pytest.mark.parametrize("name", SAVES)
def test_permissions_follow_the_replaced_file_else_the_umask(tmp_path, name):
    path, net = tmp_path / name, new()
    before = os.umask(0o027)
    try:
        SAVES[name](path, net)
        assert stat.S_IMODE(path.stat().st_mode) == 0o640
        path.chmod(0o604)
        SAVES[name](path, net)
    finally:
        os.umask(before)
    assert stat.S_IMODE(path.stat().st_mode) == 0o604


def child(program, *arguments):
    """Runs a program that imports this module as `test`."""
    start = f"import sys; sys.path.insert(0, {os.path.dirname(__file__)!r})\n"
    return subprocess.run(
        [sys.executable, "-c", f"{start}import test_state_files as test\n{program}", *arguments],
        capture_output=True,
        text=True,
        timeout=300,
    )


FULL = """
import resource
resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))
for name, save in test.SAVES.items():
    path = f"{sys.argv[1]}/{name}"
    try:
        save(path, test.new())
    except OSError as error:
        print(error.errno, error.filename == path, error)
"""


def test_a_full_disk_is_an_oserror_that_names_the_file(tmp_path):
    for name in SAVES:
        (tmp_path / name).write_bytes(b"old")
    done = child(FULL, str(tmp_path))
    assert done.stdout.splitlines() == [
        f"27 True [Errno 27] File too large: '{tmp_path / name}'" for name in SAVES
    ], done.stderr
    assert [(tmp_path / name).read_bytes() for name in SAVES] == [b"old"] * len(SAVES)
    assert sorted(os.listdir(tmp_path)) == sorted(SAVES)


KILLED = """
import os, signal
os.fsync = lambda descriptor: os.kill(os.getpid(), signal.SIGKILL)
for name, save in test.SAVES.items():
    process = os.fork()
    if process == 0:
        save(f"{sys.argv[1]}/{name}/{name}", test.new())
        os._exit(0)
    print(name, os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]), flush=True)
"""


def test_what_a_killed_process_leaves_is_swept_by_the_next_save(tmp_path):
    for name in SAVES:
        (tmp_path / name).mkdir()
        (tmp_path / name / name).write_bytes(b"old")
    done = child(KILLED, str(tmp_path))
    assert done.stdout.splitlines() == [f"{name} {-signal.SIGKILL}" for name in SAVES], done.stderr
    for name, save in SAVES.items():
        folder = tmp_path / name
        assert (folder / name).read_bytes() == b"old"
        assert len(os.listdir(folder)) == 2
        save(folder / name, new())
        assert os.listdir(folder) == [name]
        assert (folder / name).stat().st_size > 20_000


def test_safetensors_are_the_librarys(tmp_path):
    arrays = {
        "b": np.arange(6, dtype=np.float32).reshape(2, 3).T,
        "a": np.array(3, np.int8),
        'ü"': np.array([[True, False]]),
        "none": np.zeros((0, 4), np.float64),
        "big": np.arange(3, dtype=">i4"),
    }
    state_files.save_safetensors(tmp_path / "a", arrays, {"note": "ö\\"})
    loaded = safetensors.numpy.load_file(tmp_path / "a")
    assert loaded.keys() == arrays.keys()
    for name, value in arrays.items():
        np.testing.assert_array_equal(loaded[name], value)
        assert loaded[name].shape == value.shape
    assert state_files.load_safetensors(tmp_path / "a")[1] == {"note": "ö\\"}
    assert struct.unpack("<Q", (tmp_path / "a").read_bytes()[:8])[0] % 8 == 0
    with pytest.raises(TypeError, match="c has type complex64, which singa does not have"):
        state_files.save_safetensors(tmp_path / "a", {"c": np.ones(2, np.complex64)})


def test_saving_takes_no_second_copy_of_the_weights(tmp_path):
    arrays = {str(i): np.zeros(1 << 20, np.float32) for i in range(8)}
    tracemalloc.start()
    try:
        state_files.save_safetensors(tmp_path / "a", arrays)
        assert tracemalloc.get_traced_memory()[1] < 4 << 20
    finally:
        tracemalloc.stop()


def test_a_log_keeps_its_lines_whole_on_a_full_disk(tmp_path):
    program = """
import resource
from singa.training import JsonLinesLog
log = JsonLinesLog(sys.argv[1])
log.append(epoch=1)
resource.setrlimit(resource.RLIMIT_FSIZE, (20, 1000))
try:
    log.append(epoch=2, note="long")
except OSError as error:
    print(error)
resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
log.append(epoch=3)
"""
    done = child(program, str(tmp_path / "log"))
    assert done.stdout == f"[Errno 27] File too large: '{tmp_path / 'log'}'\n", done.stderr
    assert read_log(tmp_path / "log") == [{"epoch": 1}, {"epoch": 3}]
    with JsonLinesLog(tmp_path / "log") as log:
        log.append(epoch=4)


# Reading: nothing changes if something does not fit.


def archive_of(members, method=zipfile.ZIP_STORED):
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", method) as archive:
        for name, data in members.items():
            archive.writestr(name, data)
    return stream.getvalue()


def npy(array):
    stream = io.BytesIO()
    np.lib.format.write_array(stream, np.asarray(array))
    return stream.getvalue()


def members_of(net, **changed):
    values = {name: np.full_like(value, 7) for name, value in values_of(net).items()}
    return {f"{name}.npy": npy(value) for name, value in (values | changed).items()}


def check_refused(path, match, load=None):
    net = new()
    before = values_of(net)
    with pytest.raises(ValueError, match=match) as caught:
        (load or net.load_states)(path)
    assert str(path) in str(caught.value)
    check_equal(net, before)


@pytest.mark.parametrize("dtype", [np.complex64, "U3", "M8[s]", "V4", np.longdouble])
def test_another_type_in_the_last_entry(tmp_path, dtype):
    net = new()
    members = members_of(net, **{"two.b": np.zeros(4, dtype)})
    assert list(members)[-1] == "two.b.npy"
    (tmp_path / "a.npz").write_bytes(archive_of(members))
    check_refused(tmp_path / "a.npz", "two.b.npy has type .*, which singa does not have")
    path = tmp_path / "aux.npz"
    path.write_bytes(archive_of(members_of(net) | {"aux/x.npy": npy(np.zeros(4, dtype))}))
    check_refused(path, "aux/x.npy has type .*, which singa does not have")


@pytest.mark.parametrize("dtype", [">f4", ">f8", "u2", ">i8", "u8", "f2", "?"])
def test_numbers_of_any_type_and_byte_order_are_converted(tmp_path, dtype):
    net = new()
    values = {name: np.ones(value.shape, dtype) for name, value in values_of(net).items()}
    members = {f"{name}.npy": npy(value) for name, value in values.items()}
    (tmp_path / "a.npz").write_bytes(archive_of(members | {"aux/x.npy": npy(np.ones(2, dtype))}))
    aux = net.load_states(tmp_path / "a.npz")
    check_equal(net, values)
    assert aux["x"].numpy().tolist() == [1, 1]


def test_auxiliary_numbers_that_need_64_bits(tmp_path):
    net = new()
    for name in ("a.zip", "a.npz", "a.safetensors"):
        net.save_states(tmp_path / name, {"seen": np.int64(1 << 40)})
        assert int(net.load_states(tmp_path / name)["seen"]) == 1 << 40
    path = tmp_path / "b.npz"
    path.write_bytes(archive_of(members_of(net) | {"aux/x.npy": npy(np.uint64(1 << 63))}))
    before = values_of(net)
    with pytest.raises(ValueError, match="do not fit int64"):
        net.load_states(path)
    check_equal(net, before)


# Reading: small files with large claims.

MUCH = 50 << 20


def check_cheap(path, match, load=None):
    tracemalloc.start()
    try:
        check_refused(path, match, load)
        assert tracemalloc.get_traced_memory()[1] < 16 << 20
    finally:
        tracemalloc.stop()


@pytest.fixture(scope="module")
def zeros():
    """A large array of zeros as a member of a zip."""
    return npy(np.zeros(MUCH // 4, np.float32))


@pytest.mark.parametrize("method", [zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_auxiliary_arrays_that_inflate(tmp_path, zeros, method):
    (tmp_path / "a.npz").write_bytes(archive_of(members_of(new()) | {"aux/x.npy": zeros}, method))
    assert (tmp_path / "a.npz").stat().st_size < MUCH >> 7
    check_cheap(tmp_path / "a.npz", "it would take .* bytes|is compressed by method")


@pytest.mark.parametrize("inner", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
def test_zips_of_singa_that_inflate(tmp_path, zeros, inner):
    net = new()
    attributes = {name: {"state_type": 0} for name in values_of(net)} | {"x": {"state_type": 1}}
    members = {
        "tensor_dict.npz": archive_of(members_of(net) | {"x.npy": zeros}, inner),
        "states_attr.json": json.dumps(attributes),
    }
    (tmp_path / "a.zip").write_bytes(archive_of(members, zipfile.ZIP_DEFLATED))
    check_cheap(tmp_path / "a.zip", "it would take .* bytes")
    members |= {"states_attr.json": b"[" + b"{}," * (MUCH // 12) + b"{}]"}
    members |= {"tensor_dict.npz": archive_of(members_of(net))}
    (tmp_path / "b.zip").write_bytes(archive_of(members, zipfile.ZIP_DEFLATED))
    check_cheap(tmp_path / "b.zip", "it would take .* bytes|is too large")


def test_a_header_that_inflates(tmp_path):
    header = b"\x93NUMPY\x02\x00" + struct.pack("<I", MUCH) + b" " * MUCH
    members = members_of(new()) | {"aux/x.npy": header}
    (tmp_path / "a.npz").write_bytes(archive_of(members, zipfile.ZIP_DEFLATED))
    check_cheap(tmp_path / "a.npz", "it would take .* bytes")


def test_a_snapshot_that_inflates(tmp_path, zeros):
    path = tmp_path / "a.npz"
    path.write_bytes(archive_of({"x.npy": zeros}, zipfile.ZIP_DEFLATED))
    check_cheap(path, r"\[Snapshot\] .* cannot be read: it would", lambda _: Snapshot(path, False))


def test_each_member_of_a_zip_of_singa_is_inflated_once(tmp_path, monkeypatch):
    net = new()
    members = members_of(net) | {f"{i}.npy": npy(i) for i in range(100)}
    attributes = {name[:-4]: {"state_type": int(name[0].isdigit())} for name in members}
    content = {
        "tensor_dict.npz": archive_of(members),
        "states_attr.json": json.dumps(attributes),
    }
    (tmp_path / "a.zip").write_bytes(archive_of(content, zipfile.ZIP_DEFLATED))
    inflated, real = [], zlib.decompressobj
    monkeypatch.setattr(zlib, "decompressobj", lambda *a: inflated.append(a) or real(*a))
    aux = net.load_states(tmp_path / "a.zip")
    assert {name: int(value) for name, value in aux.items()} == {str(i): i for i in range(100)}
    assert len(inflated) == 2


@pytest.mark.parametrize("name", ["a.zip", "a.npz", "a.safetensors"])
def test_what_is_saved_can_be_loaded_however_well_it_compresses(tmp_path, name):
    net = new()
    net.save_states(tmp_path / name, {"zeros": np.zeros(4 << 20, np.float32)})
    assert net.load_states(tmp_path / name)["zeros"].shape == (4 << 20,)


def test_too_little_memory_names_the_file(tmp_path, monkeypatch):
    net = new()
    for name in ("a.zip", "a.npz", "a.safetensors"):
        net.save_states(tmp_path / name)

    def fail(*_, **__):
        raise MemoryError

    monkeypatch.setattr(np, "empty", fail)
    monkeypatch.setattr(np, "frombuffer", fail)
    for name in ("a.zip", "a.npz", "a.safetensors"):
        with pytest.raises(MemoryError, match=rf"\[load_states\] .*{name}.*not enough memory"):
            net.load_states(tmp_path / name)


def test_pipes_are_refused_and_not_waited_for(tmp_path):
    os.mkfifo(tmp_path / "pipe.npz")
    check_refused(tmp_path / "pipe.npz", r"\[load_states\] .*it is not a regular file")
    with pytest.raises(ValueError, match=r"\[Snapshot\] .*it is not a regular file"):
        Snapshot(tmp_path / "pipe", False)
    with pytest.raises(ValueError, match="it is not a regular file"):
        checkpoint.load("/dev/zero", new())
