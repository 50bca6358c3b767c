"""What clients do below HTTP: half a request, none at all, something else, and readers that stop in the middle."""

from __future__ import annotations

import json
import select
import socket
import threading
import time
from contextlib import closing

import pytest

from offramp.serve import protocol
from tests.serve.asking import Api
from tests.serve.wire import GET, POST, connected, head_for, refusal, rest

pytestmark = pytest.mark.usefixtures("quietly")


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


def test_a_body_in_broken_chunks_ends_its_request(connection: socket.socket) -> None:
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
def test_headers_that_do_not_come_are_given_up(wire_url: str, monkeypatch: pytest.MonkeyPatch, before: bytes) -> None:
    """However slowly they trickle; also on a connection that has been answered once."""
    monkeypatch.setattr(protocol, "HEADER_SECONDS", 0.15)
    with closing(connected(wire_url)) as connection:
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


def test_a_connection_without_a_word_is_closed_without_one(wire_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(protocol, "HEADER_SECONDS", 0.1)
    with closing(connected(wire_url)) as connection:
        assert rest(connection) == b""


def test_an_answer_may_take_longer_than_headers(wire_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The clock stops when the headers are there: neither a late body nor a long answer is cut."""
    monkeypatch.setattr(protocol, "HEADER_SECONDS", 0.05)
    body = json.dumps({"prompt": "a", "max_tokens": 3}).encode()
    with closing(connected(wire_url)) as connection:
        connection.sendall(head_for(body))
        time.sleep(0.1)
        connection.sendall(body)
        assert rest(connection).startswith(b"HTTP/1.1 200")


def ask_for_much(wire_url: str, **more: object) -> socket.socket:
    """Ask for an answer that is larger than all buffers on the way; its connection."""
    body = {"prompt": "a", "max_tokens": 50, "logprobs": 100, "ignore_eos": True, **more}
    raw = json.dumps(body).encode()
    connection = connected(wire_url, receive_bytes=4096)
    connection.sendall(head_for(raw) + raw)
    assert connection.recv(12, socket.MSG_PEEK) == b"HTTP/1.1 200"
    return connection


def test_a_reader_that_stops_gives_everything_back(
    wire_api: Api, wire_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(protocol, "READ_SECONDS", 0.1)
    before = wire_api.worker.statistics.num_finished["abort"]
    with closing(ask_for_much(wire_url, n=8, stream=True, max_tokens=1000)) as connection:
        end = time.monotonic() + 20
        while wire_api.worker.statistics.num_running and time.monotonic() < end:
            time.sleep(0.01)
        assert wire_api.worker.statistics.num_running == wire_api.worker.statistics.num_used_pages == 0
        assert wire_api.worker.statistics.num_finished["abort"] == before + 8
        assert b"[DONE]" not in rest(connection)


def test_a_whole_answer_that_nobody_reads_is_dropped(wire_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    lost = threading.Event()
    lose = protocol.HttpProtocol.connection_lost

    def note(self: protocol.HttpProtocol, exc: Exception | None) -> None:
        lose(self, exc)
        lost.set()

    monkeypatch.setattr(protocol.HttpProtocol, "connection_lost", note)
    monkeypatch.setattr(protocol, "READ_SECONDS", 0.05)
    with closing(ask_for_much(wire_url)) as connection:
        assert lost.wait(20)
        head, _, body = rest(connection).partition(b"\r\n\r\n")
    length = head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0]
    assert len(body) < int(length)


def test_a_slow_reader_gets_everything(wire_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """More slowly than the limit allows for the whole, but never too long without reading."""
    monkeypatch.setattr(protocol, "READ_SECONDS", 0.3)
    answer, begun = b"", time.monotonic()
    with closing(ask_for_much(wire_url)) as connection:
        while part := connection.recv(4096):
            answer += part
            time.sleep(0.02)
    assert time.monotonic() - begun > 2 * protocol.READ_SECONDS
    assert len(json.loads(answer.partition(b"\r\n\r\n")[2])["choices"][0]["logprobs"]["tokens"]) == 50


@pytest.mark.parametrize("path", ["/health", "/v1/models", "/v1/models/toy", "/metrics", "/version", "/openapi.json"])
def test_head_tells_what_get_would_without_a_body(connection: socket.socket, path: str) -> None:
    connection.sendall(f"HEAD {path} HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n".encode())
    head, _, body = rest(connection).partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 200")
    assert b"content-length: " in head.lower()
    assert body == b""
