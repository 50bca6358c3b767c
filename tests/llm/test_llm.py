"""The front door over scripted models, whose answers are known, and over a tiny real one."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from offramp import (
    LLM,
    ContextLengthError,
    InvalidRequestError,
    ModelNotFoundError,
    NumericError,
    RequestOptions,
    ResourceError,
    SamplingParams,
)
from offramp.llm.serving import Serving
from offramp.testing.models import END_OF_TURN, chat_tokenizer, loaded_model, says, scripted_model, write_chat_model
from offramp.testing.scripted import Script, ScriptedModel, mixing

GREEDY = SamplingParams(temperature=0)
TOKENIZER = chat_tokenizer()
VOCAB = TOKENIZER.vocab_size


def scripted(script: Script, **options: Any) -> LLM:
    return LLM.from_loaded(scripted_model(script), Serving(**options))


def test_generate_answers_each_prompt_in_order() -> None:
    llm = scripted(says(("one", " eins"), ("two", " zwei"), ("three", " drei")))
    outputs = llm.generate(["three", "one", "two"], GREEDY)
    assert [output.prompt for output in outputs] == ["three", "one", "two"]
    assert [output.outputs[0].text for output in outputs] == [" drei", " eins", " zwei"]
    assert outputs[0].prompt_token_ids == TOKENIZER.encode("three")
    first = outputs[1].outputs[0]
    assert first.token_ids == [*TOKENIZER.encode(" eins"), END_OF_TURN]
    assert (first.finish_reason, first.index, first.error, first.logprobs) == ("stop", 0, None, None)


def test_no_prompts_no_answers() -> None:
    assert scripted(mixing(VOCAB)).generate([]) == []


def test_ids_are_prompts_too() -> None:
    llm = scripted(says(("one", " eins")))
    [output] = llm.generate(TOKENIZER.encode("one"), GREEDY)
    assert (output.prompt, output.outputs[0].text) == (None, " eins")


def test_each_prompt_may_have_its_own_parameters() -> None:
    llm = scripted(says(("one", " eins"), ("two", " zwei")))
    outputs = llm.generate(["one", "two"], [GREEDY, SamplingParams(temperature=0, max_tokens=2)])
    assert [output.outputs[0].finish_reason for output in outputs] == ["stop", "length"]
    assert outputs[1].outputs[0].token_ids == TOKENIZER.encode(" zwei")[:2]


def test_chat_goes_through_the_template() -> None:
    prompt = "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n"
    llm = scripted(says((prompt, "hello!")))
    output = llm.chat([{"role": "user", "content": "hi"}], GREEDY)
    assert output.outputs[0].text == "hello!"
    assert output.prompt_token_ids == TOKENIZER.encode(prompt)
    assert "".join(d.text for d in llm.stream_chat([{"role": "user", "content": "hi"}], GREEDY)) == "hello!"


def test_roles_of_a_chat_are_those_of_the_server() -> None:
    llm = scripted(says())
    for role in ("robot", "function", "User"):
        with pytest.raises(InvalidRequestError, match=r"messages\[1\]\.role=") as caught:
            llm.encode_chat([{"role": "user", "content": "a"}, {"role": role, "content": "b"}])
        assert "developer" in caught.value.hint
    told = [llm.encode_chat([{"role": role, "content": "a"}]) for role in ("developer", "system")]
    assert told[0] == told[1]


def test_variables_reach_the_chat_template() -> None:
    llm = LLM.from_loaded(scripted_model(mixing(VOCAB, first=3)))
    messages = [{"role": "user", "content": "hi"}]
    given = {"chat_template_kwargs": {"opening": "well"}}
    ids = llm.encode_chat(messages, **given)
    assert ids == llm.encode_chat(messages) + TOKENIZER.encode("well")
    output = llm.chat(messages, GREEDY, **given)
    assert output.prompt_token_ids == ids
    stream = llm.stream_chat(messages, GREEDY, **given)
    assert "".join(delta.text for delta in stream) == output.outputs[0].text
    for refused in (
        {"chat_template_kwargs": {"enable_thinking": False}},
        {"chat_template_kwargs": {"messages": []}},
        {"tools": [{"name": "f"}]},
        {"documents": [{"text": "t"}]},
    ):
        with pytest.raises(InvalidRequestError) as caught:
            llm.chat(messages, GREEDY, **refused)  # type: ignore[arg-type]
        assert caught.value.param == next(iter(refused))


def test_a_stream_says_what_generate_says() -> None:
    llm = scripted(mixing(VOCAB))
    params = SamplingParams(seed=5, max_tokens=40, logprobs=2, prompt_logprobs=1, n=3)
    [whole] = llm.generate("hello", params)
    deltas = list(llm.stream("hello", params))
    for choice in whole.outputs:
        own = [delta for delta in deltas if delta.index == choice.index]
        assert "".join(delta.text for delta in own) == choice.text
        assert [token for delta in own for token in delta.token_ids] == choice.token_ids
        assert [entry for delta in own for entry in delta.logprobs or ()] == choice.logprobs
        assert [delta.finish_reason for delta in own] == [*[None] * (len(own) - 1), choice.finish_reason]
        assert {delta.seed for delta in own} == {choice.seed}
    assert [delta.report is not None for delta in deltas] == [False] * (len(deltas) - 1) + [True]
    assert [d.prompt_logprobs for d in deltas if d.prompt_logprobs] == [whole.prompt_logprobs]


def test_the_report_counts_tokens_and_time() -> None:
    llm = scripted(mixing(VOCAB))
    params = SamplingParams(temperature=0, max_tokens=10, ignore_eos=True)
    prompt = list(range(3, 73))
    first, again = (llm.generate(prompt, params)[0].report for _ in range(2))
    assert (first.prompt_tokens, first.cached_tokens, first.output_tokens) == (70, 0, 10)
    assert (again.prompt_tokens, again.cached_tokens) == (70, 64)
    assert first.finish_reasons == ("length",)
    assert (first.mode, first.mean_exit_layer, first.exact_kv) == ("lossless", 2.0, True)
    assert first.prefill_seconds > 0
    assert first.decode_seconds > 0
    assert first.tokens_per_second == pytest.approx(9 / first.decode_seconds)


def test_one_token_has_no_speed() -> None:
    report = scripted(mixing(VOCAB)).generate("x", SamplingParams(temperature=0, max_tokens=1))[0].report
    assert (report.output_tokens, report.tokens_per_second) == (1, None)


def test_no_seed_means_a_fresh_one_which_repeats_the_answer() -> None:
    llm = scripted(mixing(VOCAB))
    one, two = (llm.generate("x", SamplingParams(temperature=2.0, max_tokens=30))[0].outputs[0] for _ in range(2))
    assert one.seed != two.seed
    again = llm.generate("x", SamplingParams(temperature=2.0, max_tokens=30, seed=one.seed))[0].outputs[0]
    assert again.token_ids == one.token_ids != two.token_ids


def failing(bad: str, at: int) -> Script:
    """NaN logits once a sequence that starts with `bad` has `at` tokens; else a hash of the history."""
    prefix, well = tuple(TOKENIZER.encode(bad)), mixing(VOCAB, first=3)

    def script(history: tuple[int, ...], depth: int) -> NDArray[np.float32]:
        if history[: len(prefix)] == prefix and len(history) >= at:
            return np.full(VOCAB, np.nan, np.float32)
        return well(history, depth)

    return script


def test_a_failing_prompt_carries_its_error_and_leaves_the_others_alone() -> None:
    params = SamplingParams(temperature=0, max_tokens=20)
    [alone] = scripted(mixing(VOCAB, first=3)).generate("fine", params)
    llm = scripted(failing("bad", 8))
    bad, fine = llm.generate(["bad", "fine"], params)
    assert fine.outputs[0].token_ids == alone.outputs[0].token_ids
    assert (bad.outputs[0].finish_reason, len(bad.outputs[0].token_ids)) == ("error", 5)
    assert isinstance(bad.outputs[0].error, NumericError)
    last = list(llm.stream("bad", params))[-1]
    assert last.finish_reason == "error"
    assert isinstance(last.error, NumericError)
    assert llm.statistics.num_used_pages == 0


def test_an_impossible_prompt_refuses_the_call_before_anything_runs() -> None:
    llm = scripted(mixing(VOCAB))
    with pytest.raises(InvalidRequestError, match=f"token id {VOCAB}"):
        llm.generate([[5], [VOCAB]], GREEDY)
    with pytest.raises(ContextLengthError):
        llm.generate([[5], [5] * 4000], GREEDY)
    assert llm.statistics.num_steps == 0
    assert llm.statistics.num_running + llm.statistics.num_waiting == 0
    assert llm.generate([5], SamplingParams(temperature=0, max_tokens=1))[0].report.output_tokens == 1


def test_streams_may_interleave() -> None:
    llm = scripted(says(("one", " eins!"), ("two", " zwei!")))
    one, two = llm.stream("one", GREEDY), llm.stream("two", GREEDY)
    texts = ["", ""]
    for first, second in zip(one, two, strict=True):
        texts = [texts[0] + first.text, texts[1] + second.text]
    assert texts == [" eins!", " zwei!"]


@pytest.mark.parametrize("leave", ["close", "drop", "with"])
def test_leaving_a_stream_early_returns_its_pages(leave: str) -> None:
    llm = scripted(mixing(VOCAB, first=3))
    stream = llm.stream("hello", SamplingParams(temperature=0, max_tokens=None))
    next(stream)
    assert llm.statistics.num_used_pages > 0
    if leave == "close":
        stream.close()
        assert list(stream) == []
    elif leave == "with":
        with stream:
            next(stream)
    del stream
    assert llm.statistics.num_used_pages == 0
    assert llm.statistics.num_finished["abort"] == 1


def test_a_stream_never_started_returns_its_pages() -> None:
    llm = scripted(mixing(VOCAB))
    llm.stream("hello")  # dropped at once
    assert llm.statistics.num_running + llm.statistics.num_waiting == 0


def test_threads_share_one_model() -> None:
    llm = scripted(mixing(VOCAB, first=3))
    params = SamplingParams(temperature=0, max_tokens=30)
    prompts = ["one", "two", "three", "four"]
    expected = [output.outputs[0].text for output in llm.generate(prompts, params)]
    found: dict[str, str] = {}

    def work(prompt: str) -> None:
        found[prompt] = llm.generate(prompt, params)[0].outputs[0].text

    threads = [threading.Thread(target=work, args=(prompt,)) for prompt in prompts]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=30)
    assert [found[prompt] for prompt in prompts] == expected


def test_a_closed_llm_refuses() -> None:
    with scripted(mixing(VOCAB)) as llm:
        stream = llm.stream("x", SamplingParams(temperature=0, max_tokens=None))
        next(stream)
    assert llm.statistics.num_used_pages == 0
    for call in (lambda: llm.generate("x"), lambda: llm.stream("x"), lambda: next(stream)):
        with pytest.raises(InvalidRequestError, match="closed"):
            call()
    llm.close()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"mode": "calibrated"}, "mode='calibrated' needs an exit pack"),
        ({"mode": "unchecked"}, "mode='unchecked' needs an exit pack"),
        ({"mode": "fast"}, "mode='fast' is impossible"),
        ({"draft": "ngrams"}, "'ngrams'"),
        ({"exits": "pack"}, "exits='pack'"),
        ({"weights": "q5"}, "weights='q5' is impossible"),
        ({"kv": "q8"}, "kv='q8' is impossible"),
        ({"threads": 0}, "threads=0"),
        ({"max_context": 257}, "max_context=257"),
        ({"max_num_seqs": 0}, "max_num_seqs=0"),
        ({"max_num_batched_tokens": 0}, "max_num_batched_tokens=0"),
        ({"kv_memory": "much"}, "kv_memory='much'"),
    ],
)
def test_options_that_cannot_be_honoured_are_refused_by_name(
    toy_path: Path, own_cache: Path, options: dict[str, Any], message: str
) -> None:
    with pytest.raises(InvalidRequestError, match=message) as caught:
        LLM(str(toy_path), **options)
    assert caught.value.hint


def test_full_mode_says_so(toy_path: Path, own_cache: Path) -> None:
    with LLM(toy_path, mode="full", threads=1) as llm:
        assert llm.model.name == str(toy_path)
        assert llm.generate("a", SamplingParams(max_tokens=1))[0].report.mode == "full"


def test_too_little_memory_names_both_figures(toy_path: Path, own_cache: Path) -> None:
    with pytest.raises(ResourceError, match=r"8589934592\.0 MiB .* asked for, and .* MiB are available"):
        LLM(str(toy_path), kv_memory=2**53)


def test_an_unwritable_cache_is_a_clear_error(toy_path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("OFFRAMP_CACHE", str(tmp_path / "file"))
    with pytest.raises(ResourceError, match="can't write") as caught:
        LLM(str(toy_path))
    assert "OFFRAMP_CACHE" in caught.value.hint


def test_a_model_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(ModelNotFoundError):
        LLM(str(tmp_path / "none.gguf"))


def test_a_real_tiny_model_gives_the_same_through_every_door(toy_llm: LLM) -> None:
    params = SamplingParams(seed=1, max_tokens=20, ignore_eos=True)
    [output] = toy_llm.generate("hello", params)
    assert "".join(delta.text for delta in toy_llm.stream("hello", params)) == output.outputs[0].text
    assert toy_llm.generate(output.prompt_token_ids, params)[0].outputs == output.outputs
    assert len(set(output.outputs[0].token_ids)) > 5
    assert toy_llm.model.source_hash


def test_a_second_start_reads_the_prepared_weights(
    toy_path: Path, own_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    LLM(str(toy_path))
    monkeypatch.setattr("offramp.model.weights.StoredWeights.matrix", _never)
    with LLM(str(toy_path)) as llm:
        assert llm.generate("a", SamplingParams(max_tokens=1))[0].report.output_tokens == 1


def test_conversions_are_told_when_weights_are_prepared(
    tmp_path: Path, own_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[str] = []
    monkeypatch.setattr("offramp.model.checkpoint.log_foreign_types", lambda tensors, where: told.append(where))
    path = write_chat_model(tmp_path / "fresh.gguf")
    for _ in range(2):
        LLM(str(path), threads=1).close()
        assert told == ["fresh.gguf"]


def _never(*args: object) -> None:
    raise AssertionError("a stored tensor was read")


def test_the_model_names_no_template(make_untemplated: Callable[[], LLM]) -> None:
    llm = make_untemplated()
    with pytest.raises(InvalidRequestError, match="no chat template"):
        llm.chat([{"role": "user", "content": "hi"}])
    assert llm.generate("hi", SamplingParams(max_tokens=1))[0].report.output_tokens == 1


@pytest.fixture
def make_untemplated() -> Callable[[], LLM]:
    def make() -> LLM:
        executor = ScriptedModel(mixing(VOCAB), num_pages=4, vocab_size=VOCAB)
        return LLM.from_loaded(loaded_model(executor, template=None))

    return make


@pytest.mark.parametrize("options", [{"draft": "off"}, 1, "auto", [RequestOptions()]])
def test_options_of_another_type_are_refused_by_name(options: Any) -> None:
    llm = scripted(says(("x", "y")))
    for call in (llm.generate, llm.stream):
        with pytest.raises(InvalidRequestError, match=r"^options=") as caught:
            call("x", GREEDY, options)
        assert caught.value.param == "options"
