"""What clients do below HTTP: half a request, none at all, something else, and readers that stop in the middle."""

from __future__ import annotations

import json
import logging
import select
import socket
import time
from collections.abc import Iterator
from contextlib import closing, suppress
from urllib.parse import urlsplit

import pytest

from offramp.serve import protocol
from offramp.testing.models import chat_tokenizer, scripted_model
from offramp.testing.scripted import mixing
from tests.serve.asking import Api, listening, served

WELL = mixing(chat_tokenizer().vocab_size, first=3)
GET = b"GET /health HTTP/1.1\r\nhost: localhost\r\n\r\n"
POST = b"POST /v1/completions HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"


@pytest.fixture(scope="module")
def api() -> Iterator[Api]:
    with served(scripted_model(WELL, num_pages=256)) as api:
        yield api


@pytest.fixture(scope="module")
def url(api: Api) -> Iterator[str]:
    with listening(api.app, send_bytes=8192) as url:
        yield url


@pytest.fixture
def connection(url: str) -> Iterator[socket.socket]:
    with closing(connected(url)) as connection:
        yield connection


@pytest.fixture(autouse=True)
def _nothing_is_logged_and_others_are_served(api: Api, caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    with caplog.at_level(logging.WARNING):
        yield
    assert [record for record in caplog.records if record.levelno >= logging.ERROR] == []
    assert api.get("/health").status_code == 200


def connected(url: str, *, receive_bytes: int | None = None) -> socket.socket:
    """A connection to the server; `receive_bytes` bounds what the system buffers of its answers."""
    connection = socket.socket()
    connection.settimeout(10)
    if receive_bytes is not None:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_bytes)
    address = urlsplit(url)
    connection.connect((address.hostname, address.port))
    return connection


def head_for(body: bytes) -> bytes:
    """Headers of a request for a completion, the last one of its connection."""
    return POST + f"content-length: {len(body)}\r\nconnection: close\r\n\r\n".encode()


def rest(connection: socket.socket) -> bytes:
    """All that the server sends until it closes."""
    parts = []
    with suppress(ConnectionResetError):  # it was still being sent to
        while part := connection.recv(1 << 16):
            parts.append(part)
    return b"".join(parts)


def one_answer(connection: socket.socket) -> bytes:
    """An answer with a length, whole."""
    answer = b""
    while b"\r\n\r\n" not in answer:
        answer += connection.recv(1)
    length = int(answer.lower().partition(b"content-length: ")[2].split()[0])
    while length:
        part = connection.recv(length)
        assert part
        answer, length = answer + part, length - len(part)
    return answer


def refusal(answer: bytes) -> tuple[int, dict[str, object]]:
    """Status and error object of a whole answer, after which the connection ends."""
    head, _, body = answer.partition(b"\r\n\r\n")
    lines = head.lower().split(b"\r\n")
    assert b"content-type: application/json" in lines
    assert b"connection: close" in lines
    error = json.loads(body)["error"]
    assert set(error) == {"message", "type", "param", "code"}
    return int(lines[0].split()[1]), error


@pytest.mark.parametrize(
    "sent",
    [
        b"hello\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(range(200)),  # TLS
        b"GET /health HTTP/1.1\r\n\r\n",  # no host
        b"GET /health HTTP/1.1\r\nhost: a\r\nhost: b\r\n\r\n",
        b"GET /health HTTP/two\r\nhost: a\r\n\r\n",
        b"GET /he alth HTTP/1.1\r\nhost: a\r\n\r\n",
        b"POST /v1/completions HTTP/1.1\r\nhost: a\r\ncontent-length: -1\r\n\r\n",
        b"POST /v1/completions HTTP/1.1\r\nhost: a\r\ncontent-length: 5\r\ncontent-length: 6\r\n\r\n",
        b"POST /v1/completions HTTP/1.1\r\nhost: a\r\ntransfer-encoding: gzip\r\n\r\n",
    ],
)
def test_what_is_no_http_is_refused_in_openais_shape(connection: socket.socket, sent: bytes) -> None:
    connection.sendall(sent)
    status, error = refusal(rest(connection))
    assert (status, error["code"], error["type"]) == (400, "invalid_http", "invalid_request_error")


OTHERS = b"".join(b"x-%d: a\r\n" % number for number in range(10_000))


