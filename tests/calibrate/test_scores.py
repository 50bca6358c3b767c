"""Scores of tuning tokens are those that a policy sees in the engine, and agreement is about the token drawn."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pytest
from numpy.typing import NDArray

from offramp.calibrate.answers import answer_all
from offramp.calibrate.scores import SIMILARITY, score_tokens
from offramp.core import SamplingParams, SequenceKey
from offramp.exits.measures import MEASURES
from offramp.exits.policy import ExitRows
from offramp.exits.similarity import Similarity
from offramp.model.executor import HeadId
from offramp.testing.exits import ScriptedExits
from offramp.testing.packs import random_pack
from tests.calibrate.settling import (
    CONFIG,
    DRAWN,
    GREEDY,
    LAYERS,
    MODEL_HASH,
    VOCAB,
    prompts,
    rig,
    settling_model,
    silent,
)

Place = tuple[SequenceKey, int, int]
"""(sequence, output, layer)."""


class Recording(ScriptedExits):
    """Lets nothing leave, and keeps every score it could have had."""

    def __init__(self, heads: Mapping[int, HeadId]) -> None:
        super().__init__(LAYERS, lambda key, output, layer: False, wants_previous=True)
        self.scores: dict[Place, dict[str, float]] = {}
        self._heads = heads

    def head(self, layer: int) -> HeadId:
        return self._heads[layer]

    def decide(self, rows: ExitRows) -> NDArray[np.bool_]:
        summary = rows.summary(list(range(len(rows))))
        assert rows.previous is not None
        found = {name: measure(summary) for name, measure in MEASURES.items()}
        found[SIMILARITY] = Similarity().scores(rows.hidden.numpy(), rows.previous.numpy())
        for row, (key, output) in enumerate(zip(rows.keys, rows.outputs.tolist(), strict=True)):
            self.scores[key, output, rows.layer] = {name: float(values[row]) for name, values in found.items()}
        return super().decide(rows)


@pytest.mark.parametrize("params", [GREEDY, DRAWN], ids=["greedy", "drawn"])
def test_scores_are_those_that_a_policy_sees(params: SamplingParams) -> None:
    ids = np.arange(0, VOCAB, 2, dtype=np.int32)
    loaded = settling_model(0.7, random_pack(CONFIG, model=MODEL_HASH, layers=LAYERS, vocab_ids=ids))
    assert loaded.exits is not None
    recording = Recording(loaded.exits.heads)
    here = rig(loaded, params, {"recording": recording})
    answers = answer_all(here, prompts(9), "recording", silent)
    scored = score_tokens(here, loaded.exits, answers, silent)
    token = 0
    for number, answer in enumerate(answers):
        for output in range(len(answer)):
            assert scored.prompts[token] == number
            assert scored.asked[token] == (output > 0)
            for exit_, layer in enumerate(LAYERS):
                seen = recording.scores.get(((str(number), 0), output, layer), {})
                for name in MEASURES:
                    assert scored.measures[name][token, exit_] == pytest.approx(
                        seen.get(name, np.nan), abs=0, nan_ok=True
                    )
                here_similar = scored.predictors[SIMILARITY][token, exit_]
                assert here_similar == pytest.approx(seen.get(SIMILARITY, np.nan), abs=0, nan_ok=True)
            token += 1
    assert token == len(scored.asked)


@pytest.mark.parametrize("params", [GREEDY, DRAWN], ids=["greedy", "drawn"])
def test_what_agrees_is_the_token_that_the_exit_would_draw(params: SamplingParams) -> None:
    """Each exit alone, taken at one place, draws full depth's token there exactly if it is said to agree."""
    loaded = settling_model(0.7)
    assert loaded.exits is not None
    full = answer_all(rig(loaded, params), prompts(6), None, silent)
    scored = score_tokens(rig(loaded, params), loaded.exits, full, silent)
    starts = np.concatenate([[0], np.cumsum([len(answer) for answer in full])])
    kinds = set()
    for exit_, layer in enumerate(LAYERS):
        for place in (1, 4, 7):
            once = ScriptedExits(
                LAYERS, lambda key, output, at, place=place, layer=layer: (output, at) == (place, layer)
            )
            early = answer_all(rig(loaded, params, {"once": once}), prompts(6), "once", silent)
            for number, (one, other) in enumerate(zip(early, full, strict=True)):
                if len(other) <= place:
                    continue
                same = one.token_ids[place] == other.token_ids[place]
                assert scored.agreed[starts[number] + place, exit_] == same
                kinds.add(bool(same))
    assert kinds == {True, False}
    assert not scored.agreed[starts[:-1]].any(), "no exit is asked about a first token"


def test_what_no_head_can_draw_agrees_with_nothing() -> None:
    loaded = settling_model(
        0.0, random_pack(CONFIG, model=MODEL_HASH, layers=LAYERS, kind="shared", vocab_ids=np.array([5], np.int32))
    )
    assert loaded.exits is not None
    here = rig(loaded, SamplingParams(temperature=0, max_tokens=8, logit_bias={5: -100.0}))
    answers = answer_all(here, prompts(4), None, silent)
    scored = score_tokens(here, loaded.exits, answers, silent)
    assert not scored.agreed.any()


def test_own_predictors_are_asked_where_the_pack_has_them() -> None:
    with_own = random_pack(CONFIG, model=MODEL_HASH, layers=LAYERS, predictors="mlp")
    for pack, names in ((with_own, {"pack", SIMILARITY}), (None, {SIMILARITY})):
        loaded = settling_model(1.0, pack)
        assert loaded.exits is not None
        here = rig(loaded)
        scored = score_tokens(here, loaded.exits, answer_all(here, prompts(3), None, silent), silent)
        assert scored.predictors.keys() == names
        for scores in scored.predictors.values():
            assert np.isfinite(scores[scored.asked]).all()
