"""`offramp calibrate`: which exits, or what of a little model, keeps a risk on a user's own prompts."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Protocol

import typer

from offramp.cli import options
from offramp.cli.streams import put
from offramp.errors import InvalidRequestError

if TYPE_CHECKING:
    from offramp.calibrate.recipe import Recipe
    from offramp.exits.pack import ExitPack
    from offramp.llm.loading import LoadedModel


def command(
    model: Annotated[str, typer.Argument(metavar="MODEL", help="Path, short name, pypi:package or hf:org/name.")],
    prompts: Annotated[Path, typer.Option(help='Lines of JSON with "prompt" or "messages" each.')],
    risk: Annotated[list[float], typer.Option(help="Largest mean loss to certify; can be repeated.")],
    exits: options.Exits = None,
    draft_model: Annotated[
        str | None,
        typer.Option("--draft-model", metavar="MODEL", help="In place of exits: a small model that is to write."),
    ] = None,
    cascade: Annotated[
        str | None, typer.Option(metavar="MODEL", help="In place of exits: a small model that is to answer first.")
    ] = None,
    score: Annotated[
        str | None,
        typer.Option(
            help="How sure that was: mean, quantile, agreement, trained or trained-agreement.", show_default="mean"
        ),
    ] = None,
    delta: Annotated[float, typer.Option(help="Chance, over calibrations, that a risk is exceeded after all.")] = 0.05,
    loss: Annotated[
        str | None,
        typer.Option(
            help="tokens, rouge, or exact-match with references.", show_default="tokens; rouge with --cascade"
        ),
    ] = None,
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

    With --exits: how early tokens may leave; with --draft-model: how much that may write; with --cascade: which of its
    answers may stay. Answers are really generated so and compared with those of the model alone at full depth. Greedy
    unless a temperature is given.
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
    asked = _Asked(
        exits=exits,
        draft_model=draft_model,
        cascade=cascade,
        score=score,
        loss=loss,
        fill=fill,
        output=output,
        weights=weights,
        kv=kv,
        kv_memory=kv_memory,
        threads=threads,
        max_context=max_context,
    )
    params = SamplingParams(max_tokens=max_tokens, ignore_eos=ignore_eos, **sampling)
    recipe = Recipe(
        risks=tuple(risk), delta=delta, loss=asked.loss_name, fill=fill_of(fill or "deferred"), params=params, seed=seed
    )
    target = asked.target()
    _check_other(target.target, prompts)
    loaded = load_model(model, weights=weights, kv=kv, kv_memory=kv_memory, threads=threads, max_context=max_context)
    target.run(target.load(loaded, threads), prompts, recipe, raw=raw, limit=limit)
    put(f"{target.target}\n")


class _Target(Protocol):
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


@dataclass(frozen=True, slots=True, kw_only=True)
class _Asked:
    """What the flags name to calibrate."""

    exits: str | None
    draft_model: str | None
    cascade: str | None
    score: str | None
    loss: str | None
    fill: str | None
    output: Path | None
    weights: str
    kv: str
    kv_memory: str | None
    threads: int | None
    max_context: int | None

    def target(self) -> _Target:
        """The one of the three that is named; refused where it is none or several, or with what it does not take."""
        from offramp.cli.calibrate_targets import Exits
        from offramp.exits.pack_file import read_pack

        given = [name for name in ("exits", "draft_model", "cascade") if getattr(self, name) is not None]
        if not given:
            hint = "name a pack by --exits, or a small model by --draft-model or --cascade"
            raise InvalidRequestError("there is nothing to calibrate", hint=hint, param="exits")
        if len(given) > 1:
            names = " beside ".join(_flag(name) for name in given)
            raise InvalidRequestError(names, hint="calibrate one of them", param=given[0])
        if self.score is not None and self.cascade is None:
            hint = "leave it out: it says how sure the small model of a --cascade was"
            raise InvalidRequestError(f"--score {self.score} beside {_flag(given[0])}", hint=hint, param="score")
        if self.exits is None:
            return self._two_models(given[0])
        pack = read_pack(self.exits)
        return Exits(pack, _writable(_own_file(pack) if self.output is None else self.output))

    def _two_models(self, given: str) -> _Target:
        from offramp.calibrate.cascade import loss_of
        from offramp.cli.calibrate_targets import Cascade, Pair
        from offramp.collaborate.cascade.scores import SCORES
        from offramp.params import check_choice

        if self.fill is not None:
            hint = "leave it out: what a small model writes skips no layers"
            raise InvalidRequestError(f"--fill {self.fill} beside {_flag(given)}", hint=hint, param="fill")
        if self.output is None:
            hint = "name a file by --output, such as mine.json"
            raise InvalidRequestError("a calibration of two models has no folder of its own", hint=hint, param="output")
        if self.cascade is None:
            assert self.draft_model is not None, "one of the two"
            return Pair(self.draft_model, _writable(self.output))
        score = next(iter(SCORES)) if self.score is None else self.score
        check_choice("score", score, SCORES)
        loss_of(self.loss_name)
        return Cascade(
            little=self.cascade,
            score=score,
            target=_writable(self.output),
            weights=self.weights,
            kv=self.kv,
            kv_memory=self.kv_memory,
            threads=self.threads,
            max_context=self.max_context,
        )

    @property
    def loss_name(self) -> str:
        """How losses are measured, unless somebody says otherwise."""
        return self.loss or ("tokens" if self.cascade is None else "rouge")


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


def _check_other(target: Path, prompts: Path) -> None:
    """Refuse to write over what is read."""
    if target.exists() and prompts.exists() and target.samefile(prompts):
        raise InvalidRequestError(f"--output {target} is the file of prompts", hint="name another")


def _flag(name: str) -> str:
    return f"--{name.replace('_', '-')}"
