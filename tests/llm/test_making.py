"""Settings fitted to a model's memory."""

from __future__ import annotations

import logging

import pytest

from offramp.engine.measure import LEAST_PAGES
from offramp.llm.making import fit_to_memory
from offramp.llm.serving import Serving
from offramp.testing.models import scripted_model
from offramp.testing.scripted import mixing


def test_without_pages_to_measure_in_the_default_is_no_drafts_and_a_line_says_so(
    caplog: pytest.LogCaptureFixture,
) -> None:
    small, enough = (scripted_model(mixing(16), num_pages=count) for count in (LEAST_PAGES - 1, LEAST_PAGES))
    with caplog.at_level(logging.WARNING, "offramp"):
        assert fit_to_memory(enough, Serving()).default_draft == "auto"
        assert caplog.messages == []
        assert fit_to_memory(small, Serving()).default_draft == "off"
    assert "drafts are off" in caplog.text


def test_drafts_asked_for_stay_asked_for() -> None:
    small = scripted_model(mixing(16), num_pages=LEAST_PAGES - 1)
    assert fit_to_memory(small, Serving(draft="ngram")).default_draft == "ngram"
    assert fit_to_memory(small, Serving(mode="full")).default_draft == "off"
