"""A method's model in memory: every turn is greedy and gets a fresh engine, which knows nothing of turns before."""

from __future__ import annotations

import gc
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from offramp.bench.quality.perplexity import reference_perplexity
from offramp.bench.results.lines import CostLine
from offramp.bench.run.closed_loop import Course, Tell, drive
from offramp.bench.run.meters import Energy, in_large_pages, peak_bytes
from offramp.bench.run.turn import Answered, Facts, Failed, Scored, Taken, Turn
from offramp.bench.steps import measure_steps
from offramp.bench.workloads.item import Item
from offramp.bench.workloads.prompt_ids import prompt_ids
from offramp.core import PAGE_SIZE, Request, RequestOptions, SamplingParams
from offramp.draft import OFF
from offramp.engine.cost import MeasuredCosts
from offramp.engine.probe import pages_for_rows
from offramp.errors import ContextLengthError, OfframpError, ResourceError, UnsupportedModelError
from offramp.llm.answer import Answer
from offramp.llm.costs import COSTS, load_costs
from offramp.llm.drafter_pack import settled_drafter
from offramp.llm.llm import LLM
from offramp.llm.loading import LoadedModel
from offramp.llm.making import make_engine, make_request
from offramp.llm.model_flags import ModelFlags
from offramp.llm.promises import Kept, Promises
from offramp.llm.serving import Execution, Serving
from offramp.model.detokenizer import StreamingDecoder
from offramp.model.model_cache import default_cache
from offramp.native import NativeExecutor


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """A turn as it is asked for."""

    items: tuple[Item, ...]
    streams: int
    max_tokens: int
    texts: bool = False
    ignore_eos: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """Items whose references are to be judged."""

    items: tuple[Item, ...]


