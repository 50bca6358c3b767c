"""HTTP by hand: what is sent and read on a connection, byte by byte."""

from __future__ import annotations

import json
import socket
from contextlib import suppress
from urllib.parse import urlsplit

GET = b"GET /health HTTP/1.1\r\nhost: localhost\r\n\r\n"
POST = b"POST /v1/completions HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"


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
