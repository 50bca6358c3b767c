"""`offramp train router`: outcomes and a model become a router pack, judged on prompts that it never saw."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from offramp.collaborate.router.certificate import RecordedAnswers
from offramp.collaborate.router.choose import Choice, choices
from offramp.collaborate.router.curve import Estimate, estimate_apgr, estimate_cpt
from offramp.collaborate.router.embed import most_tokens
from offramp.collaborate.router.kind import Examples, Router
from offramp.collaborate.router.outcomes import Gains, check_learnable, losses
from offramp.collaborate.router.pack import RouterPack
from offramp.collaborate.router.pack_config import RouterConfig
from offramp.collaborate.router.pack_file import check_router_target, write_router
from offramp.collaborate.threshold import CertifiedThreshold, Scores, ThresholdCalibration, certify, path_of
from offramp.errors import InvalidRequestError
from offramp.exits.calibration import check_sample
from offramp.llm.loading import DEFAULT_KV, LoadedModel, load_model
from offramp.llm.running_of import model_running
from offramp.prompt_lines import PromptLine, file_hash
from offramp.train.pairs import held_out
from offramp.train.router.data import OutcomeFile, read_outcomes
from offramp.train.router.recipe import Recipe
from offramp.train.router.states import embed_all, encode
from offramp.train.say import Say

RECOVERED = (0.2, 0.5, 0.8)
"""Parts of the gap for which the needed share of calls is told."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Parts:
    """Prompts that teach and choose, and those that judge."""

    taught: NDArray[np.int64]
    judging: NDArray[np.int64]


def train_router(
    model: str,
    data: Path,
    output: Path,
    recipe: Recipe,
    *,
    weights: str,
    kv: str = DEFAULT_KV,
    threads: int | None,
    work: Path,
    say: Say,
) -> RouterPack:
    """Train, resuming what lies in `work`, and write the pack. Raises OfframpError.

    `weights` and `kv` are those of the recipe's big model, too.
    """
    check_router_target(output)
    file = read_outcomes(data)
    little, big = file.pair(recipe.little, recipe.big)
    parts = split(file, little, big, recipe)
    answers = _answers(recipe, weights, kv, threads)
    loaded = load_model(model, weights=weights, kv=kv, threads=threads)
    depths = recipe.depths_of(loaded.config.num_layers)
    prompts = encode(loaded, file.lines)
    embedded = embed_all(loaded, prompts, depths, work, lambda done: say(f"embedded {done} of {len(prompts)} prompts"))
    by_depth = {
        depth: Examples(embeddings=embedded[:, place], outcomes=file.outcomes, little=little, big=big)
        for place, depth in enumerate(depths)
    }
    taught = {depth: examples.take(parts.taught) for depth, examples in by_depth.items()}
    best = choices(taught, recipe.kinds, seed=recipe.seed, tell=say)[0]
    router = best.fit(taught, recipe.seed)
    judged = by_depth[best.depth].take(parts.judging)
    pack = _pack(loaded, recipe, best, router, judged, answers, {"data": _about(data, parts)})
    _tell(pack, say)
    return write_router(output, pack)


def split(file: OutcomeFile, little: str, big: str, recipe: Recipe) -> Parts:
    """By the prompts' texts: equal ones are on one side. Those without outcomes of both models only teach.

    Raises InvalidRequestError where a side is too small for what is asked of it.
    """
    gains = file.outcomes.gains(little, big)
    kept = np.array([held_out(_text(line), recipe.held_out, recipe.seed) for line in file.lines])
    judging = np.flatnonzero(kept & ~np.isnan(gains))
    taught = np.flatnonzero(~kept)
    if len(judging) == 0 or len(taught) == 0:
        hint = "give more prompts, or another share to hold out"
        raise InvalidRequestError(f"{len(gains)} prompts are too few to hold some out", hint=hint, param="data")
    check_learnable(gains[judging])
    for risk in recipe.risks:
        check_sample(len(judging), risk, recipe.delta)
    return Parts(taught=taught, judging=judging)


