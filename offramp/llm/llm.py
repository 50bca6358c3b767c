"""`LLM`: the offline front door."""

from __future__ import annotations

import itertools
import time
from collections import deque
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from offramp.core import RequestOptions, SamplingParams
from offramp.draft import OFF
from offramp.engine.cost import MeasuredCosts
from offramp.engine.engine import Engine
from offramp.engine.statistics import Statistics
from offramp.errors import InvalidRequestError
from offramp.llm.answer import Answer
from offramp.llm.calling import Calling, with_calls
from offramp.llm.cost_refresh import CostRefresh
from offramp.llm.draft_model import with_draft_model
from offramp.llm.drafter_pack import settled_drafter, with_drafter
from offramp.llm.driver import Driver
from offramp.llm.exit_settings import ExitSettings
from offramp.llm.little_settings import LittleSettings
from offramp.llm.loading import LoadedModel, load_model, with_exits
from offramp.llm.making import fit_to_memory, make_engine, make_grammars, make_request, ready_costs
from offramp.llm.output import RequestOutput
from offramp.llm.promises import Promises
from offramp.llm.prompts import Prompt, as_messages, as_options, as_param, as_params, as_prompts, encode_prompt
from offramp.llm.serving import Execution, Serving
from offramp.llm.signals import SignalsHeld
from offramp.llm.stream import DeltaStream
from offramp.llm.tool_use import NO_TOOLS, ToolUse, check_grammar_end, tool_use
from offramp.model.template_values import Message


