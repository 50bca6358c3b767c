"""What is tried keeps the promise, and is no more than makes sense."""

from __future__ import annotations

from dataclasses import replace

import pytest

from offramp.bench.run.method import Method
from offramp.bench.tune.candidates import lengths, limits, plain, structures
from offramp.draft.length import LENGTHS
from offramp.llm.model_flags import ModelFlags
from tests.bench.tune.simulated import space


def options(methods: list[Method]) -> dict[str, dict[str, object]]:
    return {method.name: method.options for method in methods}


def test_by_itself_only_what_needs_no_weights_is_tried() -> None:
    assert options(structures(space())) == {
        "auto": {"draft": "auto"},
        "ngram": {"draft": "ngram"},
        "suffix": {"draft": "suffix"},
    }
    assert space().plain.options == {"draft": "off"}


def test_packs_bring_their_drafters_and_auto_has_all_of_them() -> None:
    packs = {"exits": "smollm2-135m", "drafter": "d", "draft_model": "m"}
    found = options(structures(space(**packs)))
    assert found["auto"] == {"draft": "auto", **packs}
    assert found["eagle"] == {"draft": "eagle", "drafter": "d"}
    assert found["early_exit"] == {"draft": "early_exit", "exits": "smollm2-135m"}
    assert found["model"] == {"draft": "model", "draft_model": "m"}
    assert "calibrated" not in found


def test_all_are_lossless_unless_a_risk_is_given() -> None:
    packs = {"exits": "smollm2-135m", "drafter": "d", "draft_model": "m"}
    assert {method.flags.mode for method in structures(space(**packs))} == {"lossless"}
    found = options(structures(space(**packs, risk=0.05)))
    assert found["calibrated"] == {"mode": "calibrated", "exits": "smollm2-135m", "risk": 0.05}


def test_each_format_has_every_structure_and_plain_decoding_of_its_own() -> None:
    found = options(structures(space(formats=("q8", "q4"), common=ModelFlags(weights="q8", kv="f32"))))
    assert list(found) == ["auto", "ngram", "suffix", "plain q4", "auto q4", "ngram q4", "suffix q4"]
    assert found["suffix"] == {"draft": "suffix", "weights": "q8", "kv": "f32"}
    assert found["suffix q4"] == {"draft": "suffix", "weights": "q4", "kv": "f32"}
    assert found["plain q4"] == {"draft": "off", "weights": "q4", "kv": "f32"}


def test_lengths_change_one_thing_each() -> None:
    suffix = structures(space())[2]
    found = options(lengths(suffix))
    assert found["suffix max_draft=4"] == {"draft": "suffix", "max_draft": 4}
    assert found["suffix draft_length=fixed"] == {"draft": "suffix", "draft_length": "fixed"}
    assert len(found) == 2 + len(LENGTHS) - 1


def test_what_drafts_nothing_has_no_lengths() -> None:
    calibrated = structures(space(exits="smollm2-135m", risk=0.05))[-1]
    assert lengths(space().plain) == lengths(calibrated) == []


@pytest.mark.parametrize(("num_cpus", "threads"), [(1, []), (2, [1]), (16, [8, 4, 2, 1]), (6, [3, 1])])
def test_threads_are_halved(num_cpus: int, threads: list[int]) -> None:
    within = space(num_cpus=num_cpus)
    assert [method.flags.threads for method in limits(within.plain, within)] == threads


def test_given_threads_stay() -> None:
    within = space(common=ModelFlags(threads=2), num_cpus=8)
    assert limits(within.plain, within) == []


@pytest.mark.parametrize(("streams", "at_once"), [(2, [1]), (8, [4, 2]), (32, [32, 8])])
def test_limits_of_a_batch_are_tried_where_there_is_one(streams: int, at_once: list[int]) -> None:
    within = space(streams=streams, num_cpus=1)
    found = limits(within.plain, within)
    wanted = [count for count in at_once if count > 1]
    assert [method.flags.max_num_seqs for method in found if method.flags.max_num_seqs != "16"] == wanted
    assert [method.flags.max_num_batched_tokens for method in found[len(wanted) :]] == [128, 256, 1024]


def test_all_of_them_are_options_of_a_server() -> None:
    within = space(streams=8, num_cpus=8, drafter="d", draft_model="m")
    for structure in [plain(within, "auto"), *structures(within)]:
        for method in [structure, *lengths(structure), *limits(structure, within)]:
            assert replace(ModelFlags(), **method.options).start("toy").model == "toy"  # type: ignore[arg-type]