@pytest.mark.parametrize("gap", [0.0, 0.05])
@pytest.mark.parametrize(
    "sent",
    [
        GET[:-2] + b"x: " + b"y" * 65_536 + b"\r\n\r\n",
        GET[:-2] + b"x: " + b"y" * 17_000 + b"\r\n\r\n",
        GET[:-2] + b"x: " + b"y" * 20_000,
        GET[:-2] + OTHERS + b"\r\n",
        b"GET /" + b"a" * 65_536 + b" HTTP/1.1\r\nhost: a\r\n\r\n",
    ],
    ids=["one header", "just too large", "no end", "many headers", "target"],
)
def test_large_heads_are_refused_however_they_arrive(connection: socket.socket, sent: bytes, gap: float) -> None:
    """All at once or in two parts, and the client gets to read why, though it had not sent everything."""
    connection.sendall(sent[:12_000])
    time.sleep(gap)
    connection.sendall(sent[12_000:])
    connection.shutdown(socket.SHUT_WR)
    answer = rest(connection)
    assert int(answer.split()[1]) == 431
    assert json.loads(answer.partition(b"\r\n\r\n")[2])["error"]["code"] == "headers_too_large"


def test_a_head_that_is_just_small_enough(connection: socket.socket) -> None:
    connection.sendall(GET[:-2] + b"connection: close\r\nx: " + b"y" * 16_000 + b"\r\n\r\n")
    assert rest(connection).startswith(b"HTTP/1.1 200")


BODY = b'{"prompt": "a", "max_tokens": 1}'
CHUNKED = POST + b"connection: close\r\ntransfer-encoding: chunked\r\n\r\n"
CHUNK = b"%x\r\n%s\r\n" % (len(BODY), BODY)


@pytest.mark.parametrize("size", ["f" * 21 + "\r\n", "-1\r\n", "\r\n", "0x1\r\n", "1;" + "e" * 20_000], ids=len)
def test_absurd_chunk_sizes(connection: socket.socket, size: str) -> None:
    connection.sendall(CHUNKED + size.encode())
    status, error = refusal(rest(connection))
    assert (status, error["code"]) == (400, "invalid_http")


def test_chunks_of_one_byte_and_trailers(connection: socket.socket) -> None:
    chunks = b"".join(b"1;note=x\r\n%c\r\n" % byte for byte in BODY)
    connection.sendall(CHUNKED + chunks + b"0\r\ntrailer: y\r\n\r\n")
    assert rest(connection).startswith(b"HTTP/1.1 200")


def test_no_turn_takes_long(connection: socket.socket, monkeypatch: pytest.MonkeyPatch) -> None:
    """However much arrives at once, little is looked at before others have their turn."""
    most = 0
    receive = protocol.HttpProtocol.data_received

    def count(self: protocol.HttpProtocol, data: bytes) -> None:
        nonlocal most
        most = max(most, len(data))
        receive(self, data)

    monkeypatch.setattr(protocol.HttpProtocol, "data_received", count)
    connection.sendall(CHUNKED + b"1\r\n \r\n" * 50_000 + CHUNK + b"0\r\n\r\n")
    assert rest(connection).startswith(b"HTTP/1.1 200")
    assert 1000 < most <= 16 << 10


def test_a_client_that_waits_before_it_sends_is_told_to_go_on(connection: socket.socket) -> None:
    connection.sendall(POST + b"expect: 100-continue\r\nconnection: close\r\ncontent-length: %d\r\n\r\n" % len(BODY))
    assert connection.recv(1 << 16) == b"HTTP/1.1 100 Continue\r\n\r\n"
    connection.sendall(BODY)
    assert rest(connection).startswith(b"HTTP/1.1 200")


@pytest.mark.parametrize(
    ("head", "status"),
    [
        (POST + b"content-length: 99999999\r\n", 413),
        (b"POST /nowhere HTTP/1.1\r\nhost: a\r\ncontent-length: 9\r\n", 404),
        (b"POST /v1/completions HTTP/1.1\r\nhost: a\r\ncontent-length: 9\r\n", 400),
    ],
)
def test_a_client_that_waits_and_is_refused_is_left(connection: socket.socket, head: bytes, status: int) -> None:
    """What it sends next could be its body or another request: nobody knows."""
    connection.sendall(head + b"expect: 100-continue\r\n\r\n")
    assert refusal(rest(connection))[0] == status


