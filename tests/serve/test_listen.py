"""Addresses, and how a server stops."""

from __future__ import annotations

import signal
import socket
import threading
from collections.abc import Callable
from typing import Any
from urllib.parse import urlsplit

import httpx2
import pytest

from offramp.errors import InvalidRequestError, ResourceError
from offramp.serve.listen import bind, is_loopback, serve, url_of
from offramp.testing.gate import Gate, gated_model
from offramp.testing.models import chat_tokenizer
from offramp.testing.scripted import mixing
from tests.serve.asking import COMPLETIONS, served

WELL = mixing(chat_tokenizer().vocab_size, first=3)
BODY = {"prompt": "hello", "max_tokens": 20, "ignore_eos": True, "stream": True}


def test_a_free_port_has_an_address() -> None:
    with bind("127.0.0.1", 0) as listener:
        assert url_of(listener) == f"http://127.0.0.1:{listener.getsockname()[1]}"
        assert is_loopback(listener)
    with bind("0.0.0.0", 0) as listener:
        assert not is_loopback(listener)


@pytest.mark.skipif(not socket.has_ipv6, reason="no IPv6")
def test_ipv6_addresses_have_brackets() -> None:
    try:
        listener = bind("::1", 0)
    except ResourceError:
        pytest.skip("no IPv6 address")
    with listener:
        assert urlsplit(url_of(listener)).hostname == "::1"
        assert "[::1]:" in url_of(listener)
        assert is_loopback(listener)


def test_a_taken_port_is_refused() -> None:
    with bind("127.0.0.1", 0) as listener:
        listener.listen()
        port = listener.getsockname()[1]
        with pytest.raises(ResourceError, match=f"port {port}"):
            bind("127.0.0.1", port)


@pytest.mark.parametrize(("host", "port"), [("no such host", 0), ("127.0.0.1", -1), ("127.0.0.1", 65536)])
def test_impossible_addresses_are_refused(host: str, port: int) -> None:
    with pytest.raises(InvalidRequestError):
        bind(host, port)


def serve_until(gate: Gate, act: Callable[[httpx2.Client, list[Any]], None], *, drain_seconds: float) -> list[Any]:
    """Serve in this thread, as the command does, while `act` runs in another; what that gathered."""
    gathered: list[Any] = []
    with served(gated_model(WELL, gate)) as api, bind("127.0.0.1", 0) as listener:
        url = url_of(listener)

        def run() -> None:
            with httpx2.Client(base_url=url, timeout=30) as client:
                act(client, gathered)

        thread = threading.Thread(target=run)
        try:
            serve(api.app, api.worker, listener, drain_seconds=drain_seconds, ready=thread.start)
        except KeyboardInterrupt as error:
            gathered.append(error)
        thread.join(30)
        assert not thread.is_alive()
    return gathered


def read(client: httpx2.Client, gathered: list[Any], then: Callable[[], None]) -> None:
    """Read a stream to its end; after the first chunk do something."""
    with client.stream("POST", COMPLETIONS, json=BODY) as response:
        for line in response.iter_lines():
            if line and not gathered:
                gathered.append("begun")
                then()
            if line:
                gathered.append(line)


def kill(number: int) -> None:
    signal.pthread_kill(threading.main_thread().ident or 0, number)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_lets_answers_end(number: int) -> None:
    before = [signal.getsignal(each) for each in (signal.SIGINT, signal.SIGTERM)]
    gathered = serve_until(Gate(), lambda client, told: read(client, told, lambda: kill(number)), drain_seconds=30)
    assert gathered[-1] == "data: [DONE]"
    assert '"finish_reason":"length"' in gathered[-2]
    assert [signal.getsignal(each) for each in (signal.SIGINT, signal.SIGTERM)] == before


def test_after_the_deadline_answers_are_cut_and_told() -> None:
    gate = Gate()

    def act(client: httpx2.Client, told: list[Any]) -> None:
        def stop() -> None:
            gate.close()
            gate.wait_until_reached()
            kill(signal.SIGTERM)
            threading.Timer(0.3, gate.open).start()

        read(client, told, stop)

    gathered = serve_until(gate, act, drain_seconds=0.1)
    assert gathered[-1] == "data: [DONE]"
    assert '"server_stopping"' in gathered[-2]


def test_a_second_signal_stops_at_once() -> None:
    gate = Gate()

    def act(client: httpx2.Client, told: list[Any]) -> None:
        def stop() -> None:
            gate.close()
            gate.wait_until_reached()
            kill(signal.SIGTERM)
            threading.Timer(0.3, kill, [signal.SIGTERM]).start()

        with pytest.raises(httpx2.HTTPError):
            read(client, told, stop)
        gate.open()

    gathered = serve_until(gate, act, drain_seconds=600)
    assert isinstance(gathered[-1], KeyboardInterrupt)
