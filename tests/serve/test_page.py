"""The page's files: all of them, as they are, to everyone, under headers that let nothing else in."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from offramp.serve.page import FOLDER, PAGE, TYPES
from offramp.testing.models import chat_tokenizer, scripted_model
from offramp.testing.scripted import mixing
from tests.serve.asking import Api, error_of, served

KEY = "alpha-key"
WELL = mixing(chat_tokenizer().vocab_size, first=3)


@pytest.fixture(scope="module")
def api() -> Iterator[Api]:
    with served(scripted_model(WELL, num_pages=16), api_keys=(KEY,), allowed_hosts=("127.0.0.1",)) as api:
        yield api


def source(name: str) -> str:
    return (FOLDER / name).read_text(encoding="utf-8")


def test_every_file_of_the_folder_has_a_path() -> None:
    assert sorted(path.name for path in FOLDER.iterdir()) == sorted(PAGE.values())
    assert {(FOLDER / name).suffix for name in PAGE.values()} == set(TYPES)


@pytest.mark.parametrize("path", PAGE)
def test_files_need_no_key_and_come_as_they_are(api: Api, path: str) -> None:
    response = api.get(path)
    assert response.status_code == 200
    assert response.content == (FOLDER / PAGE[path]).read_bytes()
    assert response.headers["content-type"] == TYPES[(FOLDER / PAGE[path]).suffix]
    assert response.headers["x-content-type-options"] == "nosniff"


@pytest.mark.parametrize("path", PAGE)
def test_nothing_from_elsewhere_may_run_or_be_asked(api: Api, path: str) -> None:
    policy = dict(rule.strip().split(" ", 1) for rule in api.get(path).headers["content-security-policy"].split(";"))
    assert policy.pop("default-src") == "'none'"
    assert {policy.pop(name) for name in ("script-src", "style-src", "img-src", "connect-src")} == {"'self'"}
    assert policy.pop("require-trusted-types-for") == "'script'"
    assert set(policy) == {"base-uri", "form-action", "frame-ancestors", "trusted-types"}
    assert set(policy.values()) == {"'none'"}


@pytest.mark.parametrize("path", ["/", "/page/main.js"])
def test_a_copy_that_is_still_right_is_kept(api: Api, path: str) -> None:
    first = api.get(path)
    tag = first.headers["etag"]
    assert first.headers["cache-control"] == "no-cache"
    for known in (tag, f"W/{tag}", f'"other", {tag}', "*"):
        again = api.get(path, headers={"if-none-match": known})
        assert (again.status_code, again.content) == (304, b"")
        assert again.headers["etag"] == tag
        assert again.headers["content-security-policy"] == first.headers["content-security-policy"]
    assert api.get(path, headers={"if-none-match": '"other"'}).status_code == 200
    tags = [api.get(each).headers["etag"] for each in PAGE]
    assert len(set(tags)) == len(PAGE)


def test_head_tells_the_same_as_get(api: Api) -> None:
    for path in PAGE:
        got, told = api.get(path), api.ask("HEAD", path)
        assert told.status_code == 200
        own = {"x-request-id", "date"}
        assert {k: v for k, v in told.headers.items() if k not in own} == {
            k: v for k, v in got.headers.items() if k not in own
        }


@pytest.mark.parametrize(
    "path",
    ["/page", "/page/", "/page/index.html", "/page/../page.py", "/page/%2e%2e/app.py", "/page/main.js/", "/index.html"],
)
def test_there_is_no_other_path(api: Api, path: str) -> None:
    assert error_of(api.get(path), 401)["code"] == "invalid_api_key"
    assert error_of(api.get(path, headers={"authorization": f"Bearer {KEY}"}), 404)["code"] == "not_found"


def test_only_get_and_head_are_taken(api: Api) -> None:
    response = api.post("/", {})
    assert error_of(response, 405)["code"] == "method_not_allowed"
    assert response.headers["allow"] == "GET, HEAD"


def test_hosts_are_checked_as_everywhere(api: Api) -> None:
    assert error_of(api.get("/", headers={"host": "rebound.example"}), 403)["code"] == "host_not_allowed"


def test_the_apis_document_leaves_the_page_out(api: Api) -> None:
    paths = api.get("/openapi.json", headers={"authorization": f"Bearer {KEY}"}).json()["paths"]
    assert not set(PAGE) & set(paths)


def test_requests_for_files_count_under_their_paths(api: Api) -> None:
    api.get("/page/tip.js")
    text = api.get("/metrics", headers={"authorization": f"Bearer {KEY}"}).text
    assert 'offramp:http_requests_total{model_name="toy",route="/page/tip.js",status="200"}' in text


def test_the_page_names_only_its_own_files() -> None:
    named = re.findall(r'(?:href|src)="([^"#][^"]*)"', source("index.html"))
    assert set(named) == {"page/icon.svg", "page/style.css", "page/main.js"}
    for name in PAGE.values():
        if name.endswith(".js"):
            imported = re.findall(r'from "\./([^"]+)"', source(name))
            assert set(imported) <= set(PAGE.values()), name
            assert "import(" not in source(name)


@pytest.mark.parametrize("name", [name for name in PAGE.values() if not name.endswith(".svg")])
def test_no_file_reads_html_or_keeps_anything_but_the_key(name: str) -> None:
    text = source(name)
    for word in ("innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "DOMParser", "eval(", "Function("):
        assert word not in text
    for word in ("localStorage", "document.cookie", "indexedDB", "://", "url("):
        assert word not in text
    assert ("sessionStorage" in text) == (name == "api.js")
    assert " style=" not in text
    assert not re.search(r"\son[a-z]+=", text)
