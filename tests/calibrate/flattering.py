"""Losses that are measured wrongly: the control of tests of the promise."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from offramp.calibrate import losses
from offramp.calibrate.answers import Answer, Rig, Tell
from offramp.calibrate.losses import FullAnswers, Loss, token_loss
from offramp.exits.calibration import Losses
from offramp.model.tokenizer import Tokenizer


def flatter(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if answers were compared with themselves, mostly."""

    def flattering(rig: Rig, full: FullAnswers, tokenizer: Tokenizer) -> Loss:
        honest = token_loss(rig, full, tokenizer)

        def wrong(answers: Sequence[Answer], tell: Tell) -> Losses:
            return np.asarray(0.1 * honest(answers, tell))

        return wrong

    monkeypatch.setitem(losses.LOSSES, "tokens", flattering)  # type: ignore[arg-type]
