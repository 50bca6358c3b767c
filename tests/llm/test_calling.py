"""`LLM.chat` with tools reads the calls in its answer; special tokens that belong to them are shown there alone."""

from __future__ import annotations

from dataclasses import replace

import pytest

from offramp import LLM, SamplingParams
from offramp.llm.calling import function_names
from offramp.model.template import ChatTemplate
from offramp.testing.models import TEMPLATE, TOOL_TEMPLATE, TURN, chat_tokenizer, says, scripted_model

GREEDY = SamplingParams(temperature=0, max_tokens=100)
MESSAGES = [{"role": "user", "content": "hi"}]
TOOLS = [{"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}]


def test_chat_reads_calls() -> None:
    said = 'Well.\n<tool_call>\n{"name": "f", "arguments": {"a": 1}}\n</tool_call>'
    model = scripted_model(says(), num_pages=16, template=TOOL_TEMPLATE)
    prompt = chat_tokenizer().decode(LLM.from_loaded(model).encode_chat(MESSAGES, tools=TOOLS), skip_special=False)
    plain = "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n"
    llm = LLM.from_loaded(scripted_model(says((prompt, said), (plain, said)), num_pages=16, template=TOOL_TEMPLATE))
    [choice] = llm.chat(MESSAGES, GREEDY, tools=TOOLS).outputs
    assert choice.text == said
    [call] = choice.tool_calls
    assert (call.name, call.arguments) == ("f", '{"a": 1}')
    [untold] = llm.chat(MESSAGES, GREEDY).outputs
    assert (untold.text, untold.tool_calls) == (said, ())
    assert "".join(delta.text for delta in llm.stream_chat(MESSAGES, GREEDY, tools=TOOLS)) == said


def test_a_special_token_that_begins_calls_is_shown() -> None:
    """<|im_start|> stands in for [TOOL_CALLS]."""
    template = "{{ tools }}" + TEMPLATE
    tokenizer = chat_tokenizer()
    shown = tokenizer.special_texts[TURN]
    plain = scripted_model(says(), num_pages=16, template=template)
    prompt = tokenizer.decode(LLM.from_loaded(plain).encode_chat(MESSAGES, tools=TOOLS), skip_special=False)
    model = scripted_model(says((prompt, f'Well. {shown}{{"name": "f"}}')), num_pages=16, template=template)
    chat = model.template
    layout = replace(chat.tool_format, marker=shown, begin=shown)

    class Special(ChatTemplate):
        tool_format = layout

    llm = LLM.from_loaded(replace(model, template=Special({"default": template})))
    [choice] = llm.chat(MESSAGES, GREEDY, tools=TOOLS).outputs
    assert choice.text == f'Well. {shown}{{"name": "f"}}'
    assert [call.name for call in choice.tool_calls] == ["f"]
    told = llm.generate(prompt, GREEDY)[0].outputs[0].text
    assert told == 'Well. {"name": "f"}'


@pytest.mark.parametrize(
    ("tools", "names"),
    [(None, []), (TOOLS, ["f"]), ([{"name": "g"}, {}, {"function": 5}, {"function": {"name": 5}}], ["g"])],
)
def test_names_of_tools(tools: list[dict[str, object]] | None, names: list[str]) -> None:
    assert function_names(tools) == names
