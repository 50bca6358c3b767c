"""The engine's face: what it refuses, what it tells, and that nobody's fault is anybody else's."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from numpy.typing import NDArray

from offramp.core import Request, SamplingParams, SequenceKey
from offramp.engine.engine import Engine
from offramp.errors import ContextLengthError, InvalidRequestError, NumericError, ResourceError
from offramp.sample.logprobs import raw_logprobs
from offramp.testing.running import Told, drain, hear, run, run_plain
from offramp.testing.scripted import ScriptedModel, follow, mixing, peak
from offramp.testing.toy import toy_config, toy_source
from offramp.testing.twin import TwinExecutor

CONTEXT = 128


def model(num_pages: int = 16) -> ScriptedModel:
    return ScriptedModel(mixing(), num_pages=num_pages)


def engine(num_pages: int = 16, max_context: int = CONTEXT, **settings: object) -> Engine:
    return Engine(model(num_pages), max_context=max_context, **settings)  # type: ignore[arg-type]


def ask(name: str = "r", prompt: list[int] | None = None, priority: int = 0, **params: object) -> Request:
    return Request(
        request_id=name,
        prompt_token_ids=[1, 2, 3] if prompt is None else prompt,
        params=SamplingParams(**params),  # type: ignore[arg-type]
        seed=9,
        priority=priority,
    )


def alone(request: Request) -> dict[SequenceKey, list[int]]:
    return {key: told.token_ids for key, told in run_plain(model(), request, max_context=CONTEXT).items()}


@pytest.mark.parametrize("length", [128, 129, 512])
def test_a_prompt_as_long_as_the_context_is_refused_with_both_numbers_b45(length: int) -> None:
    with pytest.raises(ContextLengthError, match=f"{length} tokens.*128"):
        engine().add_request(ask(prompt=[1] * length))


def test_a_prompt_one_short_of_the_context_yields_one_token_b45() -> None:
    told = run(engine(), [ask(prompt=[1] * 127)])["r", 0]
    assert (len(told.token_ids), told.finish_reason) == (1, "length")


@pytest.mark.parametrize(
    ("request_", "error", "match"),
    [
        (ask(prompt=[]), InvalidRequestError, "no tokens"),
        (ask(prompt=[1, 260]), InvalidRequestError, "260"),
        (ask(prompt=[-1]), InvalidRequestError, "-1"),
        (ask(logit_bias={999: 1.0}), InvalidRequestError, "999"),
        (ask(prompt=[1] * 60, max_tokens=50), ResourceError, "4 pages.*there are 3"),
        (ask(max_tokens=None), ResourceError, "4 pages"),
    ],
)
def test_what_can_never_run_is_refused_and_leaves_no_trace(
    request_: Request, error: type[Exception], match: str
) -> None:
    small = Engine(TwinExecutor(toy_source(toy_config(num_layers=1), 1), num_pages=3), max_context=CONTEXT)
    with pytest.raises(error, match=match):
        small.add_request(request_)
    assert not small.has_work
    assert run(small, [ask(max_tokens=4)])["r", 0].finish_reason == "length"


def test_a_running_id_is_taken_until_it_ends() -> None:
    busy = engine()
    busy.add_request(ask(max_tokens=2))
    with pytest.raises(InvalidRequestError, match="'r' is running"):
        busy.add_request(ask())
    drain(busy)
    busy.add_request(ask(max_tokens=2))
    drain(busy)


@pytest.mark.parametrize(
    "settings",
    [
        {"max_context": 1},
        {"max_context": 9999},
        {"max_num_seqs": 0},
        {"max_num_batched_tokens": 2.5},
        {"max_pending": 0},
    ],
)
def test_impossible_settings_are_refused(settings: dict[str, object]) -> None:
    with pytest.raises(InvalidRequestError):
        engine(**settings)  # type: ignore[arg-type]


def test_three_equal_requests_on_one_engine_give_equal_answers_b04() -> None:
    one = engine()
    outputs = [run(one, [ask(prompt=[5] * 40, max_tokens=20)])["r", 0].token_ids for _ in range(3)]
    assert outputs == [alone(ask(prompt=[5] * 40, max_tokens=20))["r", 0]] * 3


def test_eight_equal_requests_at_once_give_one_answer_b59() -> None:
    requests = [ask(f"r{i}", [5] * 40, temperature=0.0, max_tokens=20) for i in range(8)]
    assert len({tuple(told.token_ids) for told in run(engine(), requests).values()}) == 1


def test_choices_differ_share_pages_and_equal_their_solo_runs() -> None:
    request = ask(prompt=list(range(70)), n=4, max_tokens=15)
    one = engine()
    told = run(one, [request])
    outputs = [told["r", choice].token_ids for choice in range(4)]
    assert len({tuple(output) for output in outputs}) == 4
    assert {key: t.token_ids for key, t in told.items()} == alone(request)
    assert [told["r", choice].num_cached_tokens for choice in range(4)] == [0, 64, 64, 64]
    greedy = run(engine(), [ask(n=3, temperature=0.0, max_tokens=5)])
    assert len({tuple(t.token_ids) for t in greedy.values()}) == 1


def test_a_whole_prompt_hit_leaves_only_the_last_token_to_run() -> None:
    one = engine()
    request = ask(prompt=list(range(64)), max_tokens=10)
    cold = run(one, [request])["r", 0]
    rows = one.statistics.num_rows
    warm = run(one, [request])["r", 0]
    assert (cold.num_cached_tokens, warm.num_cached_tokens) == (0, 63)
    assert one.statistics.num_rows - rows == 10
    assert warm.token_ids == cold.token_ids


def test_another_salt_and_a_switched_off_cache_find_nothing() -> None:
    for one, salt in ((engine(), "b"), (engine(prefix_cache=False), "a")):
        for name, cache_salt in (("first", "a"), ("second", salt)):
            request = Request(
                request_id=name,
                prompt_token_ids=list(range(64)),
                params=SamplingParams(max_tokens=1),
                seed=0,
                cache_salt=cache_salt,
            )
            told = run(one, [request])
        assert told["second", 0].num_cached_tokens == 0


def test_a_broken_row_ends_its_request_and_nobody_elses() -> None:
    def script(history: tuple[int, ...], depth: int) -> NDArray[np.float32]:
        logits = mixing()(history, depth)
        if history[0] == 66 and len(history) == 45:
            logits[7] = np.nan
        return logits

    one = Engine(ScriptedModel(script, num_pages=16), max_context=CONTEXT, max_num_batched_tokens=16)
    told = run(one, [ask("good", max_tokens=20), ask("bad", [66] * 40, n=2, max_tokens=20)])
    assert told["good", 0].token_ids == alone(ask("good", max_tokens=20))["good", 0]
    for choice in (0, 1):
        assert told["bad", choice].finish_reason == "error"
        assert isinstance(told["bad", choice].error, NumericError)
    assert len(told["bad", 0].token_ids) == 5
    assert one.statistics.num_finished == {"length": 1, "error": 2}


def test_a_prompt_that_breaks_is_not_cached() -> None:
    broken = [True]

    def script(history: tuple[int, ...], depth: int) -> NDArray[np.float32]:
        return np.full(260, np.inf, dtype=np.float32) if broken[0] else peak(3)

    one = Engine(ScriptedModel(script, num_pages=16), max_context=CONTEXT)
    request = ask(prompt=[1] * 64, max_tokens=2)
    assert run(one, [request])["r", 0].finish_reason == "error"
    broken[0] = False
    told = run(one, [request])["r", 0]
    assert (told.finish_reason, told.num_cached_tokens) == ("length", 0)


def test_abort_tells_once_and_frees_at_once_b104() -> None:
    one = engine(max_num_batched_tokens=16)
    one.add_request(ask("a", [1] * 90, n=2))
    one.add_request(ask("b", max_tokens=9))
    told: dict[SequenceKey, Told] = {}
    hear(one, told)
    assert one.abort("a")
    assert not one.abort("a")
    assert not one.abort("never seen")
    one.check_integrity()
    drain(one, told)
    assert [told["a", c].finish_reason for c in (0, 1)] == ["abort", "abort"]
    assert told["b", 0].token_ids == alone(ask("b", max_tokens=9))["b", 0]


def test_more_urgent_requests_overtake_and_preempt() -> None:
    one = engine(max_num_seqs=1)
    one.add_request(ask("slow", max_tokens=30))
    told: dict[SequenceKey, Told] = {}
    for _ in range(5):
        hear(one, told)
    one.add_request(ask("same", max_tokens=3))
    one.add_request(ask("urgent", priority=-1, max_tokens=3))
    for _ in range(3):
        hear(one, told)
    assert told["urgent", 0].finish_reason == "length"
    assert len(told["slow", 0].token_ids) == 5
    drain(one, told)
    assert one.statistics.num_preemptions == 1
    for name, count in (("slow", 30), ("same", 3), ("urgent", 3)):
        assert told[name, 0].token_ids == alone(ask(name, max_tokens=count))[name, 0]
    assert list(told) == [("slow", 0), ("urgent", 0), ("same", 0)]


def test_the_latest_arrival_gives_way_when_pages_run_out() -> None:
    one = engine(num_pages=4)
    requests = [ask(name, [i] * 31, max_tokens=60) for i, name in enumerate("abc")]
    told = run(one, requests)
    assert one.statistics.num_preemptions > 0
    for request in requests:
        assert told[request.request_id, 0].token_ids == alone(request)[request.request_id, 0]
    assert list(told) == [("a", 0), ("b", 0), ("c", 0)]


def test_a_long_prompt_does_not_stall_those_that_decode() -> None:
    one = engine(max_num_batched_tokens=8)
    one.add_request(ask("quick", max_tokens=20))
    told: dict[SequenceKey, Told] = {}
    hear(one, told)
    one.add_request(ask("long", [4] * 100, priority=-1, max_tokens=2))
    for _ in range(10):
        hear(one, told)
    assert len(told["quick", 0].token_ids) == 11


def test_a_stop_string_ends_the_sequence_at_the_token_that_completes_it() -> None:
    fed: list[int] = []

    def watcher(choice: int) -> Callable[[int], bool]:
        def feed(token: int) -> bool:
            fed.append(token)
            return fed[-2:] == [50, 51]

        return feed

    path = [1, 50, 7, 50, 51, 8]
    request = Request(
        request_id="r",
        prompt_token_ids=[1],
        params=SamplingParams(temperature=0.0, stop=("x",), logprobs=0),
        seed=0,
        text_stop=watcher,
    )
    one = Engine(ScriptedModel(follow(path), num_pages=4), max_context=64)
    told = run(one, [request])["r", 0]
    assert told.token_ids == [50, 7, 50, 51] == fed
    assert (told.finish_reason, told.text_stopped, len(told.logprobs)) == ("stop", True, 4)


@pytest.mark.parametrize("budget", [1, 7, 33, 512])
def test_prompt_and_output_logprobs_are_those_of_the_raw_rows(budget: int) -> None:
    prompt = [(3 * i) % 250 for i in range(70)]
    request = ask(prompt=prompt, prompt_logprobs=2, logprobs=2, max_tokens=4, n=2, repetition_penalty=1.5)
    one = engine(max_num_batched_tokens=budget)
    run(one, [ask("warm", prompt, max_tokens=1)])
    told = run(one, [request])
    assert told["r", 1].prompt_logprobs is None
    assert told["r", 0].num_cached_tokens == 0, "cached rows have no logits"
    entries = told["r", 0].prompt_logprobs
    assert entries is not None
    assert entries[0] is None
    script = mixing()
    wanted = [raw_logprobs(script(tuple(prompt[:i]), 2), prompt[i], 2) for i in range(1, 70)]
    assert list(entries[1:]) == wanted
    history = prompt + told["r", 1].token_ids
    assert told["r", 1].logprobs == [
        raw_logprobs(script(tuple(history[:i]), 2), history[i], 2) for i in range(70, len(history))
    ]


def test_min_tokens_masks_end_tokens() -> None:
    request = Request(
        request_id="r",
        prompt_token_ids=[1],
        params=SamplingParams(temperature=0.0, min_tokens=3, max_tokens=10),
        seed=0,
        eos_token_ids=frozenset({0}),
    )
    told = run(Engine(ScriptedModel(follow(), num_pages=4), max_context=64), [request])["r", 0]
    assert told.token_ids == [1, 1, 1, 0]
    assert told.finish_reason == "stop"


def test_statistics_before_and_after() -> None:
    one = engine()
    assert one.statistics.acceptance_rate == one.statistics.mean_acceptance_length == 0.0
    run(one, [ask("a", [1] * 40, max_tokens=5), ask("b", max_tokens=6)])
    statistics = one.statistics
    assert (statistics.num_prompt_tokens, statistics.num_generated_tokens) == (43, 11)
    assert statistics.num_rows == 43 + 4 + 5
    assert statistics.num_finished == {"length": 2}
    assert (statistics.num_running, statistics.num_waiting, statistics.num_used_pages) == (0, 0, 0)
