"""Whatever a caller writes into a request or the settings, the refusal names the field and stays short."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from offramp.core import DraftParams, ExitParams, Request, SamplingParams
from offramp.engine.admission import check_batching, check_engine, check_exits, check_request
from offramp.errors import InvalidRequestError
from offramp.testing.exits import ScriptedExits
from offramp.testing.scripted import ScriptedModel, mixing

HUGE = 10**5000


def request(prompt: Any = (1, 2), **params: Any) -> Request:
    return Request(request_id="r", prompt_token_ids=prompt, params=SamplingParams(**params), seed=0)


def check(asked: Request, policies: tuple[str, ...] = ()) -> None:
    check_request(asked, vocab_size=10, max_context=8, num_pages=1, known_ids=(), known_policies=policies)


def exiting(policy: Any, **drafting: Any) -> Request:
    return replace(request(max_tokens=2), exits=ExitParams(policy=policy), drafting=DraftParams(**drafting))


def never(key: object, output: int, layer: int) -> bool:
    return False


@pytest.mark.parametrize(
    ("asked", "param"),
    [
        (request([1, 10]), "prompt"),
        (request([1, -1]), "prompt"),
        (request([1, HUGE]), "prompt"),
        (request([-HUGE]), "prompt"),
        (request([2**63, 1]), "prompt"),
        (request(stop_token_ids=(9, 10)), "stop_token_ids"),
        (request(stop_token_ids=(HUGE,)), "stop_token_ids"),
        (request(logit_bias={9: 1.0, 10: 1.0}), "logit_bias"),
        (request(logit_bias={HUGE: 1.0}), "logit_bias"),
    ],
)
def test_ids_that_the_model_does_not_know_are_refused(asked: Request, param: str) -> None:
    with pytest.raises(InvalidRequestError, match="holds token id") as caught:
        check(asked)
    assert caught.value.param == param
    assert caught.value.hint == "token ids of this model are 0..9"
    assert len(str(caught.value)) < 150


def test_the_last_id_is_known() -> None:
    check(request([0, 9], stop_token_ids=(9,), logit_bias={9: 1.0}, max_tokens=2))


@pytest.mark.parametrize("value", ["4", 1.5, None, True, [], 0, -5, pytest.param(HUGE, id="huge")])
def test_settings_are_integers_in_a_range(value: Any) -> None:
    good = {"max_context": 8, "max_num_seqs": 1, "max_num_batched_tokens": 1, "max_pending": 1}
    executor = ScriptedModel(mixing(), num_pages=1)
    check_engine(executor, **good)
    for name in good:
        with pytest.raises(InvalidRequestError, match=f"^{name}=.* is impossible") as caught:
            check_engine(executor, **{**good, name: value})
        assert caught.value.param == name
    with pytest.raises(InvalidRequestError, match="max_num_seqs"):
        check_batching(value, 1)


def test_an_exit_policy_is_known_by_its_name() -> None:
    check(exiting("early"), ("early", "late"))
    check(exiting(None, drafter="ngram"))
    for policy, known in (("Early", ("early", "late")), ("early", ()), ("", ("early",)), (HUGE, ("early",))):
        with pytest.raises(InvalidRequestError, match="there is no exit policy") as caught:
            check(exiting(policy), known)
        assert caught.value.param == "exits"
        assert len(str(caught.value)) < 150
        assert ("early" in caught.value.hint) == bool(known)


def test_exits_and_drafts_exclude_each_other() -> None:
    for drafting in ({}, {"drafter": "off"}, {"max_draft": 0, "drafter": "ngram"}, {"max_draft": 3}):
        check(exiting("early", **drafting), ("early",))
    for drafting in ({"drafter": "ngram"}, {"references": (np.array([1, 2], dtype=np.int32),)}):
        with pytest.raises(InvalidRequestError, match=r"^exits 'early' beside") as caught:
            check(exiting("early", **drafting), ("early",))
        assert caught.value.param == "draft"


@pytest.mark.parametrize("layers", [(0,), (1, 4), (4,), (2, 1), (1, 1), (-1, 2), (1, 99)])
def test_exit_points_that_the_model_does_not_have_are_refused(layers: tuple[int, ...]) -> None:
    check_exits({"early": ScriptedExits((1, 3), never), "off": ScriptedExits((), never)}, "compact", 4)
    with pytest.raises(InvalidRequestError, match=r"^exit policy 'early' exits after layers") as caught:
        check_exits({"early": ScriptedExits(layers, never)}, "compact", 4)
    assert caught.value.hint == "exit points of this model are layers 1..3, in rising order"


def test_ways_to_fill_and_to_batch_are_known_by_name() -> None:
    with pytest.raises(InvalidRequestError, match="fill of exit policy 'early'='eager' is impossible"):
        check_exits({"early": ScriptedExits((1,), never, fill="eager")}, "compact", 4)  # type: ignore[arg-type]
    with pytest.raises(InvalidRequestError, match="exit_batching='grouped' is impossible"):
        check_exits({}, "grouped", 4)


def test_the_literal_barrier_serves_one_policy() -> None:
    policies = {name: ScriptedExits((1,), never) for name in ("early", "late")}
    check_exits(policies, "barrier", 4)
    check_exits({"early": policies["early"]}, "literal", 4)
    with pytest.raises(InvalidRequestError, match="exit_batching='literal' with 2 policies"):
        check_exits(policies, "literal", 4)
