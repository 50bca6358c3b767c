"""The page's tables."""

from __future__ import annotations

from collections.abc import Sequence

from benchmarks.page import Json, ratio_text, table, yes

SHOWN_TRIED = 6
"""Of a cell's tried settings, besides the chosen one."""


def target_table(lines: Sequence[Json]) -> str:
    head = ("what", "gain", "target", "exact match: full depth, early", "points", "met")
    rows = []
    for line in lines:
        exact = f"{line['full_exact']:.1%}, {line['exact']:.1%}"
        target = f"at least {line['target']:g}"
        rows.append((line["what"], ratio_text(line["ratio"]), target, exact, _points(line), yes(line["met"])))
    missed = [_explain(line) for line in lines if not line["met"]]
    return table(head, rows) + ("\n" + "\n".join(missed) + "\n" if missed else "")


def cell_table(cells: Sequence[Json], versus: Sequence[Json]) -> str:
    head = ("streams, batch, fill", "setting", "gain", "predicted", "full, early, tokens/s", "exact match: full, early")
    more = ("points", "mean depth", "rows asked, heads, paid, projected, held a token")
    rows = []
    for line in cells:
        rates = f"{line['full_tokens_per_s']:.0f}, {line['tokens_per_s']:.0f}"
        exact = f"{line['full_exact']:.1%}, {line['exact']:.1%}"
        setting = policy_text(line["policy"]) + ("" if line["chosen_within"] else " (none kept the point)")
        ratio = _ratio(line["ratio"])
        counts = ", ".join(f"{line[name]:.2f}" for name in ("asked", "headed", "paid", "propagated", "stays"))
        told = (line["cell"], setting, ratio, f"{line['predicted']:.2f}", rates, exact, _points(line))
        rows.append((*told, f"{line['depth']:.1f}", counts))
    text = table((*head, *more), rows)
    for line in versus:
        if line["ratio"]:
            text += f"\n{line['streams']} streams: `compact` over the literal barrier {ratio_text(line['ratio'])}.\n"
    return text


def sweep_table(lines: Sequence[Json]) -> str:
    """The chosen one and the fastest others of each cell."""
    head = ("streams, batch, fill", "setting", "gain", "predicted", "exact match", "points", "mean depth")
    rows = []
    for cell in dict.fromkeys(line["cell"] for line in lines):
        own = sorted((line for line in lines if line["cell"] == cell), key=_speed, reverse=True)
        others = [line for line in own if not line["chosen"]][:SHOWN_TRIED]
        for line in [line for line in own if line["chosen"] or line in others]:
            lost = f"{100 * (line['exact'] - line['full_exact']):+.1f}"
            setting = policy_text(line["policy"]) + (" **chosen**" if line["chosen"] else "")
            gain, exact = f"{_speed(line):.2f}", f"{line['exact']:.1%}"
            rows.append((cell, setting, gain, f"{line['predicted']:.2f}", exact, lost, f"{line['depth']:.1f}"))
    full = lines[0]["full_exact"]
    intro = f"Full depth's exact match on these pairs is {full:.1%}. Gains are of one round: good for choosing, not "
    return intro + "more.\n\n" + table(head, rows)


def default_table(lines: Sequence[Json]) -> str:
    head = ("risk", "policy", "streams", "gain", "predicted", "loss", "mean depth", "full, early, tokens/s")
    rows = []
    for line in lines:
        what = f"{line['what']}: {policy_text(line['policy'])}, {line['policy']['fill']}"
        rates = f"{line['full_tokens_per_s']:.0f}, {line['tokens_per_s']:.0f}"
        told = (f"{line['risk']:g}", what, str(line["streams"]), _ratio(line["ratio"]), f"{line['predicted']:.2f}")
        rows.append((*told, f"{line['loss']:.3f}", f"{line['depth']:.1f}", rates))
    return table(head, rows)


def verdict(lines: Sequence[Json]) -> str:
    """In a sentence, whether any of it pays and stays below its risk."""
    paying = [line for line in lines if line["ratio"] and line["ratio"]["low"] > 1]
    kept = [line for line in paying if line["loss"] <= line["risk"]]
    if kept:
        best = max(kept, key=_speed)
        return (
            f"At its best, {policy_text(best['policy'])} at {best['streams']} streams and risk {best['risk']:g}, this "
            f"model gains {ratio_text(best['ratio'])} on general prompts.\n\n"
        )
    beyond = "" if not paying else " What is faster lost more than its risk on prompts that did not choose it."
    return (
        f"**General chat gains nothing on this model**: no setting at these risks is surely faster than full depth and "
        f"keeps to its risk.{beyond} Where an entry does not pay, calibration says so, and the engine runs full "
        "depth.\n\n"
    )