class MethodModel:
    """Loads at construction. Raises OfframpError."""

    def __init__(self, model: str, flags: ModelFlags) -> None:
        start = flags.start(model)
        self._loaded = start.find().load()
        self._serving = settled_drafter(self._loaded, start.serving)
        self._promises = Promises(self._loaded, self._serving)
        drafts = self._serving.default_draft != OFF
        self._table = load_costs(self._loaded, default_cache() / COSTS).table if drafts else None

    @property
    def facts(self) -> Facts:
        loaded = self._loaded
        executor = native_executor(loaded)
        return Facts(
            model=loaded.name,
            source_hash=loaded.source_hash,
            weights=dict(loaded.formats),
            kv=loaded.kv,
            threads=executor.threads,
            kernels=executor.path,
            num_layers=loaded.config.num_layers,
            max_context=loaded.max_context,
            chat=loaded.template.available,
            large_pages=in_large_pages(),
        )

    def turn(self, asked: Asked, tell: Tell = lambda ended, tokens: None) -> Turn:
        """All items, so many at a time. One that can't be answered is a failure of its own. Raises OfframpError."""
        gc.collect()  # the engine of the turn before, so that its memory is not there beside the new one's
        params = SamplingParams(temperature=0, max_tokens=asked.max_tokens, seed=0, ignore_eos=asked.ignore_eos)
        how = self._serving.execution(RequestOptions(report="tokens"), self._loaded.tokenizer)
        kept = self._promises.keep(how, params)
        engine = make_engine(self._loaded, self._serving, MeasuredCosts(self._table), prefix_cache=False)
        requests, failed = self._requests(asked.items, params, how, kept)
        num_unread = len(failed)
        energy = Energy()
        driven = drive(engine, requests, asked.streams, lambda ended, tokens: tell(num_unread + ended, tokens))
        joules = energy.joules()
        answers: list[Answered] = []
        for name, course in driven.courses.items():
            if course.error is not None:
                failed.append(Failed(item=name, reason=course.error.message))
            else:
                answers.append(self._answered(course, kept, texts=asked.texts))
        taken = Taken(
            seconds=round(driven.seconds, 6),
            prompt_tokens=sum(each.prompt_tokens for each in answers),
            output_tokens=sum(len(each.token_ids) for each in answers),
            decode_seconds=round(driven.decode_seconds, 6),
            decoded_tokens=driven.decoded_tokens,
            peak_bytes=peak_bytes(),
            joules=joules,
            note=kept.reason,
        )
        return Turn(taken=taken, answers=tuple(answers), failed=tuple(failed))

    def costs(self, row_counts: Sequence[int], context: int, seconds_per_cell: float = 0.15) -> list[CostLine]:
        """Steps of so many rows, all layers and the head: measured, and as the cost model has them.

        Empty where K/V memory is too small to measure.
        """
        room = (self._loaded.executor.num_pages - pages_for_rows(max(row_counts))) * PAGE_SIZE
        context = min(context, room) // PAGE_SIZE * PAGE_SIZE
        if context < PAGE_SIZE:
            return []
        try:
            costs = load_costs(self._loaded, default_cache() / COSTS)
        except ResourceError:
            return []
        cells = measure_steps(
            self._loaded.executor,
            costs,
            row_counts=list(row_counts),
            context=context,
            seconds_per_cell=seconds_per_cell,
        )
        whole = f"0:{self._loaded.config.num_layers}"
        parts = [cell for cell in cells if cell.part in (whole, "head")]
        return [
            CostLine(
                rows=count,
                context=context,
                measured_ms=round(sum(cell.median_ms for cell in parts if cell.rows == count), 4),
                predicted_ms=round(sum(cell.predicted_ms for cell in parts if cell.rows == count), 4),
            )
            for count in row_counts
        ]

    def perplexities(self, items: Sequence[Item]) -> Iterator[Scored]:
        """Of the references under these weights, whatever drafts or leaves early; of those that have room."""
        plain = replace(self._loaded, exits=None, drafter=None, draft=None)
        with LLM.from_loaded(plain, Serving(draft=OFF)) as llm:
            for item in items:
                try:
                    value = reference_perplexity(llm, item)
                except ContextLengthError:
                    continue
                if value is not None:
                    yield Scored(item=item.name, value=value)

    def _requests(
        self, items: Sequence[Item], params: SamplingParams, how: Execution, kept: Kept
    ) -> tuple[list[Request], list[Failed]]:
        """One for each item whose prompt can be read."""
        requests: list[Request] = []
        failed: list[Failed] = []
        for item in items:
            try:
                ids = prompt_ids(item, self._loaded)
            except OfframpError as error:
                failed.append(Failed(item=item.name, reason=error.message))
                continue
            request = make_request(
                self._loaded, item.name, ids, params, how.drafting, exits=kept.exits, big_little=kept.big_little
            )
            requests.append(request)
        return requests, failed

    def _answered(self, course: Course, kept: Kept, *, texts: bool) -> Answered:
        """An answer's facts, and its text where that is wanted."""
        loaded = self._loaded
        answer = Answer(
            course.request,
            None,
            loaded.tokenizer,
            started=course.started,
            depth=loaded.config.num_layers,
            kept=kept,
            token_report=True,
        )
        for timed in course.events:
            answer.take(timed)
        output = answer.output()
        [choice], report = output.outputs, output.report
        steps = [(timed.seconds - course.started, len(timed.event.token_ids)) for timed in course.events]
        return Answered(
            item=course.request.request_id,
            prompt_tokens=report.prompt_tokens,
            token_ids=tuple(int(token) for token in choice.token_ids),
            finish_reason=choice.finish_reason,
            first_seconds=round(steps[0][0], 6),
            steps=tuple((round(1000 * seconds, 3), count) for seconds, count in steps if count),
            drafted=report.num_draft_tokens_per_pos,
            accepted=report.num_accepted_tokens_per_pos,
            reached=_reached(course),
            num_drafts=report.num_drafts,
            num_emitted=report.num_emitted_tokens,
            exit_layers=() if kept.exits.policy is None else tuple(choice.exit_layers or ()),
            text=choice.text if texts else None,
            pieces=self._pieces(course.request, choice.token_ids) if texts else (),
        )

    def _pieces(self, request: Request, token_ids: Sequence[int]) -> tuple[str, ...]:
        """What each token adds to the text; an open character at the end belongs to the last."""
        decoder = StreamingDecoder(self._loaded.tokenizer, after=int(request.prompt_token_ids[-1]))
        pieces = [decoder.push(int(token)) for token in token_ids]
        return (*pieces[:-1], pieces[-1] + decoder.flush()) if pieces else ()


def native_executor(loaded: LoadedModel) -> NativeExecutor:
    """What runs a model that was loaded from files."""
    if not isinstance(loaded.executor, NativeExecutor):
        raise UnsupportedModelError("only the CPU executor is measured", hint="name a model on disk")
    return loaded.executor


def _reached(course: Course) -> tuple[int, ...]:
    """Drafts that had a token at each position."""
    counts: list[int] = []
    for timed in course.events:
        depth = 0 if timed.event.draft is None else len(timed.event.draft.num_nodes_per_pos)
        counts += [0] * (depth - len(counts))
        for position in range(depth):
            counts[position] += 1
    return tuple(counts)
