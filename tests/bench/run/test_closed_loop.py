"""So many at a time, the next one at once; what counts as decoding; and whose failure is whose."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pytest

from offramp.bench.run import closed_loop
from offramp.bench.run.closed_loop import Driven, drive
from offramp.core import DraftParams, Request, SamplingParams
from offramp.engine.engine import Engine
from offramp.testing.scripted import ScriptedModel, mixing

OFF = DraftParams(drafter="off")


def request(name: str, prompt_len: int = 3, tokens: int = 4) -> Request:
    params = SamplingParams(temperature=0, max_tokens=tokens, ignore_eos=True)
    prompt = [(7 * len(name) + place) % 250 for place in range(prompt_len)]
    return Request(request_id=name, prompt_token_ids=prompt, params=params, seed=0, drafting=OFF)


def engine(model: ScriptedModel | None = None, *, max_num_seqs: int = 8, batched: int = 512) -> Engine:
    model = model or ScriptedModel(mixing(), num_pages=16)
    return Engine(model, max_context=256, max_num_seqs=max_num_seqs, max_num_batched_tokens=batched, prefix_cache=False)


def driven(
    requests: list[Request], streams: int, monkeypatch: pytest.MonkeyPatch, with_engine: Engine | None = None
) -> Driven:
    """Every look at the clock is a second later."""
    ticks = itertools.count()
    monkeypatch.setattr(closed_loop.time, "perf_counter", lambda: float(next(ticks)))
    return drive(with_engine or engine(), requests, streams, lambda ended, tokens: None)


def most_at_once(told: Driven) -> int:
    spans = [(course.started, course.events[-1].seconds) for course in told.courses.values()]
    return max(sum(1 for start, end in spans if start < at <= end) for _, at in spans)


@pytest.mark.parametrize("streams", [1, 2, 3])
def test_so_many_at_a_time(streams: int, monkeypatch: pytest.MonkeyPatch) -> None:
    told = driven([request(f"r{number}", tokens=3 + number) for number in range(5)], streams, monkeypatch)
    assert most_at_once(told) == streams
    assert all(course.events[-1].event.finish_reason == "length" for course in told.courses.values())


def test_tokens_do_not_depend_on_the_streams(monkeypatch: pytest.MonkeyPatch) -> None:
    requests = [request(f"r{number}", prompt_len=2 + number) for number in range(4)]
    told = [
        {
            name: [token for timed in course.events for token in timed.event.token_ids]
            for name, course in driven(requests, streams, monkeypatch).courses.items()
        }
        for streams in (1, 3)
    ]
    assert told[0] == told[1]


def test_one_stream_decodes_from_each_first_token_to_the_last(monkeypatch: pytest.MonkeyPatch) -> None:
    told = driven([request("a", tokens=4), request("b", tokens=3)], 1, monkeypatch)
    spans = [course.events[-1].seconds - course.events[0].seconds for course in told.courses.values()]
    assert told.decode_seconds == sum(spans)
    assert told.decoded_tokens == 3 + 2
    assert told.seconds == max(course.events[-1].seconds for course in told.courses.values())


def test_steps_in_which_a_prompt_runs_do_not_count_as_decoding(monkeypatch: pytest.MonkeyPatch) -> None:
    """At two streams: `a` and `b` begin together, `c` when `a` ends, which takes three steps of chunks."""
    requests = [request("a", tokens=2), request("b", tokens=8), request("c", prompt_len=9, tokens=2)]
    told = driven(requests, 2, monkeypatch, engine(batched=8))
    a, b, c = (told.courses[name] for name in "abc")
    assert c.started > a.events[-1].seconds
    during = [timed for timed in b.events if c.started < timed.seconds <= c.events[0].seconds]
    assert len(during) == 2
    assert told.decoded_tokens == 1 + (7 - len(during)) + 1


def test_a_request_that_waits_for_a_place_runs_no_prompt(monkeypatch: pytest.MonkeyPatch) -> None:
    told = driven([request("a", tokens=6), request("b", tokens=6)], 2, monkeypatch, engine(max_num_seqs=1))
    assert told.decoded_tokens == 10


def test_a_request_that_the_engine_refuses_fails_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    told = driven([request("long", prompt_len=300), request("a"), request("long too", prompt_len=300)], 1, monkeypatch)
    assert "256" in str(told.courses["long"].error)
    assert told.courses["a"].error is None
    assert len(told.courses["a"].events) == 4
    assert told.courses["long too"].error is not None


def test_a_model_that_fails_on_one_request_goes_on_with_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    plain = mixing()

    def script(history: tuple[int, ...], depth: int) -> np.ndarray[tuple[int, ...], np.dtype[np.float32]]:
        logits = plain(history, depth)
        return logits * np.float32("nan") if history[0] == 99 and len(history) > 4 else logits

    sick = replace(request("sick"), prompt_token_ids=[99, 1, 2])
    told = driven([sick, request("a")], 2, monkeypatch, engine(ScriptedModel(script, num_pages=16)))
    assert told.courses["sick"].error is not None
    assert told.courses["a"].error is None
    assert len(told.courses["a"].events) == 4


def test_it_tells_how_far_it_is() -> None:
    heard: list[tuple[int, int]] = []
    drive(
        engine(),
        [request("a", tokens=2), request("b", tokens=2)],
        1,
        lambda ended, tokens: heard.append((ended, tokens)),
    )
    assert heard == [(0, 1), (1, 2), (1, 3), (2, 4)]
