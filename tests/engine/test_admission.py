"""Whatever a caller writes into a request or the settings, the refusal names the field and stays short."""

from __future__ import annotations

from typing import Any

import pytest

from offramp.core import Request, SamplingParams
from offramp.engine.admission import check_batching, check_engine, check_request
from offramp.errors import InvalidRequestError
from offramp.testing.scripted import ScriptedModel, mixing

HUGE = 10**5000


def request(prompt: Any = (1, 2), **params: Any) -> Request:
    return Request(request_id="r", prompt_token_ids=prompt, params=SamplingParams(**params), seed=0)


def check(asked: Request) -> None:
    check_request(asked, vocab_size=10, max_context=8, num_pages=1, known_ids=())


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
