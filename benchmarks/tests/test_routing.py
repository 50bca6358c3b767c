"""Results of routers on outcomes whose truth is known: what is hard is seen, and what is noise is said to be."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.routing import data_file, measure, table, verdict
from offramp.collaborate.router.kind import Examples
from offramp.train.router.run import Parts
from tests.collaborate.prompts import examples

PARTS = Parts(taught=np.arange(0, 500, 2), judging=np.arange(1, 500, 2))


@pytest.fixture(scope="module")
def learnable() -> list[dict[str, object]]:
    return list(measure({3: examples(500)}, PARTS, 0))


def test_what_can_be_learned_reaches_the_target(learnable: list[dict[str, object]]) -> None:
    assert [each["kind"] for each in learnable][-1] == "random"
    assert [each["chosen"] for each in learnable] == [True, False, False, False, False]
    found = verdict(learnable)
    assert found["reached"]
    assert found["kind"] == learnable[0]["kind"]


def test_noise_does_not() -> None:
    assert not verdict(list(measure({3: examples(500, strength=0.0)}, PARTS, 0)))["reached"]


def test_quality_runs_from_one_model_to_the_other(learnable: list[dict[str, object]]) -> None:
    data: Examples = examples(500).take(PARTS.judging)
    for each in learnable:
        by_share = each["quality_by_share"]
        assert isinstance(by_share, dict)
        assert by_share["0"] == pytest.approx(data.outcomes.of("little").mean(), abs=1e-4)
        assert by_share["1"] == pytest.approx(data.outcomes.of("big").mean(), abs=1e-4)


def test_a_certificate_is_given_where_the_data_allow(learnable: list[dict[str, object]]) -> None:
    certified = learnable[0]["certified"]
    assert isinstance(certified, list)
    shares = [each["big_share"] for each in certified]
    assert shares == sorted(shares, reverse=True)
    assert shares[-1] < 1


def test_the_table_names_each_kind_once(learnable: list[dict[str, object]]) -> None:
    lines = table(learnable).splitlines()
    assert len(lines) == 7
    assert lines[2].startswith(f"| **{learnable[0]['kind']}** | 3 |")


def test_without_data_it_says_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OFFRAMP_DATA", raising=False)
    with pytest.raises(SystemExit, match="OFFRAMP_DATA is not set"):
        data_file()
