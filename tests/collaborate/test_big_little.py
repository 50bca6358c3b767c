"""Big-little decoding: at its limits plain decoding, in between what the slow definition says, in whatever batch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from offramp.collaborate.big_little_verifier import loss
from offramp.core import DraftParams, ExitParams, Request, SamplingParams, TokenEvent
from offramp.draft.model import ModelDrafter
from offramp.draft.plans import FixedPlans
from offramp.engine.engine import Engine
from offramp.errors import InvalidRequestError, NumericError
from offramp.native import build_executor
from offramp.native.sampling import sample_rows
from offramp.testing.exits import ScriptedExits
from offramp.testing.running import Told, drain, hear, run, run_plain
from tests.collaborate.pairs import (
    BIG,
    CONTEXT,
    LITTLE,
    POLICIES,
    SAMPLING,
    SOURCE,
    engine_of,
    own_model,
    pair_of,
    request,
    truth_of,
)
from tests.draft.test_model import Watched
from tests.draft.weighted import cut_model
from tests.speculation.wheel import Wheel

LOSSLESS = ("lossless", "big alone")


def plain_of(asked: Request) -> Told:
    return run_plain(BIG, replace(asked, big_little=None), max_context=CONTEXT)[asked.request_id, 0]


@pytest.mark.parametrize("sampling", SAMPLING)
@pytest.mark.parametrize("policy", LOSSLESS)
def test_the_limits_are_plain_decoding(policy: str, sampling: str) -> None:
    asked, engine = request(policy, sampling=sampling), engine_of()
    told, plain = run(engine, [asked])["r", 0], plain_of(asked)
    assert (told.token_ids, told.logprobs) == (plain.token_ids, plain.logprobs)
    statistics = engine.statistics
    assert statistics.num_differing_tokens == 0
    assert statistics.num_little_tokens + statistics.num_big_tokens == 30
    if policy == "lossless":
        assert statistics.num_little_tokens > 3
        assert statistics.num_rollbacks > 3
        assert statistics.num_steps < 30
    else:
        assert (statistics.num_little_tokens, statistics.num_fallbacks, statistics.num_steps) == (0, 30, 30)


@pytest.mark.parametrize("sampling", SAMPLING)
def test_without_fallback_and_rollback_the_little_model_says_it_all(sampling: str) -> None:
    asked = request("little alone", sampling=sampling)
    told = run(engine_of(), [asked])["r", 0]
    alone = run_plain(LITTLE, replace(asked, big_little=None), max_context=CONTEXT)["r", 0]
    assert told.token_ids == alone.token_ids
    assert told.token_ids != plain_of(asked).token_ids


@pytest.mark.parametrize("sampling", SAMPLING)
@pytest.mark.parametrize("policy", POLICIES)
def test_it_is_what_the_slow_definition_says(policy: str, sampling: str) -> None:
    asked, engine = request(policy, sampling=sampling), engine_of()
    engine.add_request(asked)
    events: list[TokenEvent] = []
    while engine.has_work:
        events += engine.step()
        engine.check_integrity()
    truth = truth_of(asked)
    assert [token for event in events for token in event.token_ids] == truth.token_ids
    by_little, differing = [], []
    for event in events:
        written = event.written
        assert written is not None
        by_little += [place < written.num_little for place in range(len(event.token_ids))]
        differing += [place in written.differing for place in range(len(event.token_ids))]
    assert by_little == truth.by_little
    assert differing == truth.differing
    statistics = engine.statistics
    assert statistics.num_little_tokens == sum(truth.by_little)
    assert statistics.num_differing_tokens == sum(truth.differing)
    assert statistics.num_rollbacks == truth.num_rollbacks
    assert statistics.num_fallbacks == 30 - sum(truth.by_little) - truth.num_rollbacks
    assert statistics.num_drafts == statistics.num_draft_tokens == 0, "no drafts, whose tokens would be the big one's"


def test_the_policies_of_these_tests_lose_something() -> None:
    """Otherwise nothing here could tell a lossy policy from a lossless one."""
    for policy in ("some", "strict", "in turns"):
        truth = truth_of(request(policy))
        assert sum(truth.differing) > 0, policy
        assert truth.token_ids != plain_of(request(policy)).token_ids, policy
        assert sum(truth.by_little) < 30, policy


def crowd() -> list[Request]:
    """All policies at once, plain requests between them, prompts of less and more than a page."""
    asked = []
    for index, (policy, sampling) in enumerate(zip([*POLICIES, None, None, "some"], [*SAMPLING] * 3, strict=True)):
        prompt = [7, 40, 70, 33, 3, 64, 12, 90, 71][index]
        asked.append(request(policy, f"r{index}", sampling=sampling, prompt=prompt, max_tokens=24, seed=index))
    return asked


ALONE: dict[str, Told] = {}


def alone_of(asked: Request) -> Told:
    if asked.request_id not in ALONE:
        ALONE[asked.request_id] = run(engine_of(prefix_cache=False), [asked])[asked.request_id, 0]
    return ALONE[asked.request_id]


def same(told: Told, alone: Told, name: str) -> None:
    assert (told.token_ids, told.logprobs) == (alone.token_ids, alone.logprobs), name
    assert told.finish_reason == alone.finish_reason, name
    assert told.exact_kv


@pytest.mark.parametrize("num_rows", [1, 3, 11, 40, 512])
def test_tokens_depend_on_neither_neighbours_nor_rows(num_rows: int) -> None:
    """With one row a step nothing that was written ever runs ahead, and its word counts all the same."""
    engine = engine_of(max_num_batched_tokens=num_rows, max_num_seqs=8)
    told = run(engine, crowd())
    for asked in crowd():
        same(told[asked.request_id, 0], alone_of(asked), asked.request_id)


@pytest.mark.parametrize(("big_pages", "little_pages"), [(6, 16), (40, 5), (5, 4)])
def test_tokens_depend_on_neither_preemption_nor_pages(big_pages: int, little_pages: int) -> None:
    """The little model's pages hold one text, or two: the others wait for their turn, and run again."""
    model = own_model(cut_model(SOURCE, 2, num_pages=little_pages))
    engine = engine_of(pair_of(model), build_executor(SOURCE, kv="f16", num_pages=big_pages, threads=1), max_num_seqs=8)
    told = run(engine, crowd())
    for asked in crowd():
        same(told[asked.request_id, 0], alone_of(asked), asked.request_id)
    if big_pages < 10:
        assert engine.statistics.num_preemptions > 0
    model.cache.check_integrity()
    assert model.cache.num_used == 0


