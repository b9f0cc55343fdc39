"""atomic_write: the file is the old one or the new one at any time."""

import os
import signal
import stat
import subprocess
import sys
import textwrap
import time

import numpy as np
import pytest
from singa.files import atomic, state_files
from singa.training import atomic_write


def names(folder):
    return sorted(entry.name for entry in folder.iterdir())


def test_writes_bytes_and_text(tmp_path):
    with atomic_write(tmp_path / "a.bin") as file:
        file.write(b"\x00\xff")
    with atomic_write(str(tmp_path / "b.txt"), "w") as file:
        file.write("grün\n")
    assert (tmp_path / "a.bin").read_bytes() == b"\x00\xff"
    assert (tmp_path / "b.txt").read_bytes() == "grün\n".encode()
    assert names(tmp_path) == ["a.bin", "b.txt"]


@pytest.mark.parametrize("error", [RuntimeError("no"), KeyboardInterrupt(), SystemExit(1)])
def test_an_exception_leaves_the_old_content_and_no_temporary(tmp_path, error):
    path = tmp_path / "a"
    path.write_bytes(b"old")
    with pytest.raises(type(error)), atomic_write(path) as file:  # noqa: PT012
        file.write(b"new")
        raise error
    assert path.read_bytes() == b"old"
    assert names(tmp_path) == ["a"]


def test_the_name_changes_hands_only_at_the_end(tmp_path):
    path = tmp_path / "a"
    with atomic_write(path) as file:
        file.write(b"x" * 100_000)
        file.flush()
        assert not path.exists()
    assert path.stat().st_size == 100_000


def test_the_writer_may_close_the_file_itself(tmp_path):
    with atomic_write(tmp_path / "a") as file:
        file.write(b"all")
        file.close()
    assert (tmp_path / "a").read_bytes() == b"all"


def test_permissions_follow_the_replaced_file_else_the_umask(tmp_path):
    path = tmp_path / "a"
    old_umask = os.umask(0o027)
    try:
        with atomic_write(path) as file:
            file.write(b"1")
    finally:
        os.umask(old_umask)
    assert stat.S_IMODE(path.stat().st_mode) == 0o640
    path.chmod(0o604)
    with atomic_write(path) as file:
        file.write(b"2")
    assert stat.S_IMODE(path.stat().st_mode) == 0o604


def test_a_symbolic_link_stays_one(tmp_path):
    (tmp_path / "runs").mkdir()
    target = tmp_path / "runs" / "real"
    target.write_bytes(b"old")
    (tmp_path / "last").symlink_to(target)
    with atomic_write(tmp_path / "last") as file:
        file.write(b"new")
    assert (tmp_path / "last").is_symlink()
    assert target.read_bytes() == b"new"


def test_folder_and_folder_entry_are_synced(tmp_path, monkeypatch):
    synced = []
    real = os.fsync
    monkeypatch.setattr(
        atomic.os, "fsync", lambda fd: (synced.append(os.fstat(fd).st_mode), real(fd))
    )
    with atomic_write(tmp_path / "a") as file:
        file.write(b"1")
    assert [stat.S_ISREG(mode) for mode in synced] == [True, False]
    assert stat.S_ISDIR(synced[1])


@pytest.mark.parametrize(
    ("target", "mode", "error"),
    [("a", "r", ValueError), ("a", "ab", ValueError), ("", "wb", IsADirectoryError),
     ("missing/a", "wb", FileNotFoundError)],
)  # fmt: skip
def test_refusals(tmp_path, target, mode, error):
    with pytest.raises(error), atomic_write(tmp_path / target, mode):
        pass
    assert names(tmp_path) == []


WRITER = textwrap.dedent("""
    import sys, time
    from singa.training import atomic_write
    path = sys.argv[1]
    for number in range(1_000_000):
        with atomic_write(path) as file:
            for _ in range(64):
                file.write(b"%08d" % number * 512)
                file.flush()
                time.sleep(0.0002)  # nearly all the time the file is half-written
        print(number, flush=True)
""")


