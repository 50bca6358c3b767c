"""Controls offer what the server does, say why the rest is missing, and act on the next request."""

from __future__ import annotations

import re
from pathlib import Path

from tests.page.conftest import Open, Start
from tests.page.models import NGRAM, exiting, mixer, speaker


def test_a_plain_server(start: Start, open_page: Open) -> None:
    visit = open_page(start(speaker("hi", "hello"), NGRAM))
    assert visit.at("input[name=mode]:enabled").evaluate_all("nodes => nodes.map(n => n.value)") == ["lossless", "full"]
    assert visit.at("#mode-calibrated").inner_text() == "no exit pack is loaded"
    assert visit.at("#risk").is_disabled()
    assert visit.at("#risk-note").inner_text() == "no risk was certified for this server"
    assert "reference (not here)" in visit.at("#draft option:disabled").all_inner_texts()
    assert {"auto", "off", "ngram"} <= set(visit.at("#draft option:enabled").all_inner_texts())
    assert "no reference" in visit.at("#draft-note").inner_text()
    assert visit.at("#draft").input_value() == "ngram"


def test_every_control_acts_on_the_next_request(start: Start, open_page: Open) -> None:
    visit = open_page(start(mixer(), NGRAM))
    visit.at("#max-tokens").fill("3")
    visit.ask("a")
    visit.at("#draft").select_option("off")
    visit.at("#temperature").fill("0.5")
    visit.at("#max-tokens").fill("4")
    visit.ask("b")
    visit.at("input[value=full]").check()
    assert visit.at("#draft").is_disabled()
    assert visit.at("#draft-note").inner_text() == "mode full runs no drafts"
    visit.at("#temperature").fill("")
    visit.ask("c")
    one, two, three = visit.bodies()
    assert (one["offramp"], one["max_tokens"]) == ({"report": "tokens", "mode": "lossless", "draft": "ngram"}, 3)
    assert (two["offramp"]["draft"], two["temperature"], two["max_tokens"]) == ("off", 0.5, 4)
    assert three["offramp"] == {"report": "tokens", "mode": "full"}
    assert "temperature" not in three
    assert [re.search(r"mode (\w+)", foot)[1] for foot in visit.at(".foot").all_inner_texts()] == [  # type: ignore[index]
        "lossless",
        "lossless",
        "full",
    ]


def test_a_calibrated_server(start: Start, open_page: Open, tmp_path: Path, toy_path: Path, own_cache: Path) -> None:
    visit = open_page(start(*exiting(tmp_path, toy_path, "calibrated")))
    assert visit.at("input[value=calibrated]").is_checked()
    assert visit.at("#risk option").all_inner_texts() == ["0.02", "0.1"]
    assert visit.at("#risk").input_value() == "0.02"
    visit.at("#max-tokens").fill("8")
    visit.at("#temperature").fill("0")
    visit.at("#risk").select_option("0.1")
    visit.ask("a")
    assert visit.bodies()[-1]["offramp"] == {"report": "tokens", "mode": "calibrated", "risk": 0.1}
    assert "risk 0.1" in visit.at(".foot").inner_text()
    visit.at("#temperature").fill("1")
    visit.ask("b")
    assert "mode full, since" in visit.at(".foot").last.inner_text()


def test_a_setting_that_is_no_number_is_not_sent(start: Start, open_page: Open) -> None:
    visit = open_page(start(mixer()))
    visit.at("#temperature").fill("-1")
    visit.send("a")
    visit.at("#alert:has-text('Temperature')").wait_for()
    assert visit.bodies() == []
    assert visit.at("#temperature").get_attribute("aria-invalid") == "true"
    visit.at("#temperature").fill("0")
    visit.at("#max-tokens").fill("2")
    visit.ask("a")
    assert visit.at("#alert").text_content() == ""


def test_a_refusal_is_told_in_the_servers_words(start: Start, open_page: Open) -> None:
    visit = open_page(start(mixer()))
    visit.at("#max-tokens").fill("1")
    visit.ask("long " * 3000)
    assert "context" in visit.at(".failure").inner_text()
    assert "2048" in visit.at(".failure").inner_text()
    assert visit.ask("a") != ""
    assert len(visit.bodies()[-1]["messages"]) == 1, "what was refused was not said"
    visit.allow("400 (Bad Request)")


def test_several_names_can_be_chosen(start: Start, open_page: Open) -> None:
    visit = open_page(start(mixer(), served_names=("toy", "org/toy")))
    visit.at("#model").select_option("org/toy")
    visit.at("#max-tokens").fill("1")
    visit.ask("a")
    assert visit.bodies()[-1]["model"] == "org/toy"
