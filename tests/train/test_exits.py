"""`offramp train exits` on a tiny model; what training sees is what the engine computes. Needs torch."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="needs torch (make oracle)")
pytestmark = pytest.mark.oracle

from offramp.errors import InvalidRequestError  # noqa: E402
from offramp.exits.pack import ExitPack, bind, load_heads  # noqa: E402
from offramp.exits.predictors import unit_rms  # noqa: E402
from offramp.llm.loading import load_model  # noqa: E402
from offramp.model.checkpoint import open_checkpoint  # noqa: E402
from offramp.model.executor import FINAL  # noqa: E402
from offramp.model.heads import HeadWeights  # noqa: E402
from offramp.testing.batches import chain, pack_rows  # noqa: E402
from offramp.train.decoder import Batch, read_decoder  # noqa: E402
from offramp.train.exits import training as training_module  # noqa: E402
from offramp.train.exits.fit import Part, evaluate, fit_head  # noqa: E402
from offramp.train.exits.fit_all import lm_head  # noqa: E402
from offramp.train.exits.head import head_of, new_head  # noqa: E402
from offramp.train.exits.predictor import fit_predictor  # noqa: E402
from offramp.train.exits.recipe import Recipe  # noqa: E402
from offramp.train.exits.run import train_exits  # noqa: E402
from offramp.train.exits.targets import Targets  # noqa: E402

RECIPE = Recipe(
    layers=(1, 3),
    rank=16,
    max_tokens=24,
    temperature=1.0,
    minutes=9.0,
    epochs=3,
    batch_rows=64,
    learning_rate=2e-2,
    held_out=0.2,
    coverage=0.9,
)


def train(model: str, prompts: Path, out: Path, say: Callable[[str], None] = lambda line: None) -> ExitPack:
    work = out.with_name(f"{out.name}.work")
    return train_exits(model, prompts, out, RECIPE, weights="q8", threads=1, work=work, say=say)


@pytest.fixture(scope="module")
def states() -> np.ndarray:
    return np.random.default_rng(3).standard_normal((5000, 32)).astype(np.float16)


def test_heads_as_trained_are_heads_as_computed(toy_model: str, prompts_file: Path, tmp_path: Path) -> None:
    pack = train(toy_model, prompts_file, tmp_path / "pack")
    loaded = load_model(toy_model, weights="q8", threads=1)
    bind(pack, model_hash=loaded.source_hash, config=loaded.config)
    heads = load_heads(loaded.executor, pack)
    ids = pack.exits[1].head.vocab_ids
    assert ids is not None
    assert len(ids) < 0.9 * loaded.config.vocab_size
    matrix = lm_head(open_checkpoint(Path(toy_model)).weights("q8"), ids)
    lines = (tmp_path / "pack.work" / "answers.jsonl").read_text().splitlines()
    for fields in map(json.loads, lines[:4]):
        rows = pack_rows(chain([*fields["prompt"], *fields["answer"][:-1]]), [range(8)])
        h = loaded.executor.embed(rows)
        for layer in (1, 3):
            hidden = loaded.executor.run_layers(h, rows, 0, layer)
            seen = torch.from_numpy(hidden.numpy().astype(np.float16).astype(np.float32))  # as captured
            trained = head_of(pack.exits[layer].head, loaded.config.norm_eps).logits(seen, matrix).numpy()
            computed = loaded.executor.logits(hidden, heads[layer])
            own = loaded.executor.logits(hidden, FINAL, ids)
            assert np.abs(own - computed).max() > 0.2 * np.abs(computed).max(), "the head has learned nothing"
            # f16 states (2**-11) and int16 activations (2**-15) against f32
            assert np.abs(trained - computed).max() < 4e-3 * np.abs(computed).max()
            decided = np.diff(np.sort(computed, axis=1)[:, -2:], axis=1)[:, 0] > 8e-3 * np.abs(computed).max()
            assert decided.mean() > 0.8
            assert (trained.argmax(axis=1) == computed.argmax(axis=1))[decided].all()


def test_shared_exits_as_trained_are_those_computed(toy_model: str) -> None:
    """LayerSkip's view: the same norm and head at every depth."""
    loaded = load_model(toy_model, weights="q8", kv="f32", threads=1)
    decoder = read_decoder(open_checkpoint(Path(toy_model)).weights("q8"))
    ids = np.arange(3, 200, 3, dtype=np.int32)
    head = loaded.executor.add_head(HeadWeights(vocab_ids=ids))
    tokens = np.random.default_rng(0).integers(3, 260, 40).tolist()
    rows = pack_rows(chain(tokens), [range(8)])
    batch = Batch(torch.tensor([], dtype=torch.long), torch.tensor([tokens]), torch.full((1, 40), -1))
    h, x = loaded.executor.embed(rows), decoder.embed(batch)
    for layer in range(4):
        h, x = loaded.executor.run_layers(h, rows, layer, layer + 1), decoder.run_layer(layer, x, batch)
        trained = (decoder.norm(x, decoder.final_norm) @ decoder.head_rows(torch.from_numpy(ids)).t()).numpy()
        computed = loaded.executor.logits(h, head)
        assert np.abs(trained - computed).max() < 2e-3 * np.abs(computed).max()


