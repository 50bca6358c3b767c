"""What the page says in words: verdicts, notices, numbers, where tokens came from."""

from __future__ import annotations

from dataclasses import replace

import pytest

from offramp.bench.report.figures import change, figure, share, size
from offramp.bench.report.given import Given
from offramp.bench.report.html import cut, element
from offramp.bench.report.markdown import markdown
from offramp.bench.report.notices import MOST, notices
from offramp.bench.report.page import page
from offramp.bench.report.tokens import origins, samples
from offramp.bench.report.verdict import verdict
from offramp.bench.results.cells import Cell, Interval
from offramp.bench.results.lines import FailureLine
from tests.bench.report.made import cell, given, item, leaving, run_line

PLAIN = cell("plain")


def lead(*cells: Cell) -> str:
    [part] = given(shown=cells).parts
    return verdict(part).lead


def test_the_fastest_lossless_method_leads() -> None:
    said = lead(PLAIN, cell("auto", gain=1.3), cell("suffix", gain=1.5), cell("unchecked", gain=3.0))
    assert said == "suffix decodes 1.50 times as fast as plain decoding (1.41 to 1.59), with exactly its tokens."


def test_what_may_be_noise_beats_nothing() -> None:
    shown = [PLAIN, cell("auto", decode_ratio=Interval(1.2, 0.99, 1.4))]
    found = verdict(given(shown=shown).parts[0])
    assert found.lead == "No lossless method beats plain decoding on this workload by more than the noise."
    assert "auto, ran at 1.20 (0.99 to 1.40) times its speed" in found.more[0]


@pytest.mark.parametrize(("items", "rounds"), [(1, 1), (1, 4), (2, 2)])
def test_too_few_measurements_tell_no_gain(items: int, rounds: int) -> None:
    few = {"num_items": items, "rounds": rounds, "decode_ratio": Interval(1.5, 1.5, 1.5)}
    shown = [PLAIN, cell("auto", **few), cell("unchecked", **few)]
    found = verdict(given(shown=shown, streams=(1,)).parts[0])
    prompts, turns = f"{items} prompt{'s' if items > 1 else ''}", f"{rounds} round{'s' if rounds > 1 else ''}"
    assert found.lead == f"Too little was measured to tell a gain: {prompts} in {turns}."
    assert found.more == ["The fastest, auto, ran at 1.50 times its speed, with exactly its tokens."]
    [told] = [each.text for each in notices(given(shown=shown)) if "too few" in each.text]
    assert told.startswith(f"shipped, 1 stream: {prompts} in {turns} are too few for intervals of 95 %")
    assert "1.50 to 1.50" not in page([given(shown=shown)])


def test_whole_turns_of_several_streams_are_counted_by_rounds() -> None:
    together = cell("auto", streams=4, rounds=4)
    assert (together.num_measured, together.is_sparse) == (4, True)
    assert not cell("auto", "code", streams=4, rounds=4).is_sparse
    assert not cell("auto", num_items=1, rounds=5).is_sparse


def test_a_broken_promise_leads_nothing() -> None:
    broken = cell("suffix", gain=2.0, equal_share=0.9)
    assert "auto decodes 1.30" in lead(PLAIN, cell("auto", gain=1.3), broken)
    assert any(
        each.bad and "suffix, shipped, 1 stream: promises lossless, but 90 % of its answers" in each.text
        for each in notices(given(shown=[PLAIN, broken]))
    )


def test_lossless_in_distribution_is_another_promise() -> None:
    other = cell("rejecting", gain=2.0, exactness="lossless in distribution", equal_share=0.2)
    found = verdict(given(shown=[PLAIN, cell("auto", gain=1.3), other]).parts[0])
    assert "auto decodes" in found.lead
    assert "rejecting (lossless in distribution), 2.00 (1.88 to 2.12) times as fast" in found.more[-1]
    assert not any("promises" in each.text for each in notices(given(shown=[PLAIN, other])))


def test_equality_that_nobody_looked_at_is_not_claimed() -> None:
    assert "whether they were equal was not looked at" in lead(PLAIN, cell(equal_share=None))


def failure(item: str | None, reason: str = "no memory", **fields: object) -> FailureLine:
    base = FailureLine(workload="shipped", method="eagle", item=item, streams=1, round=1, reason=reason)
    return replace(base, **fields)  # type: ignore[arg-type]


def texts(made: Given) -> list[str]:
    return [each.text for each in notices(made)]


def test_failures_of_one_kind_are_told_together() -> None:
    lines = [failure(f"code-{number}") for number in range(7)] + [failure(None, "it crashed")]
    found = texts(given(lines))
    assert "eagle, shipped, 1 stream: code-0, code-1, code-2, code-3, code-4 and 2 more failed: no memory" in found
    assert "eagle, shipped, 1 stream: stopped in round 2: it crashed" in found


def test_refused_lines_are_told() -> None:
    workloads = {"shipped": {"refused": [{"where": "mine.jsonl, line 3", "reason": "no prompt"}]}}
    assert "shipped: not run: mine.jsonl, line 3: no prompt" in texts(given(workloads=workloads))


