"""Structured outputs from Python."""

from __future__ import annotations

from pathlib import Path

import pytest

from offramp import LLM, InvalidRequestError, RequestOptions, SamplingParams, StructuredOutputsParams
from offramp.llm.exit_settings import ExitSettings
from offramp.llm.promises import Promises
from offramp.llm.serving import Serving
from tests.grammar.schemas import is_valid

SCHEMA = {
    "type": "object",
    "properties": {"name": {"type": "string", "maxLength": 5}, "age": {"type": "integer", "minimum": 0, "maximum": 99}},
    "required": ["name", "age"],
    "additionalProperties": False,
}


def params(structure: StructuredOutputsParams, **more: object) -> SamplingParams:
    return SamplingParams(structured_outputs=structure, max_tokens=200, seed=1, **more)  # type: ignore[arg-type]


def test_texts_that_fit(toy_llm: LLM) -> None:
    structure = StructuredOutputsParams(json=SCHEMA, disable_any_whitespace=True)
    outputs = toy_llm.generate(["a", "bcd"], params(structure, n=2))
    plain = toy_llm.generate(["a", "bcd"], params(structure, n=2), RequestOptions(draft="off"))
    for output, other in zip(outputs, plain, strict=True):
        assert [choice.token_ids for choice in output.outputs] == [choice.token_ids for choice in other.outputs]
        assert all(is_valid(choice.text, SCHEMA) for choice in output.outputs)
    assert sum(output.report.num_accepted_tokens for output in outputs) > 0


def test_the_text_is_whole_with_stop_strings_and_in_streams(toy_llm: LLM) -> None:
    structure = StructuredOutputsParams(choice=["hello world!"])
    for stop in ((), ("!!",), ("d!x",)):
        assert toy_llm.generate("a", params(structure, stop=stop))[0].outputs[0].text == "hello world!"
    stopped = toy_llm.generate("a", params(structure, stop=(" wor",)))[0].outputs[0]
    assert (stopped.text, stopped.finish_reason) == ("hello", "stop")
    stream = toy_llm.stream_chat([{"role": "user", "content": "hi"}], params(structure))
    assert "".join(delta.text for delta in stream) == "hello world!"


def test_what_can_not_be_is_refused_before_anything_runs(toy_llm: LLM) -> None:
    with pytest.raises(InvalidRequestError, match="at #/items: Unimplemented") as failure:
        toy_llm.generate("a", params(StructuredOutputsParams(json={"items": {"not": {}}})))
    assert failure.value.param == "structured_outputs.json"
    assert not toy_llm.statistics.num_steps


@pytest.mark.parametrize("mode", ["calibrated", "unchecked"])
def test_exits_do_not_know_the_grammar(toy_llm: LLM, mode: str) -> None:
    serving = Serving(exits=ExitSettings())
    promises = Promises(toy_llm.model, serving)
    how = serving.execution(RequestOptions(mode=mode), toy_llm.model.tokenizer)
    with pytest.raises(InvalidRequestError, match="exits don't know the grammar") as failure:
        promises.keep(how, params(StructuredOutputsParams(regex="a")))
    assert failure.value.param == "mode"


@pytest.mark.real_model
def test_the_default_model(default_model_path: Path) -> None:
    questions = ('Say {"name": Joe, "age": "x"', "\u4e16\u754c?")
    chats = [[{"role": "user", "content": question}] for question in questions]
    with LLM(str(default_model_path), max_context=512) as llm:
        for chat, tight in zip(chats, (False, True), strict=True):
            asked = params(StructuredOutputsParams(json=SCHEMA, disable_any_whitespace=tight), temperature=0.8)
            [text] = [choice.text for choice in llm.chat(chat, asked).outputs]
            assert llm.chat(chat, asked, RequestOptions(draft="off")).outputs[0].text == text
            assert is_valid(text, SCHEMA)
