"""Errors tell their hint wherever they are shown, once."""

from __future__ import annotations

import pickle
import traceback

import pytest

from offramp import errors
from offramp.errors import InvalidRequestError, OfframpError, QueueFullError


def test_a_traceback_shows_the_hint_and_str_does_not() -> None:
    error = InvalidRequestError("x=1 is impossible", hint="x takes 2", param="x")
    assert traceback.format_exception(error)[1:] == ["hint: x takes 2\n"]
    assert str(error) == "x=1 is impossible"


@pytest.mark.parametrize("kind", [InvalidRequestError, QueueFullError, errors.NumericError])
def test_a_pickled_one_has_its_hint_once(kind: type[OfframpError]) -> None:
    copy = pickle.loads(pickle.dumps(kind("what", hint="do this")))
    assert (copy.message, copy.hint, copy.__notes__) == ("what", "do this", ["hint: do this"])