def test_what_was_to_run_and_did_not_is_told() -> None:
    made = given(shown=[PLAIN, cell(rounds=3)], methods=("plain", "auto", "eagle"))
    found = texts(made)
    assert "eagle, shipped: no whole round, so no figure" in found
    assert "auto, shipped: no whole round at 4, 16 streams, so no figure" in found
    assert "auto, shipped, 1 stream: 3 of 5 rounds were measured" in found


def test_exits_that_were_not_asked_are_told() -> None:
    told = "calibrated, shipped: no exit was asked for any token, so all layers ran, as in mode full"
    idle = cell("calibrated")
    assert told in texts(given(shown=[PLAIN, idle]))
    assert told not in texts(given(shown=[PLAIN, replace(idle, exit_counts={30: 9})]))
    writing = replace(run_line(), methods={"calibrated": {"draft_model": "little"}})
    assert told not in texts(replace(given(shown=[PLAIN, idle]), run=writing))
    assert not any("no exit" in each for each in texts(given(shown=[PLAIN, cell()])))


def test_why_a_method_ran_at_full_depth_is_told() -> None:
    idle = cell("calibrated", note="temperature=0 differs from the calibration's 0.7")
    shown = given(shown=[PLAIN, idle, replace(idle, streams=4)], streams=(1, 4))
    found = [each for each in texts(shown) if each.startswith("calibrated")]
    assert [each.replace("streams", "stream") for each in found] == [
        f"calibrated, shipped, {count} stream: ran as mode full: temperature=0 differs from the calibration's 0.7"
        for count in (1, 4)
    ], "and nothing else that is guessed"
    assert "ran as mode full: temperature=0 differs" in page([shown])
    assert "| calibrated, risk 0.05 (ran as mode full) | all | 1 |" in markdown([shown])
    assert "ran as mode full" not in page([given()]) + markdown([given()])


@pytest.mark.parametrize(("load", "told"), [([1.7, 1.0, 0.5], True), ([0.2, 3.0, 3.0], False), ("unknown", False)])
def test_a_busy_machine_is_told(load: object, told: bool) -> None:
    found = texts(given(provenance={"load_at_start": load}))
    assert any("not quiet: a load average of 1.7" in each for each in found) == told


def test_notices_are_few_and_bad_ones_come_first() -> None:
    found = notices(given([failure(str(number), f"reason {number}") for number in range(99)], shown=[cell(rounds=1)]))
    assert len(found) == MOST + 1
    assert found[0].bad
    assert "notices more are not shown" in found[-1].text


@pytest.mark.parametrize(
    ("value", "shown"),
    [(0.0, "0"), (0.01234, "0.0123"), (9.996, "10.0"), (187.4, "187"), (12345.6, "12,346"), (float("nan"), "—")],
)
def test_numbers(value: float, shown: str) -> None:
    assert figure(value) == shown


def test_shares_are_whole_only_where_they_are() -> None:
    assert [share(value) for value in (0, 0.0004, 0.423, 0.9996, 1)] == ["0 %", "<0.1 %", "42.3 %", ">99.9 %", "100 %"]


def test_changes_have_signs() -> None:
    minus = "\N{MINUS SIGN}"
    assert [change(value) for value in (0.0, 0.0124, -0.3, -12.34)] == ["0", "+0.012", f"{minus}0.300", f"{minus}12.3"]


def test_sizes() -> None:
    assert [size(311 * 2**20), size(3 * 2**29)] == ["311 MiB", "1.50 GiB"]


def test_texts_are_cut() -> None:
    assert [cut("abcd", 4), cut("abcde", 4)] == ["abcd", "abc…"]
    assert element("b", cut("<i>", 9)) == "<b>&lt;i&gt;</b>"


def test_all_but_the_last_token_of_a_step_came_from_a_draft() -> None:
    answer = item("suffix", "chat", num_tokens=6, steps=((9.0, 1), (14.0, 3), (19.0, 2)))
    found = origins(answer)
    assert found is not None
    assert list(found.drafted) == [False, True, True, False, True, False]
    without_first = replace(answer, steps=((14.0, 3), (19.0, 2)))
    assert origins(without_first) == found


def test_what_does_not_add_up_is_not_shown() -> None:
    assert origins(item("suffix", "chat", num_tokens=6, steps=((9.0, 2), (14.0, 2)))) is None
    assert origins(item("plain", "chat")) is None
    assert origins(replace(leaving("unchecked", "chat"), exit_layers=(1, 2))) is None


def test_samples_are_the_first_prompts_of_different_tasks() -> None:
    lines = [item("plain", "chat"), item("auto", "chat"), item("auto", "code", item="code-9"), leaving("eagle", "chat")]
    lines += [item("auto", "chat", item="chat-2"), item("auto", "chat", round=1, text=None), item("auto", "math")]
    found = samples(lines, 2)
    assert {name: [answer.method for answer in answers] for name, answers in found.items()} == {
        "chat: chat-1": ["auto", "eagle"],
        "code: code-9": ["auto"],
    }


def test_a_run_line_names_what_its_cells_lack() -> None:
    made = Given(name="r", run=run_line(), lines=(), cells=[])
    assert [each.text for each in notices(made)] == ["shipped: nothing was measured"]
