"""`offramp train drafter --kind student`: from a model and prompts to a model directory, to be used as draft model."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from offramp.model.tensors import WeightSource
from offramp.train.decoder import Decoder, read_decoder
from offramp.train.drafter.fit import fit
from offramp.train.drafter.material import Prompts, gather
from offramp.train.drafter.provenance import Stood, provenance
from offramp.train.drafter.validation import line
from offramp.train.exits.answers import AT_ONCE
from offramp.train.exits.start import start
from offramp.train.exits.training import Training
from offramp.train.exits.work import kept_if_worth_it
from offramp.train.hf_directory import check_writable, write_directory
from offramp.train.low_rank import train_whole
from offramp.train.merge import trained_weights
from offramp.train.pairs import read_prompts
from offramp.train.precision import matrix_dtype
from offramp.train.say import Say
from offramp.train.source import open_source
from offramp.train.student.pupil import Student
from offramp.train.student.recipe import Recipe, with_layers
from offramp.train.student.shallow import SomeLayers, shallow_config, shallow_files
from offramp.train.student.validation import accepted_rates

ABOUT = "training/student.json"
"""Below the directory that is written: recipe, data and figures."""

Figures = Mapping[str, Any]
"""How a student was made, and how its drafts stand."""


def train_student(
    model: str,
    prompts_file: Path,
    directory: Path,
    recipe: Recipe,
    *,
    weights: str,
    threads: int | None,
    work: Path,
    say: Say,
) -> Figures:
    """Train, resuming what lies in `work`, and write the directory. `weights` is the target's format, as it answers.

    Raises OfframpError.
    """
    checkpoint = open_source(model)
    recipe = with_layers(recipe, checkpoint.config.num_layers)
    files = shallow_files(checkpoint, recipe.layers)
    shallow = replace(checkpoint, config=shallow_config(checkpoint.config, recipe.layers))
    check_writable(shallow, directory)
    prompts = Prompts(prompts_file, read_prompts(prompts_file))
    training = start(
        model, prompts_file, recipe, weights=weights, threads=threads, max_num_seqs=AT_ONCE, work=work, say=say
    )
    with kept_if_worth_it(training.work):
        source = SomeLayers(checkpoint.weights("f32"), shallow.config, recipe.layers)
        decoder, about = _trained(training, source, prompts)
        about = {"model": training.loaded.source_hash, "model_name": Path(model).name, **about}
        texts = {**files, ABOUT: json.dumps(about, indent=1) + "\n"}
        write_directory(shallow, trained_weights(source, decoder), directory, files=texts)
    return about


def _trained(training: Training[Recipe], source: WeightSource, prompts: Prompts) -> tuple[Decoder, Figures]:
    """From what is in the work folder on. Raises InvalidRequestError where answers are no use."""
    material = gather(training, prompts, (training.loaded.config.num_layers,))
    decoder = read_decoder(source)
    decoder.dtype = matrix_dtype()
    student = Student(decoder, train_whole(decoder), decoder.final_norm.detach().clone(), material, training.recipe)
    fitted = fit(training, student, material.taught)
    stood = Stood(*accepted_rates(decoder, material.kept))
    training.tell(f"as it is kept: {line(stood.rates)}", always=True)
    return decoder, provenance(training, prompts, material, fitted, stood)