def test_kill_9_leaves_a_whole_file(tmp_path):
    path = tmp_path / "checkpoint"
    for delay in (0.0, 0.003, 0.011):
        process = subprocess.Popen(
            [sys.executable, "-c", WRITER, str(path)], stdout=subprocess.PIPE, env=child_env()
        )
        process.stdout.readline()  # at least one complete file exists
        time.sleep(delay)
        process.send_signal(signal.SIGKILL)
        process.wait()
        process.stdout.close()
        content = path.read_bytes()
        assert len(content) == 64 * 512 * 8
        assert content == content[:8] * (64 * 512), "parts of two versions in one file"


def test_what_killed_writers_left_is_swept_but_nothing_else(tmp_path):
    stale, fresh = tmp_path / ".a.0123456789ab.tmp", tmp_path / ".a.ba9876543210.tmp"
    others = [".a.0123456789ab.tmp.keep", ".b.0123456789ab.tmp", ".a.tmp", "a.0123456789ab.tmp"]
    for name in (stale.name, *others):
        (tmp_path / name).write_bytes(b"half")
        os.utime(tmp_path / name, (1, 1))
    fresh.write_bytes(b"half")
    with atomic_write(tmp_path / "a") as outer:
        outer.write(b"1")
        assert not stale.exists()
        assert not fresh.exists()
        # The temporary file of a live writer is not removed, however old it is, because it is
        # locked.
        (live,) = set(names(tmp_path)) - set(others)
        os.utime(tmp_path / live, (1, 1))
        with atomic_write(tmp_path / "a") as inner:
            inner.write(b"2")
        assert (tmp_path / live).exists()
    assert names(tmp_path) == sorted(["a", *others])
    assert (tmp_path / "a").read_bytes() == b"1"


def child_env():
    """The environment of a child process, which must find the same singa."""
    return {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}


def test_a_device_is_written_to_and_not_replaced(tmp_path):
    with atomic_write("/dev/null") as file:
        file.write(b"nothing")
    assert stat.S_ISCHR(os.stat("/dev/null").st_mode)


def _read_fifo(path, write):
    """What a reader of the FIFO `path` gets from write()."""
    os.mkfifo(path)
    reader = os.open(path, os.O_RDONLY | os.O_NONBLOCK)  # does not wait for a writer
    try:
        write()
        assert stat.S_ISFIFO(path.stat().st_mode)
        return os.read(reader, 1 << 16)
    finally:
        os.close(reader)


@pytest.mark.parametrize("closes", [False, True])
def test_a_fifo_gets_the_content_at_the_end(tmp_path, closes):
    def write():
        with atomic_write(tmp_path / "fifo", "w") as file:
            file.write("grau")
            file.seek(2)  # writers of zip files seek
            file.write("ün")
            if closes:
                file.close()

    (tmp_path / "link").symlink_to("fifo")
    assert _read_fifo(tmp_path / "fifo", write) == "grün".encode()
    assert names(tmp_path) == ["fifo", "link"]


def test_an_exception_writes_nothing_to_a_fifo(tmp_path):
    def write():
        with pytest.raises(RuntimeError), atomic_write(tmp_path / "fifo") as file:  # noqa: PT012
            file.write(b"half")
            raise RuntimeError

    assert _read_fifo(tmp_path / "fifo", write) == b""


def test_standard_output_that_is_a_pipe(tmp_path):
    code = """
        from singa.training import atomic_write
        with atomic_write("/dev/stdout") as file:
            file.write(b"piped")
    """
    command = [sys.executable, "-c", textwrap.dedent(code)]
    assert subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout == b"piped"


@pytest.mark.parametrize("suffix", ["", ".npz", ".safetensors"])
def test_states_go_through_a_fifo(tmp_path, suffix):
    arrays = {"w": np.arange(6, dtype=np.float32).reshape(2, 3)}
    path = tmp_path / f"fifo{suffix}"
    content = _read_fifo(path, lambda: state_files.save_states(path, arrays, {}, {"w": 0}))
    (tmp_path / f"file{suffix}").write_bytes(content)
    states, _ = state_files.load_states(tmp_path / f"file{suffix}")
    np.testing.assert_array_equal(states["w"], arrays["w"])
