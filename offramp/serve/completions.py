"""/v1/completions: text in, its continuation out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from offramp.core import TokenLogprobs
from offramp.llm.output import CompletionOutput, PromptLogprobs, RequestOutput, StreamDelta
from offramp.serve.asked import Asked, check_sizes, execution, include_usage
from offramp.serve.fields import COMPLETION
from offramp.serve.logprobs import CompletionLogprobs, joined, prompt_logprobs, prompt_part
from offramp.serve.prompts import completion_prompts
from offramp.serve.sampling import completion_params
from offramp.serve.schema import CompletionBody, read
from offramp.serve.served import Served
from offramp.serve.structure import grammar_of
from offramp.serve.writing import Choice


def ask_completion(values: Mapping[str, object], served: Served) -> Asked:
    """The body as a request. Raises InvalidRequestError naming the field that can't be honoured."""
    body = read(CompletionBody, COMPLETION.keep_honoured(values))
    model = served.name_of(body.model)
    params = completion_params(body, served.defaults)
    how, kept = execution(body, served, params)
    usage = include_usage(body)
    prompts = completion_prompts(body.prompt, served.loaded)
    check_sizes(prompts, body, params)
    return Asked(
        model=model,
        prompts=prompts,
        params=params,
        how=how,
        kept=kept,
        stream=body.stream,
        include_usage=usage,
        cache_salt=body.cache_salt,
        grammar=grammar_of(body, params.structured_outputs, served),
        echo=body.echo,
        prompt_logprobs=body.prompt_logprobs,
    )


class CompletionWriter:
    """Texts, or their pieces; an echo puts the prompt before each."""

    id_prefix = "cmpl-"
    whole_kind = chunk_kind = "text_completion"

    def __init__(self, asked: Asked, served: Served) -> None:
        self._asked = asked
        self._tokenizer = served.loaded.tokenizer
        self._echoes = [prompt.shown(self._tokenizer) if asked.echo else "" for prompt in asked.prompts]
        self._prompt_logprobs: list[PromptLogprobs | None] = [None] * len(asked.prompts)
        self._begun: dict[tuple[int, int], CompletionLogprobs] = {}
        self._waiting: list[tuple[int, StreamDelta]] = []  # until the prompt's log-probabilities have come

    def whole(self, outputs: Sequence[RequestOutput]) -> dict[str, object]:
        choices = []
        for prompt, output in enumerate(outputs):
            self._prompt_logprobs[prompt] = output.prompt_logprobs
            choices += [self._choice(prompt, choice) for choice in output.outputs]
        return {"choices": choices}

    def chunks(self, prompt: int, delta: StreamDelta) -> list[Choice]:
        if delta.prompt_logprobs is not None:
            self._prompt_logprobs[prompt] = delta.prompt_logprobs
        self._waiting.append((prompt, delta))
        ready = [(p, d) for p, d in self._waiting if not self._lacks_prompt(p)]
        self._waiting = [(p, d) for p, d in self._waiting if self._lacks_prompt(p)]
        return [chunk for p, d in ready for chunk in self._chunks(p, d)]

    def _lacks_prompt(self, prompt: int) -> bool:
        """The first choice brings the prompt's log-probabilities, which another choice's echo needs too."""
        return self._asked.echo and self._asked.params.logprobs is not None and self._prompt_logprobs[prompt] is None

    def _chunks(self, prompt: int, delta: StreamDelta) -> list[Choice]:
        index = self._index(prompt, delta.index)
        chunks: list[Choice] = []
        if (prompt, delta.index) not in self._begun:
            self._begun[prompt, delta.index] = self._own_logprobs(prompt)
            if self._asked.echo:
                chunks.append({**_chunk(index, self._echoes[prompt]), "logprobs": self._echoed(prompt)})
        if delta.text or delta.logprobs:
            chunk = _chunk(index, delta.text)
            if delta.logprobs:
                chunk["logprobs"] = self._logprobs(
                    self._begun[prompt, delta.index], list(delta.token_ids), delta.logprobs
                )
            chunks.append(chunk)
        if delta.finish_reason is not None:
            chunks.append({**_chunk(index, ""), "finish_reason": delta.finish_reason})
        return chunks

    def _choice(self, prompt: int, choice: CompletionOutput) -> Choice:
        echo = self._echoes[prompt]
        logprobs = None
        if choice.logprobs is not None:
            parts = [self._echoed(prompt)] if self._asked.echo else []
            own = self._logprobs(self._own_logprobs(prompt), choice.token_ids, choice.logprobs)
            logprobs = joined([*filter(None, parts), own])
        written: Choice = {
            "index": self._index(prompt, choice.index),
            "text": echo + choice.text,
            "logprobs": logprobs,
            "finish_reason": choice.finish_reason,
        }
        if self._asked.prompt_logprobs is not None:
            entries = self._prompt_logprobs[prompt]
            written["prompt_logprobs"] = prompt_logprobs(self._tokenizer, entries, self._asked.prompt_logprobs)
        return written

    def _own_logprobs(self, prompt: int) -> CompletionLogprobs:
        """Of what follows the prompt."""
        last = self._asked.prompts[prompt].token_ids[-1]
        return CompletionLogprobs(self._tokenizer, offset=len(self._echoes[prompt]), after=last)

    def _echoed(self, prompt: int) -> dict[str, object] | None:
        """The log-probabilities of an echoed prompt, where they are asked for."""
        entries, most = self._prompt_logprobs[prompt], self._asked.params.logprobs
        if entries is None or most is None:
            return None
        return prompt_part(self._tokenizer, self._asked.prompts[prompt].token_ids, entries, most, self._echoes[prompt])

    def _logprobs(
        self, own: CompletionLogprobs, token_ids: list[int], entries: Sequence[TokenLogprobs]
    ) -> dict[str, object]:
        return own.add(token_ids, entries, self._asked.params.logprobs or 0)

    def _index(self, prompt: int, choice: int) -> int:
        return prompt * self._asked.params.n + choice


def _chunk(index: int, text: str) -> Choice:
    return {"index": index, "text": text, "logprobs": None, "finish_reason": None}