def agreement_table(lines: Sequence[Json]) -> str:
    text = (
        "Tokens of full depth's own answers on which an exit's likeliest token is the same; and, by measure, the most\n"
    )
    text += "tokens that could leave there so that so many of those agree (thresholds chosen with hindsight).\n"
    for line in lines:
        names = list(line["exits"][0]["leaving"])
        sures = list(line["exits"][0]["leaving"][names[0]])
        head = (
            "exit after",
            "agree",
            *(f"{name.replace('_', ' ')}, {float(sure):.0%}" for name in names for sure in sures),
        )
        rows = [
            (
                str(each["layer"]),
                f"{each['agree']:.1%}",
                *(f"{each['leaving'][name][sure]:.1%}" for name in names for sure in sures),
            )
            for each in line["exits"]
        ]
        text += f"\n**{line['model']}**, {line['tokens']} tokens:\n\n" + table(head, rows)
    return text


def ladder_table(lines: Sequence[Json]) -> str:
    """Gains, a row a model, threshold, batch policy and fill; a column a number of streams."""
    streams = sorted({line["streams"] for line in lines})
    found: dict[tuple[str, ...], dict[int, Json]] = {}
    for line in lines:
        policy = line["policy"]
        key: tuple[str, ...] = (line["model"], policy_text(policy), line["step"], line["batching"], policy["fill"])
        found.setdefault(key, {})[line["streams"]] = line
    gains = [f"gain at {count}: measured, predicted" for count in streams]
    rows: list[tuple[str, ...]] = []
    for key, by_streams in found.items():
        cells = ["" if count not in by_streams else _gains(by_streams[count]) for count in streams]
        rows.append((*key, *cells, _depth(by_streams)))
    intro = "One round each: differences of a few per cent are noise. Depths are the mean layers of a token.\n\n"
    return intro + table(("model", "setting", "threshold", "batch", "fill", *gains, "mean depth"), rows)


def cost_table(lines: Sequence[Json]) -> str:
    """What predictions are made of."""
    names = list(dict.fromkeys(name for line in lines for ms in line["ms_by_rows"].values() for name in ms))
    rows = [
        (line["model"], count, *(f"{ms[name]:.3f}" if name in ms else "" for name in names))
        for line in lines
        for count, ms in line["ms_by_rows"].items()
    ]
    intro = "Costs by rows in ms: a layer; a call of any range; the model's head; asking at an exit point (head,\n"
    intro += "measure and decision; the mean of all of them); projecting a layer's K/V; all of a step outside the\n"
    intro += "executor; predictors.\n\n"
    return intro + table(("model", "rows", *names), rows)


def policy_text(policy: Json) -> str:
    """Exits with their thresholds, and the measure."""
    pairs = zip(policy["layers"], policy["thresholds"], strict=True)
    exits = ", ".join(f"{layer}: {_threshold(value)}" for layer, value in pairs)
    gate = "" if policy["predictor"] == "none" else f", behind {policy['predictor']}"
    return f"{policy['measure'].replace('_', ' ')} {exits}{gate}"


def _threshold(value: float) -> str:
    if value == 0:
        return "all"
    return "none" if value > 1 else f"{value:.4g}"


def _explain(line: Json) -> str:
    reasons = []
    if line["ratio"]["median"] < line["target"]:
        predicted = f"; the cost model predicted {line['predicted']:.2f}" if "predicted" in line else ""
        reasons.append(f"it gained {line['ratio']['median']:.2f} where {line['target']:g} was asked for{predicted}")
    if not line["within"]:
        reasons.append(f"it lost {-line['points']['median']:.1f} points of exact match on these pairs")
    return f"* {line['what']}: {', and '.join(reasons)}."


def _gains(line: Json) -> str:
    ratio = line["ratio"]
    return f"{ratio['median']:.2f}, {line['predicted']:.2f}" if ratio else ""


def _depth(by_streams: dict[int, Json]) -> str:
    return ", ".join(f"{line['depth']:.1f}" for _, line in sorted(by_streams.items()))


def _points(line: Json) -> str:
    points = line["points"]
    return f"{points['median']:+.1f} ({points['low']:+.1f} to {points['high']:+.1f})"


def _ratio(ratio: Json | None) -> str:
    return ratio_text(ratio) if ratio else "nothing decoded"


def _speed(line: Json) -> float:
    return float(line["ratio"]["median"]) if line["ratio"] else 0.0
