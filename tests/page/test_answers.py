"""Answers on the page: streamed, whole, and nothing but text."""

from __future__ import annotations

import pytest

from offramp.testing.gate import Gate
from tests.page.browsing import chunks_of
from tests.page.conftest import Open, Start
from tests.page.models import gated, mixer, speaker

HOSTILE = """<img src=x onerror="document.title='owned'"><script>document.title="owned"</script>&lt;b&gt; </p></div>"""
WORDS = "hello hello 12 hello"


def test_an_answer_comes_as_it_is_made(start: Start, open_page: Open) -> None:
    gate = Gate()
    visit = open_page(start(gated(gate, "hi", WORDS)))
    gate.close()
    visit.send("hi")
    visit.at("#stop").wait_for()
    assert visit.at(".question").text_content() == "hi"
    seen = []
    for _ in range(5):
        gate._let_one_pass()
        visit.page.wait_for_timeout(150)
        seen.append(visit.answers.text_content() or "")
    assert seen == sorted(set(seen), key=len)
    assert all(WORDS.startswith(text) for text in seen)
    assert 0 < len(seen[-1]) < len(WORDS)
    gate.open()
    visit.at("#send").wait_for()
    assert visit.answers.text_content() == WORDS
    assert visit.at("#status").text_content() == WORDS


def test_nothing_is_announced_token_by_token(start: Start, open_page: Open) -> None:
    visit = open_page(start(speaker("hi", WORDS)))
    visit.page.evaluate(
        """() => {
          const status = document.getElementById("status");
          status.said = [];
          new MutationObserver(() => status.said.push(status.textContent)).observe(status, { childList: true });
        }"""
    )
    visit.ask("hi")
    assert visit.page.evaluate("document.getElementById('status').said") == ["Answering", WORDS]
    live = ":is([aria-live], [role=log], [role=status], [role=alert])"
    assert visit.at(f".reply {live}, {live} .reply").count() == 0


def test_a_conversation_sends_what_was_said(start: Start, open_page: Open) -> None:
    visit = open_page(start(speaker("hi", "hello", "more", "12")))
    assert (visit.ask("hi"), visit.ask("more")) == ("hello", "12")
    assert [message["content"] for message in visit.bodies()[-1]["messages"]] == ["hi", "hello", "more"]
    visit.at("#clear").click()
    assert visit.answers.count() == 0
    assert visit.ask("hi") == "hello"
    assert len(visit.bodies()[-1]["messages"]) == 1


def test_text_of_the_model_and_of_the_person_stays_text(start: Start, open_page: Open) -> None:
    visit = open_page(start(speaker(HOSTILE, HOSTILE)))
    title = visit.page.title()
    assert visit.ask(HOSTILE) == HOSTILE
    assert visit.at(".question").text_content() == HOSTILE
    assert visit.at("#conversation :is(img, script, b)").count() == 0
    visit.tokens.first.hover()
    assert "<" in visit.at("#tip").inner_text()
    assert visit.page.title() == title


@pytest.mark.parametrize("question", ["a", "tell", "\N{GRINNING FACE} \u4e16"])
def test_the_page_shows_the_text_that_the_server_sends(start: Start, open_page: Open, question: str) -> None:
    """Bytes at random: parts of characters, and none."""
    visit = open_page(start(mixer()))
    visit.at("#max-tokens").fill("60")
    visit.at("#temperature").fill("0")
    texts = visit.overheard()
    shown = visit.ask(question)
    chunks = chunks_of(texts.pop())
    sent = "".join(choice["delta"].get("content", "") for chunk in chunks for choice in chunk["choices"])
    assert shown == sent
    assert "cut at max tokens" in visit.at(".foot").inner_text()


def test_characters_of_several_tokens_are_one_piece(start: Start, open_page: Open) -> None:
    text = "\N{GRINNING FACE} \u4e16 hello"
    visit = open_page(start(speaker("hi", text)))
    assert visit.ask("hi") == text
    pieces = visit.tokens.all_text_contents()
    assert [piece.strip() for piece in pieces if piece.strip()] == ["\N{GRINNING FACE}", "\u4e16", "hello"]
    visit.tokens.first.focus()
    assert visit.at("#tip div").filter(has_text="token ").count() == 4


def test_the_answer_can_be_stopped_and_the_server_stops_too(start: Start, open_page: Open) -> None:
    gate = Gate()
    url = start(gated(gate, "hi", WORDS * 20))
    visit = open_page(url)
    gate.close()
    visit.send("hi")
    for _ in range(4):
        gate._let_one_pass()
    visit.tokens.first.wait_for()
    visit.at("#stop").click()
    visit.at("#send").wait_for()
    gate.open()
    assert visit.at(".foot").inner_text().startswith("stopped")
    assert visit.at("#status").text_content() == "Stopped"
    assert WORDS.startswith(visit.answers.text_content() or "-")
    visit.at("[data-gauge=running]").filter(has_text="0").wait_for()
    text = visit.page.request.get(f"{url}/metrics").text()
    assert 'request_success_total{finished_reason="abort",model_name="toy"} 1.0' in text
    assert 'finished_reason="stop",model_name="toy"} 0.0' in text


def test_escape_stops_too(start: Start, open_page: Open) -> None:
    gate = Gate()
    visit = open_page(start(gated(gate, "hi", WORDS * 20)))
    gate.close()
    visit.send("hi")
    gate._let_one_pass()
    visit.page.keyboard.press("Escape")
    visit.at("#send").wait_for()
    gate.open()
    assert visit.at(".foot").inner_text().startswith("stopped")
