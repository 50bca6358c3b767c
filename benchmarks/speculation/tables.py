"""Tables of methods beside plain decoding, from the lines of a run. `main` are the methods told task by task."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from benchmarks.page import Json, ratio_text, table
from benchmarks.speculation.explain import explain
from benchmarks.speculation.summary import ALL

SHOWN_POSITIONS = 10


def targets_table(lines: Sequence[Json]) -> str:
    """What was asked and reached, and why what was missed was."""
    head = ("what", "decode", "end to end", "target", "met", "stretch", "met")
    rows = []
    for line in lines:
        asked = "1 or better" if line["target"] is None else f"at least {line['target']:g}"
        met = _yes(line["met"]) + (" (a wide interval)" if line["met"] and not line.get("narrow", True) else "")
        decode, end = ratio_text(line["ratio"]), ratio_text(line["end_to_end"])
        stretch = ("", "") if line["stretch"] is None else (f"{line['stretch']:g}", _yes(line["stretch_met"]))
        rows.append((line["what"], decode, end, asked, met, *stretch))
    missed = [explain(line) for line in lines if not line["met"]]
    return table(head, rows) + ("\n" + "\n".join(missed) + "\n" if missed else "")


def methods_table(lines: Sequence[Json]) -> str:
    """Speeds and acceptance of all."""
    head = ("task", "method", "decode", "end to end", "plain", "drafting", "tokens a step")
    more = ("accepted / drafted", "mean acceptance length")
    rows = []
    for line in by_task(lines):
        speeds = (f"{line['plain_tokens_per_s']:.0f} tokens/s", f"{line['tokens_per_s']:.0f} tokens/s")
        counts = f"{line['num_accepted_tokens']} / {line['num_draft_tokens']}{_percent(line)}"
        length = "" if line["mean_acceptance_length"] is None else f"{line['mean_acceptance_length']:.2f}"
        ratios = ratio_text(line["ratio"]), ratio_text(line["end_to_end"])
        rows.append((line["task"], line["method"], *ratios, *speeds, f"{line['tokens_per_step']:.2f}", counts, length))
    return table((*head, *more), rows)


def positions_table(lines: Sequence[Json], main: Collection[str]) -> str:
    """How many of the tokens at each position of a draft stood."""
    chosen = [line for line in _chosen(lines, main) if line["num_drafts"]]
    deepest = max((len(line["num_draft_tokens_per_pos"]) for line in chosen), default=0)
    count = min(SHOWN_POSITIONS, deepest)
    rows = []
    for line in by_task(chosen):
        pairs = list(zip(line["num_accepted_tokens_per_pos"], line["num_draft_tokens_per_pos"], strict=True))[:count]
        cells = [f"{accepted / drafted:.0%} of {drafted}" if drafted else "" for accepted, drafted in pairs]
        rows.append((line["task"], line["method"], *cells, *[""] * (count - len(cells))))
    intro = "Accepted of the tokens drafted at each position after the last token; a tree may have several at one.\n\n"
    return intro + table(("task", "method", *map(str, range(1, count + 1))), rows)


def shares_table(lines: Sequence[Json], streams: Sequence[Json], main: Collection[str]) -> str:
    """Drafting, executor and all else."""
    head = ("task", "method", "draft, ms", "run, ms", "rest, ms", "plain step: draft, run, rest, ms")
    rows = []
    together = [line | {"task": f"{line['streams']} streams"} for line in streams]
    for line in [*by_task(_chosen(lines, main)), *together]:
        cells = [f"{line['ms_per_step'][part]:.3f}" for part in ("draft", "run", "rest")]
        plain = ", ".join(f"{line['plain_ms_per_step'][part]:.3f}" for part in ("draft", "run", "rest"))
        rows.append((line["task"], line["method"], *cells, plain))
    return table(head, rows)


def predictions_table(lines: Sequence[Json], costs: Sequence[Json], main: Collection[str]) -> str:
    """What the cost model said beside what came."""
    text = ""
    for line in costs:
        cells = [f"{rows} rows {ms:.2f}" for rows, ms in line["ms_by_rows"].items()]
        text += (
            f"A step's cost at {line['context']} tokens of context, in ms, as the model began: {', '.join(cells)}.\n\n"
        )
    rows = [
        (
            line["task"],
            line["method"],
            f"{line['predicted']:.2f}",
            f"{line['executor_ratio']:.2f}",
            f"{line['ratio']['median']:.2f}",
        )
        for line in by_task(_chosen(lines, main))
        if line["predicted"] is not None
    ]
    return text + table(("task", "method", "predicted", "executor", "decode"), rows)


def streams_text(line: Json) -> str:
    """Many at once, in a sentence."""
    rates = (
        f"{line['plain_tokens_per_s']:.0f} tokens/s plain, {line['tokens_per_s']:.0f} tokens/s with `{line['method']}`"
    )
    return (
        f"{line['streams']} prompts of all tasks at once, {line['rounds']} rounds: {rates} once all have their first "
        f"token, {ratio_text(line['ratio'])} times; end to end {ratio_text(line['end_to_end'])}. "
        f"{line['num_accepted_tokens']} of {line['num_draft_tokens']} draft tokens were accepted.\n"
    )


def by_task(lines: Sequence[Json]) -> list[Json]:
    """Lines of one task together, tasks and lines in the order in which they came."""
    order = list(dict.fromkeys(line["task"] for line in lines))
    return sorted(lines, key=lambda line: order.index(line["task"]))


def _chosen(lines: Sequence[Json], main: Collection[str]) -> list[Json]:
    """Main methods in each task, the other ones in all together."""
    return [line for line in lines if line["method"] in main or line["task"] == ALL]


def _percent(line: Json) -> str:
    drafted = line["num_draft_tokens"]
    return f" ({line['num_accepted_tokens'] / drafted:.0%})" if drafted else ""


def _yes(value: bool) -> str:
    return "yes" if value else "no"