class LLM:
    """A model that generates text. Safe to call from several threads, which then share the engine's steps.

    Ctrl-C aborts the call it interrupts, and the model stays usable. `kv_memory` is in bytes, or a text such as "2GiB".
    """

    def __init__(
        self,
        model: str | Path = "smollm2-135m",
        *,
        weights: str = "auto",
        kv: str = "f16",
        threads: int | None = None,
        max_context: int | None = None,
        exits: str | Path | None = None,
        exit_threshold: float | Mapping[int, float] | str | None = None,
        exit_measure: str | None = None,
        exit_predictor: str | None = None,
        exit_decay: int | None = None,
        exit_fill: str | None = None,
        exit_batching: str | None = None,
        draft: str | None = None,
        draft_length: str = "goodput",
        max_draft: int | None = None,
        draft_memory: int | str = "64MiB",
        draft_model: str | Path | None = None,
        drafter: str | Path | None = None,
        little_rollback: float | None = None,
        little_fallback: float | None = None,
        max_little: int | None = None,
        little_calibration: str | Path | None = None,
        verifier: str = "exact",
        mode: str = "lossless",
        risk: float | None = None,
        max_num_seqs: int = 16,
        max_num_batched_tokens: int = 512,
        kv_memory: int | str | None = None,
        tool_call_parser: str = "auto",
    ) -> None:
        serving = Serving(
            mode=mode,
            draft=draft,
            draft_length=draft_length,
            max_draft=max_draft,
            draft_memory=draft_memory,
            draft_model=draft_model,
            drafter=drafter,
            verifier=verifier,
            exits=ExitSettings(
                pack=exits,
                risk=risk,
                threshold=exit_threshold,
                measure=exit_measure,
                predictor=exit_predictor,
                decay=exit_decay,
                fill=exit_fill,
                batching=exit_batching,
            ),
            little=LittleSettings(
                rollback=little_rollback,
                fallback=little_fallback,
                max_run=max_little,
                calibration=little_calibration,
            ),
            max_num_seqs=max_num_seqs,
            max_num_batched_tokens=max_num_batched_tokens,
            tool_call_parser=tool_call_parser,
        )
        loaded = load_model(
            model,
            weights=weights,
            kv=kv,
            threads=threads,
            max_context=max_context,
            max_num_seqs=max_num_seqs,
            kv_memory=kv_memory,
        )
        loaded = with_draft_model(loaded, draft_model, threads=threads, max_num_seqs=max_num_seqs)
        self._start(with_exits(with_drafter(loaded, drafter), exits), serving)

    @classmethod
    def from_loaded(cls, loaded: LoadedModel, serving: Serving | None = None) -> Self:
        """Over a model that is in memory already, with its packs and draft model if the settings name any.

        `with_exits`, `with_drafter` and `with_draft_model` load them.
        """
        llm = cls.__new__(cls)
        llm._start(loaded, serving or Serving())
        return llm

    def _start(self, loaded: LoadedModel, serving: Serving) -> None:
        serving = fit_to_memory(loaded, settled_drafter(loaded, serving))
        self._model = loaded
        self._serving = serving
        self._promises = Promises(loaded, serving)
        self._grammars = make_grammars(loaded)
        self._tool_format = serving.tool_format(loaded.template)
        self._costs = MeasuredCosts()
        self._engine = make_engine(loaded, serving, self._costs)
        if serving.default_draft != OFF:
            ready_costs(self._costs, loaded, self._engine)
        self._refresh = CostRefresh(self._costs, loaded)
        self._driver = Driver(self._engine)
        self._numbers = itertools.count()
        self._closed = False

    @property
    def model(self) -> LoadedModel:
        """Config, tokenizer, chat template and generation settings of the model."""
        return self._model

    @property
    def max_context(self) -> int:
        """Tokens that a prompt and its answer may have together."""
        return self._model.max_context

    @property
    def statistics(self) -> Statistics:
        """The engine's live counters."""
        return self._engine.statistics

    def generate(
        self,
        prompts: Prompt | Sequence[str] | Sequence[Sequence[int]],
        params: SamplingParams | Sequence[SamplingParams] | None = None,
        options: RequestOptions | None = None,
    ) -> list[RequestOutput]:
        """Complete one prompt or several, batched; one output a prompt, in order. `options` serve them all.

        An impossible prompt or parameter raises before anything runs. If the model fails on one prompt while running
        (NumericError), that prompt's choices end with finish_reason "error" and carry the error; others are untouched.
        """
        texts = as_prompts(prompts)
        how = self._how(options)
        answers = [
            self._answer(prompt if isinstance(prompt, str) else None, self._encode(prompt), each, how)
            for prompt, each in zip(texts, as_params(params, len(texts)), strict=True)
        ]
        return self._run(answers)

    def stream(
        self, prompt: Prompt, params: SamplingParams | None = None, options: RequestOptions | None = None
    ) -> DeltaStream:
        """Complete one prompt, yielding what each step adds. Closing or dropping the iterator aborts the request."""
        text = prompt if isinstance(prompt, str) else None
        return self._open(self._answer(text, self._encode(prompt), as_param(params), self._how(options)))

    def chat(
        self,
        messages: Sequence[Message],
        params: SamplingParams | None = None,
        options: RequestOptions | None = None,
        *,
        tools: Sequence[Mapping[str, object]] | None = None,
        tool_choice: str | Mapping[str, object] | None = None,
        parallel_tool_calls: bool | None = None,
        documents: Sequence[Mapping[str, object]] | None = None,
        chat_template_kwargs: Mapping[str, object] | None = None,
    ) -> RequestOutput:
        """Answer one conversation, a list of {"role": ..., "content": ...}, through the model's chat template.

        Roles are system, developer (the same), user, assistant, and tool for the results of `tools`.
        `tools` are functions as OpenAI writes them; `tool_choice` (none, auto, required, or one of them) and
        `parallel_tool_calls` say which calls the answer may have. They are in `outputs[i].tool_calls`, and as they
        were written in `text`. `documents` and `chat_template_kwargs` (variables such as enable_thinking) are for the
        template; what it never looks at is refused.
        """
        use = tool_use(tools, tool_choice, parallel_tool_calls, bare=True)
        token_ids = self._encode_chat(messages, use, documents, chat_template_kwargs)
        asked = as_param(params)
        output = self._run([self._answer(None, token_ids, asked, self._how(options), use)])[0]
        calling = self._calling(use, asked)
        return output if calling is None else with_calls(output, calling)

    def stream_chat(
        self,
        messages: Sequence[Message],
        params: SamplingParams | None = None,
        options: RequestOptions | None = None,
        *,
        tools: Sequence[Mapping[str, object]] | None = None,
        tool_choice: str | Mapping[str, object] | None = None,
        parallel_tool_calls: bool | None = None,
        documents: Sequence[Mapping[str, object]] | None = None,
        chat_template_kwargs: Mapping[str, object] | None = None,
    ) -> DeltaStream:
        """As `chat`, yielding what each step adds; calls of tools stay in the text."""
        use = tool_use(tools, tool_choice, parallel_tool_calls, bare=True)
        token_ids = self._encode_chat(messages, use, documents, chat_template_kwargs)
        return self._open(self._answer(None, token_ids, as_param(params), self._how(options), use))

    def encode_chat(
        self,
        messages: Sequence[Message],
        *,
        tools: Sequence[Mapping[str, object]] | None = None,
        documents: Sequence[Mapping[str, object]] | None = None,
        chat_template_kwargs: Mapping[str, object] | None = None,
    ) -> list[int]:
        """The token ids of a conversation, up to where the answer begins."""
        return self._encode_chat(messages, tool_use(tools, None, None, bare=True), documents, chat_template_kwargs)

    def close(self) -> None:
        """Abort what runs and refuse later calls; memory is freed when the last reference goes."""
        if not self._closed:
            self._closed = True
            self._driver.close_all()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def _encode(self, prompt: Prompt) -> list[int]:
        return encode_prompt(prompt, self._model.tokenizer, self._model.bos_token_id)

    def _encode_chat(
        self,
        messages: Sequence[Message],
        use: ToolUse,
        documents: Sequence[Mapping[str, object]] | None,
        variables: Mapping[str, object] | None,
    ) -> list[int]:
        return self._model.template.encode_chat(
            self._model.tokenizer,
            as_messages(messages),
            tools=use.for_template,
            documents=documents,
            variables=variables,
        )

    def _calling(self, use: ToolUse, params: SamplingParams) -> Calling | None:
        """How calls are read from an answer; None where there are none."""
        return use.calling(self._tool_format, self._model.tokenizer, params)

    def _how(self, options: RequestOptions | None) -> Execution:
        """What a call says of itself, once for all its prompts: references are encoded here."""
        return self._serving.execution(as_options(options), self._model.tokenizer)

    def _answer(
        self,
        prompt: str | None,
        prompt_token_ids: list[int],
        params: SamplingParams,
        how: Execution,
        use: ToolUse = NO_TOOLS,
    ) -> Answer:
        """A request ready to be submitted."""
        if self._closed:
            raise InvalidRequestError("this LLM is closed", hint="make a new one")
        check_grammar_end(params, use.grammar_of)
        kept = self._promises.keep(how, params, grammar_of=use.grammar_of)
        calling = self._calling(use, params)
        shown = calling.shown if calling else frozenset[int]()
        grammar, structure = use.grammar(self._tool_format, self._grammars, params), params.structured_outputs
        if grammar is None and structure is not None:
            grammar = self._grammars.compile(structure)
        request = make_request(
            self._model,
            str(next(self._numbers)),
            prompt_token_ids,
            params,
            how.drafting,
            exits=kept.exits,
            big_little=kept.big_little,
            grammar=grammar,
            shown=shown,
        )
        return Answer(
            request,
            prompt,
            self._model.tokenizer,
            started=time.perf_counter(),
            depth=self._model.config.num_layers,
            kept=kept,
            token_report=how.token_report,
            shown=shown,
        )

    def _run(self, answers: list[Answer]) -> list[RequestOutput]:
        """Submit all, then see each to its end; on any exception all are aborted."""
        streams: list[DeltaStream] = []
        try:
            streams.extend(self._open(answer) for answer in answers)
            for stream in streams:
                deque(stream, maxlen=0)
            return [answer.output() for answer in answers]
        finally:
            with SignalsHeld():
                for stream in streams:
                    stream.close()

    def _open(self, answer: Answer) -> DeltaStream:
        stream = DeltaStream(self._driver, answer)
        try:
            if answer.request.drafting.drafter != OFF and (self._costs.table is None or self._refresh.due):
                self._driver.between_steps(self._see_to_costs)
            self._driver.submit(answer.request)
        except BaseException:  # a signal may come after the request was queued
            stream.close()
            raise
        return stream

    def _see_to_costs(self, engine: Engine) -> None:
        """That there are costs; those in doubt are measured anew while nothing runs."""
        if self._costs.table is None:
            ready_costs(self._costs, self._model, engine)
        else:
            self._refresh.attempt(engine)
