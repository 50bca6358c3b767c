"""Addresses, and how a server stops."""

from __future__ import annotations

import asyncio
import signal
import socket
import threading
import time
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
        with pytest.raises(ResourceError, match=f"port {port}") as caught:
            bind("127.0.0.1", port)
    assert "--port" in caught.value.hint


def test_an_address_of_another_machine_is_blamed_on_the_host() -> None:
    with pytest.raises(ResourceError, match=r"192\.0\.2\.1 port 0") as caught:
        bind("192.0.2.1", 0)
    assert "--host" in caught.value.hint
    assert "--port" not in caught.value.hint


@pytest.mark.parametrize(("host", "port"), [("no such host", 0), ("127.0.0.1", -1), ("127.0.0.1", 65536)])
def test_impossible_addresses_are_refused(host: str, port: int) -> None:
    with pytest.raises(InvalidRequestError):
        bind(host, port)


def serve_until(
    act: Callable[[httpx2.Client, Gate, list[Any]], None], *, drain_seconds: float, running: list[int] | None = None
) -> list[Any]:
    """Serve in this thread, as the command does, while `act` runs in another; what that gathered, or how it failed.

    How many requests ran when it was told to stop goes to `running`.
    """
    counts = [] if running is None else running
    gate, gathered = Gate(), list[Any]()
    with served(gated_model(WELL, gate)) as api, bind("127.0.0.1", 0) as listener:
        url = url_of(listener)

        def run() -> None:
            try:
                with httpx2.Client(base_url=url, timeout=30) as client:
                    act(client, gate, gathered)
            except BaseException as error:  # don't let the server wait for ever
                gathered.append(error)
                gate.open()
                kill(signal.SIGTERM)

        thread = threading.Thread(target=run)
        try:
            ready, stopping = thread.start, counts.append
            serve(api.app, api.worker, listener, drain_seconds=drain_seconds, ready=ready, stopping=stopping)
        except KeyboardInterrupt as error:
            gathered.append(error)
        thread.join(30)
        assert not thread.is_alive()
    return gathered


def read(client: httpx2.Client, gate: Gate, gathered: list[Any], then: Callable[[], None]) -> None:
    """Read a stream to its end; after the first token, the next one standing before the gate, do something."""
    gate.close()
    threading.Thread(target=lambda: asyncio.run(gate.step())).start()
    with client.stream("POST", COMPLETIONS, json=BODY) as response:
        for line in filter(None, response.iter_lines()):
            if not gathered:
                gate.wait_until_reached()
                then()
            gathered.append(line)


def kill(number: int) -> None:
    signal.pthread_kill(threading.main_thread().ident or 0, number)


def once_stopping(client: httpx2.Client, call: Callable[..., None], *arguments: Any) -> None:
    """A while after the server has heard of a first signal, which closes its port."""
    address = (client.base_url.host, client.base_url.port or 0)

    def wait() -> None:
        while True:
            try:
                socket.create_connection(address).close()
            except OSError:
                break
            time.sleep(0.01)
        time.sleep(0.1)
        call(*arguments)

    threading.Thread(target=wait).start()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_lets_answers_end(number: int) -> None:
    before = [signal.getsignal(each) for each in (signal.SIGINT, signal.SIGTERM)]

    def act(client: httpx2.Client, gate: Gate, told: list[Any]) -> None:
        def stop() -> None:
            kill(number)
            once_stopping(client, gate.open)

        read(client, gate, told, stop)

    counts: list[int] = []
    gathered = serve_until(act, drain_seconds=30, running=counts)
    assert counts == [1]
    assert gathered[-1] == "data: [DONE]"
    assert '"finish_reason":"length"' in gathered[-2]
    assert [signal.getsignal(each) for each in (signal.SIGINT, signal.SIGTERM)] == before


def test_after_the_deadline_answers_are_cut_and_told() -> None:
    def act(client: httpx2.Client, gate: Gate, told: list[Any]) -> None:
        def stop() -> None:
            kill(signal.SIGTERM)
            once_stopping(client, gate.open)

        read(client, gate, told, stop)

    gathered = serve_until(act, drain_seconds=0.05)
    assert gathered[-1] == "data: [DONE]"
    assert '"server_stopping"' in gathered[-2]


def test_a_second_signal_stops_at_once_and_tells_of_no_fault(caplog: pytest.LogCaptureFixture) -> None:
    def act(client: httpx2.Client, gate: Gate, told: list[Any]) -> None:
        def stop() -> None:
            kill(signal.SIGTERM)
            once_stopping(client, kill, signal.SIGTERM)

        with pytest.raises(httpx2.HTTPError):
            read(client, gate, told, stop)
        time.sleep(0.2)  # the step at work takes that much longer
        gate.open()

    gathered = serve_until(act, drain_seconds=600)
    assert isinstance(gathered[-1], KeyboardInterrupt)
    assert not [record for record in caplog.records if record.levelname in ("ERROR", "CRITICAL")]
