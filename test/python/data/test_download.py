"""Downloads from a server on the loopback address."""

import contextlib
import hashlib
import http.server
import io
import os
import signal
import subprocess
import sys
import tarfile
import threading
import time

import file_formats
import numpy as np
import pytest
from singa.data import cifar, download, download_cifar10, load_cifar10


class Server(http.server.ThreadingHTTPServer):
    """Serves `content` under any path. Its faults can be set."""

    daemon_threads = True

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Handler)
        self.content = b""
        self.ranges = True  # answers a Range request with 206
        self.wrong_range = False  # ... but with another range
        self.length = True  # sends Content-Length
        self.break_after = []  # for each request: bytes after which the connection breaks
        self.status = 200
        self.stall = None  # an Event to wait for in the middle of the response
        self.requests = []  # the Range header of each

    def handle_error(self, request, client_address):
        pass


class Handler(http.server.BaseHTTPRequestHandler):
    def log_message(self, *args):
        pass

    def do_GET(self):
        server = self.server
        wanted = self.headers.get("Range")
        server.requests.append(wanted)
        if server.status != 200:
            self.send_error(server.status)
            return
        start = 0
        if wanted and server.ranges:
            start = int(wanted.removeprefix("bytes=").removesuffix("-"))
            if start >= len(server.content):
                self.send_error(416)
                return
            self.send_response(206)
            told = start + 1 if server.wrong_range else start
            last = len(server.content) - 1
            self.send_header("Content-Range", f"bytes {told}-{last}/{len(server.content)}")
        else:
            self.send_response(200)
        body = server.content[start:]
        if server.length:
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if server.break_after:
            body = body[: server.break_after.pop(0)]
        half = len(body) // 2
        self.wfile.write(body[:half])
        if server.stall:
            server.stall.wait(30)
        self.wfile.write(body[half:])


@pytest.fixture
def server():
    with Server() as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield server
        server.shutdown()
        thread.join()


@pytest.fixture(autouse=True)
def no_waiting(monkeypatch):
    monkeypatch.setattr(download.time, "sleep", lambda seconds: None)


def url(server, name="cifar-10-binary.tar.gz"):
    return f"http://127.0.0.1:{server.server_address[1]}/some/path/{name}"


def md5(content):
    return hashlib.md5(content).hexdigest()


