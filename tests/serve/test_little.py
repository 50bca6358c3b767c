"""A little model that writes, over HTTP: modes, the report, the metrics."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from offramp.llm.loading import LoadedModel
from tests.llm.writing import certify, little_model, pair, writes
from tests.serve.asking import COMPLETIONS, Api, served

BODY: dict[str, Any] = {"prompt": "hello", "temperature": 0, "max_tokens": 12, "ignore_eos": True}


@pytest.fixture
def little(tmp_path: Path) -> Path:
    return little_model(tmp_path)


@pytest.fixture
def loaded(toy_path: Path, little: Path, own_cache: Path) -> LoadedModel:
    return pair(toy_path, little)


@pytest.fixture
def api(loaded: LoadedModel, little: Path, tmp_path: Path) -> Iterator[Api]:
    path = certify(loaded, tmp_path / "mine.json", 0.02, 0.1)
    with served(loaded, writes(little, calibration=path, rollback=1e6, fallback=0.0)) as api:
        yield api


def test_each_request_chooses_its_mode(api: Api, little: Path) -> None:
    texts = {}
    for mode in ("lossless", "full", "unchecked", "calibrated"):
        options = {"mode": mode, "report": "tokens"} | ({"risk": 0.1} if mode == "calibrated" else {})
        answer = api.answer(COMPLETIONS, **BODY, offramp=options)
        report = answer["offramp"]
        written = mode in ("unchecked", "calibrated")
        assert (report["mode"], report["little"]) == (mode, str(little) if written else None)
        assert report["num_little_tokens"] == sum(token["draft"] for token in report["tokens"][0])
        assert (report["num_little_tokens"] > 5) == written
        assert report["exact_kv"]
        texts[mode] = answer["choices"][0]["text"]
    assert texts["lossless"] == texts["full"] != texts["calibrated"]


def test_prompts_are_counted_together(api: Api) -> None:
    body = BODY | {"prompt": ["hello", "hello"]}
    both = api.answer(COMPLETIONS, **body, offramp={"mode": "unchecked"})["offramp"]
    one = api.answer(COMPLETIONS, **BODY, offramp={"mode": "unchecked"})["offramp"]
    for name in ("num_little_tokens", "num_differing_tokens", "num_fallbacks", "num_rollbacks"):
        assert both[name] == 2 * one[name], name
    assert one["num_fallbacks"] > 0


def test_metrics_count_who_wrote(api: Api) -> None:
    report = api.answer(COMPLETIONS, **BODY, offramp={"mode": "unchecked"})["offramp"]
    api.answer(COMPLETIONS, **BODY)
    values = {
        (sample.name.removeprefix("offramp:"), sample.labels.get("written_by")): sample.value
        for family in text_string_to_metric_families(api.get("/metrics").text)
        for sample in family.samples
    }
    assert values["big_little_tokens_total", "little"] == report["num_little_tokens"]
    assert values["big_little_tokens_total", "big"] == 12 - report["num_little_tokens"]
    for name in ("differing_tokens", "fallbacks", "rollbacks"):
        assert values[f"big_little_{name}_total", None] == report[f"num_{name}"]
    assert values["spec_decode_num_drafts_total", None] == 0
    assert values["generation_tokens_total", None] == 24


@pytest.mark.parametrize(
    ("options", "param", "message"),
    [
        ({"mode": "calibrated"}, "offramp.risk", "needs a risk"),
        ({"mode": "calibrated", "risk": 0.01}, "offramp.risk", "not certified"),
        ({"mode": "unchecked", "draft": "model"}, "offramp.draft", "mode unchecked runs no drafts"),
        ({"mode": "unchecked", "exits": "p"}, "offramp.exits", "there is no exit pack"),
        ({"mode": "unchecked", "little_rollback": 3}, "offramp.little_rollback", "unknown field"),
    ],
)
def test_what_cannot_be_honoured_is_refused_by_field(
    api: Api, options: dict[str, Any], param: str, message: str
) -> None:
    error = api.refusal(COMPLETIONS, BODY | {"offramp": options})
    assert error["param"] == param
    assert message in error["message"]


def test_the_card_tells_what_requests_may_choose(api: Api) -> None:
    [card] = api.get("/v1/models").json()["data"]
    assert card["offramp"]["modes"] == dict.fromkeys(("lossless", "calibrated", "full", "unchecked"))
    assert card["offramp"]["risks"] == [0.02, 0.1]
    assert card["offramp"]["exit_layers"] == []
