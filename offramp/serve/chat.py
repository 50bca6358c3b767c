"""/v1/chat/completions: messages in, a message out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from offramp.llm.output import RequestOutput, StreamDelta
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
from offramp.serve.writing import Choice


def ask_chat(values: Mapping[str, object], served: Served) -> Asked:
    """The body as a request. Raises InvalidRequestError naming the field that can't be honoured."""
    body = read(ChatBody, CHAT.keep_honoured(values))
    model = served.name_of(body.model)
    params = chat_params(body, served.defaults)
    how, kept = execution(body, served, params, body.prediction)
    usage = include_usage(body)
    messages = template_messages(body.messages)
    check_texts(texts_of(messages), served.loaded, "messages")
    token_ids = served.loaded.template.encode_chat(
        served.loaded.tokenizer, messages, variables=body.chat_template_kwargs
    )
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
        grammar=grammar_of(body, params.structured_outputs, served),
        prompt_logprobs=body.prompt_logprobs,
    )


class ChatWriter:
    """Messages, or their deltas."""

    id_prefix = "chatcmpl-"
    whole_kind = "chat.completion"
    chunk_kind = "chat.completion.chunk"

    def __init__(self, asked: Asked, served: Served) -> None:
        self._asked = asked
        self._tokenizer = served.loaded.tokenizer
        self._begun: set[int] = set()  # choices that have their role

    def whole(self, outputs: Sequence[RequestOutput]) -> dict[str, object]:
        [output] = outputs
        choices = [
            {
                "index": choice.index,
                "message": {"role": "assistant", "content": choice.text, "refusal": None},
                "logprobs": None if choice.logprobs is None else chat_logprobs(self._tokenizer, choice.logprobs),
                "finish_reason": choice.finish_reason,
            }
            for choice in output.outputs
        ]
        if self._asked.prompt_logprobs is None:
            return {"choices": choices}
        entries = prompt_logprobs(self._tokenizer, output.prompt_logprobs, self._asked.prompt_logprobs)
        return {"choices": choices, "prompt_logprobs": entries}

    def chunks(self, prompt: int, delta: StreamDelta) -> list[Choice]:
        chunks: list[Choice] = []
        if delta.index not in self._begun:
            self._begun.add(delta.index)
            chunks.append(self._chunk(delta.index, {"role": "assistant", "content": ""}))
        if delta.text or delta.logprobs:
            chunk = self._chunk(delta.index, {"content": delta.text})
            if delta.logprobs:
                chunk["logprobs"] = chat_logprobs(self._tokenizer, delta.logprobs)
            chunks.append(chunk)
        if delta.finish_reason is not None:
            chunks.append({**self._chunk(delta.index, {}), "finish_reason": delta.finish_reason})
        return chunks

    def _chunk(self, index: int, delta: dict[str, object]) -> Choice:
        return {"index": index, "delta": delta, "logprobs": None, "finish_reason": None}