def test_a_training_that_fails_for_want_of_prompts_leaves_nothing(
    toy_model: str, prompts_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = prompts_file.read_text().splitlines(keepends=True)
    few, better = tmp_path / "few.jsonl", prompts_file
    few.write_text("".join(lines[:2]))
    with pytest.raises(InvalidRequestError, match="too few"):
        train(toy_model, few, tmp_path / "pack")
    with monkeypatch.context() as patch:
        patch.setattr("offramp.train.exits.run.check_prompts", lambda *args: None)  # as if only answers were of no use
        with pytest.raises(InvalidRequestError, match="no usable prompts"):
            train(toy_model, few, tmp_path / "pack")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["few.jsonl", "prompts.jsonl"]
    assert train(toy_model, better, tmp_path / "pack").config.layers == (1, 3)


class KilledError(Exception):
    """Stands for a process that ends at any line."""


@pytest.mark.parametrize(
    "line", ["answered 32", "hidden states", "exit after 1 layers, epoch 2", "after 3 layers: agree"]
)
def test_an_interrupted_training_ends_as_if_it_had_not_been(
    line: str, toy_model: str, prompts_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(training_module, "TELL_SECONDS", -1.0)

    def die(said: str) -> None:
        if line in said:
            raise KilledError

    with pytest.raises(KilledError):
        train(toy_model, prompts_file, tmp_path / "parts", die)
    assert not (tmp_path / "parts").exists()
    parts, whole = (train(toy_model, prompts_file, tmp_path / name) for name in ("parts", "whole"))
    for name in ("exits.safetensors",):
        assert (tmp_path / "parts" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()
    assert parts.config.provenance["validation"] == whole.config.provenance["validation"]


def test_a_new_head_says_what_the_models_own_says(toy_model: str) -> None:
    loaded = load_model(toy_model, weights="q8", threads=1)
    source = open_checkpoint(Path(toy_model)).weights("q8")
    rows = pack_rows(chain(list(range(10, 40))), [range(8)])
    hidden = loaded.executor.run_layers(loaded.executor.embed(rows), rows, 0, 4)
    ids = np.arange(loaded.config.vocab_size, dtype=np.int32)
    head = new_head(torch.from_numpy(source.vector("final_norm")), 8, loaded.config.norm_eps, seed=0)
    logits = head.logits(torch.tensor(hidden.numpy()), lm_head(source, ids)).detach().numpy()
    computed = loaded.executor.logits(hidden, FINAL)
    assert np.abs(logits - computed).max() < 2e-3 * np.abs(computed).max()


def test_a_head_learns_what_its_states_tell(states: np.ndarray, tmp_path: Path) -> None:
    matrix = torch.randn(6, 32, generator=torch.Generator().manual_seed(0))
    states = states[:600]
    labels = (matrix @ torch.from_numpy(states[:, ::-1].astype(np.float32)).t()).argmax(dim=0).numpy()
    labels[:50] = -1
    targets = Targets(np.maximum(labels, 0)[:, None], np.ones((600, 1), np.float32), labels)
    trained, validation = (
        Part(states[some], targets.take(np.arange(600)[some])) for some in (slice(0, 500), slice(500, 600))
    )
    head = new_head(torch.ones(32), 32, 1e-6, seed=0)
    before = evaluate(head, matrix, validation)
    recipe = Recipe(epochs=60, batch_rows=64, learning_rate=1e-2, patience=60)
    told: list[str] = []
    fit_head(head, matrix, trained, validation, recipe, tmp_path / "c", progress=lambda: 0.0, say=told.append)
    after = evaluate(head, matrix, validation)
    assert before[1] < 0.3
    assert after[1] > 0.6
    assert after[0] < before[0]
    stopped = Recipe(epochs=60, patience=0, batch_rows=64, learning_rate=0.9)
    fit_head(
        new_head(torch.ones(32), 32, 1e-6, seed=0), matrix, trained, validation, stopped, tmp_path / "d",
        progress=lambda: 0.0, say=told.append,
    )  # fmt: skip
    assert len(told) < 60 + 30, "training that only gets worse goes on"


@pytest.mark.parametrize("kind", ["linear", "mlp"])
def test_a_predictor_learns_which_states_are_easy(kind: str, states: np.ndarray) -> None:
    agreed = states[:, 3] > 1.0  # one in six
    predictor = fit_predictor(kind, 8, states[:4000], agreed[:4000], states[4000:], agreed[4000:], seed=0)  # type: ignore[arg-type]
    passed = predictor.scores(states[4000:].astype(np.float32), None) >= 0.5
    assert passed[agreed[4000:]].mean() > 0.8
    assert passed[~agreed[4000:]].mean() < 0.3


def test_a_predictors_score_is_the_engines(states: np.ndarray) -> None:
    from offramp.train.exits import predictor as module

    agreed = states[:, 3] > 0
    kept = fit_predictor("mlp", 8, states[:4000], agreed[:4000], states[4000:], agreed[4000:], seed=0)
    tensors = {name: torch.from_numpy(getattr(kept, name)) for name in ("w1", "b1", "w2", "b2")}
    scores = torch.sigmoid(module._scores(tensors, torch.from_numpy(unit_rms(states.astype(np.float32))))).numpy()
    np.testing.assert_allclose(kept.scores(states.astype(np.float32), None), scores, rtol=1e-5, atol=1e-6)
