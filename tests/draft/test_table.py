"""The table of drafters, and the cost of none."""

from __future__ import annotations

import pytest

from offramp.core import DraftParams, Request, SamplingParams
from offramp.draft import DRAFTERS, MAX_NODES, NEEDS, Drafters, make_drafter
from offramp.draft.choice import DrafterChoice
from offramp.draft.suffix import SuffixDrafter
from offramp.engine.engine import Engine
from offramp.errors import InvalidRequestError
from offramp.testing.drafters import ScriptedDrafter, never
from offramp.testing.running import run, run_plain
from offramp.testing.scripted import ScriptedModel, mixing


@pytest.mark.parametrize("name", sorted(set(DRAFTERS) - set(NEEDS)))
@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_every_drafter_equals_plain(name: str, temperature: float) -> None:
    params = SamplingParams(max_tokens=30, temperature=temperature)
    request = Request(request_id="r", prompt_token_ids=[1, 2, 1, 2, 1], params=params, seed=1)
    engine = Engine(ScriptedModel(mixing(first=250), num_pages=4), max_context=64, drafter=make_drafter(name))
    truth = run_plain(ScriptedModel(mixing(first=250), num_pages=4), request, max_context=64)
    assert run(engine, [request])["r", 0].token_ids == truth["r", 0].token_ids


def test_an_unknown_name_is_refused_with_the_known_ones() -> None:
    with pytest.raises(InvalidRequestError, match="'ngrams'") as caught:
        make_drafter("ngrams")
    assert "off" in caught.value.hint


def test_a_drafter_without_nodes_is_never_asked() -> None:
    drafter = ScriptedDrafter(never, max_nodes=0)
    engine = Engine(ScriptedModel(mixing(), num_pages=4), max_context=64, drafter=drafter)
    run(engine, [Request(request_id="r", prompt_token_ids=[1], params=SamplingParams(max_tokens=5), seed=1)])
    assert drafter.asks == []
    assert engine.statistics.acceptance_rate == 0.0


def test_all_that_join_a_drafter_share_it_and_what_it_learned() -> None:
    """Whatever names clients think of, there is one store of learned texts."""
    drafters = Drafters(store_bytes=1 << 20)
    choice = DrafterChoice(lambda name: make_drafter(name, drafters), MAX_NODES)
    engine = Engine(ScriptedModel(mixing(), num_pages=8), max_context=128, drafter=choice)
    suffix = drafters.get("suffix")
    assert isinstance(suffix, SuffixDrafter)
    accepted: list[int] = []
    for name in ("suffix", "ngram,suffix", "suffix,ngram", "auto"):
        before = engine.statistics.num_accepted_tokens
        drafting = DraftParams(drafter=name)
        params = SamplingParams(max_tokens=40, temperature=0)
        run(engine, [Request(request_id="r", prompt_token_ids=[1, 2], params=params, seed=1, drafting=drafting)])
        accepted.append(engine.statistics.num_accepted_tokens - before)
    assert accepted[0] == 0, "the scripted model never repeats itself within an answer"
    assert min(accepted[1:]) > 20, "each copies from what was said under another name"
    assert suffix.num_bytes > 0
    assert Drafters().get("suffix") is not suffix
