"""Pipelines as they are written: taken, or refused by pipeline and field before anything starts."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest

from offramp.collaborate.pipeline.rule import rule_of
from offramp.collaborate.pipeline.spec import PipelineSpec, RemoteSpec, check_names, read_pipelines
from offramp.errors import InvalidRequestError

CASCADE = {"little": "small", "big": "large", "policy": "cascade", "threshold": 0.4}
ROUTE = {"little": "small", "big": "large", "policy": "route", "router": "packs/router", "big_share": 0.3}
PAIR: dict[str, Any] = {"policy": "big_little", "threshold": None}
REMOTE = {"url": "https://127.0.0.1/v1", "model": "x"}
MODELS = {"small": "small", "large": "large", "tiny": "tiny", "little-large": "large"}

NO_ADDRESSES = tuple(
    f"http:{rest}" for rest in ("//[::1", "//:80/v1", "//host:99999/v1", "//host:x/v1", "//a b/v1", "//a\n/v1")
)


def read(**changes: Any) -> PipelineSpec:
    [spec] = read_pipelines({"smart": {**CASCADE, **changes}}, Path("/etc"))
    return spec


def test_what_is_written_is_what_there_is() -> None:
    one, other = read_pipelines({"a": CASCADE, "b": {**ROUTE, "big": {**REMOTE, "retries": 0}}}, Path("/etc"))
    assert (one.name, one.policy, one.threshold, one.router) == ("a", "cascade", 0.4, None)
    assert (other.router, other.big_share) == (Path("/etc/packs/router"), 0.3)
    assert other.big == RemoteSpec(url="https://127.0.0.1/v1", model="x", retries=0)
    check_names([one, other], MODELS)
    assert rule_of(one, None).threshold == 0.4


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"threshold": -0.1}, "threshold=-0.1"),
        ({"threshold": 1.1}, "threshold=1.1"),
        ({"threshold": math.nan}, "threshold=nan"),
        ({"threshold": "0.4"}, "threshold='0.4'"),
        ({"threshold": None}, "nothing says when"),
        ({"risk": 0.1}, "threshold and risk"),
        ({"threshold": None, "risk": 0.0}, "risk=0.0"),
        ({"threshold": None, "big_share": 1.5}, "big_share=1.5"),
        ({"threshold": None, "risk": 0.1}, "without calibration"),
        ({"policy": "magic"}, "policy='magic'"),
        ({"policy": "route"}, "without router"),
        ({"policy": "route", "router": "r", "score": "mean"}, "score='mean' beside policy route"),
        ({"router": "r"}, "beside policy cascade"),
        ({"score": "feeling"}, "score='feeling'"),
        ({"score": "trained"}, "without calibration"),
        ({**PAIR, "threshold": 0.4}, "threshold=0.4 beside policy big_little"),
        ({**PAIR, "big_share": 0.4}, "big_share=0.4 beside policy big_little"),
        ({**PAIR, "score": "mean"}, "score='mean' beside policy big_little"),
        ({**PAIR, "router": "r"}, "beside policy big_little"),
        ({**PAIR, "calibration": "c.json"}, "beside policy big_little"),
        ({**PAIR, "big": REMOTE}, "policy big_little with a big model elsewhere"),
        ({**PAIR, "risk": 1.0}, "risk=1.0"),
        ({**PAIR, "risk": math.nan}, "risk=nan"),
        ({"little": None}, "little is missing"),
        ({"little": 5}, "little=5"),
        ({"big": ""}, "big=''"),
        ({"big": {"url": "https://127.0.0.1/v1"}}, "model is missing"),
        ({"big": {**REMOTE, "url": "host/v1"}}, "url='host/v1'"),
        ({"big": {**REMOTE, "url": "ftp://host"}}, "url='ftp://host'"),
        *(({"big": {**REMOTE, "url": url}}, "url=") for url in NO_ADDRESSES),
        ({"big": {**REMOTE, "url": "http:" + "//me:secret@host/v1"}}, "url holds a user or a password"),
        ({"router": "r\0"}, "router="),
        ({"calibration": "~nobody-of-this-name/c.json"}, "calibration="),
        ({"big": {**REMOTE, "timeout": 0}}, "timeout=0"),
        ({"big": {**REMOTE, "timeout": math.nan}}, "timeout=nan"),
        ({"big": {**REMOTE, "retries": -1}}, "retries=-1"),
        ({"big": {**REMOTE, "budget_calls": 1.5}}, "budget_calls=1.5"),
        ({"big": {**REMOTE, "budget_calls": 10**400}}, "budget_calls="),
        ({"big": {**REMOTE, "key": "secret"}}, "no option 'key'"),
        ({"colour": "red"}, "no option 'colour'"),
        ({"name": "x"}, "no option 'name'"),
    ],
)
def test_what_is_impossible_is_refused_by_pipeline_and_field(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidRequestError, match=message) as caught:
        read(**changes)
    assert caught.value.message.startswith("'smart': ")


def test_a_pair_may_have_a_risk_or_none() -> None:
    content = {"a": {"little": "own-drafter", "big": "large", "policy": "big_little", "risk": 0.05}}
    specs = read_pipelines({**content, "b": {**content["a"], "risk": None}}, Path("/etc"))
    assert [(spec.policy, spec.risk, spec.threshold) for spec in specs] == [
        ("big_little", 0.05, None),
        ("big_little", None, None),
    ]
    check_names(specs, MODELS)


@pytest.mark.parametrize("content", [{}, {"smart": None}, {"smart": []}, {"": CASCADE}])
def test_a_file_without_pipelines_is_refused(content: dict[str, object]) -> None:
    with pytest.raises(InvalidRequestError):
        read_pipelines(content, Path())


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({"smart": {**CASCADE, "big": "smart"}}, "big='smart' is no model but a pipeline, itself"),
        ({"a": CASCADE, "b": {**CASCADE, "little": "a"}}, "little='a' is no model but a pipeline, another one"),
        ({"smart": {**CASCADE, "big": "huge"}}, "big='huge' is no served model"),
        ({"tiny": CASCADE}, "'tiny' is both a model and a pipeline"),
        ({"smart": {**CASCADE, "big": "small"}}, "little and big are both 'small'"),
        ({"smart": {**CASCADE, "little": "little-large"}}, "'little-large' and big='large' are names of one model"),
        ({"smart": {**CASCADE, **PAIR, "big": "small"}}, "little and big are both 'small'"),
        ({"a": CASCADE, "b": {**CASCADE, **PAIR, "little": "a"}}, "little='a' is no model but a pipeline"),
        ({"smart": {**CASCADE, **PAIR, "big": "huge"}}, "big='huge' is no served model"),
    ],
)
def test_names_that_lead_nowhere_or_in_circles_are_refused(content: dict[str, object], message: str) -> None:
    with pytest.raises(InvalidRequestError, match=message):
        check_names(read_pipelines(content, Path()), MODELS)
