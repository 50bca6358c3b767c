"""Host headers: a page whose name points at this machine learns nothing from a server without keys."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from http.client import HTTPConnection
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import pytest

from offramp import InvalidRequestError
from offramp.serve.hosts import LOCAL, AllowedHosts, host_name, hosts_to_allow
from offramp.testing.models import chat_tokenizer, scripted_model
from offramp.testing.scripted import mixing
from tests.serve.asking import COMPLETIONS, Api, error_of, listening, served


@pytest.fixture(scope="module")
def api() -> Iterator[Api]:
    model = scripted_model(mixing(chat_tokenizer().vocab_size, first=3), num_pages=16)
    with served(model, allowed_hosts=(*LOCAL, "box.lan")) as api:
        yield api


@pytest.mark.parametrize(
    "host",
    ["localhost", "LocalHost:8000", "localhost.", "localhost.:80", "127.0.0.1:1", "[::1]", "[::1]:8000", "Box.LAN:9"],
)
def test_names_of_the_server_are_served(api: Api, host: str) -> None:
    assert api.get("/v1/models", headers={"host": host}).status_code == 200


OTHERS = [
    *("evil.example", "evil.example:8000", "localhost.evil.example", "127.0.0.1.evil.example", "box.lan.evil.example"),
    *("127.0.0.2", "", "::1", "[::1", "localhost@evil.example", "localhost:80:80", "localhost\u00e9", "x" * 5000),
]


@pytest.mark.parametrize("host", OTHERS)
def test_other_names_are_refused(api: Api, host: str) -> None:
    error = error_of(api.get("/v1/models", headers={"host": host.encode("latin-1")}), 403)
    assert error["code"] == "host_not_allowed"
    assert repr(host)[:50] in error["message"]
    assert "--allowed-host" in error["message"]


@pytest.mark.parametrize("path", ["/metrics", "/health", "/openapi.json", "/nowhere"])
def test_they_are_refused_everywhere(api: Api, path: str) -> None:
    assert error_of(api.get(path, headers={"host": "evil.example"}), 403)


def test_nothing_runs_under_another_name(api: Api) -> None:
    before = api.worker.statistics.num_steps
    response = api.post(COMPLETIONS, {"prompt": "a"}, headers={"host": "evil.example"})
    assert error_of(response, 403)
    assert api.worker.statistics.num_steps == before


@pytest.mark.parametrize(
    ("named", "header", "status"),
    [
        ("evil.example", "localhost", 403),
        ("localhost@evil.example", "localhost", 403),
        ("[::1", "localhost", 403),
        ("localhost:80", "evil.example", 200),
    ],
)
def test_a_target_that_names_a_host_counts_before_the_header(api: Api, named: str, header: str, status: int) -> None:
    with listening(api.app) as url, closing(HTTPConnection(urlsplit(url).netloc)) as connection:
        connection.request("GET", urlunsplit(("http", named, "/v1/models", "", "")), headers={"host": header})
        assert connection.getresponse().status == status


def test_without_a_list_every_name_is_served(api: Api) -> None:
    AllowedHosts(()).check("evil.example")
    AllowedHosts(("localhost",)).check(None)  # HTTP/1.0, which browsers don't speak


@pytest.mark.parametrize(
    ("bound", "given", "guarded", "allowed"),
    [
        (("127.0.0.1", "127.0.0.1"), (), False, LOCAL),
        (("localhost", "127.0.0.1"), (), False, LOCAL),
        (("::1", "::1"), (), False, LOCAL),
        (("127.0.0.2", "127.0.0.2"), (), False, (*LOCAL, "127.0.0.2")),
        (("my-box", "127.0.1.1"), ("Box.lan",), False, (*LOCAL, "my-box", "127.0.1.1", "box.lan")),
        (("0.0.0.0", "0.0.0.0"), (), True, ()),
        (("0.0.0.0", "0.0.0.0"), ("box.lan",), True, (*LOCAL, "0.0.0.0", "box.lan")),
        (("", "fe80::1%1"), ("fd00::1",), True, (*LOCAL, "[fd00::1]")),
    ],
)
def test_who_is_allowed(bound: Any, given: Any, guarded: bool, allowed: Any) -> None:
    assert hosts_to_allow(bound, given, guarded=guarded) == allowed


@pytest.mark.parametrize("host", ["", " ", "//box.lan", "box.lan:80", "box.lan/", "*", "two words", "[::1", "b\u00e9"])
def test_hosts_that_no_header_names_are_refused(host: str) -> None:
    with pytest.raises(InvalidRequestError, match="allowed_host"):
        host_name(host)
