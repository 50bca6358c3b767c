"""What `offramp calibrate` can calibrate: read the prompts, run it, write the file, say what came of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from offramp.cli.messages import counted, say
from offramp.cli.stages import stages
from offramp.errors import InvalidRequestError

if TYPE_CHECKING:
    from offramp.calibrate.entries import Entry, P, RiskOutcome
    from offramp.calibrate.prompts import CalibrationPrompt
    from offramp.calibrate.recipe import Recipe
    from offramp.calibrate.run import Calibration
    from offramp.collaborate.threshold import ThresholdCalibration
    from offramp.exits.pack import ExitPack
    from offramp.llm.loading import LoadedModel

SHOWN_LINES = 3


@dataclass(frozen=True, slots=True)
class Exits:
    """The exits of a pack."""

    pack: ExitPack
    target: Path

    def load(self, loaded: LoadedModel, threads: int | None) -> LoadedModel:
        from offramp.calibrate.run import with_pack

        return with_pack(loaded, self.pack)

    def run(self, loaded: LoadedModel, path: Path, recipe: Recipe, *, raw: bool, limit: int | None) -> None:
        from offramp.calibrate.prompts import check_unseen
        from offramp.calibrate.run import calibrate
        from offramp.exits.certificate import read_calibration, write_calibration

        check_unseen(path, self.pack)
        prompts = _read(path, loaded, recipe, raw=raw, limit=limit)
        with stages() as stage:
            done = calibrate(loaded, prompts, recipe, stage)
        entries, provenance = _beside(self.target, done, _provenance(loaded, path, recipe, done), read_calibration)
        write_calibration(self.target, entries, provenance)
        _tell(done)
        for outcome in done.outcomes:
            depth = f"depth {outcome.entry.measured.depth:.1f} of {loaded.config.num_layers}"
            say(_line(outcome, depth, "full depth"))


@dataclass(frozen=True, slots=True)
class Pair:
    """A model, and a small one that writes for it."""

    draft_model: str
    target: Path

    def load(self, loaded: LoadedModel, threads: int | None) -> LoadedModel:
        from offramp.llm.draft_model import with_draft_model

        return with_draft_model(loaded, self.draft_model, threads=threads)

    def run(self, loaded: LoadedModel, path: Path, recipe: Recipe, *, raw: bool, limit: int | None) -> None:
        from offramp.calibrate.little_run import calibrate_pair
        from offramp.collaborate.big_little_certificate import read_pairs, write_pairs

        prompts = _read(path, loaded, recipe, raw=raw, limit=limit)
        with stages() as stage:
            done = calibrate_pair(loaded, prompts, recipe, stage)
        entries, provenance = _beside(self.target, done, _provenance(loaded, path, recipe, done), read_pairs)
        write_pairs(self.target, entries, provenance)
        _tell(done)
        for outcome in done.outcomes:
            share = f"{outcome.entry.little_share:.0%} of the tokens by {self.draft_model}"
            say(_line(outcome, share, "the big model alone"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Cascade:
    """A model, and a small one that answers first."""

    little: str
    score: str
    target: Path
    weights: str  # of both, as the rest
    kv: str
    kv_memory: str | None
    threads: int | None
    max_context: int | None

    def load(self, loaded: LoadedModel, threads: int | None) -> LoadedModel:
        return loaded

    def run(self, loaded: LoadedModel, path: Path, recipe: Recipe, *, raw: bool, limit: int | None) -> None:
        from offramp.calibrate.cascade import calibrate_cascade, paired
        from offramp.calibrate.sizes import num_tuning
        from offramp.collaborate.cascade.calibration import write_cascade
        from offramp.collaborate.cascade.certify import CascadeRecipe

        wanted = CascadeRecipe(
            score=self.score, params=recipe.params, risks=recipe.risks, delta=recipe.delta, seed=recipe.seed
        )
        little = self._loaded_little()
        mine, theirs = (_read(path, each, recipe, raw=raw, limit=limit) for each in (little, loaded))
        prompts = paired(mine, theirs)
        with stages() as stage:
            done = calibrate_cascade(little, loaded, prompts, wanted, recipe.loss, stage)
        provenance = {**_origin(loaded, path, recipe), "little_name": little.name, "loss": recipe.loss}
        if self.target.exists():
            say(f"note: {self.target} is replaced: a cascade's file holds one calibration")
        write_cascade(self.target, done, provenance)
        say(f"{num_tuning(len(prompts))} prompts to choose thresholds, {len(done.thresholds.scores)} to test them")
        for risk in sorted(set(recipe.risks)):
            say(_threshold_line(risk, done.thresholds))

    def _loaded_little(self) -> LoadedModel:
        """The small model, in the formats and with the limits of the other one."""
        from offramp.llm.loading import load_model

        try:
            return load_model(
                self.little,
                weights=self.weights,
                kv=self.kv,
                kv_memory=self.kv_memory,
                threads=self.threads,
                max_context=self.max_context,
            )
        except InvalidRequestError as error:  # as a context that is longer than its own
            message = f"{error.message}, for --cascade {self.little}"
            raise InvalidRequestError(message, hint=error.hint, param=error.param) from error


def _read(
    path: Path, loaded: LoadedModel, recipe: Recipe, *, raw: bool, limit: int | None
) -> Sequence[CalibrationPrompt]:
    """The prompts, telling of those that are too long."""
    from offramp.calibrate.losses import SCORES
    from offramp.calibrate.prompts import read_prompts

    file = read_prompts(path, loaded, raw=raw, limit=limit, scored=recipe.loss in SCORES, seed=recipe.seed)
    if file.too_long:
        shown = ", ".join(file.too_long[:SHOWN_LINES]) + (", ..." if len(file.too_long) > SHOWN_LINES else "")
        say(f"note: {counted(len(file.too_long), 'prompt')} left out, as long as the context or longer: {shown}")
    return file.prompts


def _tell(done: Calibration[Entry, P]) -> None:
    say(f"{done.num_tuning} prompts to choose policies, {done.num_calibration} to test them")


def _beside(
    target: Path, done: Calibration[Entry, P], provenance: dict[str, object], read: Callable[[Path], list[Entry]]
) -> tuple[list[Entry], dict[str, object]]:
    """The new entries, then what the file has for other settings; it is said what stays, and what is lost."""
    from offramp.calibrate.keeping import EARLIER, kept_beside, settings_of

    beside = kept_beside(target, done.entries, read)
    if beside.damage is not None:
        say(f"note: the file that was there is replaced: {beside.damage}")
    if beside.entries:
        say(f"note: {target} keeps what it had for other settings ({len(beside.entries)} of its entries)")
    earlier = {EARLIER: list(beside.provenances)} if beside.provenances else {}
    return [*done.entries, *beside.entries], {**provenance, "settings": settings_of(done.entries[0]), **earlier}


def _provenance(loaded: LoadedModel, path: Path, recipe: Recipe, done: Calibration[Entry, P]) -> dict[str, object]:
    return {**_origin(loaded, path, recipe), **done.fields()}


def _origin(loaded: LoadedModel, path: Path, recipe: Recipe) -> dict[str, object]:
    from importlib.metadata import version

    from offramp.prompt_lines import file_hash

    return {
        "offramp": version("offramp"),
        "model_name": loaded.name,
        "prompts": {"file": path.name, "sha256": file_hash(path)},
        "seed": recipe.seed,
    }


def _line(outcome: RiskOutcome[Entry, P], saved: str, plainly: str) -> str:
    """What a risk came to, for people: what its policy saves, beside what nothing is lost by."""
    entry, chosen = outcome.entry, outcome.chosen
    begin = f"risk {entry.risk:g}: "
    if chosen is None:
        failed = outcome.walk.failed
        if failed is None:
            return f"{begin}{plainly}, as no policy is predicted to be faster"
        return f"{begin}{plainly}, as the safest policy loses {failed.mean_loss:.4f} (p = {failed.p_value:.3g})"
    measured = entry.measured
    slow = "" if measured.gain > 1 else f"; no faster than {plainly}, which will run instead"
    return (
        f"{begin}loss {measured.mean_loss:.4f} on {measured.num_prompts} prompts (p = {measured.p_value:.3g}), "
        f"{saved}, "
        f"{measured.gain:.2f}x at one stream ({chosen.predicted.gain:.2f}x predicted){slow}"
    )


def _threshold_line(risk: float, thresholds: ThresholdCalibration) -> str:
    """What a risk of a cascade came to."""
    entry = next((each for each in thresholds.certified if each.risk == risk), None)
    if entry is None:
        return f"risk {risk:g}: not certified, as the safest threshold tested may lose more"
    return (
        f"risk {risk:g}: loss {entry.mean_loss:.4f} on {entry.num_prompts} prompts (p = {entry.p_value:.3g}), "
        f"the big model answers {entry.big_share:.0%} (threshold {entry.threshold:.4f})"
    )
