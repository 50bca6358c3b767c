"""`offramp train layerskip` from end to end on a tiny model. Needs torch."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="needs torch (make oracle)")
pytestmark = pytest.mark.oracle

from offramp import LLM, SamplingParams  # noqa: E402
from offramp.errors import CorruptModelError, InvalidRequestError, ResourceError, UnsupportedModelError  # noqa: E402
from offramp.exits.pack import bind  # noqa: E402
from offramp.exits.pack_file import read_pack  # noqa: E402
from offramp.model.checkpoint import open_checkpoint  # noqa: E402
from offramp.train.adapter import read_adapter  # noqa: E402
from offramp.train.layerskip import loop, run  # noqa: E402
from offramp.train.layerskip.recipe import Recipe  # noqa: E402

RECIPE = Recipe(
    steps=60, minutes=None, rank=8, learning_rate=2e-2, batch_rows=256, exits=(1, 2, 3), held_out=0.2, coverage=1.0
)


def fine_tune(
    toy_model: str, data: Path, out: Path, recipe: Recipe = RECIPE, say: Callable[[str], None] = lambda line: None
) -> Any:
    return run.fine_tune(toy_model, data, out, recipe, work=out.with_name(f"{out.name}.work"), threads=1, say=say)


def test_early_layers_learn_to_answer(toy_model: str, pairs_file: Path, tmp_path: Path) -> None:
    figures = fine_tune(toy_model, pairs_file, tmp_path / "out")
    held_out = figures["held_out"]
    assert held_out["exact"]["4"] > 0.8
    assert held_out["agreement"]["2"] > 0.8
    assert figures["steps"] == 60
    pack = read_pack(tmp_path / "out" / "exits")
    checkpoint = open_checkpoint(tmp_path / "out")
    bind(pack, model_hash=checkpoint.source_hash(), config=checkpoint.config)
    assert (pack.config.kind, pack.config.layers) == ("shared", (1, 2, 3))
    with LLM(str(tmp_path / "out"), threads=1) as llm:
        prompts = [llm.encode_chat([{"role": "user", "content": f"word {i} {'abcd'[i % 4]}"}]) for i in range(120, 132)]
        answers = llm.generate(prompts, SamplingParams(temperature=0, max_tokens=8))
    right = [answer.outputs[0].text == 3 * "ABCD"[i % 4] for i, answer in enumerate(answers)]
    assert sum(right) >= 9, "the engine does not answer as it was trained to"


class KilledError(Exception):
    """Stands for a process that ends at any line."""


def test_an_interrupted_training_ends_as_if_it_had_not_been(
    toy_model: str, pairs_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loop, "SAVE_SECONDS", 0.0)
    recipe = Recipe(**{**RECIPE.as_json(), "steps": 6, "exits": (2,)})

    def die(line: str) -> None:
        if line.startswith("step 4:"):
            raise KilledError

    with pytest.raises(KilledError):
        fine_tune(toy_model, pairs_file, tmp_path / "parts", recipe, die)
    assert not (tmp_path / "parts").exists()
    fine_tune(toy_model, pairs_file, tmp_path / "parts", recipe)
    fine_tune(toy_model, pairs_file, tmp_path / "whole", recipe)
    hashes = [open_checkpoint(tmp_path / name).source_hash() for name in ("parts", "whole")]
    assert hashes[0] == hashes[1]
    other = Recipe(**{**recipe.as_json(), "rank": 4})
    with pytest.raises(CorruptModelError, match="rank differ"):
        run.fine_tune(toy_model, pairs_file, tmp_path / "o", other, work=tmp_path / "whole.work", threads=1, say=print)


def test_a_checkpoint_of_other_data_or_another_model_is_refused(
    toy_model: str, pairs_file: Path, tmp_path: Path
) -> None:
    recipe = Recipe(**{**RECIPE.as_json(), "steps": 1, "exits": (2,)})
    fine_tune(toy_model, pairs_file, tmp_path / "first", recipe)
    held_out = (tmp_path / "first.work" / "held_out.jsonl").read_bytes()

    def go_on(model: str, data: Path) -> None:
        work = tmp_path / "first.work"
        run.fine_tune(model, data, tmp_path / "second", recipe, work=work, threads=1, say=lambda line: None)

    more = tmp_path / "more.jsonl"
    more.write_text(pairs_file.read_text().replace("word", "text"))
    with pytest.raises(CorruptModelError, match="data differ"):
        go_on(toy_model, more)
    with pytest.raises(CorruptModelError, match="model differ"):
        go_on(str(tmp_path / "first"), pairs_file)
    assert (tmp_path / "first.work" / "held_out.jsonl").read_bytes() == held_out, "another training's"
    go_on(toy_model, pairs_file)


def test_the_directory_is_rebuilt_from_its_adapter(toy_model: str, pairs_file: Path, tmp_path: Path) -> None:
    recipe = Recipe(**{**RECIPE.as_json(), "steps": 3, "exits": (2,)})
    figures = fine_tune(toy_model, pairs_file, tmp_path / "out", recipe)
    adapter = tmp_path / "out" / "training" / "adapter.safetensors"
    assert run.rebuild(toy_model, adapter, tmp_path / "again") == figures
    names = sorted(str(path.relative_to(tmp_path / "out")) for path in (tmp_path / "out").rglob("*.*"))
    for name in names:
        assert (tmp_path / "out" / name).read_bytes() == (tmp_path / "again" / name).read_bytes(), name
    kept = read_adapter(adapter, open_checkpoint(Path(toy_model)).config)
    assert kept.recipe["steps"] == 3
    with pytest.raises(ResourceError, match="exists already"):
        run.rebuild(toy_model, adapter, tmp_path / "again")


def test_matrices_themselves_can_be_trained(toy_model: str, pairs_file: Path, tmp_path: Path) -> None:
    recipe = Recipe(**{**RECIPE.as_json(), "steps": 3, "rank": None, "exits": (2,), "learning_rate": 1e-3})
    fine_tune(toy_model, pairs_file, tmp_path / "out", recipe)
    assert not (tmp_path / "out" / "training").exists()
    before, after = (open_checkpoint(path).weights("f32") for path in (Path(toy_model), tmp_path / "out"))
    moved = {
        role: np.abs(before.matrix(role).values - after.matrix(role).values).max()
        for role in ("layers.2.v", "embedding")
    }  # type: ignore[union-attr]
    assert moved["layers.2.v"] > 1e-3
    assert moved["embedding"] < 1e-3  # f16 alone


def test_data_that_do_not_do_leave_no_work_folder(toy_model: str, pairs_file: Path, tmp_path: Path) -> None:
    pairs_file.write_text(pairs_file.read_text().splitlines()[0])
    with pytest.raises(InvalidRequestError, match="too few"):
        fine_tune(toy_model, pairs_file, tmp_path / "out")
    assert [path.name for path in tmp_path.iterdir()] == [pairs_file.name]


def test_pairs_that_are_too_long_are_told_of(toy_model: str, pairs_file: Path, tmp_path: Path) -> None:
    long = [json.dumps({"prompt": f"{n} " + 600 * "x", "reference": "y"}) for n in range(3)]
    pairs_file.write_text(pairs_file.read_text() + "\n".join(long))
    told: list[str] = []
    fine_tune(toy_model, pairs_file, tmp_path / "out", Recipe(**{**RECIPE.as_json(), "steps": 1}), told.append)
    assert "3 of 123 pairs are left out: longer than 512 tokens with their template" in told


def test_a_converted_model_is_refused(toy_model: str, pairs_file: Path, tmp_path: Path) -> None:
    from offramp.cli.app import run as command

    assert command(["convert", toy_model, "-o", str(tmp_path / "converted")]) == 0
    with pytest.raises(UnsupportedModelError, match="converted model"):
        fine_tune(str(tmp_path / "converted"), pairs_file, tmp_path / "out")
