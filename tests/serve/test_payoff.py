"""A server whose drafts do not pay tells: in the log, and on the metrics page (B115)."""

from __future__ import annotations

import io
import logging
import random

import numpy as np
import pytest
from numpy.typing import NDArray

from offramp.draft.length import goodput
from offramp.engine.cost import MeasuredCosts
from offramp.engine.statistics import Statistics
from offramp.llm.serving import Serving
from offramp.serve import payoff
from offramp.serve import worker as worker_module
from offramp.serve.payoff import WINDOW_SECONDS, PayoffWatch
from offramp.serve.request_log import log_to_stderr
from offramp.testing.models import chat_tokenizer, scripted_model
from offramp.testing.scripted import mixing, peak
from tests.serve.asking import COMPLETIONS, served

VOCAB = chat_tokenizer().vocab_size
LETTERS = "abcdef"
IDS = [chat_tokenizer().encode(letter)[0] for letter in LETTERS]
RARELY_RIGHT = {"draft": "reference", "references": ["".join(random.Random(1).choices(LETTERS, k=300))]}


def letters(history: tuple[int, ...], depth: int) -> NDArray[np.float32]:
    """Greedily a letter that depends on the whole history, so that no text foretells it."""
    return peak(IDS[int(np.argmax(mixing(len(IDS))(history, depth)))], VOCAB)


def seen(caplog: pytest.LogCaptureFixture, *windows: tuple[float, float, float]) -> list[str]:
    """What is told of windows, each the seconds of its steps, of the drafted ones, and of plain ones instead."""
    watch, now = PayoffWatch(), Statistics()
    with caplog.at_level(logging.WARNING, logger="offramp.draft"):
        for steps, drafted, plain in windows:
            now.step_seconds += steps
            now.drafted_seconds += drafted
            now.drafted_plain_seconds += plain
            watch.look(now)
            watch.look(now)
    return [record.getMessage() for record in caplog.records]


def test_slow_drafts_are_told_once_and_again_after_a_recovery(caplog: pytest.LogCaptureFixture) -> None:
    slow, quick = (10.0, 5.0, 4.0), (10.0, 5.0, 9.0)
    told = seen(caplog, quick, slow, slow, slow, quick, slow)
    assert len(told) == 2
    assert "5.0 s" in told[0]
    assert "4.0 s" in told[0]
    assert "--draft off" in told[0]


@pytest.mark.parametrize(
    "window",
    [
        (10.0, 0.0, 0.0),  # no drafts
        (10.0, 5.0, 5.0),
        (10.0, 0.4, 0.0),  # trying them now and then
        (WINDOW_SECONDS - 1, 5.0, 0.0),  # too little to judge by
    ],
)
def test_others_are_not(caplog: pytest.LogCaptureFixture, window: tuple[float, float, float]) -> None:
    assert seen(caplog, window) == []


def seen_by_goodput(caplog: pytest.LogCaptureFixture, num_drafts: int, *slow: bool) -> list[str]:
    watch, now = PayoffWatch(goodput=True), Statistics()
    with caplog.at_level(logging.WARNING, logger="offramp.draft"):
        for each in slow:
            now.step_seconds += 10.0
            now.drafted_seconds += 5.0
            now.drafted_plain_seconds += 4.0 if each else 9.0
            now.num_drafts += num_drafts
            watch.look(now)
    return [record.getMessage() for record in caplog.records]


def test_goodput_is_doubted_only_when_it_goes_on_and_never_told_to_be_goodput(caplog: pytest.LogCaptureFixture) -> None:
    told = seen_by_goodput(caplog, 500, True, True, False, True, True, True, True)
    assert len(told) == 1
    assert "--draft off" in told[0]
    assert "--draft-length" not in told[0]


def test_goodput_is_not_judged_by_few_drafts(caplog: pytest.LogCaptureFixture) -> None:
    assert seen_by_goodput(caplog, 5, *[True] * 8) == []


def test_short_windows_add_up(caplog: pytest.LogCaptureFixture) -> None:
    assert len(seen(caplog, *[(1.0, 0.5, 0.4)] * 15)) == 1


def rows_cost(monkeypatch: pytest.MonkeyPatch, seconds: float) -> None:
    """Costs by which every row of a step takes as long as the first."""

    def predict(costs: object, num_rows: int, *rest: int, **more: int | None) -> float:
        return seconds * num_rows

    monkeypatch.setattr(MeasuredCosts, "seconds", predict)
    monkeypatch.setattr(worker_module, "ready_costs", lambda *arguments: None)


@pytest.mark.parametrize(("draft_length", "seconds"), [("goodput", 1.0), ("fixed", 1e-9)])
def test_drafts_that_rarely_stand_b115(monkeypatch: pytest.MonkeyPatch, draft_length: str, seconds: float) -> None:
    """Rows that are predicted to be dear are not tried; where they are tried all the same, and are dear, it shows."""
    rows_cost(monkeypatch, seconds)
    stderr = io.StringIO()
    monkeypatch.setattr("sys.stderr", stderr)
    monkeypatch.setattr(goodput, "OFF_AFTER", 20)
    monkeypatch.setattr(payoff, "WINDOW_SECONDS", 0.01)
    serving = Serving(draft="off", draft_length=draft_length, max_draft=4)
    body = {"prompt": "hello hello", "max_tokens": 120, "temperature": 0, "ignore_eos": True}
    with log_to_stderr("text"), served(scripted_model(letters, num_pages=16), serving) as api:
        plain = api.answer(COMPLETIONS, **body, offramp={"draft": "off"})
        drafted = api.answer(COMPLETIONS, **body, offramp=RARELY_RIGHT)
        statistics, page = api.worker.statistics, api.get("/metrics").text
    assert drafted["choices"] == plain["choices"]
    [line] = [line for line in page.splitlines() if line.startswith("offramp:spec_decode_estimated_speedup{")]
    assert float(line.split()[-1]) == pytest.approx(statistics.estimated_speedup)
    told = [line for line in stderr.getvalue().splitlines() if "drafts" in line]
    if draft_length == "goodput":
        assert statistics.num_drafts < 20, "they switch themselves off"
        assert any("drafts are off until they pay" in line for line in told)
    else:
        assert statistics.num_drafts > 50
        assert 0 < statistics.estimated_speedup < 1
        assert told[0].partition(" ")[2].startswith("warning: drafts do not pay")
