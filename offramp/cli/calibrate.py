"""`offramp calibrate`: which exits, or which words of a little model, keep a risk on a user's own prompts."""

from __future__ import annotations

import math
import os
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Protocol

import typer

from offramp.cli import options
from offramp.cli.messages import counted, say
from offramp.cli.streams import put
from offramp.errors import InvalidRequestError

if TYPE_CHECKING:
    from offramp.calibrate.answers import Tell
    from offramp.calibrate.entries import Entry, P, RiskOutcome
    from offramp.calibrate.prompts import CalibrationPrompt
    from offramp.calibrate.recipe import Recipe
    from offramp.calibrate.run import Calibration
    from offramp.calibrate.walk import Stage
    from offramp.exits.pack import ExitPack
    from offramp.llm.loading import LoadedModel

SHOWN_LINES = 3
TELL_SECONDS = 10.0
"""Between two lines about the same stage."""


def command(
    model: Annotated[str, typer.Argument(metavar="MODEL", help="Path, short name, pypi:package or hf:org/name.")],
    prompts: Annotated[Path, typer.Option(help='Lines of JSON with "prompt" or "messages" each.')],
    risk: Annotated[list[float], typer.Option(help="Largest mean loss to certify; can be repeated.")],
    exits: options.Exits = None,
    draft_model: Annotated[
        str | None,
        typer.Option("--draft-model", metavar="MODEL", help="In place of exits: a small model that is to write."),
    ] = None,
    delta: Annotated[float, typer.Option(help="Chance, over calibrations, that a risk is exceeded after all.")] = 0.05,
    loss: Annotated[str, typer.Option(help="tokens, rouge, or exact-match with references.")] = "tokens",
    fill: Annotated[
        str | None, typer.Option(help="K/V of skipped layers: deferred or propagate.", show_default="deferred")
    ] = None,
    raw: Annotated[bool, typer.Option("--raw", help="Take prompts as they are, without the chat template.")] = False,
    limit: Annotated[int | None, typer.Option(help="Lines to read.", min=1, show_default="all")] = None,
    max_tokens: Annotated[int, typer.Option(help="Of an answer; longer requests run full depth.", min=1)] = 256,
    min_tokens: Annotated[int | None, typer.Option(help="Tokens before the text may end.", show_default="0")] = None,
    ignore_eos: Annotated[bool, typer.Option("--ignore-eos", help="Go on after end tokens.")] = False,
    temperature: options.Temperature = 0.0,
    top_k: options.TopK = None,
    top_p: options.TopP = None,
    min_p: options.MinP = None,
    repetition_penalty: options.RepetitionPenalty = None,
    presence_penalty: options.PresencePenalty = None,
    frequency_penalty: options.FrequencyPenalty = None,
    seed: Annotated[int, typer.Option(help="Of the split, and of the draws.")] = 0,
    weights: options.Weights = "auto",
    kv: options.Kv = "f16",
    kv_memory: options.KvMemory = None,
    threads: options.Threads = None,
    max_context: options.MaxContext = None,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output", "-o", metavar="FILE", show_default="calibration.json in the pack's folder; none without a pack"
        ),
    ] = None,
    debug: options.Debug = False,
) -> None:
    """Find on your own prompts how much may be saved at a risk you choose, and write it down for mode calibrated.

    With --exits: how early tokens may leave; with --draft-model: how much that may write. Answers are really generated
    so and compared with those of the model alone at full depth. Greedy unless a temperature is given.
    """
    from offramp.calibrate.recipe import Recipe, fill_of
    from offramp.core import SamplingParams
    from offramp.llm.loading import load_model

    sampling = options.given(
        min_tokens=min_tokens,
        temperature=temperature,
        top_k=top_k,
        top_p=top_p,
        min_p=min_p,
        repetition_penalty=repetition_penalty,
        presence_penalty=presence_penalty,
        frequency_penalty=frequency_penalty,
    )
    params = SamplingParams(max_tokens=max_tokens, ignore_eos=ignore_eos, **sampling)
    recipe = Recipe(
        risks=tuple(risk), delta=delta, loss=loss, fill=fill_of(fill or "deferred"), params=params, seed=seed
    )
    lossy = _what(exits, draft_model, fill, output)
    loaded = load_model(model, weights=weights, kv=kv, kv_memory=kv_memory, threads=threads, max_context=max_context)
    lossy.run(lossy.load(loaded, threads), prompts, recipe, raw=raw, limit=limit)
    put(f"{lossy.target}\n")


class _Lossy(Protocol):
    """What is calibrated."""

    @property
    def target(self) -> Path:
        """Where the calibration goes."""
        ...

    def load(self, loaded: LoadedModel, threads: int | None) -> LoadedModel:
        """The model with what else it takes."""
        ...

    def run(self, loaded: LoadedModel, path: Path, recipe: Recipe, *, raw: bool, limit: int | None) -> None:
        """Read the prompts, calibrate, write the file, say what came of it."""
        ...


