"""Predictions against the engine itself: what runs is counted call by call, and so are decisions by hand."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from numpy.typing import NDArray

from benchmarks.early_exit.candidates import Space, match_loss, shortlist, token_loss
from benchmarks.early_exit.contestant import FULL, Contestant, Setting
from benchmarks.early_exit.costs import StepCosts
from benchmarks.early_exit.replay import first_answers, mean_depth, predicted_gain
from benchmarks.early_exit.study import most_leaving
from offramp.calibrate.answers import answer_all
from offramp.calibrate.predict import predict
from offramp.calibrate.scores import ScoredTokens, score_tokens
from offramp.core import Ids, Rows
from offramp.engine.cost_table import CostTable, Curve
from offramp.engine.exit_points import ExitBatching
from offramp.exits.frozen import FrozenPolicy
from offramp.exits.policy import Fill
from offramp.llm.loading import LoadedModel
from offramp.model.executor import FINAL, HeadId, Hidden, LayerExecutor, LogitSummary
from tests.calibrate.settling import COSTS, GREEDY, LAYERS, NUM_LAYERS, prompts, rig, settling_model, silent

CALL, HEAD, ASK, FILL = 0.3, 0.7, 0.11, 0.05
NEW_TOKENS = 8


def line_through(slope: float) -> Curve:
    return Curve(((1, slope), (512, 512 * slope)))


def by_rows(besides: float = 0.0) -> StepCosts:
    """A second for each row and layer."""
    return StepCosts(
        table=CostTable(
            num_layers=NUM_LAYERS,
            context=0,
            call=CALL,
            layers=line_through(NUM_LAYERS),
            per_token=line_through(0.0),
            head=line_through(HEAD),
        ),
        context=0,
        ask=dict.fromkeys(LAYERS, line_through(ASK)),
        guess={},
        fill=line_through(FILL),
        besides=dict.fromkeys((1, 2, 4, 16), besides),
    )


class Counting:
    """An executor that adds up what `by_rows` says of its calls."""

    def __init__(self, inner: LayerExecutor) -> None:
        self.inner = inner
        self.seconds = 0.0

    def __getattr__(self, name: str) -> object:
        return getattr(self.inner, name)

    def run_layers(self, h: Hidden, rows: Rows, start: int, stop: int) -> Hidden:
        self.seconds += CALL + len(h) * (stop - start)
        return self.inner.run_layers(h, rows, start, stop)

    def fill(self, h: Hidden, rows: Rows, start: int, stop: int) -> None:
        self.seconds += FILL * len(h) * (stop - start)
        self.inner.fill(h, rows, start, stop)

    def summarize(self, h: Hidden, head: HeadId = FINAL) -> LogitSummary:
        self.seconds += len(h) * ASK
        return self.inner.summarize(h, head)

    def logits(self, h: Hidden, head: HeadId = FINAL, vocab_ids: Ids | None = None) -> NDArray[np.float32]:
        self.seconds += len(h) * (HEAD if head == FINAL else ASK)
        return self.inner.logits(h, head, vocab_ids)


@pytest.fixture(scope="module")
def settled() -> LoadedModel:
    """Exits say what full depth says, whatever the K/V of deeper layers."""
    return settling_model(0.0)


@pytest.fixture(scope="module")
def scored(settled: LoadedModel) -> ScoredTokens:
    assert settled.exits is not None
    answers = answer_all(rig(settled), prompts(8), None, silent)
    return score_tokens(rig(settled), settled.exits, answers, silent)


def policy(scored: ScoredTokens, fill: Fill, rank: float = 0.25) -> FrozenPolicy:
    """Some leave at each exit point, some stay."""
    scores = scored.measures["margin"][scored.asked].astype(np.float64)
    thresholds = tuple(float(np.quantile(column, rank)) for column in scores.T)
    return FrozenPolicy(layers=LAYERS, thresholds=thresholds, measure="margin", fill=fill)


def decoding_seconds(loaded: LoadedModel, setting: Setting, streams: int) -> float:
    """Of the steps behind the prompts, for all prompts in groups."""
    total = 0.0
    for new_tokens, sign in ((NEW_TOKENS, 1), (1, -1)):
        counting = Counting(loaded.executor)
        counted = replace(loaded, executor=counting)  # type: ignore[arg-type]
        contestant = Contestant(counted, setting, streams=streams)
        for start in range(0, 8, streams):
            contestant.run(prompts(8)[start : start + streams], new_tokens)
        total += sign * counting.seconds
    return total


@pytest.mark.parametrize("streams", [1, 4])
@pytest.mark.parametrize("fill", ["deferred", "propagate"])
@pytest.mark.parametrize("batching", ["compact", "barrier", "literal"])
def test_replayed_steps_are_those_of_the_engine(
    settled: LoadedModel, scored: ScoredTokens, streams: int, fill: Fill, batching: ExitBatching
) -> None:
    setting = Setting(policy(scored, fill), batching)
    really = decoding_seconds(settled, FULL, streams) / decoding_seconds(settled, setting, streams)
    assert predicted_gain(scored, setting, by_rows(), streams) == pytest.approx(really)
    assert not 0.99 < really < 1.01


@pytest.mark.parametrize("fill", ["deferred", "propagate"])
def test_one_stream_is_what_calibration_predicts(scored: ScoredTokens, fill: Fill) -> None:
    """Another replay of the same thing."""
    costs = replace(
        COSTS,
        call=CALL,
        layer=tuple(float(rows) for rows in range(1, 9)),
        head=HEAD,
        fill=FILL,
        ask=dict.fromkeys(LAYERS, ASK),
        step=0.2,
    )
    early = policy(scored, fill)
    found = predict(scored, early, costs, NUM_LAYERS)
    assert predicted_gain(scored, Setting(early), by_rows(0.2), 1) == pytest.approx(found.gain)


def test_some_answers_replay_as_they_would_alone(scored: ScoredTokens) -> None:
    early = policy(scored, "deferred")
    two = first_answers(scored, 2)
    assert set(two.prompts.tolist()) == {0, 1}
    assert predict(two, early, COSTS, NUM_LAYERS).depth == mean_depth_of(two, early)
    assert predicted_gain(first_answers(scored, 99), Setting(early), by_rows(), 4) == predicted_gain(
        scored, Setting(early), by_rows(), 4
    )


def mean_depth_of(scored: ScoredTokens, early: FrozenPolicy) -> float:
    """Of all tokens, the first of an answer at full depth."""
    count, asked = len(scored.asked), int(scored.asked.sum())
    return (mean_depth(scored, early, NUM_LAYERS) * asked + NUM_LAYERS * (count - asked)) / count


def test_looser_thresholds_leave_earlier(scored: ScoredTokens) -> None:
    depths = [mean_depth(scored, policy(scored, "deferred", rank), NUM_LAYERS) for rank in (0.9, 0.5, 0.0)]
    assert depths == sorted(depths, reverse=True)
    assert depths[-1] == LAYERS[0]


@pytest.fixture
def told() -> ScoredTokens:
    """Two answers of two tokens each besides the first; the deep exit is wrong where it is unsure, once."""
    nan = np.nan
    scores = np.array([[nan, nan], [0.2, 0.9], [0.9, 0.9], [nan, nan], [0.1, 0.3], [0.8, 0.95]], np.float32)
    agreed = np.array([[0, 0], [0, 1], [1, 1], [0, 0], [0, 0], [1, 1]], np.bool_)
    return ScoredTokens(
        layers=LAYERS,
        measures={"margin": scores},
        predictors={},
        agreed=agreed,
        prompts=np.array([0, 0, 0, 1, 1, 1]),
        asked=np.isfinite(scores[:, 0]),
    )


def test_losses_by_hand(told: ScoredTokens) -> None:
    wrong = np.array([0, 1, 0, 0, 0, 0], np.bool_)
    assert token_loss(told)(wrong) == pytest.approx(1 / 6)
    assert match_loss(told, [True, True])(wrong) == 0.5
    assert match_loss(told, [False, True])(wrong) == 0.0, "what was wrong already loses nothing"


def space(told: ScoredTokens, fill: Fill, streams: int = 1) -> Space:
    return Space(scored=told, loss=token_loss(told), costs=by_rows(), fill=fill, streams=streams)


def test_the_shortlist_keeps_its_budget(told: ScoredTokens) -> None:
    deferred = space(told, "deferred")
    found = list(deferred.all())
    [free] = shortlist(deferred, found, [0.0], lambda policy: -sum(policy.layers))
    assert free.loss == 0
    assert free.depth < NUM_LAYERS
    assert free.policy.layers == LAYERS[:1], "the gain decides among the fastest"
    assert free.seconds <= min(each.seconds for each in found if (each.loss, each.policy.layers) == (0, LAYERS[:1]))
    here = space(told, "propagate")
    shallow, deep = shortlist(here, list(here.all()), [1.0], lambda policy: -sum(policy.layers))
    assert (shallow.policy.layers, shallow.policy.thresholds) == (LAYERS[:1], (0.0,))
    assert shallow.seconds == pytest.approx(CALL + LAYERS[0] + ASK + (NUM_LAYERS - LAYERS[0]) * FILL)
    assert deep.policy.layers == LAYERS[1:], "for projected K/V also what leaves no sooner"


def test_polishing_moves_one_threshold_at_a_time(told: ScoredTokens) -> None:
    """Both exits may let two of four go; the deep one has its own level, below the shallow one's."""
    here = space(told, "propagate")
    start = here.candidate("margin", (0, 1), (0.9, 0.95))
    best = here.polished(start, 0.0)
    assert list(best.policy.thresholds) == pytest.approx([0.8, 0.9])
    assert (best.loss, best.depth) == (0.0, (2 * LAYERS[0] + LAYERS[1] + NUM_LAYERS) / 4)
    assert best.seconds < start.seconds