def tar(members, mode="w:gz"):
    """A tar archive of {name: bytes or TarInfo}, or of such pairs."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode=mode) as archive:
        for name, content in members.items() if isinstance(members, dict) else members:
            if isinstance(content, tarfile.TarInfo):
                content.name = name
                archive.addfile(content)
            else:
                member = tarfile.TarInfo(name)
                member.size = len(content)
                member.mode = 0o4777
                archive.addfile(member, io.BytesIO(content))
    return buffer.getvalue()


@pytest.fixture
def archive():
    images, labels = file_formats.random_set(7)
    base = "cifar-10-batches-bin"
    return tar(
        {
            f"{base}/data_batch_1.bin": file_formats.binary_records(images[:5], labels[:5]),
            f"{base}/test_batch.bin": file_formats.binary_records(images[5:], labels[5:]),
            f"{base}/batches.meta.txt": b"".join(b"name %d\n" % i for i in range(10)) + b"\n",
            f"{base}/readme.html": b"<html>",
        }
    )


def test_downloads_verifies_and_unpacks(tmp_path, server, archive):
    server.content = archive
    seen = []
    folder = download_cifar10(
        tmp_path / "new" / "data",
        url=url(server),
        digest=md5(archive),
        progress=lambda *a: seen.append(a),
    )
    assert folder == tmp_path / "new" / "data" / "cifar-10-batches-bin"
    assert sorted(os.listdir(folder.parent)) == ["cifar-10-batches-bin"]
    names = ["SHA256SUMS", "batches.meta.txt", "data_batch_1.bin", "test_batch.bin"]
    assert sorted(os.listdir(folder)) == names
    assert os.stat(folder / "test_batch.bin").st_mode & 0o7000 == 0
    assert seen[-1] == (len(archive), len(archive))
    train = load_cifar10(folder.parent)
    np.testing.assert_array_equal(train.images, file_formats.random_set(7)[0][:5])
    assert train.classes[9] == "name 9"
    # The SHA256SUMS file protects the files from then on.
    damaged = bytearray((folder / "test_batch.bin").read_bytes())
    damaged[100] ^= 1
    (folder / "test_batch.bin").write_bytes(damaged)
    with pytest.raises(ValueError, match="damaged: found sha256"):
        load_cifar10(folder.parent, "test")


def test_load_downloads_only_when_asked_and_only_when_needed(
    tmp_path, server, archive, monkeypatch
):
    server.content = archive
    with pytest.raises(FileNotFoundError):
        load_cifar10(tmp_path)
    assert server.requests == []
    form = cifar._CIFAR10.formats["binary"]
    source = download.Archive(url(server), len(archive), md5(archive))
    monkeypatch.setitem(
        cifar._CIFAR10.formats, "binary", type(form)(form.subfolder, form.files, None, source)
    )
    assert len(load_cifar10(tmp_path / "new", download=True)) == 5
    assert len(load_cifar10(tmp_path / "new", "test", download=True)) == 2
    assert len(server.requests) == 1


def test_the_digest_of_a_mirror_is_the_published_one(tmp_path, server, archive):
    server.content = archive
    published = cifar._CIFAR10.formats["binary"].archive.digest
    with pytest.raises(ValueError, match=rf"found {len(archive)} bytes .* expected {published}"):
        download_cifar10(tmp_path, url=url(server))
    assert os.listdir(tmp_path) == []  # a wrong file is not kept for resuming


CONTENT = np.random.default_rng(0).bytes(1_000_000)


def fetch(server, path, **options):
    download.fetch(url(server), path, md5(CONTENT), limit=2_000_000, **options)


def test_a_broken_connection_is_resumed(tmp_path, server):
    server.content = CONTENT
    server.break_after = [300_000, 100, 500_000]
    fetch(server, tmp_path / "a.part")
    assert (tmp_path / "a.part").read_bytes() == CONTENT
    assert server.requests == [None, "bytes=300000-", "bytes=300100-", "bytes=800100-"]


def test_a_later_call_resumes(tmp_path, server):
    server.content = CONTENT
    server.break_after = [300_000, 0]
    with pytest.raises(ConnectionError, match="a later call resumes at byte 300000"):
        fetch(server, tmp_path / "a.part")
    server.break_after = []
    fetch(server, tmp_path / "a.part")
    assert server.requests[2:] == ["bytes=300000-"]
    fetch(server, tmp_path / "a.part")  # the file is complete and only verified
    assert server.requests[3:] == ["bytes=1000000-"]
    assert (tmp_path / "a.part").read_bytes() == CONTENT


@pytest.mark.parametrize("length", [True, False])
def test_a_server_without_ranges_starts_over(tmp_path, server, length):
    server.content, server.ranges, server.length = CONTENT, False, length
    (tmp_path / "a.part").write_bytes(b"something else")
    fetch(server, tmp_path / "a.part")
    assert (tmp_path / "a.part").read_bytes() == CONTENT


def test_a_wrong_beginning_is_found_and_removed(tmp_path, server):
    server.content = CONTENT
    (tmp_path / "a.part").write_bytes(b"something else")
    with pytest.raises(ValueError, match="found 1000000 bytes with md5"):
        fetch(server, tmp_path / "a.part")
    assert os.listdir(tmp_path) == []


def test_a_server_that_sends_another_range_is_refused(tmp_path, server):
    server.content, server.wrong_range = CONTENT, True
    (tmp_path / "a.part").write_bytes(CONTENT[:10])
    with pytest.raises(ConnectionError, match="another range"):
        fetch(server, tmp_path / "a.part")
    assert (tmp_path / "a.part").read_bytes() == CONTENT[:10]


@pytest.mark.parametrize("length", [True, False])
def test_more_than_the_limit_is_refused(tmp_path, server, length):
    server.content, server.length = CONTENT, length
    with pytest.raises(ValueError, match=r"1000000 bytes, expected|more than 500000 bytes"):
        download.fetch(url(server), tmp_path / "a.part", md5(CONTENT), limit=500_000)
    assert (tmp_path / "a.part").stat().st_size <= 500_000


def test_http_errors_and_refused_connections(tmp_path, server):
    server.status = 404
    with pytest.raises(ConnectionError, match="HTTP 404"):
        fetch(server, tmp_path / "a.part")
    assert len(server.requests) == 1
    with contextlib.closing(__import__("socket").create_server(("127.0.0.1", 0))) as closed:
        port = closed.getsockname()[1]
    with pytest.raises(ConnectionError, match=f"http://127.0.0.1:{port}/x: .*refused"):
        download.fetch(f"http://127.0.0.1:{port}/x", tmp_path / "b", "0" * 32, limit=10)


@pytest.mark.parametrize(
    ("source", "digest"),
    [("file:///etc/passwd", "0" * 32), ("ftp://127.0.0.1/x", "0" * 32), ("x.tar", "0" * 32),
     ("http://127.0.0.1/x", "0" * 31), ("http://127.0.0.1/x", "x" * 32)],
)  # fmt: skip
def test_wrong_arguments(tmp_path, source, digest):
    with pytest.raises(ValueError, match="expected"):
        download.fetch(source, tmp_path / "a", digest, limit=10)
    assert os.listdir(tmp_path) == []


def test_two_processes_do_not_write_the_same_file(tmp_path, server):
    server.content, server.stall = CONTENT, threading.Event()
    first = threading.Thread(target=fetch, args=(server, tmp_path / "a.part"))
    first.start()
    try:
        while not server.requests:
            server.stall.wait(0.001)
        with pytest.raises(BlockingIOError, match="another process"):
            fetch(server, tmp_path / "a.part")
    finally:
        server.stall.set()
        first.join()
    assert (tmp_path / "a.part").read_bytes() == CONTENT


def test_kill_9_in_the_middle_then_again(tmp_path, server, archive):
    server.content, server.stall = archive, threading.Event()
    code = (
        f"import sys; sys.path[:0] = {sys.path!r}\n"
        "from singa.data.cifar import download_cifar10\n"
        f"download_cifar10({str(tmp_path)!r}, url={url(server)!r}, digest={md5(archive)!r})"
    )
    process = subprocess.Popen([sys.executable, "-c", code])
    part = tmp_path / "cifar-10-binary.tar.gz.part"
    deadline = time.monotonic() + 30
    while not server.requests and time.monotonic() < deadline:
        threading.Event().wait(0.01)
    process.send_signal(signal.SIGKILL)
    process.wait()
    server.stall.set()
    assert os.listdir(tmp_path) == [part.name]
    folder = download_cifar10(tmp_path, url=url(server), digest=md5(archive))
    assert os.listdir(tmp_path) == [folder.name]
    assert len(load_cifar10(tmp_path)) == 5


def link(kind, target):
    member = tarfile.TarInfo()
    member.type, member.linkname = kind, target
    return member


@pytest.mark.parametrize(
    ("members", "message"),
    [
        ({"../a.bin": b"x"}, "leaves the folder"),
        ({"/tmp/a.bin": b"x"}, "leaves the folder"),
        ({"x/../../a.bin": b"x"}, "leaves the folder"),
        ({"..\\a.bin": b"x"}, "leaves the folder"),
        ({"../other": b"x", "a.bin": b"x"}, "leaves the folder"),
        ({"a.bin": link(tarfile.SYMTYPE, "/etc/passwd")}, "not a regular file"),
        ({"a.bin": link(tarfile.LNKTYPE, "b.bin")}, "not a regular file"),
        ({"a.bin": link(tarfile.FIFOTYPE, "")}, "not a regular file"),
        ({"a.bin": link(tarfile.DIRTYPE, "")}, "not a regular file"),
        ([("a.bin", b"x"), ("z/a.bin", b"y")], "occurs twice"),
        ({"a.bin": b"x" * 11}, "11 bytes, expected at most 10"),
        ({"readme": b"x"}, "holds none of a.bin, b.bin"),
        ({}, "holds none of"),
    ],
)
def test_hostile_archives(tmp_path, members, message):
    (tmp_path / "in").mkdir()
    path = tmp_path / "in" / "x.tar.gz"
    path.write_bytes(tar(members))
    with pytest.raises(ValueError, match=message):
        download.unpack(path, tmp_path / "in" / "out", {"a.bin": 10, "b.bin": 10})
    assert os.listdir(tmp_path) == ["in"]
    assert os.listdir(tmp_path / "in") == ["x.tar.gz"]


@pytest.mark.parametrize("cut", [0, 1, 10, 60, 100])
def test_damaged_archives(tmp_path, cut):
    content = tar({"a.bin": bytes(range(256)) * 20})
    path = tmp_path / "x.tar.gz"
    for damaged in (content[:cut], b"\xff" + content[1:], bytes(20), b"hello" * 1000):
        path.write_bytes(damaged)
        with pytest.raises(ValueError, match=r"x\.tar\.gz"):
            download.unpack(path, tmp_path / "out", {"a.bin": 10_000})
        assert os.listdir(tmp_path) == ["x.tar.gz"]


def test_unpacking_into_a_folder_that_exists_replaces_file_by_file(tmp_path):
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "a.bin").write_bytes(b"old")
    (tmp_path / "out" / "mine").write_bytes(b"mine")
    (tmp_path / "x.tar").write_bytes(tar({"dir/a.bin": b"new", "dir/b.bin": b""}, "w"))
    download.unpack(tmp_path / "x.tar", tmp_path / "out", {"a.bin": 10, "b.bin": 10})
    assert sorted(os.listdir(tmp_path)) == ["out", "x.tar"]
    assert sorted(os.listdir(tmp_path / "out")) == ["SHA256SUMS", "a.bin", "b.bin", "mine"]
    assert (tmp_path / "out" / "a.bin").read_bytes() == b"new"
