"""`offramp train drafter --kind student` on a tiny model: a model of some layers, and what its drafts are worth."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="needs torch (make oracle)")
pytestmark = pytest.mark.oracle

from offramp import LLM, RequestOptions, SamplingParams  # noqa: E402
from offramp.errors import InvalidRequestError, ResourceError, UnsupportedModelError  # noqa: E402
from offramp.llm.loading import load_model  # noqa: E402
from offramp.model.checkpoint import open_checkpoint  # noqa: E402
from offramp.model.config import ModelConfig, RopeConfig, YarnScaling  # noqa: E402
from offramp.model.families import FAMILIES  # noqa: E402
from offramp.testing.checkpoints import role_values, write_gguf, write_safetensors_checkpoint  # noqa: E402
from offramp.testing.families import family_config  # noqa: E402
from offramp.testing.models import chat_tokenizer, tokenizer_metadata  # noqa: E402
from offramp.testing.toy import toy_config, toy_source  # noqa: E402
from offramp.train.decoder import read_decoder  # noqa: E402
from offramp.train.drafter import fit as fit_module  # noqa: E402
from offramp.train.drafter.material import Material, is_drawn  # noqa: E402
from offramp.train.drafter.recipe import LOSS_NAMES, LossName  # noqa: E402
from offramp.train.drafter.states import Text  # noqa: E402
from offramp.train.drafter.validation import expected_tokens  # noqa: E402
from offramp.train.exits.answers import read_answers  # noqa: E402
from offramp.train.flat import FlatBatch  # noqa: E402
from offramp.train.hf_directory import write_directory  # noqa: E402
from offramp.train.low_rank import train_whole  # noqa: E402
from offramp.train.merge import trained_weights  # noqa: E402
from offramp.train.pairs import held_out, read_prompts  # noqa: E402
from offramp.train.prefill import chain_rows  # noqa: E402
from offramp.train.source import open_source  # noqa: E402
from offramp.train.student.batches import read_rows, taught, wanted_ids  # noqa: E402
from offramp.train.student.pupil import Student  # noqa: E402
from offramp.train.student.recipe import Recipe, spread_layers, with_layers  # noqa: E402
from offramp.train.student.run import ABOUT, Figures, train_student  # noqa: E402
from offramp.train.student.shallow import SomeLayers, shallow_config, shallow_files  # noqa: E402
from offramp.train.student.validation import accepted_rates, rates_by_place, right_tokens  # noqa: E402
from offramp.train.workers import Workers  # noqa: E402

V = 260
RECIPE = Recipe(
    vocabulary=200, other_ids=16, max_tokens=20, minutes=60.0, steps=40, batch_rows=400, held_out=0.2, context=64
)


def train(model: str, prompts: Path, out: Path, recipe: Recipe = RECIPE) -> Figures:
    work = out.with_name(f"{out.name}.work")
    return train_student(model, prompts, out, recipe, weights="q8", threads=1, work=work, say=lambda line: None)


def texts_of(rng: np.random.Generator, lengths: list[tuple[int, int]]) -> tuple[list[Text], np.ndarray]:
    texts, at = [], 0
    for number, (prompt, answer) in enumerate(lengths):
        tokens = rng.integers(0, V, prompt + answer).astype(np.int32)
        texts.append(Text(number, tokens, prompt - 1, at))
        at += prompt + answer - 1
    return texts, rng.standard_normal((at, 1, 64)).astype(np.float16)


def a_student(material: Material, recipe: Recipe = RECIPE) -> Student:
    decoder = read_decoder(toy_source(toy_config(num_layers=2), seed=4))
    return Student(decoder, train_whole(decoder), decoder.final_norm.detach().clone(), material, recipe)


def some_material(rng: np.random.Generator) -> Material:
    texts, states = texts_of(rng, [(3, 9), (5, 12), (2, 7), (40, 4), (1, 3)])
    return Material(texts, texts[:2], states, np.arange(0, V, 3, dtype=np.int32), len(texts))


def test_layers_lie_at_like_distances() -> None:
    assert spread_layers(6, 30) == (0, 6, 12, 17, 23, 29)
    assert spread_layers(1, 30) == (0,)
    assert spread_layers(2, 30) == (0, 29)
    for count in range(2, 13):
        layers = spread_layers(count, 13)
        assert (layers[0], layers[-1], len(layers)) == (0, 12, count)
        gaps = [b - a for a, b in pairwise(layers)]
        assert 1 <= min(gaps) <= max(gaps) <= min(gaps) + 1


def test_a_recipe_names_its_layers() -> None:
    assert with_layers(Recipe(), 30).layers == (0, 6, 12, 17, 23, 29)
    assert with_layers(Recipe(), 7).layers == (0, 3, 6)
    assert with_layers(Recipe(num_layers=2), 4) == Recipe(layers=(0, 3), num_layers=2)
    assert with_layers(Recipe(layers=(1, 2)), 4) == Recipe(layers=(1, 2), num_layers=2)


@pytest.mark.parametrize(
    ("recipe", "message"),
    [
        (Recipe(layers=(0, 4)), "layers 0,4 are impossible for a model of 4"),
        (Recipe(layers=(2, 1)), "layers 2,1 are impossible"),
        (Recipe(layers=(1, 1)), "layers 1,1 are impossible"),
        (Recipe(layers=(0, 1, 2, 3)), "layers 0,1,2,3 are impossible"),
        (Recipe(num_layers=4), "a student of 4 layers is impossible for a model of 4"),
        (Recipe(num_layers=0), "a student of 0 layers is impossible"),
        (Recipe(layers=(0, 1), num_layers=3), "contradict"),
    ],
)
def test_impossible_layers_are_refused(recipe: Recipe, message: str) -> None:
    with pytest.raises(InvalidRequestError, match=message):
        with_layers(recipe, 4)


def test_a_model_of_one_layer_has_no_student() -> None:
    with pytest.raises(InvalidRequestError, match="a student of 1 layers is impossible for a model of 1"):
        with_layers(Recipe(), 1)


def written_shallow(config: ModelConfig, fields: dict[str, object], layers: tuple[int, ...], folder: Path) -> Path:
    """A toy model's directory, and beside it that of some of its layers, which is returned."""
    weights = role_values(toy_source(config, seed=3))
    checkpoint = open_checkpoint(write_safetensors_checkpoint(folder / "in", config, weights, config_fields=fields))
    assert checkpoint.config == config
    source = SomeLayers(checkpoint.weights("f32"), shallow_config(config, layers), layers)
    weights_now = trained_weights(source, read_decoder(source))
    shallow = replace(checkpoint, config=source.config)
    write_directory(shallow, weights_now, folder / "out", files=shallow_files(checkpoint, layers))
    return folder / "out"