def test_candidates_count_what_is_wrong(told: ScoredTokens) -> None:
    """By the deep exit alone, everything leaving there: one wrong token of six."""
    found = space(told, "deferred", 4).all()
    [each] = [each for each in found if each.policy.layers == LAYERS[1:] and each.policy.thresholds == (0.0,)]
    assert each.loss == pytest.approx(1 / 6)
    assert each.depth == LAYERS[1]


@pytest.mark.parametrize(
    ("agreed", "sure", "share"), [([1, 1, 0, 1], 0.75, 1.0), ([1, 1, 0, 0], 0.9, 0.5), ([0, 1, 1, 1], 0.9, 0.0)]
)
def test_most_that_may_leave(agreed: Sequence[int], sure: float, share: float) -> None:
    scores = np.array([0.9, 0.8, 0.7, 0.6], np.float32)
    assert most_leaving(scores, np.array(agreed, np.bool_), sure) == share


def test_equal_scores_leave_together() -> None:
    scores = np.array([0.9, 0.9, 0.5], np.float32)
    assert most_leaving(scores, np.array([1, 0, 1], np.bool_), 0.9) == 0.0


def test_a_timed_answer_is_the_engines_own(settled: LoadedModel, scored: ScoredTokens) -> None:
    """Tokens, depths and counts of one run."""
    full = [answer.token_ids.tolist() for answer in answer_all(rig(settled, GREEDY), prompts(4), None, silent)]
    sample = Contestant(settled, Setting(policy(scored, "propagate")), streams=4).run(prompts(4), NEW_TOKENS)
    assert sample.token_ids == full
    assert [len(layers) for layers in sample.layers] == [len(token_ids) for token_ids in full]
    left = [layer for layers in sample.layers for layer in layers if layer < NUM_LAYERS]
    assert {layers[0] for layers in sample.layers} == {NUM_LAYERS}
    assert sample.counts.propagated == len(left) > 0
    assert sample.decoded == sum(map(len, full)) - 4
    assert 0 < sample.first < sample.total
    assert 0 < sample.counts.run_s < sample.counts.step_s < sample.decode_s * 1.01