def test_a_prompt_runs_once_in_the_little_model_and_chunks_with_the_big_one() -> None:
    watched = Watched(cut_model(SOURCE, 2))
    engine = engine_of(pair_of(own_model(watched)), max_num_batched_tokens=32)  # type: ignore[arg-type]
    run(engine, [request("little alone", prompt=100, max_tokens=8)])
    assert [len(call) for call in watched.positions[:4]] == [32, 32, 32, 4]
    positions = [position for call in watched.positions for position in call]
    assert positions == sorted(set(positions)), "each position once, in order"


@pytest.mark.parametrize("policy", ["some", "little alone"])
def test_prefixes_that_it_leaves_are_the_big_models_own(policy: str) -> None:
    """Every token ran through the big model: whoever continues the text finds exact K/V, and draws plain tokens."""
    engine = engine_of()
    first = request(policy, prompt=40, max_tokens=60)
    told = run(engine, [first])["r", 0]
    assert told.exact_kv
    text = [*first.prompt_token_ids, *told.token_ids]
    params = SamplingParams(temperature=0.0, max_tokens=20, logprobs=3)
    after = Request(request_id="after", prompt_token_ids=text, params=params, seed=1)
    found = run(engine, [after])["after", 0]
    assert found.num_cached_tokens >= 96
    plain = plain_of(after)
    assert (found.token_ids, found.logprobs) == (plain.token_ids, plain.logprobs)


