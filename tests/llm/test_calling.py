"""`LLM.chat` with tools: calls are read, forced and refused as over HTTP, and their special tokens are shown."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from offramp import LLM, InvalidRequestError, SamplingParams, StructuredOutputsParams
from offramp.llm.loading import LoadedModel
from offramp.llm.serving import Serving
from offramp.model.template import ChatTemplate
from offramp.model.tool_format import SPELLED
from offramp.testing.models import TEMPLATE, TOOL_TEMPLATE, TURN, chat_tokenizer, says, scripted_model
from offramp.testing.scripted import mixing
from tests.grammar.schemas import is_valid
from tests.serve.asking import CHAT, served

GREEDY = SamplingParams(temperature=0, max_tokens=100)
MESSAGES = [{"role": "user", "content": "hi"}]
FUNCTION = {"name": "f", "parameters": {"type": "object"}}
TOOLS = [{"type": "function", "function": FUNCTION}]
WEATHER_SCHEMA = {
    "type": "object",
    "properties": {"city": {"type": "string", "maxLength": 8}, "unit": {"enum": ["C", "F"]}},
    "required": ["city", "unit"],
    "additionalProperties": False,
}
WEATHER = {"type": "function", "function": {"name": "weather", "parameters": WEATHER_SCHEMA}}
STRICT = {"type": "function", "function": {"name": "weather", "parameters": WEATHER_SCHEMA, "strict": True}}
CLOCK = {"type": "function", "function": {"name": "clock"}}
NAMED = {"type": "function", "function": {"name": "weather"}}
SOME = {"type": "allowed_tools", "allowed_tools": {"mode": "required", "tools": [NAMED]}}
VOCAB = chat_tokenizer().vocab_size


def anything() -> LoadedModel:
    return scripted_model(mixing(VOCAB, first=3), num_pages=16, template=TOOL_TEMPLATE)


def test_chat_reads_calls() -> None:
    said = 'Well.\n<tool_call>\n{"name": "f", "arguments": {"a": 1}}\n</tool_call>'
    model = scripted_model(says(), num_pages=16, template=TOOL_TEMPLATE)
    prompt = chat_tokenizer().decode(LLM.from_loaded(model).encode_chat(MESSAGES, tools=TOOLS), skip_special=False)
    plain = "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n"
    llm = LLM.from_loaded(scripted_model(says((prompt, said), (plain, said)), num_pages=16, template=TOOL_TEMPLATE))
    for tools in (TOOLS, [FUNCTION]):
        [choice] = llm.chat(MESSAGES, GREEDY, tools=tools).outputs
        assert choice.text == said
        [call] = choice.tool_calls
        assert (call.name, call.arguments) == ("f", '{"a": 1}')
    for silent in (llm.chat(MESSAGES, GREEDY), llm.chat(MESSAGES, GREEDY, tools=TOOLS, tool_choice="none")):
        assert (silent.outputs[0].text, silent.outputs[0].tool_calls) == (said, ())
        assert silent.prompt_token_ids == chat_tokenizer().encode(plain)
    assert "".join(delta.text for delta in llm.stream_chat(MESSAGES, GREEDY, tools=TOOLS)) == said


def test_a_special_token_that_begins_calls_is_shown() -> None:
    """<|im_start|> stands in for [TOOL_CALLS]."""
    template = "{{ tools }}" + TEMPLATE
    tokenizer = chat_tokenizer()
    shown = tokenizer.special_texts[TURN]
    plain = scripted_model(says(), num_pages=16, template=template)
    prompt = tokenizer.decode(LLM.from_loaded(plain).encode_chat(MESSAGES, tools=TOOLS), skip_special=False)
    said = f'Well. {shown}{{"name": "f"}}'
    model = scripted_model(says((prompt, said)), num_pages=16, template=template)
    chat = model.template
    layout = replace(chat.tool_format, marker=shown, begin=shown)

    class Special(ChatTemplate):
        tool_format = layout

    llm = LLM.from_loaded(replace(model, template=Special({"default": template})))
    [choice] = llm.chat(MESSAGES, GREEDY, tools=TOOLS).outputs
    assert choice.text == said
    assert [call.name for call in choice.tool_calls] == ["f"]
    assert "".join(delta.text for delta in llm.stream_chat(MESSAGES, GREEDY, tools=TOOLS)) == said
    told = llm.generate(prompt, GREEDY)[0].outputs[0].text
    assert told == 'Well. {"name": "f"}'


ASKED: dict[str, tuple[dict[str, Any], tuple[int, int]]] = {  # and how many calls there may be
    "required": ({"tools": [WEATHER, CLOCK], "tool_choice": "required"}, (1, 99)),
    "named": ({"tools": [WEATHER, CLOCK], "tool_choice": NAMED}, (1, 1)),
    "single": ({"tools": [WEATHER, CLOCK], "tool_choice": "required", "parallel_tool_calls": False}, (1, 1)),
    "allowed": ({"tools": [WEATHER, CLOCK], "tool_choice": SOME}, (1, 99)),
    "strict": ({"tools": [STRICT]}, (0, 99)),
    "none": ({"tools": [WEATHER], "tool_choice": "none"}, (0, 0)),
}


@pytest.mark.parametrize("parser", ["auto", SPELLED.name])
@pytest.mark.parametrize("name", ASKED)
def test_it_answers_as_over_http(name: str, parser: str) -> None:
    asked, (least, most) = ASKED[name]
    serving = Serving(draft="off", tool_call_parser=parser)
    llm = LLM.from_loaded(anything(), serving)
    with served(anything(), serving) as api:
        for seed in range(2):
            params = SamplingParams(temperature=1.5, seed=seed, max_tokens=200, logit_bias={2: 100.0})
            [choice] = llm.chat(MESSAGES, params, **asked).outputs
            body = {"messages": MESSAGES, "temperature": 1.5, "seed": seed, "max_tokens": 200, "logit_bias": {"2": 100}}
            message = api.answer(CHAT, **body, **asked)["choices"][0]["message"]
            told = [call["function"] for call in message.get("tool_calls", [])]
            assert [{"name": call.name, "arguments": call.arguments} for call in choice.tool_calls] == told
            assert least <= len(told) <= most
            assert all(is_valid(call["arguments"], WEATHER_SCHEMA) for call in told if call["name"] == "weather")
            assert name != "allowed" or {call["name"] for call in told} == {"weather"}
            streamed = "".join(delta.text for delta in llm.stream_chat(MESSAGES, params, **asked))
            assert streamed == choice.text


def test_json_or_calls() -> None:
    llm = LLM.from_loaded(anything())
    schema = {
        "type": "object",
        "properties": {"sum": {"enum": [1, 2]}},
        "required": ["sum"],
        "additionalProperties": False,
    }
    for first, num_calls in (("{", 0), ("<", 1)):
        [token] = chat_tokenizer().encode(first)
        structure = StructuredOutputsParams(json=schema, disable_any_whitespace=True)
        params = replace(GREEDY, max_tokens=200, logit_bias={token: 100.0}, structured_outputs=structure)
        [choice] = llm.chat(MESSAGES, params, tools=[STRICT], parallel_tool_calls=False).outputs
        assert len(choice.tool_calls) == num_calls
        assert is_valid(
            choice.tool_calls[0].arguments if num_calls else choice.text, WEATHER_SCHEMA if num_calls else schema
        )


@pytest.mark.parametrize(
    ("asked", "param"),
    [
        ({"tools": 5}, "tools"),
        ({"tools": "f"}, "tools"),
        ({"tools": [{}]}, "tools[0].type"),
        ({"tools": [{"type": "function", "function": 5}]}, "tools[0].function"),
        ({"tools": [{"type": "function", "function": {"name": 5}}]}, "tools[0].function.name"),
        ({"tools": [{"name": "f", "return": {}}]}, "tools[0].return"),
        ({"tools": [CLOCK, CLOCK]}, "tools[1].function.name"),
        ({"tools": [{"name": "f", "parameters": {"properties": {"a": {1, 2}}}}]}, "tools[0].parameters"),
        ({"tools": [{"name": "f", "parameters": {"not": {}}, "strict": True}]}, "tools[0].parameters"),
        ({"tool_choice": "required"}, "tool_choice"),
        ({"tools": [CLOCK], "tool_choice": "any"}, "tool_choice"),
        ({"tools": [CLOCK], "tool_choice": NAMED}, "tool_choice.function.name"),
        ({"tools": [CLOCK], "parallel_tool_calls": 1}, "parallel_tool_calls"),
    ],
)
@pytest.mark.parametrize("stream", [False, True])
def test_what_can_not_be_is_refused_by_name(asked: dict[str, Any], param: str, stream: bool) -> None:
    llm = LLM.from_loaded(anything())
    with pytest.raises(InvalidRequestError) as refusal:
        (llm.stream_chat if stream else llm.chat)(MESSAGES, GREEDY, **asked)
    assert refusal.value.param == param
    assert not llm.statistics.num_steps


def test_nothing_goes_on_behind_a_call() -> None:
    llm = LLM.from_loaded(anything())
    with pytest.raises(InvalidRequestError, match="calls end the answer"):
        llm.chat(MESSAGES, replace(GREEDY, ignore_eos=True), tools=[CLOCK], tool_choice="required")


def test_a_template_without_tools_refuses_them() -> None:
    llm = LLM.from_loaded(scripted_model(says(), num_pages=16))
    with pytest.raises(InvalidRequestError, match="no place for tools"):
        llm.chat(MESSAGES, GREEDY, tools=TOOLS)
    assert llm.chat(MESSAGES, GREEDY, tools=TOOLS, tool_choice="none").outputs[0].tool_calls == ()
