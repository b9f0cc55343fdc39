"""serving.Service: requests over HTTP."""

import http.client
import io
import json
import re
import socket
import threading
import time
from contextlib import contextmanager

import pytest
from PIL import Image
from singa import serving
from singa.training.task import Regression, SeveralLabels, set_task

LIMITS = serving.Limits(body=100_000, requests=2, connections=8, timeout_s=30.0, pixels=40 * 30)


@contextmanager
def running(classifier, limits=LIMITS, **options):
    """A service that answers; stops it."""
    service = serving.Service(("127.0.0.1", 0), serving.Batches(classifier), limits, **options)
    thread = threading.Thread(target=service.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield service
    finally:
        assert service.stop()
        thread.join()


@contextmanager
def connected(service):
    connection = http.client.HTTPConnection("127.0.0.1", service.server_port, timeout=30)
    try:
        yield connection
    finally:
        connection.close()


def answered(connection):
    response = connection.getresponse()
    content = response.read().decode()
    is_json = response.headers["Content-Type"] == "application/json"
    return response.status, json.loads(content) if is_json and content else content


def ask(service, method, path, body=None, headers=()):
    with connected(service) as connection:
        connection.request(method, path, body, dict(headers))
        return answered(connection)


def raw(service, *parts):
    """What a service answers to these bytes, until it closes the connection."""
    with socket.create_connection(("127.0.0.1", service.server_port), 30) as connection:
        for part in parts:
            connection.sendall(part)
        found = b""
        while more := connection.recv(1 << 16):
            found += more
    return found


def form(*files):
    body = b""
    for name, content in files:
        head = f'--XX\r\nContent-Disposition: form-data; name="image"; filename="{name}"\r\n\r\n'
        body += head.encode() + content + b"\r\n"
    return body + b"--XX--\r\n", {"Content-Type": "multipart/form-data; boundary=XX"}


def rounded(classifier, content, top=5):
    return {
        name: pytest.approx(probability, abs=2e-6)
        for name, probability in classifier.predict(content, top)[0]
    }


def test_pictures(classifier, files):
    with running(classifier) as service:
        expected = [rounded(classifier, content) for content in files[:2]]
        one = {"predictions": [{"file": "", "classes": expected[0]}]}
        for path in ("/", "/predict"):
            assert ask(service, "POST", path, files[0]) == (200, one)
        status, answer = ask(service, "POST", "/predict", *form(("1", files[0]), ("2", files[1])))
        assert status == 200
        assert answer["predictions"] == [
            {"file": name, "classes": each} for name, each in zip("12", expected, strict=True)
        ]
        _, answer = ask(service, "POST", "/predict?top=1", files[0])
        (best,) = answer["predictions"][0]["classes"].items()
        assert best == next(iter(expected[0].items()))


def test_other_paths(classifier, files):
    with running(classifier) as service:
        assert ask(service, "GET", "/health") == (200, {"status": "ok"})
        about = ask(service, "GET", "/")[1]
        assert (about["classes"], about["limits"]["body"]) == (["a", "b", "c"], 100_000)
        assert ask(service, "HEAD", "/health") == (200, "")
        assert ask(service, "GET", "/no")[0] == 404
        assert ask(service, "POST", "/no", files[0])[0] == 404
        status, answer = ask(service, "BREW", "/predict")
        assert (status, answer) == (501, {"error": "Unsupported method ('BREW')"})


@pytest.mark.parametrize(
    ("method", "path", "status", "allowed"),
    [
        *[(method, "/predict", 405, "POST") for method in ("GET", "HEAD", "PUT", "OPTIONS")],
        *[(method, "/health", 405, "GET, HEAD") for method in ("POST", "DELETE")],
        ("PATCH", "/", 405, "GET, HEAD, POST"),
        *[(method, "/no", 404, None) for method in ("GET", "POST", "PUT")],
    ],
)
def test_methods_that_a_path_does_not_have(classifier, files, method, path, status, allowed):
    with running(classifier) as service, connected(service) as connection:
        connection.request(method, path, files[0] if method in ("POST", "PUT") else None)
        response = connection.getresponse()
        answer = response.read()
        assert (response.status, response.headers["Allow"]) == (status, allowed)
        if method != "HEAD":
            why = f"{method} {path}: use" if status == 405 else "POST /predict, GET /, /health"
            assert why in json.loads(answer)["error"]
        assert ask(service, "GET", "/health")[0] == 200


def test_a_body_that_is_not_read_is_not_the_next_request(classifier):
    """A proxy that sends the requests of several clients on one connection would give the answer
    to another client."""
    hidden = b"GET /metrics HTTP/1.1\r\n\r\n"
    with running(classifier) as service:
        for head in (b"GET /health", b"GET /no", b"DELETE /predict", b"OPTIONS /"):
            for length in (b"Content-Length: %d" % len(hidden), b"Transfer-Encoding: chunked"):
                answer = raw(service, head + b" HTTP/1.1\r\n" + length + b"\r\n\r\n" + hidden)
                assert answer.count(b"HTTP/1.1 ") == 1
                assert b"Connection: close" in answer


def test_metrics(classifier, files):
    """Each line has Prometheus' form, and counts are those of the requests."""
    with running(classifier, model={"path": 'a\\b "c" \n', "sha256": "12ab"}) as service:
        ask(service, "POST", "/predict", *form(("1", files[0]), ("2", files[1])))
        ask(service, "POST", "/predict", b"no picture")
        ask(service, "GET", "/health")
        status, text = ask(service, "GET", "/metrics")
    assert status == 200
    label = r"[a-z][a-z0-9]*=\"(?:[^\"\\\n]|\\[\\n\"])*\""
    sample = rf"[a-z_]+(\{{{label}(,{label})*\}})? [-+.0-9e]+"
    described = r"# (HELP [a-z_]+ .+|TYPE [a-z_]+ (counter|gauge|histogram))"
    for line in text.splitlines():
        assert re.fullmatch(f"{sample}|{described}", line)
    values = dict(line.rsplit(" ", 1) for line in text.splitlines() if not line.startswith("#"))
    assert values['singa_requests_total{status="200"}'] == "1"
    assert values['singa_requests_total{status="400"}'] == "1"
    assert values["singa_request_seconds_count"] == "2"
    assert values["singa_batch_pictures_sum"] == "2.0"
    assert values["singa_connections_refused_total"] == "0"
    assert values['singa_model_info{path="a\\\\b \\"c\\" \\n",sha256="12ab"}'] == "1"
    assert int(values["process_resident_memory_bytes"]) > 10 << 20
    assert float(values["process_cpu_seconds_total"]) > 0
    assert int(values["process_open_fds"]) > 3
    assert values["singa_waiting_pictures"] == "0"
    assert int(values["singa_requests_in_progress"]) < 2  # a request ends behind its answer
    assert int(values["singa_open_connections"]) >= 1  # others may be closing


def test_a_picture_with_many_pixels_is_not_decoded(classifier, files):
    """A small file may have pixels that take all memory."""
    stream = io.BytesIO()
    Image.new("RGB", (40, 31)).save(stream, "PNG")
    broken = stream.getvalue()[:-30]  # decoding would fail
    with running(classifier) as service:
        status, answer = ask(service, "POST", "/predict", broken)
        assert (status, answer) == (413, {"error": "the body has 40 x 31 pixels: at most 1200"})
        assert ask(service, "POST", "/predict", files[0])[0] == 200


def test_a_picture_of_another_size(classifier, files):
    classifier.transform = type(classifier.transform)(*classifier.transform.transforms[2:])
    with running(classifier) as service:
        status, answer = ask(service, "POST", "/predict", files[0])
        why = "a picture of 20 x 30 pixels: the network takes 16 x 16"
        assert (status, answer) == (400, {"error": why})


@pytest.mark.parametrize(
    ("path", "body", "headers", "status", "reason"),
    [
        ("/predict", b"no picture", {}, 400, "the body: not a picture"),
        ("/predict", b"", {}, 400, "the body is empty: send the picture's bytes, or a form"),
        ("/predict", b"x", {"Content-Type": "application/x-www-form-urlencoded"}, 400, "curl -d"),
        ("/predict", b"{}", {"Content-Type": "application/json"}, 415, "application/json is not"),
        ("/predict", b"x", {"Content-Type": "image/png", "Content-Encoding": "gzip"}, 415, "gzip"),
        ("/predict", *form(("a.png", b"no")), 400, "a.png: not a picture"),
        ("/predict", *form(), 400, "the form has no file"),
        ("/predict", *form(*[("a", b"")] * 17), 413, "17 pictures: at most 16 at once"),
        ("/predict", b"x" * 100_001, {}, 413, "the body has 100001 bytes: at most 100000"),
        ("/predict", b"", {"Content-Length": "9" * 5000}, 413, "the body has 9999"),
        ("/predict", b"", {"Content-Length": "many"}, 411, "Content-Length"),
        ("/predict", b"", {"Content-Length": "-1"}, 411, "Content-Length"),
        ("/predict", b"", {"Transfer-Encoding": "chunked"}, 411, "no chunks"),
        ("/predict?top=0", b"", {}, 400, "the only option is ?top=N"),
        ("/predict?top=many", b"", {}, 400, "the only option is ?top=N"),
        ("/predict?best=3", b"", {}, 400, "the only option is ?top=N"),
    ],
)
def test_requests_that_are_refused(classifier, files, path, body, headers, status, reason):
    with running(classifier) as service:
        found, answer = ask(service, "POST", path, body, headers)
        assert (found, list(answer)) == (status, ["error"])
        assert reason in answer["error"]
        assert ask(service, "POST", "/predict", files[0])[0] == 200


def test_a_body_is_refused_before_it_is_sent(classifier):
    """curl announces large bodies, and waits for `100 Continue`."""
    head = b"POST /predict HTTP/1.1\r\nExpect: 100-continue\r\nContent-Length: %d\r\n\r\n"
    with running(classifier) as service:
        assert raw(service, head % 100_001).startswith(b"HTTP/1.1 413 ")
        with socket.create_connection(("127.0.0.1", service.server_port), 30) as connection:
            connection.sendall(head % 2)
            assert connection.recv(1 << 16) == b"HTTP/1.1 100 Continue\r\n\r\n"
            connection.sendall(b"no")
            assert connection.recv(1 << 16).startswith(b"HTTP/1.1 400 ")


def test_damaged_requests(classifier, files):
    with running(classifier) as service:
        assert b"Bad HTTP/0.9 request type ('no')" in raw(service, b"no http\r\n\r\n")
        assert raw(service, b"GET /" + b"a" * 70_000 + b" HTTP/1.1\r\n\r\n").startswith(
            b"HTTP/1.1 414 "
        )
        two = b"POST / HTTP/1.1\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab"
        assert raw(service, two).startswith(b"HTTP/1.1 411 ")
        with connected(service) as connection:  # the body ends early
            connection.putrequest("POST", "/predict")
            connection.putheader("Content-Length", "10")
            connection.endheaders()
            connection.send(b"123")
            connection.sock.shutdown(socket.SHUT_WR)
            status, answer = answered(connection)
        assert (status, answer["error"]) == (400, "the body ends after 3 of 10 bytes")
        assert ask(service, "POST", "/predict", files[0])[0] == 200


def test_a_connection_is_used_again(classifier, files):
    with running(classifier) as service, connected(service) as connection:
        statuses = []
        for body in (files[0], b"no picture", files[1]):
            connection.request("POST", "/predict", body)
            statuses.append(answered(connection)[0])
            port = connection.sock.getsockname()
        assert statuses == [200, 400, 200]
        connection.request("POST", "/predict?top=0", files[0])  # refused with its body unread
        assert answered(connection)[0] == 400
        assert connection.sock is None
        connection.request("GET", "/health")
        assert answered(connection)[0] == 200
        assert connection.sock.getsockname() != port


def test_requests_that_do_not_arrive(classifier):
    """The time is that of the whole request: a byte now and then does not prolong it."""
    with running(classifier, serving.Limits(timeout_s=0.8)) as service:
        head = b"POST /predict HTTP/1.1\r\nContent-Length: 5\r\n\r\n"
        assert raw(service, head + b"a").startswith(b"HTTP/1.1 408 ")
        assert raw(service, b"POST /pre") == b""
        assert raw(service) == b""


class Held:
    """A network that waits until `go` is set, or raises."""

    def __init__(self, classifier, monkeypatch, error=None):
        self.go, self.begun = threading.Event(), threading.Event()
        real = classifier.values_of_inputs

        def held(inputs):
            self.begun.set()
            if error is not None and not self.go.is_set():
                raise error
            assert self.go.wait(30)
            return real(inputs)

        monkeypatch.setattr(classifier, "values_of_inputs", held)


def test_an_error_of_the_network(classifier, files, monkeypatch, capfd):
    held = Held(classifier, monkeypatch, RuntimeError("secret"))
    with running(classifier) as service:
        status, answer = ask(service, "POST", "/predict", files[0])
        assert (status, answer) == (
            500,
            {"error": "the network failed with RuntimeError; the log has the message"},
        )
        held.go.set()
        assert ask(service, "POST", "/predict", files[0])[0] == 200
    first, second = capfd.readouterr().err.splitlines()
    assert first.endswith(" RuntimeError: secret")
    assert '"POST /predict HTTP/1.1" 500 ' in second


def test_a_busy_service_refuses_and_stops_with_what_it_took(classifier, files, monkeypatch):
    held, answers = Held(classifier, monkeypatch), []
    with running(classifier) as service:

        def request():
            answers.append(ask(service, "POST", "/predict", files[0])[0])

        threads = [threading.Thread(target=request) for _ in range(2)]
        for thread in threads:
            thread.start()
        assert held.begun.wait(30)
        while service._requests < 2:
            time.sleep(0.001)
        with connected(service) as connection:
            connection.request("POST", "/predict", files[1])
            response = connection.getresponse()
            assert (response.status, response.headers["Retry-After"]) == (503, "1")
            error = json.loads(response.read())["error"]
            assert error == "2 requests are being answered already"
        with connected(service) as connection:
            connection.request("GET", "/health")
            assert answered(connection) == (200, {"status": "ok"})
            stopping = threading.Thread(target=service.stop)
            stopping.start()
            while not service.stopping:
                time.sleep(0.001)
            connection.request("GET", "/health")
            assert answered(connection) == (503, {"status": "stopping"})
            connection.request("POST", "/predict", files[0])
            assert answered(connection) == (503, {"error": "the service stops"})
        # So are new connections, as those of a proxy's health checks.
        assert ask(service, "GET", "/health") == (503, {"status": "stopping"})
        assert ask(service, "POST", "/predict", files[0]) == (503, {"error": "the service stops"})
        held.go.set()
        stopping.join()
        for thread in threads:
            thread.join()
    assert answers == [200, 200]


def test_connections_beyond_the_limit_are_closed(classifier):
    with running(classifier, serving.Limits(connections=1)) as service:
        with connected(service) as first:
            first.request("GET", "/health")
            assert answered(first)[0] == 200
            with pytest.raises((ConnectionError, http.client.RemoteDisconnected)):
                ask(service, "GET", "/health")
            first.request("GET", "/metrics")
            status, text = answered(first)
            assert status == 200
            assert "\nsinga_connections_refused_total 1\n" in text
        while service._connections:
            time.sleep(0.001)
        assert ask(service, "GET", "/health")[0] == 200


def test_an_address_that_is_taken(classifier):
    with running(classifier) as service:
        batches = serving.Batches(classifier)
        with pytest.raises(OSError, match="Address already in use"):
            serving.Service(("127.0.0.1", service.server_port), batches)
        batches.close()


def test_labels_and_numbers(classifier, files):
    """A network with another task answers with its key, and takes its options alone."""
    set_task(classifier.net, SeveralLabels())
    with running(classifier) as service:
        about = ask(service, "GET", "/")[1]
        assert (about["labels"], about["task"]) == (["a", "b", "c"], "multilabel")
        _, answer = ask(service, "POST", "/predict?threshold=0", files[0])
        labels = answer["predictions"][0]["labels"]
        assert labels == {
            name: pytest.approx(value, abs=2e-6)
            for name, value in classifier.predict(files[0], threshold=0)[0]
        }
        assert len(labels) == 3
        limit = sorted(labels.values())[1]
        _, answer = ask(service, "POST", f"/predict?threshold={limit + 1e-5}", files[0])
        assert list(answer["predictions"][0]["labels"]) == [next(iter(labels))]
        _, answer = ask(service, "POST", "/predict?threshold=0&top=2", files[0])
        assert list(answer["predictions"][0]["labels"]) == list(labels)[:2]
        for path in ("/predict?top=", "/predict?best", "/predict?top=1&top=2"):  # of no effect
            assert ask(service, "POST", path, files[0])[0] == 400
        for path in ("/predict?threshold=2", "/predict?threshold=nan", "/predict?best=1"):
            status, answer = ask(service, "POST", path, files[0])
            assert (status, "?threshold=X" in answer["error"]) == (400, True)
    set_task(classifier.net, Regression([100.0, 0.0, -5.0], [10.0, 1.0, 1e-3]))
    with running(classifier) as service:
        _, answer = ask(service, "POST", "/predict", files[0])
        numbers = answer["predictions"][0]["numbers"]
        assert list(numbers) == ["a", "b", "c"]
        expected = classifier.values([classifier.read(files[0])])[0]
        assert list(numbers.values()) == pytest.approx(expected.tolist(), rel=1e-6)
        status, answer = ask(service, "POST", "/predict?top=1", files[0])
        assert (status, answer) == (400, {"error": "there are no options"})


def test_the_log(classifier, files, capfd):
    """It has what was refused, and on demand all; a client cannot write lines of its own."""
    for access_log in (False, True):
        with running(classifier, access_log=access_log) as service:
            assert ask(service, "POST", "/predict", files[0])[0] == 200
            assert ask(service, "POST", "/predict", *form(("a\x1b[2J.png", b"no")))[0] == 400
            odd = raw(service, b"GET /\x9b\x07 HTTP/1.1\r\nConnection: close\r\n\r\n")
            assert odd.startswith(b"HTTP/1.1 404 ")
            assert b"Bad HTTP/0.9" in raw(service, b"no http\r\n\r\n")
            while service._connections:  # a line may come after its answer
                time.sleep(0.001)
        lines = capfd.readouterr().err.splitlines()
        start = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d[+-]\d{4} 127\.0\.0\.1 "
        ends = [
            r'"POST /predict HTTP/1\.1" 200 [\d.]+ ms',
            r'"POST /predict HTTP/1\.1" 400 [\d.]+ ms a\\x1b\[2J\.png: not a picture',
            r'"GET /\\x9b\\x07 HTTP/1\.1" 404 [\d.]+ ms there is no /\\x9b\\x07: .*',
            r'"no http" 400 [\d.]+ ms Bad HTTP/0\.9 request type \(\'no\'\)',
        ]
        for line, end in zip(lines, ends[not access_log :], strict=True):
            assert re.fullmatch(start + end, line)


def test_lines_of_threads_do_not_mix(classifier, capfd):
    with running(classifier) as service:
        threads = [
            threading.Thread(target=lambda: [service.say("x" * 50) for _ in range(200)])
            for _ in range(4)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    texts = [line.split(" ", 1)[1] for line in capfd.readouterr().err.splitlines()]
    assert texts == ["x" * 50] * 800