BY_RULE = {"layer_types": None, "sliding_window_pattern": 6, "max_window_layers": 3, "no_rope_layers": None}
"""Fields with which nothing is listed by layer, and the family's rule holds."""


@pytest.mark.parametrize("fields", [{}, BY_RULE], ids=["listed", "by-rule"])
@pytest.mark.parametrize("name", FAMILIES)
def test_every_family_can_be_written_with_some_of_its_layers(
    name: str, fields: dict[str, object], tmp_path: Path
) -> None:
    config, layers = family_config(name), (0, 3, 5, 6)
    weights = role_values(toy_source(config, seed=3))
    written = open_checkpoint(written_shallow(config, fields, layers, tmp_path))
    assert written.config == shallow_config(config, layers)
    for i, layer in enumerate(layers):
        assert written.config.attention_of(i) == config.attention_of(layer)
    for role, values in role_values(written.weights("f32")).items():
        there = f"layers.{layers[int(role.split('.')[1])]}.{role.split('.')[2]}" if role[:7] == "layers." else role
        np.testing.assert_allclose(values, weights[there], atol=2e-3, err_msg=role)


@pytest.mark.parametrize("fields", [{}, BY_RULE], ids=["listed", "by-rule"])
@pytest.mark.parametrize("name", FAMILIES)
def test_transformers_reads_it_likewise(name: str, fields: dict[str, object], tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    named = {"model_type": FAMILIES[name].hf_model_type, "pad_token_id": 0, **fields}
    if name == "gemma3":
        named["query_pre_attn_scalar"] = 16  # transformers takes no 16.0
    folder = written_shallow(family_config(name), named, (0, 3, 5, 6), tmp_path)
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager")
    tokens = torch.arange(2, 62)
    decoder = read_decoder(open_source(str(folder)).weights("f32"))
    batch = FlatBatch(tokens, (60,), torch.arange(60))
    with torch.no_grad():
        wanted = model.eval()(tokens[None]).logits[0]
        found = decoder.states_at(batch, (4,))[4] @ decoder.head_rows().t()
    assert (found - wanted).abs().max() < 1e-4 * wanted.abs().max()


def test_rows_and_targets_are_those_of_the_texts(rng: np.random.Generator) -> None:
    texts, states = texts_of(rng, [(3, 4), (1, 2)])
    part = taught(texts, states)
    assert part.rows.counts == (6, 2)
    assert part.rows.positions.tolist() == [0, 1, 2, 3, 4, 5, 0, 1]
    np.testing.assert_array_equal(part.rows.ids, np.concatenate([text.tokens[:-1] for text in texts]))
    assert part.target_rows.tolist() == [3, 4, 5, 7], "behind the answer's first token"
    np.testing.assert_array_equal(part.finals, states[[3, 4, 5, 7], 0].astype(np.float32))
    assert wanted_ids(texts).tolist() == [*texts[0].tokens[4:], texts[1].tokens[2]]
    assert read_rows(texts).target_rows.tolist() == part.target_rows.tolist()


@pytest.mark.parametrize("loss", LOSS_NAMES)
def test_parts_add_up_to_the_whole(loss: LossName, rng: np.random.Generator) -> None:
    material = some_material(rng)
    student = a_student(material, replace(RECIPE, loss=loss))
    found = []
    for count in (1, 2, 4):
        lesson = student.lesson(material.taught, 7, count)
        assert len(lesson.parts) == count
        workers = Workers(count)
        found.append(workers.gradients(lesson.parts, lesson.leaves, lesson.loss))
        workers.close()
    for gradients, losses in found[1:]:
        assert losses[1] == pytest.approx(found[0][1][1], rel=1e-4)
        for own, wanted in zip(gradients, found[0][0], strict=True):
            torch.testing.assert_close(own, wanted, rtol=1e-3, atol=1e-6)
    assert all(gradient.any() for gradient in found[0][0])


def test_a_target_that_is_the_student_teaches_nothing(rng: np.random.Generator) -> None:
    """Its own final states: the loss is 0, and so is the gradient."""
    texts, states = texts_of(rng, [(3, 9), (5, 12)])
    student = a_student(Material(texts, texts, states, np.arange(0, V, 3, dtype=np.int32), 2))
    batch = read_rows(texts)
    with torch.no_grad():
        x = student.decoder.embed(batch)
        for layer in range(2):
            x = student.decoder.run_layer(layer, x, batch)
    states[:, 0] = x.numpy().astype(np.float16)
    lesson = student.lesson(texts, 0, 1)
    loss, _ = lesson.loss(0, lesson.parts[0])
    assert abs(loss.item()) < 1e-5
    assert max(gradient.abs().max() for gradient in torch.autograd.grad(loss, lesson.leaves)) < 1e-3


def test_lessons_depend_on_seed_and_step_alone(rng: np.random.Generator) -> None:
    material = some_material(rng)

    def loss(step: int, seed: int = 0) -> float:
        lesson = a_student(material, replace(RECIPE, seed=seed)).lesson(material.taught, step, 1)
        return float(lesson.loss(0, lesson.parts[0])[0].detach())

    assert loss(3) == loss(3)
    assert len({loss(3), loss(4), loss(3, seed=1)}) == 3


def slow_rates(texts: list[list[bool]], places: int) -> tuple[list[float], list[int]]:
    drafts = [right[start : start + places] for right in texts for start in range(len(right))]
    stood = [sum(len(draft) > place and all(draft[: place + 1]) for draft in drafts) for place in range(places)]
    tested = [sum(len(draft) > place and all(draft[:place]) for draft in drafts) for place in range(places)]
    return [s / t if t else 0.0 for s, t in zip(stood, tested, strict=True)], tested


def test_rates_are_counted_draft_by_draft(rng: np.random.Generator) -> None:
    texts = [rng.random(count) < 0.7 for count in (30, 1, 2, 17)]
    assert rates_by_place(texts, 3) == slow_rates([text.tolist() for text in texts], 3)
    assert rates_by_place([np.array([False])], 3) == ([0.0, 0.0, 0.0], [1, 0, 0])
    assert rates_by_place([np.ones(5, np.bool_)], 3) == ([1.0, 1.0, 1.0], [5, 4, 3])


@pytest.fixture(scope="module")
def shallow_minded(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A tiny model whose two middle layers change little."""
    config = toy_config(vocab_size=chat_tokenizer().vocab_size)
    weights = role_values(toy_source(config, 3))
    for layer in (1, 2):
        for part in ("o", "down"):
            weights[f"layers.{layer}.{part}"] *= np.float32(0.2)
    path = tmp_path_factory.mktemp("model") / "toy.gguf"
    return str(write_gguf(path, config, weights, metadata=tokenizer_metadata()))


def test_rates_among_some_tokens_are_those_of_a_head_of_these(rng: np.random.Generator) -> None:
    texts, _ = texts_of(rng, [(3, 30), (9, 25)])
    decoder = a_student(some_material(rng)).decoder
    whole = accepted_rates(decoder, texts)
    assert accepted_rates(decoder, texts, np.arange(V, dtype=np.int32)) == whole
    ids = np.union1d(np.arange(0, V, 5), wanted_ids(texts))
    with torch.no_grad():
        states = decoder.states_at(read_rows(texts), (2,))[2]
    said = ids[(states @ decoder.embedding[ids].t()).argmax(dim=1)]
    right = np.concatenate(right_tokens(decoder, texts, torch.from_numpy(ids)))
    np.testing.assert_array_equal(right, said == wanted_ids(texts))
    assert accepted_rates(decoder, texts, np.arange(0, V, 5, dtype=np.int32))[0][0] == right.mean()


def test_a_student_is_trained_and_drafts(shallow_minded: str, prompts_file: Path, tmp_path: Path) -> None:
    about = train(shallow_minded, prompts_file, tmp_path / "out")
    assert json.loads(json.dumps(about)) == json.loads((tmp_path / "out" / ABOUT).read_text())
    assert about["model"] == open_checkpoint(Path(shallow_minded)).source_hash()
    assert about["recipe"]["layers"] == (0, 3)
    assert about["steps"] == 40
    best = max(about["curve"], key=lambda point: expected_tokens(point["rates"]))
    assert about["best"]["tokens_a_draft"] == pytest.approx(expected_tokens(best["rates"]), abs=2e-3)
    source = open_checkpoint(Path(shallow_minded))
    fresh = read_decoder(SomeLayers(source.weights("f32"), shallow_config(source.config, (0, 3)), (0, 3)))
    untrained, _ = accepted_rates(fresh, kept_texts(prompts_file, tmp_path / "out.work"))
    assert about["validation"]["accepted"][0] > untrained[0] + 0.03, "it has learned"
    assert about["validation"]["tested"][0] > 100
    params = SamplingParams(temperature=0, max_tokens=24)
    prompts = ["say 3 please", "say 33 please"]
    with LLM(shallow_minded, weights="q8", threads=1, draft="off") as llm:
        plain = [output.outputs[0].token_ids for output in llm.generate(prompts, params)]
    with LLM(
        shallow_minded, weights="q8", threads=1, draft_model=tmp_path / "out", draft_length="fixed", max_draft=3
    ) as llm:
        outputs = llm.generate(prompts, params, RequestOptions(draft="model"))
    assert [output.outputs[0].token_ids for output in outputs] == plain
    drafted, accepted = (
        sum(getattr(output.report, name) for output in outputs) for name in ("num_draft_tokens", "num_accepted_tokens")
    )
    assert accepted > 0.1 * drafted > 0


@pytest.mark.parametrize(("loss", "most"), [("forward_kl", 0.9), ("reverse_kl", 0.9), ("jsd", 0.7), ("tvd", 0.4)])
def test_a_student_learns_what_can_be_told(loss: LossName, most: float, rng: np.random.Generator) -> None:
    """Texts that count: the next token is known from this one, and the target is sure of it."""
    texts, states = texts_of(rng, [(3, 20)] * 8)
    counting = [replace(text, tokens=(text.tokens[0] + np.arange(23, dtype=np.int32)) % V) for text in texts]
    student = a_student(Material(counting, counting, states, np.arange(0, V, 3, dtype=np.int32), 8))
    student = replace(student, recipe=replace(RECIPE, loss=loss))
    for text in counting:
        states[text.at : text.at + 22, 0] = student.decoder.embedding[text.tokens[1:].astype(int)].numpy() * 9
    before = student.quick_rates()
    optimizer = torch.optim.AdamW(student.trained.values(), lr=3e-3)
    for step in range(60):
        lesson = student.lesson(counting, step, 1)
        value, _ = lesson.loss(0, lesson.parts[0])
        optimizer.zero_grad()
        value.backward()
        optimizer.step()
    assert before[0] < 0.2 < most < min(student.quick_rates())


def kept_texts(prompts_file: Path, work: Path) -> list[Text]:
    """Those that a training kept aside."""
    prompts = read_prompts(prompts_file)
    answers = [a for a in read_answers(work / "answers.jsonl") if held_out(prompts[a.number], RECIPE.held_out, 0)]
    return [Text(a.number, np.array([*a.prompt, *a.answer], np.int32), len(a.prompt) - 1, 0) for a in answers]


def test_what_is_measured_is_what_the_engine_says(
    toy_model: str, prompts_file: Path, tmp_path: Path, rng: np.random.Generator
) -> None:
    train(toy_model, prompts_file, tmp_path / "out", replace(RECIPE, steps=3))
    decoder = read_decoder(open_source(str(tmp_path / "out")).weights("f32"))
    loaded = load_model(tmp_path / "out", weights="f32", kv="f32", threads=1)
    texts = kept_texts(prompts_file, tmp_path / "out.work")
    for text, right in zip(texts, right_tokens(decoder, texts), strict=True):
        rows = chain_rows(text.tokens[:-1], 0, text.num_rows)
        h = loaded.executor.run_layers(loaded.executor.embed(rows), rows, 0, 2)
        said = loaded.executor.top(h, 1).ids[text.first + 1 :, 0]
        np.testing.assert_array_equal(said == text.tokens[text.first + 2 :], right)


def test_held_out_answers_are_greedy_and_of_the_others_a_share_is_drawn(
    toy_model: str, prompts_file: Path, tmp_path: Path
) -> None:
    prompts = read_prompts(prompts_file)
    drawn = {prompt for prompt in prompts if is_drawn(prompt, RECIPE)}
    kept = {prompt for prompt in prompts if held_out(prompt, RECIPE.held_out, RECIPE.seed)}
    assert not drawn & kept
    assert 0.25 < len(drawn) / (len(prompts) - len(kept)) < 0.75
    assert not any(is_drawn(prompt, replace(RECIPE, drawn=0.0)) for prompt in prompts)
    assert {prompt for prompt in prompts if is_drawn(prompt, replace(RECIPE, drawn=1.0))} == set(prompts) - kept
    recipe = replace(RECIPE, steps=1, temperature=5.0)
    train(toy_model, prompts_file, tmp_path / "out", recipe)
    answers = read_answers(tmp_path / "out.work" / "answers.jsonl")
    with LLM(toy_model, weights="q8", threads=1, draft="off") as llm:
        outputs = llm.generate([list(a.prompt) for a in answers], SamplingParams(temperature=0, max_tokens=20))
    for answer, output in zip(answers, outputs, strict=True):
        greedy = list(answer.answer) == output.outputs[0].token_ids
        assert greedy != (prompts[answer.number] in drawn), prompts[answer.number]


class KilledError(Exception):
    """Stands for a process that ends at any line."""


def test_an_interrupted_training_ends_as_one_that_was_not(
    toy_model: str, prompts_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recipe = replace(RECIPE, steps=20, loss="jsd")
    whole = train(toy_model, prompts_file, tmp_path / "whole", recipe)
    descend = fit_module.descend
    for deadly in (5, 13):
        with monkeypatch.context() as patch:
            patch.setattr(fit_module, "SAVE_SECONDS", 0.0 if deadly == 5 else 1e9)  # at each step; at none

            def dying(state, gradients, rate, deadly=deadly):  # type: ignore[no-untyped-def]
                if state.step == deadly:
                    raise KilledError
                descend(state, gradients, rate)

            patch.setattr(fit_module, "descend", dying)
            with pytest.raises(KilledError):
                train(toy_model, prompts_file, tmp_path / "parts", recipe)
    assert not (tmp_path / "parts").exists()
    parts = train(toy_model, prompts_file, tmp_path / "parts", recipe)
    hashes = [open_checkpoint(tmp_path / name).source_hash() for name in ("parts", "whole")]
    assert hashes[0] == hashes[1]
    for name in ("best", "validation", "steps", "tokens"):
        assert parts[name] == whole[name]
    curves = [[(p["step"], p["tokens"], p["rates"]) for p in about["curve"]] for about in (parts, whole)]
    assert curves[0] == curves[1]
    (tmp_path / "whole").rename(tmp_path / "kept")
    with pytest.raises(InvalidRequestError, match="another training: layers differ"):
        train(toy_model, prompts_file, tmp_path / "whole", replace(recipe, layers=(1, 2)))


def test_what_can_not_become_a_student_is_refused_before_anything_is_made(
    toy_model: str, prompts_file: Path, tmp_path: Path
) -> None:
    before = sorted(tmp_path.iterdir())
    yarn = RopeConfig(rotary_dim=16, scaling=YarnScaling(factor=4.0, original_context=128, attention_factor=1.0))
    config = toy_config(vocab_size=chat_tokenizer().vocab_size, rope=yarn)
    scaled = write_gguf(
        tmp_path / "scaled.gguf", config, role_values(toy_source(config, 3)), metadata=tokenizer_metadata()
    )
    with pytest.raises(UnsupportedModelError, match="can't be written as a directory"):
        train(str(scaled), prompts_file, tmp_path / "out")
    with pytest.raises(InvalidRequestError, match="layers 0,9 are impossible"):
        train(toy_model, prompts_file, tmp_path / "out", replace(RECIPE, layers=(0, 9)))
    scaled.unlink()
    assert sorted(tmp_path.iterdir()) == before
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "file").touch()
    with pytest.raises(ResourceError, match="out exists already"):
        train(toy_model, prompts_file, tmp_path / "out")
    assert not (tmp_path / "out.work").exists()


def test_prompts_that_are_too_few_leave_nothing(toy_model: str, prompts_file: Path, tmp_path: Path) -> None:
    prompts_file.write_text(prompts_file.read_text().splitlines()[0])
    with pytest.raises(InvalidRequestError, match="1 usable prompts are too few"):
        train(toy_model, prompts_file, tmp_path / "out")
    assert [path.name for path in tmp_path.iterdir()] == [prompts_file.name]