def test_no_http_behind_a_request_that_waits(connection: socket.socket) -> None:
    connection.sendall(POST + b"expect: 100-continue\r\ntransfer-encoding: chunked\r\n\r\nzzz\r\n")
    status, error = refusal(rest(connection))
    assert (status, error["code"]) == (400, "invalid_http")


@pytest.mark.parametrize("late", [b"x", b"x" * 98], ids=len)
def test_a_body_that_nobody_waited_for_may_not_take_for_ever(
    connection: socket.socket, monkeypatch: pytest.MonkeyPatch, late: bytes
) -> None:
    monkeypatch.setattr(protocol, "REST_SECONDS", 0.1)
    connection.sendall(b"POST /nowhere HTTP/1.1\r\nhost: a\r\ncontent-length: 99\r\n\r\n")
    assert one_answer(connection).startswith(b"HTTP/1.1 404")
    connection.sendall(late)
    begun = time.monotonic()
    assert rest(connection) == b""
    assert time.monotonic() - begun < 5


def test_behind_a_body_that_nobody_waited_for_the_connection_goes_on(
    connection: socket.socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(protocol, "REST_SECONDS", 0.1)
    connection.sendall(b"POST /nowhere HTTP/1.1\r\nhost: a\r\ncontent-length: 9\r\n\r\n")
    assert one_answer(connection).startswith(b"HTTP/1.1 404")
    for part in (b"x" * 8, b"x"):
        connection.sendall(part)
    time.sleep(0.15)
    connection.sendall(GET)
    assert one_answer(connection).startswith(b"HTTP/1.1 200")


@pytest.mark.parametrize("count", [2, 300])
def test_pipelined_requests_are_answered_in_turn(connection: socket.socket, count: int) -> None:
    asked = POST + b"content-length: %d\r\n\r\n" % len(BODY) + BODY
    last = b"GET /version HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n"
    connection.sendall(asked + GET * count + asked + last)
    answer = rest(connection)
    assert answer.count(b"HTTP/1.1 200") == count + 3
    places = [answer.index(b'"choices"'), answer.index(b'{"status":"ok"}'), answer.rindex(b'{"status":"ok"}')]
    assert places == sorted(places)
    assert places[-1] < answer.rindex(b'"choices"') < answer.index(b'{"version"')


@pytest.mark.parametrize(
    "sent",
    [
        b"GET /health HTTP/1.0\r\n\r\n",
        b"GET /health HTTP/1.0\r\nhost: a\r\nconnection: keep-alive\r\n\r\n",
        POST.replace(b"HTTP/1.1", b"HTTP/1.0") + b"content-length: %d\r\n\r\n" % len(BODY) + BODY,
    ],
)
def test_http_1_0_gets_its_answer_and_the_end(connection: socket.socket, sent: bytes) -> None:
    connection.sendall(sent)
    head, _, body = rest(connection).partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 200")
    assert json.loads(body)


def test_http_1_0_gets_a_stream_without_chunks(connection: socket.socket) -> None:
    body = b'{"prompt": "a", "max_tokens": 1, "stream": true}'
    connection.sendall(POST.replace(b"HTTP/1.1", b"HTTP/1.0") + b"content-length: %d\r\n\r\n" % len(body) + body)
    head, _, events = rest(connection).partition(b"\r\n\r\n")
    assert b"transfer-encoding" not in head.lower()
    assert events.startswith(b"data: {")
    assert events.endswith(b"data: [DONE]\n\n")


@pytest.mark.parametrize(
    ("target", "status"),
    [
        (b"http://localhost/health", 200),
        (b"HTTPS://localhost:8000/v1/models/toy?x=1", 200),
        (b"http://localhost", 404),
        (b"http://localhost/nowhere", 404),
        (b"http:/health", 404),
        (b"*", 404),
    ],
)
def test_targets_as_proxies_are_sent_them(connection: socket.socket, target: bytes, status: int) -> None:
    connection.sendall(b"GET %s HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n" % target)
    assert int(rest(connection).split()[1]) == status


def test_a_body_in_broken_chunks_ends_its_request(api: Api, connection: socket.socket) -> None:
    connection.sendall(POST + b"transfer-encoding: chunked\r\n\r\n2\r\n{}\r\n")
    time.sleep(0.05)  # the application waits for the rest
    connection.sendall(b"zzz\r\n")
    status, error = refusal(rest(connection))
    assert (status, error["code"]) == (400, "invalid_http")


def test_no_http_behind_a_request_that_is_answered(connection: socket.socket) -> None:
    connection.sendall(GET + b"hello\r\n\r\n")
    answer = rest(connection)
    assert answer.startswith(b"HTTP/1.1 200")
    assert refusal(answer[answer.rindex(b"HTTP/1.1 ") :])[0] == 400


@pytest.mark.parametrize("before", [b"", GET])
def test_headers_that_do_not_come_are_given_up(url: str, monkeypatch: pytest.MonkeyPatch, before: bytes) -> None:
    """However slowly they trickle; also on a connection that has been answered once."""
    monkeypatch.setattr(protocol, "HEADER_SECONDS", 0.15)
    with closing(connected(url)) as connection:
        if before:
            connection.sendall(before)
            answer = b""
            while not answer.endswith(b'{"status":"ok"}'):
                answer += connection.recv(1 << 16)
        begun = time.monotonic()
        for byte in GET:
            if select.select([connection], [], [], 0.02)[0]:
                break
            connection.sendall(bytes([byte]))
        status, error = refusal(rest(connection))
    assert (status, error["code"]) == (408, "header_timeout")
    assert time.monotonic() - begun < 2


def test_a_connection_without_a_word_is_closed_without_one(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(protocol, "HEADER_SECONDS", 0.1)
    with closing(connected(url)) as connection:
        assert rest(connection) == b""


def test_an_answer_may_take_longer_than_headers(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The clock stops when the headers are there: neither a late body nor a long answer is cut."""
    monkeypatch.setattr(protocol, "HEADER_SECONDS", 0.05)
    body = json.dumps({"prompt": "a", "max_tokens": 3}).encode()
    with closing(connected(url)) as connection:
        connection.sendall(head_for(body))
        time.sleep(0.1)
        connection.sendall(body)
        assert rest(connection).startswith(b"HTTP/1.1 200")


def ask_for_much(url: str, **more: object) -> socket.socket:
    """Ask for an answer that is larger than all buffers on the way; its connection."""
    body = {"prompt": "a", "max_tokens": 50, "logprobs": 100, "ignore_eos": True, **more}
    raw = json.dumps(body).encode()
    connection = connected(url, receive_bytes=4096)
    connection.sendall(head_for(raw) + raw)
    assert connection.recv(12, socket.MSG_PEEK) == b"HTTP/1.1 200"
    return connection


def test_a_reader_that_stops_gives_everything_back(api: Api, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(protocol, "READ_SECONDS", 0.1)
    before = api.worker.statistics.num_finished["abort"]
    with closing(ask_for_much(url, n=8, stream=True, max_tokens=1000)) as connection:
        end = time.monotonic() + 20
        while api.worker.statistics.num_running and time.monotonic() < end:
            time.sleep(0.01)
        assert api.worker.statistics.num_running == api.worker.statistics.num_used_pages == 0
        assert api.worker.statistics.num_finished["abort"] == before + 8
        assert b"[DONE]" not in rest(connection)


def test_a_whole_answer_that_nobody_reads_is_dropped(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(protocol, "READ_SECONDS", 0.05)
    with closing(ask_for_much(url)) as connection:
        time.sleep(0.15)
        head, _, body = rest(connection).partition(b"\r\n\r\n")
    length = head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0]
    assert len(body) < int(length)


def test_a_slow_reader_gets_everything(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """More slowly than the limit allows for the whole, but never too long without reading."""
    monkeypatch.setattr(protocol, "READ_SECONDS", 0.05)
    answer, begun = b"", time.monotonic()
    with closing(ask_for_much(url)) as connection:
        while part := connection.recv(4096):
            answer += part
            time.sleep(0.005)
    assert time.monotonic() - begun > 2 * protocol.READ_SECONDS
    assert len(json.loads(answer.partition(b"\r\n\r\n")[2])["choices"][0]["logprobs"]["tokens"]) == 50


@pytest.mark.parametrize("path", ["/health", "/v1/models", "/v1/models/toy", "/metrics", "/version", "/openapi.json"])
def test_head_tells_what_get_would_without_a_body(connection: socket.socket, path: str) -> None:
    connection.sendall(f"HEAD {path} HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n".encode())
    head, _, body = rest(connection).partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 200")
    assert b"content-length: " in head.lower()
    assert body == b""
