"""What routers gain on recorded outcomes: which prompts need the strong model, said from a small model's states alone.

Outcomes are those of two models on grade-school mathematics (`router_gsm8k.jsonl`, from RouteLLM): was each right? Half
of the prompts teach the routers and choose depth and settings, by cross-validation; the other half judges them once.
Every kind is reported, and the one that was chosen before the judging half was looked at is named. APGR is 1/2 for coin
tosses; intervals are a bootstrap over prompts. Embeddings are kept in a folder, so that an interrupted run goes on.

    OFFRAMP_DATA=... python -m benchmarks.routing > benchmarks/results/routing.jsonl
    python -m benchmarks.routing --table          # the tables of docs/collaborate.md from these results
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np

from benchmarks.data import data_folder
from benchmarks.machine import load
from benchmarks.page import read_results
from benchmarks.page import table as markdown
from benchmarks.session import Json, note
from benchmarks.worker import ROOT
from offramp.bench.provenance import provenance
from offramp.collaborate.router import ROUTERS
from offramp.collaborate.router.choose import Choice, choices
from offramp.collaborate.router.curve import curve_of
from offramp.collaborate.router.kind import Examples
from offramp.collaborate.router.outcomes import Gains, losses
from offramp.collaborate.threshold import Scores, certify, path_of
from offramp.llm.loading import load_model
from offramp.model.model_cache import default_cache
from offramp.train.router.data import BIG, LITTLE, OutcomeFile, read_outcomes
from offramp.train.router.recipe import Recipe
from offramp.train.router.run import Parts, figures, split
from offramp.train.router.states import embed_all, encode

FILE = "router_gsm8k.jsonl"
RESULTS = ROOT / "benchmarks" / "results" / "routing.jsonl"
ROUTING = "routing"
"""What lines about routers say of themselves."""
SHARES = (0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0)
RISKS = (0.05, 0.1, 0.2)
DELTA = 0.05


def data_file() -> Path:
    """Ends the program with what is missing."""
    holds = f"{FILE}, lines of prompt, weak_correct and strong_correct"
    return data_folder((FILE,), holds=holds, lacks="outcomes") / FILE


def examples_of(file: OutcomeFile, options: argparse.Namespace) -> dict[int, Examples]:
    """All prompts, embedded at each depth."""
    loaded = load_model(options.model, weights=options.weights, threads=options.threads)
    depths = Recipe(depths=options.depths).depths_of(loaded.config.num_layers)
    prompts = encode(loaded, file.lines)
    folder = options.embeddings or default_cache() / "routing"
    embedded = embed_all(loaded, prompts, depths, folder, lambda done: note(f"embedded {done} of {len(prompts)}"))
    return {
        depth: Examples(embeddings=embedded[:, place], outcomes=file.outcomes, little=LITTLE, big=BIG)
        for place, depth in enumerate(depths)
    }


def measure(by_depth: Mapping[int, Examples], parts: Parts, seed: int) -> Iterator[Json]:
    """One result a kind, the one that was chosen first, then what tossing coins comes to."""
    taught = {depth: examples.take(parts.taught) for depth, examples in by_depth.items()}
    learning = [kind for kind in ROUTERS if kind != "random"]
    found = choices(taught, learning, seed=seed, tell=note)
    for place, choice in enumerate([*found, *choices(taught, ["random"], seed=seed)]):
        judged = by_depth[choice.depth].take(parts.judging)
        yield {"chosen": place == 0, **result(choice, taught, judged, seed)}


def result(choice: Choice, taught: Mapping[int, Examples], judged: Examples, seed: int) -> Json:
    """What a router of one kind comes to on prompts that it never saw."""
    router = choice.fit(taught, seed)
    scores = router.scores(judged.embeddings)
    gains = judged.outcomes.gains(LITTLE, BIG)
    told = figures(scores, gains, seed)
    note(f"{choice.kind}: APGR {told['apgr']['value']:.3f} [{told['apgr']['low']}, {told['apgr']['high']}]")
    return {
        "kind": choice.kind,
        "depth": choice.depth,
        "settings": dict(choice.settings),
        "unseen_folds_apgr": choice.apgr.value,
        **told,
        "quality_by_share": quality_by_share(scores, judged),
        "certified": [certified(scores, gains, path_of(choice.unseen), risk) for risk in RISKS],
    }


def quality_by_share(scores: Scores, judged: Examples) -> dict[str, float]:
    """Share of right answers by the share of calls of the strong model."""
    curve = curve_of(scores, judged.outcomes.gains(LITTLE, BIG))
    low, high = (float(judged.outcomes.of(name).mean()) for name in (LITTLE, BIG))
    return {f"{share:g}": round(low + curve.at(share) * (high - low), 4) for share in SHARES}


def certified(scores: Scores, gains: Gains, path: list[float], risk: float) -> Json:
    """The share of strong calls that a certificate takes; 1 where none is given."""
    entry = certify(scores, losses(gains), path, risk=risk, delta=DELTA)
    share = 1.0 if entry is None else round(entry.big_share, 4)
    return {"risk": risk, "delta": DELTA, "big_share": share, "mean_loss": None if entry is None else entry.mean_loss}


def verdict(results: list[Json]) -> Json:
    """Whether the router that was chosen beats a coin."""
    [chosen] = [each for each in results if each["chosen"]]
    low = chosen["apgr"]["low"]
    return {
        "benchmark": "routing_target",
        "kind": chosen["kind"],
        "apgr": chosen["apgr"],
        "target": "the interval of APGR excludes 0.5",
        "reached": low is not None and low > 0.5,
    }


def table(results: list[Json]) -> str:
    """A router a line, the chosen one in bold; for the docs."""
    rows = []
    for each in results:
        cpt = [_interval(each["cpt"][part]) for part in ("0.2", "0.5", "0.8")]
        rows.append(
            (_name(each), str(each["depth"]), f"{each['unseen_folds_apgr']:.2f}", _interval(each["apgr"]), *cpt)
        )
    head = ("router", "depth", "APGR on unseen folds", "APGR, held out", "CPT(20 %)", "CPT(50 %)", "CPT(80 %)")
    return markdown(head, rows)


def certified_table(results: list[Json]) -> str:
    """The share of strong calls that a risk takes, a router a column; for the docs."""
    rows = [
        (f"{risk:g}", *(f"{each['certified'][place]['big_share']:.0%}" for each in results))
        for place, risk in enumerate(RISKS)
    ]
    return markdown(("risk", *map(_name, results)), rows)


def _name(each: Json) -> str:
    return f"**{each['kind']}**" if each["chosen"] else str(each["kind"])


def _interval(estimate: Mapping[str, float | None]) -> str:
    value, low, high = estimate["value"], estimate["low"], estimate["high"]
    inside = "" if low is None or high is None else f" ({low:.2f} to {high:.2f})"
    return f"{value:.2f}{inside}"


def _depths(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split(","))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="smollm2-135m", help="whose states are read")
    parser.add_argument("--weights", default="q8")
    parser.add_argument("--threads", type=int)
    parser.add_argument("--depths", type=_depths, default=(), help="separated by commas; half, three quarters and all")
    parser.add_argument("--embeddings", type=Path, help="folder to keep embeddings in")
    parser.add_argument("--held-out", type=float, default=0.5, help="share of the prompts that judge")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--table", action="store_true", help="print the docs' tables from the kept results")
    options = parser.parse_args()
    if options.table:
        kept = [line for line in read_results(RESULTS) if line["benchmark"] == ROUTING]
        print(table(kept), certified_table(kept), sep="\n")
        return
    path = data_file()
    file = read_outcomes(path)
    parts = split(file, LITTLE, BIG, Recipe(held_out=options.held_out, seed=options.seed))
    results = list(measure(examples_of(file, options), parts, options.seed))
    about = {"model": options.model, "weights": options.weights, "taught": len(parts.taught), "seed": options.seed}
    quality = {name: round(float(np.mean(file.outcomes.of(name)[parts.judging])), 4) for name in (LITTLE, BIG)}
    for each in results:
        print(json.dumps({"benchmark": ROUTING, **about, "quality": quality, **each, "load": load(), **provenance()}))
    print(json.dumps({**verdict(results), **about}))


if __name__ == "__main__":
    main()
