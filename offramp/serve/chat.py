"""/v1/chat/completions: messages in, a message out."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

from offramp.engine.admission import check_prompt_len
from offramp.llm.output import CompletionOutput, RequestOutput, StreamDelta
from offramp.llm.tool_use import ToolUse, check_grammar_end, tool_use
from offramp.serve.asked import Asked, check_sizes, execution, include_usage
from offramp.serve.fields import CHAT
from offramp.serve.fitting import check_texts
from offramp.serve.logprobs import chat_logprobs, prompt_logprobs
from offramp.serve.messages import template_messages, texts_of
from offramp.serve.prompts import Prompt
from offramp.serve.sampling import chat_params
from offramp.serve.schema import ChatBody, read
from offramp.serve.served import Served
from offramp.serve.structure import grammar_of
from offramp.serve.tool_calls import SaidAndCalled
from offramp.serve.writing import Choice


def ask_chat(values: Mapping[str, object], served: Served) -> Asked:
    """The body as a request. Raises InvalidRequestError naming the field that can't be honoured."""
    body = read(ChatBody, CHAT.keep_honoured(values))
    model = served.name_of(body.model)
    use = tool_use(body.tools, body.tool_choice, body.parallel_tool_calls)
    return asked_of(body, template_messages(body.messages), use, model, served)


def asked_of(
    body: ChatBody, messages: Sequence[Mapping[str, object]], use: ToolUse, model: str, served: Served
) -> Asked:
    """Checked messages and tools, with the other fields of the body, as a request."""
    params = chat_params(body, served.defaults)
    check_grammar_end(params, use.grammar_of)
    how, kept = execution(body, served, params, body.prediction, grammar_of=use.grammar_of)
    usage = include_usage(body)
    check_texts(texts_of(messages), served.loaded, "messages")
    tools = use.for_template
    check_texts([json.dumps(tools)] if tools else [], served.loaded, "tools")
    token_ids = served.loaded.template.encode_chat(
        served.loaded.tokenizer, messages, tools=tools, variables=body.chat_template_kwargs
    )
    check_prompt_len(len(token_ids), served.loaded.max_context, "messages")
    prompts = (Prompt(token_ids),)
    check_sizes(prompts, body, params)
    return Asked(
        model=model,
        prompts=prompts,
        params=params,
        how=how,
        kept=kept,
        predicted=body.prediction is not None,
        stream=body.stream,
        include_usage=usage,
        cache_salt=body.cache_salt,
        grammar=use.grammar(served.tool_format, served.grammars, params)
        or grammar_of(body, params.structured_outputs, served),
        prompt_logprobs=body.prompt_logprobs,
        calling=use.calling(served.tool_format, served.loaded.tokenizer, params),
    )


class ChatWriter:
    """Messages, or their deltas."""

    id_prefix = "chatcmpl-"
    whole_kind = "chat.completion"
    chunk_kind = "chat.completion.chunk"

    def __init__(self, asked: Asked, served: Served) -> None:
        self._asked = asked
        self._tokenizer = served.loaded.tokenizer
        self._begun: dict[int, SaidAndCalled] = {}  # choices that have their role

    def whole(self, outputs: Sequence[RequestOutput]) -> dict[str, object]:
        [output] = outputs
        choices = [self._choice(choice) for choice in output.outputs]
        if self._asked.prompt_logprobs is None:
            return {"choices": choices}
        entries = prompt_logprobs(self._tokenizer, output.prompt_logprobs, self._asked.prompt_logprobs)
        return {"choices": choices, "prompt_logprobs": entries}

    def _choice(self, choice: CompletionOutput) -> Choice:
        answer = SaidAndCalled(self._asked.calling)
        return {
            "index": choice.index,
            "message": {"role": "assistant", **answer.message(choice.text), "refusal": None},
            "logprobs": None if choice.logprobs is None else chat_logprobs(self._tokenizer, choice.logprobs),
            "finish_reason": answer.finish_reason(choice.finish_reason),
        }

    def chunks(self, prompt: int, delta: StreamDelta) -> list[Choice]:
        chunks: list[Choice] = []
        if delta.index not in self._begun:
            self._begun[delta.index] = SaidAndCalled(self._asked.calling)
            chunks.append(self._chunk(delta.index, {"role": "assistant", "content": ""}))
        answer = self._begun[delta.index]
        told = [
            self._chunk(delta.index, each) for each in answer.deltas(delta.text, last=delta.finish_reason is not None)
        ]
        if delta.logprobs:
            told = told or [self._chunk(delta.index, {"content": ""})]
            told[0]["logprobs"] = chat_logprobs(self._tokenizer, delta.logprobs)
        chunks += told
        if delta.finish_reason is not None:
            reason = answer.finish_reason(delta.finish_reason)
            chunks.append({**self._chunk(delta.index, {}), "finish_reason": reason})
        return chunks

    def _chunk(self, index: int, delta: dict[str, object]) -> Choice:
        return {"index": index, "delta": delta, "logprobs": None, "finish_reason": None}
