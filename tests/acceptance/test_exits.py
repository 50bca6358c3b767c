"""Faults of early exit in other engines, through Python and over HTTP. Names carry the case's id."""

from __future__ import annotations

from pathlib import Path

import pytest

from offramp import LLM, InvalidRequestError, RequestOptions, SamplingParams
from offramp.llm.loading import LoadedModel, load_model
from offramp.model.executor import FINAL
from offramp.sample.logprobs import raw_logprobs
from offramp.testing.batches import chain, pack_rows
from offramp.testing.models import write_chat_model
from tests.llm.exiting import ALWAYS, DEPTH, serving, toy_pack, with_pack
from tests.serve.asking import COMPLETIONS, served

PROMPT = "hello"
GREEDY = SamplingParams(temperature=0, max_tokens=12, ignore_eos=True, logprobs=2)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_chat_model(tmp_path_factory.mktemp("model") / "toy.gguf")


@pytest.fixture(autouse=True)
def own_cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OFFRAMP_CACHE", str(tmp_path_factory.getbasetemp() / "cache"))


@pytest.fixture
def pack(model: Path, tmp_path: Path) -> Path:
    return toy_pack(tmp_path / "exits", model)


@pytest.fixture
def loaded(model: Path, pack: Path) -> LoadedModel:
    return with_pack(model, pack)


@pytest.mark.parametrize("temperature", [0.0, 0.8])
def test_b70_rest_layers_run_for_what_left_early(loaded: LoadedModel, pack: Path, temperature: float) -> None:
    params = SamplingParams(temperature=temperature, max_tokens=30, seed=3, ignore_eos=True)
    llm = LLM.from_loaded(loaded, serving(pack, "unchecked", threshold={2: ALWAYS}))
    [output] = llm.generate(PROMPT, params)
    assert len(output.outputs[0].token_ids) == 30
    assert llm.statistics.num_paid_debts >= 20
    assert output.report.exact_kv
    full = LLM.from_loaded(loaded, serving(pack, "unchecked", threshold={2: 2.0})).generate(PROMPT, params)
    assert full[0].outputs == llm.generate(PROMPT, params, RequestOptions(mode="full"))[0].outputs


def test_b72_depth_changes_the_answer_and_the_answer_says_which_mode_ran(loaded: LoadedModel, pack: Path) -> None:
    answers: dict[int, list[int]] = {}
    for layer in (1, 2, 3, DEPTH):
        threshold = {layer: ALWAYS} if layer < DEPTH else 2.0
        settings = serving(pack, threshold=threshold)
        [output] = LLM.from_loaded(loaded, settings).generate(PROMPT, GREEDY, RequestOptions(mode="unchecked"))
        answers[layer] = output.outputs[0].token_ids
        assert (output.report.mode, output.report.mean_exit_layer) == ("unchecked", (DEPTH + 11 * layer) / 12)
        with served(loaded, settings) as api:
            body = {"prompt": PROMPT, "temperature": 0, "max_tokens": 12, "ignore_eos": True}
            early = api.answer(COMPLETIONS, **body, offramp={"mode": "unchecked", "report": "tokens"})
            exact = api.answer(COMPLETIONS, **body)
        [told] = early["offramp"]["tokens"]
        assert [token["id"] for token in told] == answers[layer]
        assert [token["exit_layer"] for token in told] == [DEPTH, *[layer] * 11]
        assert (early["offramp"]["mode"], exact["offramp"]["mode"]) == ("unchecked", "lossless")
        assert exact["offramp"]["mean_exit_layer"] == DEPTH
        assert (early["choices"] == exact["choices"]) == (layer == DEPTH)
    full = LLM.from_loaded(loaded, serving(pack, "full")).generate(PROMPT, GREEDY)
    assert answers[DEPTH] == full[0].outputs[0].token_ids
    assert len({tuple(answer) for answer in answers.values()}) == 4


@pytest.mark.parametrize("layer", [1, 3])
def test_b74_exit_logits_are_those_of_the_normed_hidden_state(loaded: LoadedModel, pack: Path, layer: int) -> None:
    llm = LLM.from_loaded(loaded, serving(pack, "unchecked", threshold={layer: ALWAYS}))
    prompt = loaded.tokenizer.encode(PROMPT)
    [output] = llm.generate([prompt], SamplingParams(temperature=0, max_tokens=2, logprobs=3, ignore_eos=True))
    tokens, logprobs = output.outputs[0].token_ids, output.outputs[0].logprobs
    assert logprobs is not None
    executor, rows = load_model(loaded.name, threads=1).executor, pack_rows(chain([*prompt, tokens[0]]), [[0]])
    hidden = executor.run_layers(executor.embed(rows), rows, 0, layer)
    assert logprobs[1] == raw_logprobs(executor.logits(hidden, FINAL)[-1], tokens[1], 3)
    assert loaded.exits is not None
    last = executor.run_layers(hidden, rows, layer, DEPTH)
    assert (loaded.executor.logits(last, loaded.exits.heads[layer]) == executor.logits(last)).all()


def test_b76_a_stock_checkpoint_runs_and_refuses_exits_with_a_hint(model: Path) -> None:
    loaded = load_model(model, threads=1)
    assert LLM.from_loaded(loaded).generate(PROMPT, GREEDY)[0].report.mean_exit_layer == DEPTH
    with pytest.raises(InvalidRequestError, match="mode='calibrated' needs an exit pack") as caught:
        LLM(str(model), mode="calibrated", risk=0.05)
    assert "offramp train exits" in caught.value.hint
    with served(loaded) as api:
        for mode in ("calibrated", "unchecked"):
            error = api.refusal(COMPLETIONS, {"prompt": PROMPT, "offramp": {"mode": mode}})
            assert error["param"] == "offramp.mode"
            assert f"mode='{mode}': no exit pack is loaded" in error["message"]
        assert api.answer(COMPLETIONS, prompt=PROMPT)["offramp"]["mode"] == "lossless"