def _what(exits: str | None, draft_model: str | None, fill: str | None, output: Path | None) -> _Lossy:
    """Exits, or a little model; refused where it is neither or both."""
    from offramp.exits.pack_file import read_pack

    if exits is not None and draft_model is not None:
        raise InvalidRequestError("--exits beside --draft-model", hint="calibrate one of the two", param="exits")
    if exits is not None:
        pack = read_pack(exits)
        return _Exits(pack, _writable(_own_file(pack) if output is None else output))
    if draft_model is None:
        hint = "name a pack by --exits, or a small model by --draft-model"
        raise InvalidRequestError("there is nothing to calibrate", hint=hint, param="exits")
    if fill is not None:
        hint = "leave it out: what a small model writes skips no layers"
        raise InvalidRequestError(f"--fill {fill} beside --draft-model", hint=hint, param="fill")
    if output is None:
        hint = "name a file by --output, such as mine.json"
        raise InvalidRequestError("a calibration of two models has no folder of its own", hint=hint, param="output")
    return _Pair(draft_model, _writable(output))


@dataclass(frozen=True, slots=True)
class _Exits:
    """The exits of a pack."""

    pack: ExitPack
    target: Path

    def load(self, loaded: LoadedModel, threads: int | None) -> LoadedModel:
        from offramp.calibrate.run import with_pack

        return with_pack(loaded, self.pack)

    def run(self, loaded: LoadedModel, path: Path, recipe: Recipe, *, raw: bool, limit: int | None) -> None:
        from offramp.calibrate.prompts import check_unseen
        from offramp.calibrate.run import calibrate
        from offramp.exits.certificate import write_calibration

        check_unseen(path, self.pack)
        prompts = _read(path, loaded, recipe, raw=raw, limit=limit)
        with _stages() as stage:
            done = calibrate(loaded, prompts, recipe, stage)
        write_calibration(self.target, done.entries, _provenance(loaded, path, recipe, done))
        _tell(done)
        for outcome in done.outcomes:
            depth = f"depth {outcome.entry.measured.depth:.1f} of {loaded.config.num_layers}"
            say(_line(outcome, depth, "full depth"))


@dataclass(frozen=True, slots=True)
class _Pair:
    """A model, and a small one that writes for it."""

    draft_model: str
    target: Path

    def load(self, loaded: LoadedModel, threads: int | None) -> LoadedModel:
        from offramp.llm.draft_model import with_draft_model

        return with_draft_model(loaded, self.draft_model, threads=threads)

    def run(self, loaded: LoadedModel, path: Path, recipe: Recipe, *, raw: bool, limit: int | None) -> None:
        from offramp.calibrate.little_run import calibrate_pair
        from offramp.collaborate.big_little_certificate import write_pairs

        prompts = _read(path, loaded, recipe, raw=raw, limit=limit)
        with _stages() as stage:
            done = calibrate_pair(loaded, prompts, recipe, stage)
        write_pairs(self.target, done.entries, _provenance(loaded, path, recipe, done))
        _tell(done)
        for outcome in done.outcomes:
            share = f"{outcome.entry.little_share:.0%} of the tokens by {self.draft_model}"
            say(_line(outcome, share, "the big model alone"))


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


def _own_file(pack: ExitPack) -> Path:
    """Where a pack's calibration is looked for. A shipped pack is everybody's."""
    from offramp.exits.certificate import FILE_NAME
    from offramp.model.shipped import is_shipped

    assert pack.folder is not None, "a pack that was read from a folder"
    if is_shipped(pack.folder):
        raise InvalidRequestError(
            f"--exits {pack.folder.resolve().name} is a shipped pack, which holds no calibration of yours",
            hint=f"copy {pack.folder} to a folder of your own and calibrate that",
            param="exits",
        )
    return pack.folder / FILE_NAME


def _writable(target: Path) -> Path:
    """Refuses at once what can't be written in an hour."""
    if target.is_dir():
        raise InvalidRequestError(f"--output {target} is a folder", hint="name a file in it")
    if not os.access(target.absolute().parent, os.W_OK):
        raise InvalidRequestError(
            f"--output {target}: {target.absolute().parent} is no folder that can be written", hint="name another"
        )
    return target


def _provenance(loaded: LoadedModel, path: Path, recipe: Recipe, done: Calibration[Entry, P]) -> dict[str, object]:
    from importlib.metadata import version

    from offramp.prompt_lines import file_hash

    return {
        "offramp": version("offramp"),
        "model_name": loaded.name,
        "prompts": {"file": path.name, "sha256": file_hash(path)},
        "seed": recipe.seed,
        **done.fields(),
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


def told_in_lines(text: str) -> Tell:
    """A line where something begins, then now and then how far it is and what time is left."""
    say(text)
    began = told = time.monotonic()

    def tell(done: int, total: int) -> None:
        nonlocal told
        now = time.monotonic()
        if done and done < total and now - told >= TELL_SECONDS:
            told = now
            say(f"{text}: {done} of {total}, about {duration((now - began) / done * (total - done))} left")

    return tell


def duration(seconds: float) -> str:
    """For people, rounded up."""
    return f"{math.ceil(seconds)} s" if seconds < 60 else f"{math.ceil(seconds / 60)} min"


@contextmanager
def _stages() -> Iterator[Stage]:
    """Shows what is under way: on a terminal bars, elsewhere lines."""
    if sys.stderr is None or not sys.stderr.isatty():
        yield told_in_lines
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True)) as progress:

        def begin_bar(text: str) -> Tell:
            task = progress.add_task(text, total=None)
            return lambda done, total: progress.update(task, completed=done, total=total)

        yield begin_bar
