"""Off means off: no drafter, length control or cost model is called, whoever switched drafts off, and how."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence as Items

import pytest

from offramp.core import (
    NO_DRAFT,
    DraftAsk,
    DraftParams,
    Request,
    SamplingParams,
    Sequence,
    SequenceKey,
    StepLoad,
    TokenTree,
    Verdict,
)
from offramp.draft.choice import DrafterChoice
from offramp.draft.length.goodput import GoodputLength
from offramp.draft.suffix import SuffixDrafter
from offramp.engine.cost import MeasuredCosts
from offramp.engine.engine import Engine
from offramp.llm import making
from offramp.llm.llm import LLM
from offramp.llm.serving import Serving
from offramp.params import RequestOptions
from offramp.testing.costs import ScriptedCosts, each_row
from offramp.testing.models import chat_tokenizer, scripted_model
from offramp.testing.running import run
from offramp.testing.scripted import ScriptedModel, mixing

OFF = [DraftParams(drafter="off"), DraftParams(max_draft=0), DraftParams(drafter="ngram", max_draft=0)]
PROMPT = [1, 2, 3] * 8


class CountedDrafter:
    """Counts every call of any method."""

    def __init__(self, max_nodes: int = 8) -> None:
        self.max_nodes = max_nodes
        self.calls: Counter[str] = Counter()

    def propose(self, asks: Items[DraftAsk]) -> list[TokenTree]:
        self.calls["propose"] += 1
        return [NO_DRAFT] * len(asks)

    def observe(self, ask: DraftAsk, tree: TokenTree, verdict: Verdict) -> None:
        self.calls["observe"] += 1

    def forget(self, sequence: Sequence) -> None:
        self.calls["forget"] += 1


class CountedLengths:
    """Likewise."""

    def __init__(self) -> None:
        self.calls: Counter[str] = Counter()

    def wants(self, asks: Items[DraftAsk]) -> Items[DraftAsk]:
        self.calls["wants"] += 1
        return asks

    def choose(self, asks: Items[DraftAsk], trees: Items[TokenTree], load: StepLoad) -> Items[TokenTree]:
        self.calls["choose"] += 1
        return trees

    def observe(self, ask: DraftAsk, tree: TokenTree, verdict: Verdict) -> None:
        self.calls["observe"] += 1

    def forget(self, key: SequenceKey) -> None:
        self.calls["forget"] += 1


def request(drafting: DraftParams, name: str = "r") -> Request:
    params = SamplingParams(max_tokens=20, temperature=0.0)
    return Request(request_id=name, prompt_token_ids=PROMPT, params=params, seed=1, drafting=drafting)


def counted(drafter: CountedDrafter, *requests: Request) -> tuple[Engine, CountedLengths, ScriptedCosts]:
    lengths, costs = CountedLengths(), ScriptedCosts(each_row(0.1))
    model = ScriptedModel(mixing(), num_pages=8)
    engine = Engine(model, max_context=96, drafter=drafter, lengths=lengths, costs=costs)
    run(engine, requests)
    return engine, lengths, costs


@pytest.mark.parametrize("drafting", OFF, ids=str)
def test_a_request_with_drafts_off_calls_nobody(drafting: DraftParams) -> None:
    drafter = CountedDrafter()
    engine, lengths, costs = counted(drafter, request(drafting))
    assert (drafter.calls, lengths.calls, costs.num_asked) == (Counter(), Counter(), 0)
    assert engine.statistics.num_rows == len(PROMPT) + 19


def test_an_engine_whose_drafter_has_no_nodes_calls_nobody() -> None:
    drafter = CountedDrafter(max_nodes=0)
    _, lengths, costs = counted(drafter, request(DraftParams()))
    assert (drafter.calls, lengths.calls, costs.num_asked) == (Counter(), Counter(), 0)


def test_the_counters_count() -> None:
    drafter = CountedDrafter()
    _, lengths, _ = counted(drafter, request(DraftParams()))
    steps = 19  # the last token needs no draft
    assert drafter.calls == {"propose": steps, "observe": steps, "forget": 1}
    assert lengths.calls == {"wants": steps, "choose": steps, "observe": steps, "forget": 1}


@pytest.mark.parametrize("drafting", OFF, ids=str)
def test_beside_a_request_with_drafts_only_that_one_is_served(drafting: DraftParams) -> None:
    drafter = CountedDrafter()
    counted(drafter, request(drafting, "off"), request(DraftParams(), "on"))
    assert drafter.calls == {"propose": 19, "observe": 19, "forget": 1}


@pytest.mark.parametrize("drafting", OFF, ids=str)
def test_nothing_is_indexed_or_learned_from_a_request_with_drafts_off(drafting: DraftParams) -> None:
    drafter = SuffixDrafter()
    engine = Engine(ScriptedModel(mixing(), num_pages=8), max_context=96, drafter=drafter)
    run(engine, [request(drafting)])
    assert drafter.num_bytes == 0
    run(engine, [request(DraftParams())])
    assert drafter.num_bytes > 0


def test_no_drafter_is_made_for_requests_with_drafts_off() -> None:
    made: list[str] = []

    def make(name: str) -> CountedDrafter:
        made.append(name)
        return CountedDrafter()

    engine = Engine(ScriptedModel(mixing(), num_pages=8), max_context=96, drafter=DrafterChoice(make, max_nodes=8))
    run(engine, [request(DraftParams(drafter="off")), request(DraftParams(drafter="ngram", max_draft=0), "s")])
    assert made == []
    run(engine, [request(DraftParams(drafter="ngram"))])
    assert made == ["ngram"]


SERVINGS = [Serving(draft="off"), Serving(mode="full"), Serving(max_draft=0)]
OPTIONS = [RequestOptions(draft="off"), RequestOptions(mode="full"), RequestOptions(max_draft=0)]
GREEDY = SamplingParams(max_tokens=20, temperature=0.0)


def watched(serving: Serving, monkeypatch: pytest.MonkeyPatch) -> LLM:
    """A model in which everything that drafts raises."""

    def raising(*args: object, **kwargs: object) -> object:
        raise AssertionError("called although drafts are off")

    llm = LLM.from_loaded(scripted_model(mixing(chat_tokenizer().vocab_size), num_pages=8), serving)
    monkeypatch.setattr(making, "make_drafter", raising)
    monkeypatch.setattr(MeasuredCosts, "seconds", raising)
    for method in ("wants", "choose", "observe", "forget"):
        monkeypatch.setattr(GoodputLength, method, raising)
    return llm


@pytest.mark.parametrize(
    ("serving", "options"),
    [*((serving, None) for serving in SERVINGS), *((Serving(draft="ngram"), options) for options in OPTIONS)],
    ids=str,
)
def test_off_from_the_front_door(
    serving: Serving, options: RequestOptions | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    [output] = watched(serving, monkeypatch).generate([PROMPT], GREEDY, options)
    assert len(output.outputs[0].token_ids) == 20
    assert (output.report.draft, output.report.num_drafts) == ("off", 0)


def test_the_front_door_is_watched(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(AssertionError, match="called although"):
        watched(Serving(), monkeypatch).generate([PROMPT], GREEDY, RequestOptions(draft="suffix"))
