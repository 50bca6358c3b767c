"""A model's card tells what requests may choose, and requests are then taken or refused just so."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from offramp.draft import DRAFTERS
from offramp.llm.serving import MODES, Serving
from offramp.testing.models import chat_tokenizer, scripted_model
from offramp.testing.scripted import mixing
from tests.llm.exiting import ALWAYS, DEPTH, certified, serving, toy_pack
from tests.serve.asking import COMPLETIONS, Api, served

WELL = mixing(chat_tokenizer().vocab_size, first=3)
BODY: dict[str, Any] = {"prompt": "hello", "temperature": 0, "max_tokens": 2}


def told(api: Api) -> dict[str, Any]:
    [card] = api.get("/v1/models").json()["data"]
    return dict(card["offramp"])


def check(api: Api) -> None:
    """Everything that is offered is taken, and what is not is refused for the reason given."""
    offers = told(api)
    choices = [({"mode": mode} | _risk(mode, offers), reason) for mode, reason in offers["modes"].items()]
    choices += [({"mode": "lossless", "draft": name}, reason) for name, reason in offers["drafters"].items()]
    choices += [({"mode": "calibrated", "risk": risk}, None) for risk in offers["risks"]]
    for options, reason in choices:
        response = api.post(COMPLETIONS, {**BODY, "offramp": options})
        if reason is None:
            assert response.status_code == 200, response.text
        else:
            assert response.status_code == 400
            assert response.json()["error"]["message"].startswith(reason)
    assert offers["modes"][offers["mode"]] is None
    assert offers["drafters"][offers["draft"]] is None


def _risk(mode: str, offers: dict[str, Any]) -> dict[str, float]:
    return {"risk": offers["risks"][-1]} if mode == "calibrated" and offers["risks"] else {}


@pytest.fixture
def plain(quick_costs: None) -> Iterator[Api]:
    with served(scripted_model(WELL, num_pages=16), Serving()) as api:
        yield api


@pytest.fixture
def exiting(toy_path: Path, tmp_path: Path, own_cache: Path) -> Iterator[Api]:
    pack = toy_pack(tmp_path / "mine", toy_path)
    loaded = certified(toy_path, pack, 0.02, 0.1)
    with served(loaded, serving(pack, mode="calibrated", risk=0.02)) as api:
        yield api


def test_a_plain_server_offers_no_exits(plain: Api) -> None:
    offers = told(plain)
    assert (offers["mode"], offers["draft"], offers["risk"]) == ("lossless", "auto", None)
    assert [mode for mode in MODES if offers["modes"][mode] is None] == ["lossless", "full"]
    assert "no exit pack" in offers["modes"]["calibrated"]
    assert (offers["risks"], offers["exit_layers"], offers["num_layers"]) == ([], [], 2)
    assert set(offers["drafters"]) == set(DRAFTERS)
    assert offers["drafters"]["reference"] is not None
    check(plain)


def test_certified_risks_are_offered(exiting: Api) -> None:
    offers = told(exiting)
    assert (offers["mode"], offers["risk"], offers["risks"]) == ("calibrated", 0.02, [0.02, 0.1])
    assert offers["modes"]["calibrated"] is None
    assert "thresholds" in offers["modes"]["unchecked"]
    assert (offers["exit_layers"], offers["num_layers"]) == ([1, 2, 3, DEPTH], DEPTH)
    check(exiting)


def test_raw_thresholds_are_offered_without_a_calibration(toy_path: Path, tmp_path: Path, own_cache: Path) -> None:
    pack = toy_pack(tmp_path / "mine", toy_path)
    with served(certified(toy_path, pack), serving(pack, threshold={1: ALWAYS})) as api:
        offers = told(api)
        assert offers["modes"]["unchecked"] is None
        assert offers["modes"]["calibrated"] == "mode='calibrated': the pack mine has no calibration"
        assert offers["risks"] == []
        check(api)


def test_drafts_that_were_switched_off_are_not_offered(quick_costs: None) -> None:
    with served(scripted_model(WELL, num_pages=16), Serving(max_draft=0)) as api:
        offers = told(api)
        assert offers["draft"] == "off"
        assert [name for name, reason in offers["drafters"].items() if reason is None] == ["off"]
        check(api)


def test_drafters_that_were_joined_are_offered_as_such(quick_costs: None) -> None:
    with served(scripted_model(WELL, num_pages=16), Serving(draft="suffix,ngram")) as api:
        assert told(api)["draft"] == "suffix,ngram"
        check(api)


def test_each_name_has_the_same_offers(quick_costs: None) -> None:
    with served(scripted_model(WELL, num_pages=16), Serving(), served_names=("toy", "org/toy")) as api:
        cards = api.get("/v1/models").json()["data"]
        assert cards[0]["offramp"] == cards[1]["offramp"] == api.get("/v1/models/org/toy").json()["offramp"]
