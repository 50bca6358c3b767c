"""Heads and bodies of requests as clients may send them: large, in odd chunks, late, pipelined, of HTTP/1.0."""

from __future__ import annotations

import json
import socket
import time

import pytest

from offramp.serve import protocol
from tests.serve.wire import GET, POST, one_answer, refusal, rest

pytestmark = pytest.mark.usefixtures("quietly")

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
        (b"http://localhost", 200),  # the page
        (b"http://localhost/nowhere", 404),
        (b"http:/health", 404),
        (b"*", 404),
    ],
)
def test_targets_as_proxies_are_sent_them(connection: socket.socket, target: bytes, status: int) -> None:
    connection.sendall(b"GET %s HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n" % target)
    assert int(rest(connection).split()[1]) == status
