"""docs/performance.md from the lines of one run. The page holds what was measured, and nothing by hand."""

from __future__ import annotations

from pathlib import Path

from benchmarks.page import Json, machine_line, ratio_text, read_results, table

PEER_NAMES = {
    "offramp": "offramp",
    "llama": "llama.cpp",
    "transformers": "transformers",
    "openvino": "OpenVINO GenAI",
    "onnxruntime": "ONNX Runtime GenAI",
    "vllm": "vLLM",
}

HEAD = """\
# Performance

offramp against other engines with nothing dynamic switched on: no drafts, no early exits, no cached prefixes. This page
is made by

```sh
python -m benchmarks.setup_peers    # once: an environment for each peer, and the model files
python -m benchmarks.peers --write-page
```

from the lines of one run, kept in [benchmarks/results](../benchmarks/results), of which `make pages` makes it again
without measuring. [benchmarks/README.md](../benchmarks/README.md) says how they are measured. Everybody computes on the
same number of threads, with the same prompt ids and numbers of tokens, greedy, end tokens ignored, loading excluded, in
turns within a round. A ratio is the median of the rounds' ratios of speeds with its 95 % bootstrap interval; above 1,
offramp is faster. *Met* looks at that median. *Decode* is from the first to the last token; *end to
end* (offramp / peer) adds the prompt. The weights of all derive from one checkpoint.
"""


def frame() -> str:
    """The page before anything is measured."""
    return HEAD + "\nNot measured on a quiet machine yet.\n"


def write_page(results: Path, page: Path) -> None:
    """Replace `page`."""
    lines = read_results(results)
    page.write_text(render(lines))


def render(lines: list[Json]) -> str:
    """The whole page."""
    assert lines, "no results"
    facts = lines[0]["provenance"]
    kinds = ("comparison", "rows", "bandwidth", "peer", "missing")
    by_kind: dict[str, list[Json]] = {kind: [line for line in lines if line["result"] == kind] for kind in kinds}
    parts = [HEAD, machine_line(facts), "## Speed\n\n" + _speed(by_kind["comparison"])]
    if by_kind["rows"]:
        parts.append("## Several rows in one call\n\n" + _rows(by_kind["rows"]))
    parts += [_bandwidth(line) for line in by_kind["bandwidth"]]
    parts.append("## Who took part\n\n" + _peers(by_kind["peer"], by_kind["missing"]))
    return "\n".join(parts)


def _speed(comparisons: list[Json]) -> str:
    head = ("what", "offramp", "peer", "offramp speed", "peer speed", "ratio", "target", "met", "end to end, s")
    rows = []
    for line in comparisons:
        ours, theirs = line["ours"], line["theirs"]
        totals = f"{ours['end_to_end_s']:.3f} / {theirs['end_to_end_s']:.3f}" if "end_to_end_s" in ours else ""
        rows.append(
            (
                line["title"],
                ours["weights"],
                f"{PEER_NAMES[theirs['peer']]} {theirs['weights']}",
                _rate(ours),
                _rate(theirs),
                ratio_text(line["ratio"]),
                _target(line, "at least"),
                "yes" if line["ratio"]["median"] >= line["target"] else "no",
                totals,
            )
        )
    return table(head, rows)


def _rows(lines: list[Json]) -> str:
    """Times of one row's time, an entrant a line, a row count a column."""
    counts = sorted({line["rows"] for line in lines})
    cells = {(line["peer"], line["weights"], line["rows"]): line for line in lines}
    rows = []
    for peer, weights in dict.fromkeys((line["peer"], line["weights"]) for line in lines):
        found = [cells.get((peer, weights, count)) for count in counts]
        texts = ["" if line is None else _times(line) for line in found]
        rows.append((f"{PEER_NAMES[peer]} {weights}", *texts))
    intro = "The time of a call, as a multiple of the time of one row; less is better.\n\n"
    return intro + table(("engine", *(f"{count} rows" for count in counts)), rows)


def _times(line: Json) -> str:
    text = ratio_text(line["times_one_row"])
    if line["target"] is None:
        return text
    return f"{text}, {_target(line, 'at most')}: {'met' if line['times_one_row']['median'] <= line['target'] else 'no'}"


def _bandwidth(line: Json) -> str:
    share = line["share"]
    verdict = "met" if share["median"] >= line["target"] else "not met"
    return (
        "## Memory bandwidth\n\n"
        f"The machine reads {line['median_gb_per_s']} GB/s ({min(line['gb_per_s'])} to {max(line['gb_per_s'])} over "
        f"the rounds); one q8 row reads {line['weight_bytes'] / 1e6:.1f} MB of weights and so reaches "
        f"{share['median']:.0%} of it ({share['low']:.0%} to {share['high']:.0%}); target "
        f"{line['target']:.0%}, stretch {line['stretch']:.0%}: {verdict}.\n"
    )


def _peers(peers: list[Json], missing: list[Json]) -> str:
    rows = []
    for line in peers:
        chosen = sorted({reply["variant"] for reply in line.get("variants", {}).values() if "variant" in reply})
        details = [line.get("flags", line.get("kernels", "")), f"K/V {line['kv']}", *chosen]
        name = f"{PEER_NAMES[line['peer']]} {line['weights']}"
        rows.append((name, line["version"], "; ".join(detail.replace("|", "/") for detail in details if detail)))
    text = table(("engine", "version", "what it says of itself, and what was chosen"), rows)
    for line in missing:
        text += f"\nMissing: {PEER_NAMES[line['peer']]} {line['weights']}, {line['reason']}.\n"
    return text


def _rate(side: Json) -> str:
    return f"{side['tokens_per_s']:.1f} tokens/s" if "tokens_per_s" in side else f"{side['median_ms']:.2f} ms"


def _target(line: Json, word: str) -> str:
    return f"{word} {line['target']:g}" + (f", stretch {line['stretch']:g}" if line["stretch"] else "")
