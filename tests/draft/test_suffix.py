"""The suffix drafter: what it proposes from whose text, what it learns and forgets, and that it changes no token."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from offramp.core import NO_DRAFT, DraftAsk, DraftParams, Request, SamplingParams, TokenTree, Verdict
from offramp.core import Sequence as Choice
from offramp.draft.suffix import OWN, STORE, SuffixDrafter, prior
from offramp.engine.engine import Engine
from offramp.errors import InvalidRequestError
from offramp.model.executor import LayerExecutor
from offramp.native import build_executor
from offramp.native.suffix import GRADES
from offramp.testing.running import Told, run, run_plain
from offramp.testing.scripted import ScriptedModel, mixing
from offramp.testing.toy import toy_config, toy_source

TOY = toy_source(
    toy_config(num_layers=2, hidden_size=32, intermediate_size=32, num_heads=2, num_kv_heads=1), seed=5, weights="q8"
)
CONTEXT = 128
SENTENCE = list(range(40, 60))


def ask(ids: Sequence[int], *, name: str = "r", salt: str = "", max_nodes: int = 8, max_depth: int = 50) -> DraftAsk:
    return DraftAsk((name, 0), 1, np.array(ids, np.int32), max_nodes, max_depth, salt=salt)


def propose(drafter: SuffixDrafter, ids: Sequence[int], **where: object) -> TokenTree:
    [tree] = drafter.propose([ask(ids, **where)])  # type: ignore[arg-type]
    return tree


def told(*token_ids: int) -> Verdict:
    return Verdict(token_ids=token_ids, accepted=(), rows=(0,) * len(token_ids))


def request(
    name: str, prompt: Sequence[int], *, drafter: str | None = None, salt: str = "", **params: object
) -> Request:
    return Request(
        request_id=name,
        prompt_token_ids=list(prompt),
        params=SamplingParams(**params),  # type: ignore[arg-type]
        seed=7,
        cache_salt=salt,
        drafting=DraftParams(drafter=drafter),
    )


def finished(
    name: str, prompt: Sequence[int], output: Sequence[int], *, drafter: str | None = None, salt: str = ""
) -> Choice:
    sequence = Choice(request(name, prompt, drafter=drafter, salt=salt), 0, arrival=0, max_context=512)
    sequence.tokens.extend(list(output))
    return sequence


def taught(**options: int) -> SuffixDrafter:
    """One that saw a sentence as an earlier output under the salt "a"."""
    drafter = SuffixDrafter(**options)
    drafter.forget(finished("old", [1], SENTENCE, salt="a"))
    return drafter


def test_copies_from_its_own_text_within_bounds() -> None:
    text = [*SENTENCE, 1, *SENTENCE[:3]]
    tree = propose(SuffixDrafter(), text)
    assert tree.token_ids == tuple(SENTENCE[3:11])
    assert tree.is_chain
    assert len(propose(SuffixDrafter(), text, max_nodes=5)) == 5
    assert len(propose(SuffixDrafter(), text, max_depth=2)) == 2
    assert len(propose(SuffixDrafter(max_nodes=3), text)) == 3


def test_branches_where_the_text_went_on_differently() -> None:
    tree = propose(SuffixDrafter(), [5, 6, 7, 8, 9, 5, 6, 7, 10, 11, 5, 6, 7])
    roots = {tree.token_ids[node] for node, parent in enumerate(tree.parents) if parent == -1}
    assert roots == {8, 10}
    assert tree.token_ids[0] == 10, "of equally frequent ones the latest first"


@pytest.mark.parametrize("text", [[], [3], [3, 4, 5], [-7, 2**31 - 1]])
def test_nothing_to_go_by_is_no_draft(text: list[int]) -> None:
    assert propose(SuffixDrafter(), text) == NO_DRAFT


def test_longer_matches_and_own_text_score_higher() -> None:
    short = propose(SuffixDrafter(), [*SENTENCE, 1, *SENTENCE[:1]])
    long = propose(SuffixDrafter(), [*SENTENCE, 1, *SENTENCE[:8]])
    other = propose(taught(), SENTENCE[:8], salt="a")
    assert short.scores[0] < long.scores[0]
    assert other.scores[0] < long.scores[0]
    assert list(long.scores) == sorted(long.scores), "each copied token lengthens the match"
    assert all(0 < score < 1 for tree in (short, long, other) for score in tree.scores)


def test_skipped_asks_are_caught_up_with() -> None:
    text = [*SENTENCE, 1, *SENTENCE[:5], 9, 8, *SENTENCE[2:6]]
    often, seldom = SuffixDrafter(), SuffixDrafter()
    for length in range(1, len(text)):
        propose(often, text[:length])
    propose(seldom, text[:3])
    assert propose(often, text) == propose(seldom, text) != NO_DRAFT


def test_outputs_of_finished_sequences_serve_others_of_the_same_salt_only() -> None:
    drafter = taught()
    assert propose(drafter, [9, *SENTENCE[:6]], salt="a").token_ids[:2] == tuple(SENTENCE[6:8])
    for salt in ("", "b"):
        fresh = propose(SuffixDrafter(), [9, *SENTENCE[:6]], salt=salt)
        assert propose(drafter, [9, *SENTENCE[:6]], name=f"r{salt}", salt=salt) == fresh == NO_DRAFT


def test_the_start_of_an_output_is_found_by_the_end_of_its_prompt() -> None:
    drafter = SuffixDrafter()
    drafter.forget(finished("old", [*range(100, 120), 1, 2, 3, 4], SENTENCE))
    assert propose(drafter, [1, 2, 3, 4]).token_ids[0] == SENTENCE[0]
    assert propose(drafter, [102, 103, 104], name="other") == NO_DRAFT, "prompts themselves are not kept"


def test_requests_with_drafting_off_teach_nothing() -> None:
    drafter = SuffixDrafter()
    drafter.forget(finished("old", [1], SENTENCE, drafter="off"))
    drafter.forget(finished("empty", SENTENCE, []))
    assert drafter.num_bytes == 0


def test_without_a_store_an_earlier_request_leaves_no_trace_b52() -> None:
    """The long request before changes neither proposals nor bytes held."""
    later = [3, 4, 5, 3, 4, 5, 3]
    drafter = taught(store_bytes=0)
    propose(drafter, SENTENCE * 3, name="long")
    drafter.forget(finished("long", SENTENCE, SENTENCE * 2))
    assert drafter.num_bytes == 0
    assert propose(drafter, later, name="b") == propose(SuffixDrafter(), later, name="b")
    assert propose(drafter, SENTENCE[:6], name="c") == NO_DRAFT


def test_an_unrelated_earlier_request_costs_the_next_one_nothing_b52() -> None:
    prompt = [1, 2, 1, 2, 1]
    truth, alone = drafted([request("b", prompt, max_tokens=40, temperature=0.0)])
    engine = engine_of(SuffixDrafter(), layers=True)
    run(engine, [request("a", range(100, 160), max_tokens=60, temperature=1.0)])
    before = engine.statistics.num_accepted_tokens, engine.statistics.num_steps
    mine = run(engine, [request("b", prompt, max_tokens=40, temperature=0.0)])
    assert mine["b", 0].token_ids == truth["b", 0].token_ids
    assert engine.statistics.num_accepted_tokens - before[0] >= alone.statistics.num_accepted_tokens
    assert engine.statistics.num_steps - before[1] <= alone.statistics.num_steps


def test_forgetting_frees_the_memory() -> None:
    drafter = SuffixDrafter(store_bytes=0)
    for name in ("r", "s"):
        propose(drafter, SENTENCE * 10, name=name)
    held = drafter.num_bytes
    drafter.forget(finished("r", [1], [2]))
    assert 0 < drafter.num_bytes < held
    drafter.forget(finished("s", [1], [2]))
    drafter.forget(finished("never asked about", [1], [2]))
    assert drafter.num_bytes == 0


def test_a_long_text_is_let_go_of_from_its_beginning() -> None:
    drafter = SuffixDrafter(own_bytes=1 << 15, store_bytes=0)
    text = np.random.default_rng(1).integers(0, 10_000, size=3000).tolist()
    for length in range(0, len(text), 100):
        propose(drafter, text[:length])
        assert drafter.num_bytes <= 1 << 15
    assert propose(drafter, [*text, *text[-50:-40]]).token_ids[:2] == tuple(text[-40:-38])
    other = SuffixDrafter(own_bytes=1 << 15, store_bytes=0)
    assert propose(other, [*text, *text[:10]]).token_ids[:1] != (text[10],), "the beginning is gone"


def test_scores_follow_what_became_of_proposals() -> None:
    drafter = SuffixDrafter(store_bytes=0)
    text = [*SENTENCE, 1, *SENTENCE[:5]]
    first = propose(drafter, text)
    drafter.observe(ask(text), first, told(*SENTENCE[5:13]))
    right = propose(drafter, text)
    assert right.token_ids == first.token_ids
    assert all(after > before for after, before in zip(right.scores, first.scores, strict=True))
    for _ in range(50):
        drafter.observe(ask(text), propose(drafter, text), told(99))
    wrong = propose(drafter, text)
    assert wrong.token_ids == first.token_ids, "what is proposed depends on texts alone"
    assert wrong.scores[0] < first.scores[0] / 2
    assert wrong.scores[4:] == right.scores[4:], "not put to the test"


def test_a_verdict_on_another_text_teaches_nothing() -> None:
    drafter = SuffixDrafter(store_bytes=0)
    text = [*SENTENCE, 1, *SENTENCE[:5]]
    first = propose(drafter, text)
    drafter.observe(ask(text[:-1]), first, told(99))
    drafter.observe(ask(text, name="unknown"), first, told(99))
    assert propose(drafter, text) == first


def test_priors_are_sensible() -> None:
    for origin in (OWN, STORE):
        rates = {grade: prior(origin, grade) for grade in GRADES}
        assert all(0.0 < rate < 1.0 for rate in rates.values())
        for grade, rate in rates.items():
            longer = [other for other in GRADES if other.context_len > grade.context_len]
            assert all(rates[o] >= rate for o in longer if (o.order, o.share) == (grade.order, grade.share))


@pytest.mark.parametrize("options", [{"max_nodes": 0}, {"own_bytes": 1}, {"store_bytes": -1}])
def test_impossible_options_are_refused(options: dict[str, int]) -> None:
    with pytest.raises(InvalidRequestError, match=next(iter(options))):
        SuffixDrafter(**options)


def scripted() -> LayerExecutor:
    return ScriptedModel(mixing(), num_pages=16)


def toy() -> LayerExecutor:
    return build_executor(TOY, num_pages=16, threads=1)


def engine_of(drafter: SuffixDrafter, *, layers: bool = False) -> Engine:
    return Engine(toy() if layers else scripted(), max_context=CONTEXT, drafter=drafter)


def drafted(requests: list[Request], **options: int) -> tuple[dict[tuple[str, int], Told], Engine]:
    engine = engine_of(SuffixDrafter(**options), layers=True)
    return run(engine, requests), engine


@pytest.mark.parametrize("store_bytes", [0, 1 << 20])
@pytest.mark.parametrize("temperature", [0.0, 0.7])
def test_drafted_equals_plain_and_some_drafts_stand(temperature: float, store_bytes: int) -> None:
    """A toy model falls into loops, which the drafter finds; requests beside and after each other."""
    requests = [
        request(f"r{i}", [i, 2, 3, i][: i + 1], temperature=temperature, max_tokens=40, repetition_penalty=penalty)
        for i, penalty in enumerate([1.0, 1.0, 1.1, 1.0])
    ]
    truth: dict[tuple[str, int], Told] = {}
    for each in requests:
        truth |= run_plain(toy(), each, max_context=CONTEXT)
    mine, engine = drafted(requests, store_bytes=store_bytes)
    again = run(engine, [request("again", [0], temperature=temperature, max_tokens=40)])
    assert {key: t.token_ids for key, t in mine.items()} == {key: t.token_ids for key, t in truth.items()}
    assert again["again", 0].token_ids == truth["r0", 0].token_ids
    assert engine.statistics.num_accepted_tokens > 0


def test_a_repeated_request_is_drafted_from_the_store() -> None:
    """The scripted model never repeats itself: only an earlier answer can tell what comes."""
    engine = engine_of(SuffixDrafter())
    first = run(engine, [request("first", [1, 2, 3], temperature=0.0, max_tokens=60)])
    before = engine.statistics.num_accepted_tokens
    second = run(engine, [request("second", [1, 2, 3], temperature=0.0, max_tokens=60)])
    assert second["second", 0].token_ids == first["first", 0].token_ids
    assert engine.statistics.num_accepted_tokens - before > 30
