"""Early exits over HTTP: the fields, the report, the metrics, and that full depth stays what it is."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from offramp.llm.loading import LoadedModel, load_model
from offramp.llm.serving import Serving
from offramp.serve.served import Served
from tests.llm.exiting import ALWAYS, DEPTH, certified, serving, toy_pack
from tests.serve.asking import CHAT, COMPLETIONS, Api, messages, served

BODY: dict[str, Any] = {"prompt": "hello", "temperature": 0, "max_tokens": 12, "ignore_eos": True}


@pytest.fixture
def pack(tmp_path: Path, toy_path: Path) -> Path:
    return toy_pack(tmp_path / "mine", toy_path)


@pytest.fixture
def loaded(toy_path: Path, pack: Path, own_cache: Path) -> LoadedModel:
    return certified(toy_path, pack, 0.02, 0.1)


@pytest.fixture
def api(loaded: LoadedModel, pack: Path) -> Iterator[Api]:
    with served(loaded, serving(pack, threshold={1: ALWAYS})) as api:
        yield api


def told(answer: dict[str, Any]) -> dict[str, Any]:
    return dict(answer["offramp"])


def test_each_request_chooses_its_mode(api: Api) -> None:
    depths = {"lossless": DEPTH, "full": DEPTH, "calibrated": 2, "unchecked": 1}
    texts = set()
    for mode, layer in depths.items():
        options = {"mode": mode, "report": "tokens"} | ({"risk": 0.1} if mode == "calibrated" else {})
        answer = api.answer(COMPLETIONS, **BODY, offramp=options)
        report = told(answer)
        assert (report["mode"], report["mode_reason"], report["exact_kv"]) == (mode, None, True)
        assert report["mean_exit_layer"] == pytest.approx((DEPTH + 11 * layer) / 12)
        assert report["risk"] == (0.1 if mode == "calibrated" else None)
        assert report["exits"] == ("mine" if layer < DEPTH else None)
        assert [token["exit_layer"] for token in report["tokens"][0]] == [DEPTH, *[layer] * 11]
        texts.add(answer["choices"][0]["text"])
    assert len(texts) == 3


def test_the_pack_is_called_by_name(api: Api) -> None:
    options = {"mode": "calibrated", "risk": 0.02, "exits": "mine"}
    assert told(api.answer(COMPLETIONS, **BODY, offramp=options))["mean_exit_layer"] == pytest.approx((4 + 33) / 12)


@pytest.mark.parametrize(
    ("options", "param", "message"),
    [
        ({"mode": "calibrated"}, "risk", "needs a risk"),
        ({"mode": "calibrated", "risk": 0.01}, "risk", "not certified"),
        ({"mode": "calibrated", "risk": 0}, "risk", "(0, 1)"),
        ({"mode": "calibrated", "risk": 1}, "risk", "(0, 1)"),
        ({"mode": "calibrated", "risk": 0.1, "exits": "yours"}, "exits", "the pack here is mine"),
        ({"mode": "calibrated", "risk": 0.1, "draft": "auto"}, "draft", "mode calibrated runs no drafts"),
        ({"mode": "unchecked", "draft": "ngram"}, "draft", "mode unchecked runs no drafts"),
        ({"mode": "unchecked", "draft": "early_exit"}, "draft", "'early_exit': mode unchecked runs no drafts"),
        ({"mode": "lossless", "draft": "model"}, "draft", "'model' needs a draft model"),
        ({"mode": "unchecked", "references": ["a"]}, "references", "mode unchecked runs no drafts"),
        ({"risk": 0.1}, "risk", "mode lossless takes none"),
        ({"exits": "mine"}, "exits", "mode lossless runs all layers"),
        ({"mode": "unchecked", "threshold": 0.5}, "threshold", "unknown field"),
    ],
)
def test_what_cannot_be_honoured_is_refused_by_field(
    api: Api, options: dict[str, Any], param: str, message: str
) -> None:
    error = api.refusal(COMPLETIONS, {**BODY, "offramp": options})
    assert error["param"] == f"offramp.{param}"
    assert message in error["message"]


def test_the_first_layers_draft_and_change_nothing(api: Api) -> None:
    for settings in ({"temperature": 0}, {"temperature": 0.8, "seed": 4}):
        body = {**BODY, **settings}
        plain = api.answer(COMPLETIONS, **body, offramp={"draft": "off"})
        drafted = api.answer(COMPLETIONS, **body, offramp={"draft": "early_exit", "report": "summary"})
        assert drafted["choices"] == plain["choices"]
        assert told(drafted)["draft"] == "early_exit"


def test_not_a_number_is_no_risk(api: Api) -> None:
    body = b'{"prompt": "a", "offramp": {"mode": "calibrated", "risk": NaN}}'
    assert api.post_bytes(COMPLETIONS, body).status_code == 400


def test_what_the_certificate_does_not_cover_runs_full_and_says_why(api: Api) -> None:
    options = {"mode": "calibrated", "risk": 0.1}
    report = told(api.answer(CHAT, messages=messages(), temperature=0, ignore_eos=True, offramp=options))
    assert report["mode"] == "full"
    assert report["mode_reason"] == "max_tokens=the rest of the context is above the calibration's 64"
    plain = api.answer(COMPLETIONS, **{**BODY, "temperature": 0.7, "seed": 3})
    warm = api.answer(COMPLETIONS, **{**BODY, "temperature": 0.7, "seed": 3}, offramp=options)
    assert warm["choices"] == plain["choices"]
    assert told(warm)["mode_reason"] == "temperature=0.7 differs from the calibration's 0"


def test_a_calibrated_server_needs_no_fields(loaded: LoadedModel, pack: Path) -> None:
    with served(loaded, serving(pack, "calibrated", risk=0.05)) as api:
        assert told(api.answer(COMPLETIONS, **BODY))["risk"] == 0.02
        assert told(api.answer(COMPLETIONS, **BODY, offramp={"mode": "lossless"}))["mean_exit_layer"] == DEPTH
        assert told(api.answer(COMPLETIONS, **BODY, offramp={"mode": "lossless", "draft": "ngram"}))["draft"] == "ngram"
        predicted = {"prediction": {"type": "content", "content": "hello"}}
        chat = {"messages": messages(), "temperature": 0, "max_tokens": 5, "ignore_eos": True}
        assert told(api.answer(CHAT, **chat, **predicted))["mode"] == "calibrated"
        last = api.stream(COMPLETIONS, **BODY)[-1]
        assert told(last)["mode"] == "calibrated"


def test_a_lossless_request_of_a_calibrated_server_is_drafted_for(loaded: LoadedModel, pack: Path) -> None:
    settings = replace(serving(pack, "calibrated", risk=0.05), draft=None)
    with served(loaded, settings) as api:
        assert told(api.answer(COMPLETIONS, **BODY))["draft"] == "off"
        assert told(api.answer(COMPLETIONS, **BODY, offramp={"mode": "lossless"}))["draft"] == "auto"


def series(api: Api) -> dict[str, float]:
    found = {}
    for family in text_string_to_metric_families(api.get("/metrics").text):
        for sample in family.samples:
            layer = sample.labels.get("layer")
            found[sample.name.removeprefix("offramp:early_exit_") + (f"[{layer}]" if layer else "")] = sample.value
    return found


def test_metrics_count_depths_and_what_was_asked(api: Api) -> None:
    assert {name: value for name, value in series(api).items() if name.startswith("tokens_total[")} == {
        f"tokens_total[{layer}]": 0 for layer in (1, 2, 3, DEPTH)
    }
    api.answer(COMPLETIONS, **BODY)
    assert series(api)["rows_asked_total[1]"] == 0
    api.answer(COMPLETIONS, **BODY, offramp={"mode": "unchecked"})
    api.answer(COMPLETIONS, **BODY, offramp={"mode": "calibrated", "risk": 0.1})
    now = series(api)
    assert [now[f"tokens_total[{layer}]"] for layer in (1, 2, 3, DEPTH)] == [11, 11, 0, 2]
    assert [now[f"rows_asked_total[{layer}]"] for layer in (1, 2, 3)] == [11, 11, 0]
    assert [now[f"head_rows_total[{layer}]"] for layer in (1, 2, 3)] == [11, 11, 0]
    assert now["paid_debts_total"] > 0
    assert now["forced_rows_total"] > 0
    assert now["propagated_rows_total"] == now["involuntary_stays_total"] == 0


def test_a_held_queue_asks_the_server_how_many_wait(loaded: LoadedModel, pack: Path) -> None:
    with served(
        loaded, serving(pack, "unchecked", threshold="queue:3", measure="margin", predictor="similarity:0")
    ) as api:
        assert told(api.answer(COMPLETIONS, **BODY, n=2))["mode"] == "unchecked"
        assert sum(value for name, value in series(api).items() if name.startswith("rows_asked")) == 2 * 11 * 3


@contextmanager
def fingerprint(loaded: LoadedModel, *given: Any) -> Iterator[str]:
    with served(loaded, *given) as api:
        yield api.answer(COMPLETIONS, **BODY)["system_fingerprint"]


def test_fingerprints_differ_where_answers_may(loaded: LoadedModel, pack: Path, toy_path: Path) -> None:
    prints = []
    settings = (serving(pack), serving(pack, threshold=0.5), serving(pack, threshold=0.6))
    for served_as in settings:
        with fingerprint(loaded, served_as) as found:
            prints.append(found)
    with fingerprint(load_model(toy_path, threads=1)) as stock:
        assert len({stock, *prints}) == 4


def test_fingerprints_differ_where_the_same_tensors_compute_other_things(toy_path: Path, own_cache: Path) -> None:
    loaded = load_model(toy_path, threads=1)
    norms = SimpleNamespace(config=replace(loaded.config, norm_eps=0.1), kv="f16")
    other = replace(loaded, executor=norms)  # type: ignore[arg-type]
    prints = {Served(model, Serving(draft="off"), ("toy",)).fingerprint for model in (loaded, loaded, other)}
    assert len(prints) == 2
