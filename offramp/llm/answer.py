"""One request on its way: the engine's events become text, deltas and the final output."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field

from offramp.core import DraftOutcome, FinishReason, Request, TokenEvent, TokenLogprobs, Written
from offramp.errors import OfframpError
from offramp.llm.driver import Timed
from offramp.llm.output import CompletionOutput, PromptLogprobs, Report, RequestOutput, StreamDelta
from offramp.llm.promises import Kept
from offramp.llm.text import ChoiceText
from offramp.model.tokenizer import Tokenizer


@dataclass(slots=True)
class _Choice:
    """What has come of one choice so far."""

    decoder: ChoiceText
    text: list[str] = field(default_factory=list)
    token_ids: list[int] = field(default_factory=list)
    drafted: list[bool] = field(default_factory=list)  # a token: a draft foresaw it; kept only if asked for
    exit_layers: list[int] = field(default_factory=list)  # a token: layers run for it; kept only if asked for
    logprobs: list[TokenLogprobs] = field(default_factory=list)
    finish_reason: FinishReason | None = None
    error: OfframpError | None = None


@dataclass(slots=True)
class DraftCounts:
    """Drafted and accepted tokens by their position in a draft."""

    num_drafts: int = 0
    num_emitted: int = 0  # tokens of the steps in which they ran
    drafted: list[int] = field(default_factory=list)
    accepted: list[int] = field(default_factory=list)

    def add(self, outcome: DraftOutcome, num_emitted: int) -> None:
        self.num_drafts += 1
        self.num_emitted += num_emitted
        for position, nodes in enumerate(outcome.num_nodes_per_pos):
            if position == len(self.drafted):
                self.drafted.append(0)
                self.accepted.append(0)
            self.drafted[position] += nodes
            self.accepted[position] += position < outcome.num_accepted


@dataclass(slots=True)
class WrittenCounts:
    """Tokens by whose they are, where a little model writes."""

    num_little: int = 0
    num_differing: int = 0
    num_fallbacks: int = 0
    num_rollbacks: int = 0

    def add(self, written: Written, num_emitted: int) -> None:
        self.num_little += written.num_little
        self.num_differing += len(written.differing)
        self.num_rollbacks += written.rolled_back
        self.num_fallbacks += num_emitted - written.num_little - written.rolled_back


class Answer:
    """Collects a request's events; times are those of `time.perf_counter`."""

    def __init__(
        self,
        request: Request,
        prompt: str | None,
        tokenizer: Tokenizer,
        *,
        started: float,
        depth: int,
        kept: Kept,
        token_report: bool = False,
        shown: Collection[int] = (),
    ) -> None:
        """`shown` are special tokens whose text counts, as for the request's stop strings."""
        params = request.params
        self.request = request
        self._prompt = prompt
        self._started = started
        self._depth = depth  # layers of the model
        self._kept = kept
        self._token_report = token_report
        self._drafts = DraftCounts()
        self._written = WrittenCounts()
        self._choices = [
            _Choice(ChoiceText(tokenizer, params.stop, params.min_tokens, prompt=request.prompt_token_ids, shown=shown))
            for _ in range(params.n)
        ]
        self._prompt_logprobs: PromptLogprobs | None = None
        self._cached_tokens = 0
        self._num_layers_run = 0  # of all tokens together
        self._exact_kv = True
        self._first: float | None = None  # when the first token came
        self._last = started

    @property
    def finished(self) -> bool:
        return all(choice.finish_reason for choice in self._choices)

    def take(self, timed: Timed) -> StreamDelta:
        """Take one event in; returns what it added."""
        event, choice = timed.event, self._choices[timed.event.choice]
        assert choice.finish_reason is None, "an event after the end"
        if event.token_ids:
            self._first = timed.seconds if self._first is None else self._first
            self._last = timed.seconds
        text = _new_text(choice.decoder, event)
        choice.text.append(text)
        choice.token_ids += event.token_ids
        num_accepted = event.draft.num_accepted if event.draft else event.written.num_little if event.written else 0
        layers = self._depth if event.exit_layer is None else event.exit_layer
        self._num_layers_run += layers * len(event.token_ids)
        self._exact_kv &= event.exact_kv
        if self._token_report:
            choice.drafted += [place < num_accepted for place in range(len(event.token_ids))]
            choice.exit_layers += [layers] * len(event.token_ids)
        if event.draft:
            self._drafts.add(event.draft, len(event.token_ids))
        if event.written:
            self._written.add(event.written, len(event.token_ids))
        choice.logprobs += event.logprobs or ()
        choice.finish_reason, choice.error = event.finish_reason, event.error
        if event.choice == 0:
            self._cached_tokens = event.num_cached_tokens
            self._prompt_logprobs = event.prompt_logprobs or self._prompt_logprobs
        return StreamDelta(
            index=event.choice,
            text=text,
            token_ids=event.token_ids,
            num_accepted_tokens=num_accepted,
            exit_layer=layers,
            logprobs=event.logprobs,
            prompt_logprobs=event.prompt_logprobs,
            finish_reason=event.finish_reason,
            error=event.error,
            seed=self.request.seed,
            report=self.report() if self.finished else None,
        )

    def output(self) -> RequestOutput:
        """The whole answer, once finished."""
        request = self.request
        return RequestOutput(
            request_id=request.request_id,
            prompt=self._prompt,
            prompt_token_ids=[int(token) for token in request.prompt_token_ids],
            outputs=[self._completion(index) for index in range(len(self._choices))],
            prompt_logprobs=self._prompt_logprobs,
            report=self.report(),
        )

    def report(self) -> Report:
        """Counts and times, so far; a choice that goes on counts as aborted."""
        lengths = [len(choice.token_ids) for choice in self._choices]
        first = self._last if self._first is None else self._first
        decode = self._last - first
        later = sum(max(0, length - 1) for length in lengths)
        return Report(
            prompt_tokens=len(self.request.prompt_token_ids),
            cached_tokens=self._cached_tokens,
            output_tokens=sum(lengths),
            prefill_seconds=first - self._started,
            decode_seconds=decode,
            tokens_per_second=later / decode if later and decode > 0 else None,
            finish_reasons=tuple(choice.finish_reason or "abort" for choice in self._choices),
            mode=self._kept.mode,
            mode_reason=self._kept.reason,
            risk=self._kept.risk,
            exits=self._kept.pack,
            mean_exit_layer=self._num_layers_run / sum(lengths) if sum(lengths) else float(self._depth),
            exact_kv=self._exact_kv,
            draft=self.request.drafting.drafter or "off",
            verifier=self.request.drafting.verifier,
            num_drafts=self._drafts.num_drafts,
            num_draft_tokens=sum(self._drafts.drafted),
            num_accepted_tokens=sum(self._drafts.accepted),
            num_emitted_tokens=self._drafts.num_emitted,
            num_draft_tokens_per_pos=tuple(self._drafts.drafted),
            num_accepted_tokens_per_pos=tuple(self._drafts.accepted),
            little=self._kept.little,
            num_little_tokens=self._written.num_little,
            num_differing_tokens=self._written.num_differing,
            num_fallbacks=self._written.num_fallbacks,
            num_rollbacks=self._written.num_rollbacks,
        )

    def _completion(self, index: int) -> CompletionOutput:
        choice = self._choices[index]
        assert choice.finish_reason is not None, "the choice goes on"
        return CompletionOutput(
            index=index,
            text="".join(choice.text),
            token_ids=choice.token_ids,
            drafted=choice.drafted if self._token_report else None,
            exit_layers=choice.exit_layers if self._token_report else None,
            logprobs=None if self.request.params.logprobs is None else choice.logprobs,
            finish_reason=choice.finish_reason,
            seed=self.request.seed,
            error=choice.error,
        )


def _new_text(decoder: ChoiceText, event: TokenEvent) -> str:
    """The text an event adds; an end token (a "stop" by neither a stop string nor a grammar) has none."""
    ended_by_token = event.finish_reason == "stop" and not (event.text_stopped or event.grammar_ended)
    readable = event.token_ids[:-1] if ended_by_token else event.token_ids
    text = "".join([decoder.push(token)[0] for token in readable])
    return text + decoder.flush() if event.finish_reason else text