def test_it_shares_a_draft_model_with_lossless_requests() -> None:
    model = own_model()
    drafter = ModelDrafter(model, plans=FixedPlans((), 4), sample_rows=sample_rows, max_len=16)
    engine = engine_of(pair_of(model), drafter=drafter)
    told = run(engine, crowd())
    for asked in crowd():
        same(told[asked.request_id, 0], alone_of(asked), asked.request_id)
    assert engine.statistics.num_drafts > 5
    model.cache.check_integrity()
    assert model.cache.num_used == 0


@pytest.mark.parametrize("end", [0, 2, 5, 9])
def test_answers_end_at_end_tokens_wherever_they_stand(end: int) -> None:
    asked = request("little alone")
    whole = run(engine_of(), [asked])["r", 0]
    token = whole.token_ids[end]
    first = whole.token_ids.index(token)
    ending = replace(asked, eos_token_ids=frozenset({token}))
    told = run(engine_of(), [ending])["r", 0]
    assert told.token_ids == whole.token_ids[: first + 1]
    assert told.finish_reason == "stop"


def test_a_shorter_answer_is_the_beginning_of_a_longer_one() -> None:
    """Also where it ends within what the little model would write."""
    for policy in ("some", "strict"):
        longest = run(engine_of(), [request(policy)])["r", 0].token_ids
        for count in (1, 2, 3, 7, 12, 20):
            told = run(engine_of(), [request(policy, max_tokens=count)])["r", 0]
            assert told.token_ids == longest[:count], (policy, count)


def test_choices_draw_for_themselves() -> None:
    asked = request("some", sampling="sampled", n=3)
    told = run(engine_of(), [asked])
    assert told["r", 0].token_ids == truth_of(request("some", sampling="sampled")).token_ids
    assert len({tuple(told["r", choice].token_ids) for choice in range(3)}) == 3


def test_an_aborted_request_leaves_nothing_behind() -> None:
    model = own_model()
    engine = engine_of(pair_of(model))
    for name in ("r", "s"):
        engine.add_request(request("some", name))
    told: dict[tuple[str, int], Told] = {}
    for _ in range(3):
        hear(engine, told)
    engine.abort("r")
    drain(engine, told)
    assert told["r", 0].finish_reason == "abort"
    assert told["s", 0].token_ids == truth_of(request("some", "s")).token_ids
    assert model.cache.num_used == 0
    again = run(engine, [request("some")])["r", 0]
    assert again.token_ids == truth_of(request("some")).token_ids


def test_behind_its_own_context_the_big_model_goes_on_alone() -> None:
    asked = request("little alone", prompt=50, max_tokens=40)
    engine = engine_of(pair_of(own_model(max_context=64)))
    told = run(engine, [asked])["r", 0]
    longer = run(engine_of(), [asked])["r", 0]
    assert told.token_ids[:15] == longer.token_ids[:15]
    assert engine.statistics.num_little_tokens == 15  # the last of them behind 64 tokens, which it can read
    text = [*asked.prompt_token_ids, *told.token_ids[:15]]
    rest = Request(request_id="rest", prompt_token_ids=text, params=replace(asked.params, max_tokens=25), seed=2)
    assert told.token_ids[15:] == plain_of(rest).token_ids


def test_texts_with_ids_that_it_does_not_know_are_the_big_models() -> None:
    asked = request("little alone")
    engine = engine_of(pair_of(own_model(num_shared=20)))
    assert run(engine, [asked])["r", 0].token_ids == plain_of(asked).token_ids
    assert engine.statistics.num_little_tokens == 0