def figures(scores: Scores, gains: Gains, seed: int) -> dict[str, Any]:
    """APGR and CPT with their intervals, as JSON."""
    cpt = {f"{part:g}": _as_json(estimate_cpt(scores, gains, part, seed=seed)) for part in RECOVERED}
    return {"prompts": len(gains), "apgr": _as_json(estimate_apgr(scores, gains, seed=seed)), "cpt": cpt}


def _answers(recipe: Recipe, weights: str, kv: str, threads: int | None) -> RecordedAnswers | None:
    """What certificates are about, if there are to be any; the big model is loaded to see what it is."""
    if recipe.sampling is None:
        return None
    answers = RecordedAnswers(sampling=recipe.sampling, max_tokens=recipe.max_tokens)
    if recipe.big_model is None:
        return answers
    big = load_model(recipe.big_model, weights=weights, kv=kv, threads=threads)
    return replace(answers, big_model=big.source_hash, big=model_running(big))


def _pack(
    loaded: LoadedModel,
    recipe: Recipe,
    best: Choice,
    router: Router,
    judged: Examples,
    answers: RecordedAnswers | None,
    about: Mapping[str, object],
) -> RouterPack:
    scores = router.scores(judged.embeddings)
    gains = judged.outcomes.gains(judged.little, judged.big)
    path = path_of(best.unseen)
    found = [certify(scores, losses(gains), path, risk=risk, delta=recipe.delta) for risk in recipe.risks]
    certified = tuple(entry for entry in found if entry is not None)
    provenance = {
        **about,
        "recipe": recipe.as_json(),
        "settings": dict(best.settings),
        "weights": dict(loaded.formats),
        "unseen_folds": _as_json(best.apgr),
        "held_out": figures(scores, gains, recipe.seed),
    }
    config = RouterConfig(
        model=loaded.source_hash,
        model_name=Path(loaded.name).name,
        num_layers=loaded.config.num_layers,
        hidden_size=loaded.config.hidden_size,
        depth=best.depth,
        running=model_running(loaded),
        prompt_tokens=most_tokens(loaded.config),
        chat=loaded.template.available,
        kind=best.kind,
        models=judged.outcomes.models,
        little=judged.little,
        big=judged.big,
        num_prompts=len(scores),
        certified=certified,
        answers=answers,
        provenance=provenance,
    )
    calibration = ThresholdCalibration(scores=np.sort(scores), certified=certified)
    return RouterPack(config=config, router=router, calibration=calibration)


def _tell(pack: RouterPack, say: Say) -> None:
    held = pack.config.provenance["held_out"]
    assert isinstance(held, dict)
    apgr = held["apgr"]
    inside = apgr["low"] is None or apgr["low"] <= 0.5 <= apgr["high"]
    interval = "" if apgr["low"] is None else f" ({apgr['low']:.3f} to {apgr['high']:.3f})"
    say(f"{pack.config.kind}: APGR {apgr['value']:.3f}{interval} on {held['prompts']} held-out prompts")
    if inside:
        say("note: that is no better than tossing a coin, as far as these prompts can tell")
    wanted = {entry.risk for entry in pack.calibration.certified}
    for entry in pack.calibration.certified:
        say(_line(entry))
    recipe = pack.config.provenance["recipe"]
    assert isinstance(recipe, dict)
    for risk in sorted(set(recipe["risks"]) - wanted):
        say(f"risk {risk:g}: not even the most careful threshold passed; the big model would answer all")


def _line(entry: CertifiedThreshold) -> str:
    return (
        f"risk {entry.risk:g}: threshold {entry.threshold:.4f}, big model for {entry.big_share:.0%} of prompts, "
        f"loss {entry.mean_loss:.3f} on {entry.num_prompts} (p = {entry.p_value:.2g})"
    )


def _about(data: Path, parts: Parts) -> dict[str, object]:
    return {
        "file": data.name,
        "sha256": file_hash(data),
        "taught": len(parts.taught),
        "held_out": len(parts.judging),
    }


def _text(line: PromptLine) -> str:
    return line.content if isinstance(line.content, str) else repr(line.content)


def _as_json(estimate: Estimate) -> dict[str, float | None]:
    return {"value": estimate.value, "low": estimate.low, "high": estimate.high}
