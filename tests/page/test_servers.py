"""The page and its server: keys, gauges, faults, and a server that goes away and comes back."""

from __future__ import annotations

import time
from contextlib import ExitStack
from urllib.parse import urlsplit

from offramp.testing.gate import Gate
from tests.page.conftest import Open, Start
from tests.page.models import gated, mixer, speaker
from tests.serve.asking import listening, served

KEY = "alpha-key"
GONE = ("Failed to load resource", "net::ERR")


def test_a_key_is_asked_for_kept_in_the_tab_and_forgotten(start: Start, open_page: Open) -> None:
    visit = open_page(start(speaker("hi", "hello"), api_keys=(KEY,)))
    assert visit.at("#send").is_disabled()
    visit.at("#key").fill("wrong")
    visit.page.keyboard.press("Enter")
    visit.at("#alert:has-text('the API key is wrong')").wait_for()
    visit.at("#key").fill(KEY)
    visit.page.keyboard.press("Enter")
    visit.at("#send:enabled").wait_for()
    assert visit.at("#key-form").is_hidden()
    assert visit.at("#alert").text_content() == ""
    assert visit.ask("hi") == "hello"
    assert visit.page.evaluate("({ ...sessionStorage })") == {"offramp.key": KEY}
    assert visit.page.evaluate("[localStorage.length, document.cookie]") == [0, ""]
    visit.page.reload()
    visit.at("#send:enabled").wait_for()
    visit.at("#forget-key").click()
    visit.at("#key-form").wait_for()
    assert visit.page.evaluate("sessionStorage.length") == 0
    visit.allow("401 (Unauthorized)")


def test_a_key_is_never_in_an_address(start: Start, open_page: Open) -> None:
    visit = open_page(start(speaker("hi", "hello"), api_keys=(KEY,)))
    visit.at("#key").fill(KEY)
    visit.page.keyboard.press("Enter")
    visit.at("#send:enabled").wait_for()
    assert visit.ask("hi") == "hello"
    assert not [request.url for request in visit.asked if KEY in request.url or "?" in request.url]
    visit.allow("401 (Unauthorized)")


def test_gauges_show_what_runs(start: Start, open_page: Open) -> None:
    gate = Gate()
    visit = open_page(start(gated(gate, "hi", "hello 12 " * 9)))
    visit.at("[data-gauge=running]").filter(has_text="0").wait_for()
    gate.close()
    visit.send("hi")
    for _ in range(3):
        gate._let_one_pass()
    visit.at("[data-gauge=running]").filter(has_text="1").wait_for()
    assert visit.at("[data-gauge=pages]").inner_text() != "0 %"
    gate.open()
    visit.at("[data-gauge=running]").filter(has_text="0").wait_for()
    assert visit.at("[data-gauge=depth]").inner_text() == "2"
    assert visit.at("[data-gauge=pages]").inner_text() == "0 %"


def test_a_restart_while_the_page_is_open(open_page: Open, start: Start) -> None:
    gate = Gate()
    with ExitStack() as first:
        api = first.enter_context(served(gated(gate, "hi", "hello 12 " * 9)))
        url = first.enter_context(listening(api.app))
        visit = open_page(url)
        born = int(time.time())
        gate.close()
        visit.send("hi")
        for _ in range(4):
            gate._let_one_pass()
        visit.tokens.first.wait_for()
        gate.open()
        api.worker.stop()
    visit.at(".failure").wait_for()
    visit.at("#alert:has-text('does not answer')").wait_for()
    assert visit.at("[data-gauge=pages]").inner_text() == "\N{EN DASH}"
    assert visit.at("#send").is_visible()
    cut = visit.answers.text_content() or ""
    assert "hello 12 ".startswith(cut[:9])
    while int(time.time()) == born:  # servers are told apart by the second of their start
        time.sleep(0.02)
    with (
        served(speaker("hi", "hello"), served_names=("another",)) as api,
        listening(api.app, port=urlsplit(url).port or 0),
    ):
        visit.at("#notice:has-text('restarted')").wait_for()
        assert visit.at("#alert").text_content() == ""
        assert visit.at("#model").input_value() == "another"
        visit.at(".failure button").click()
        visit.at(".foot").filter(has_text="mode lossless").wait_for()
        assert visit.answers.all_text_contents() == ["hello"]
        visit.allow(*GONE)


def test_a_question_to_a_server_that_is_gone(open_page: Open, start: Start) -> None:
    with ExitStack() as first:
        api = first.enter_context(served(speaker("hi", "hello")))
        visit = open_page(first.enter_context(listening(api.app)))
    visit.ask("hi")
    assert "does not answer" in visit.at(".failure").inner_text()
    assert visit.at("#status").text_content() == "the server does not answer"
    visit.allow(*GONE)


def test_a_failing_engine_is_told_in_its_words(start: Start, open_page: Open) -> None:
    visit = open_page(start(mixer(), request_seconds=0.0001))
    visit.ask("a")
    assert "--request-timeout" in visit.at(".failure").inner_text()
    visit.allow("408 (Request Timeout)")