@pytest.mark.parametrize("how", ["raises", "spoils", "memory"])
def test_a_failing_little_model_writes_no_more(how: str, caplog: pytest.LogCaptureFixture) -> None:
    """What follows is plain decoding's behind the text so far; neighbours never notice."""
    watched = Watched(cut_model(SOURCE, 2))
    engine = engine_of(pair_of(own_model(watched)))  # type: ignore[arg-type]
    asked = [request("some"), request(None, "other", prompt=20)]
    for each in asked:
        engine.add_request(each)
    told: dict[tuple[str, int], Told] = {}
    hear(engine, told)
    watched.failing = {"raises": NumericError("bad", hint="none"), "memory": MemoryError("none left")}.get(how)
    watched.spoiled = how == "spoils"
    begun = list(told["r", 0].token_ids)
    assert 0 < len(begun) < 30
    drain(engine, told)
    text = [*asked[0].prompt_token_ids, *begun]
    params = replace(asked[0].params, max_tokens=30 - len(begun))
    plain = plain_of(Request(request_id="rest", prompt_token_ids=text, params=params, seed=2))
    assert told["r", 0].token_ids == begun + plain.token_ids
    assert told["other", 0].token_ids == plain_of(asked[1]).token_ids
    assert caplog.text.count("writes no more") == 1


class Spoiled:
    """Logits that are no numbers, once told so."""

    def __init__(self) -> None:
        self._executor = build_executor(SOURCE, kv="f16", num_pages=16, threads=1)
        self.spoiled = False

    def __getattr__(self, name: str) -> object:
        return getattr(self._executor, name)

    def logits(self, *args: object, **more: object) -> np.ndarray:
        logits = self._executor.logits(*args, **more)  # type: ignore[arg-type]
        return np.full_like(logits, np.nan) if self.spoiled else logits


def test_a_big_model_that_breaks_ends_the_request_alone() -> None:
    big = Spoiled()
    engine = engine_of(big=big)  # type: ignore[arg-type]
    engine.add_request(request("some"))
    told: dict[tuple[str, int], Told] = {}
    hear(engine, told)
    big.spoiled = True
    drain(engine, told)
    assert told["r", 0].finish_reason == "error"
    assert isinstance(told["r", 0].error, NumericError)


def refusals() -> Sequence[tuple[str, Request]]:
    asked = request("some")
    return [
        ("no big-little policy 'none'", replace(asked, big_little="none")),
        ("beside drafters", replace(asked, drafting=DraftParams(drafter="suffix"))),
        ("beside a grammar", replace(asked, grammar=Wheel(250))),
        ("beside exits 'early'", replace(asked, exits=ExitParams(policy="early"), drafting=DraftParams(drafter="off"))),
    ]


@pytest.mark.parametrize(("why", "asked"), refusals(), ids=[why for why, _ in refusals()])
def test_what_cannot_be_is_refused_by_name(why: str, asked: Request) -> None:
    engine = engine_of(exit_policies={"early": ScriptedExits((1,), lambda *row: False)})
    with pytest.raises(InvalidRequestError, match=why):
        engine.add_request(asked)
    assert not engine.has_work


def test_an_engine_without_a_little_model_says_so() -> None:
    with pytest.raises(InvalidRequestError, match="policy 'some'") as caught:
        Engine(BIG, max_context=CONTEXT).add_request(request("some"))
    assert "no little model" in caught.value.hint


def test_requests_without_a_policy_never_reach_it() -> None:
    watched = Watched(cut_model(SOURCE, 2))
    engine = engine_of(pair_of(own_model(watched)))  # type: ignore[arg-type]
    told = run(engine, [request(None)])["r", 0]
    assert told.token_ids == plain_of(request(None)).token_ids
    assert watched.positions == []


def test_the_loss_is_that_of_the_softmax() -> None:
    rng = np.random.default_rng(3)
    row = (4 * rng.standard_normal(50)).astype(np.float32)
    law = np.exp(row.astype(np.float64)) / np.exp(row.astype(np.float64)).sum()
    assert np.allclose([loss(row, token) for token in range(50)], -np.log(law), rtol=1e-6)
    row[7] = -np.inf
    assert loss(row, 7) == np.inf
    assert loss(np.array([3e38, -3e38], np.float32), 1) == np.inf
