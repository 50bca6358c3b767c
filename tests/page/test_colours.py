"""Colours of tokens are those of the response's token report, in both colourings."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.page.browsing import Visit, chunks_of
from tests.page.conftest import Open, Start
from tests.page.models import NGRAM, exiting, speaker

LOOP = "hello 12 hello 12 hello 12 hello 12 hello 12"


def reported(visit: Visit, question: str) -> tuple[list[str], list[dict[str, Any]]]:
    """Ask; returns each token's text and the report of it."""
    bodies = visit.overheard()
    visit.ask(question)
    chunks = chunks_of(bodies.pop())
    entries = [choice["logprobs"] for chunk in chunks for choice in chunk["choices"] if choice.get("logprobs")]
    texts = [token["token"] for entry in entries for token in entry["content"]]
    [told] = chunks[-1]["offramp"]["tokens"]
    assert len(told) == len(texts)
    return texts, told


def shown(visit: Visit, name: str) -> list[str]:
    return [str(value) for value in visit.tokens.evaluate_all(f"nodes => nodes.map(node => node.dataset.{name})")]


def grounds(visit: Visit) -> list[str]:
    return [
        str(value)
        for value in visit.tokens.evaluate_all("nodes => nodes.map(node => getComputedStyle(node).backgroundColor)")
    ]


def test_drafted_tokens(start: Start, open_page: Open) -> None:
    visit = open_page(start(speaker("hi", LOOP), NGRAM), reduced_motion="reduce")
    texts, told = reported(visit, "hi")
    assert texts.pop() == "<|im_end|>"
    drafted = [token["draft"] for token in told[: len(texts)]]
    assert {True, False} == set(drafted)
    assert visit.tokens.all_text_contents() == [text.lstrip() or text for text in texts]
    assert shown(visit, "draft") == [str(each).lower() for each in drafted]
    legend = {
        visit.style(f"#legend .{name}", "backgroundColor"): name == "drafted" for name in ("drafted", "undrafted")
    }
    assert [legend[colour] for colour in grounds(visit)] == drafted


def test_layers_run(start: Start, open_page: Open, tmp_path: Path, toy_path: Path, own_cache: Path) -> None:
    visit = open_page(start(*exiting(tmp_path, toy_path)), reduced_motion="reduce")
    visit.at("#max-tokens").fill("40")
    visit.at("#temperature").fill("0")
    _, told = reported(visit, "hello")
    layers = {token["exit_layer"] for token in told}
    assert len(layers) > 2
    assert visit.at("#legend .token").all_inner_texts() == ["1", "2", "3", "all 4"]
    legend = {visit.style(f"#legend li:nth-child({n + 1}) .token", "backgroundColor"): str(n) for n in (1, 2, 3, 4)}
    assert len(legend) == 4
    assert [legend[colour] for colour in grounds(visit)] == shown(visit, "layers")
    for number in range(visit.tokens.count()):
        span = visit.tokens.nth(number)
        indices = span.evaluate("node => node.tokens")
        assert span.get_attribute("data-layers") == str(max(told[index]["exit_layer"] for index in indices))
        span.focus()
        assert f"({told[indices[0]]['id']})" in visit.at("#tip").inner_text()
        assert f"layers {told[indices[0]]['exit_layer']} of 4" in visit.at("#tip").inner_text()
    assert f"{sum(t['exit_layer'] for t in told) / len(told):.1f}".removesuffix(".0") in visit.at(".foot").inner_text()


def test_the_switch_recolours_what_is_there(start: Start, open_page: Open) -> None:
    visit = open_page(start(speaker("hi", LOOP), NGRAM), reduced_motion="reduce")
    visit.ask("hi")
    by_draft = grounds(visit)
    visit.at("input[value=depth]").check()
    assert len(set(grounds(visit))) == 1, "all layers ran for each token"
    assert visit.at("#legend .token").all_inner_texts() == ["all 2"]
    visit.at("input[value=draft]").check()
    assert grounds(visit) == by_draft


def test_the_first_colouring_is_that_of_the_servers_mode(
    start: Start, open_page: Open, tmp_path: Path, toy_path: Path, own_cache: Path
) -> None:
    early, plain = start(*exiting(tmp_path, toy_path)), start(speaker("hi", "hello"))
    assert open_page(early).at("input[value=depth]").is_checked()
    assert open_page(plain).at("input[value=draft]").is_checked()


def test_a_stopped_answer_has_no_colours_and_says_why(start: Start, open_page: Open) -> None:
    visit = open_page(start(speaker("hi", "hello")))
    visit.page.route(
        "**/v1/chat/completions", lambda route: route.fulfill(body=_cut(), content_type="text/event-stream")
    )
    visit.ask("hi")
    assert visit.at(".foot").inner_text() == "broken off · no report: it comes with an answer's end"
    assert "broke" in visit.at(".failure").inner_text()
    assert set(shown(visit, "layers")) == {"None"}


def _cut() -> str:
    """A stream that ends without its end."""
    return (
        'data: {"choices": [{"index": 0, "delta": {"content": "he"}, "finish_reason": null, "logprobs": '
        '{"content": [{"token": "he", "logprob": -1, "bytes": [104, 101], "top_logprobs": []}]}}]}\n\n'
    )
