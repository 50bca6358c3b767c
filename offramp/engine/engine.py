"""One step for many requests: plan, draft, pack, run, judge, commit. Synchronous, one thread, ids only (never text)."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from collections.abc import Sequence as Items
from contextlib import contextmanager

import numpy as np

from offramp.cache.pages import PagePool
from offramp.cache.prefix import PrefixCache
from offramp.cache.sequence import SequenceCache
from offramp.core import (
    CostModel,
    Drafter,
    FinishReason,
    Ids,
    LengthController,
    Little,
    Place,
    Request,
    Sequence,
    TokenEvent,
    Verdict,
    Verifier,
)
from offramp.draft.length.fixed import FixedLength
from offramp.draft.none import NoDrafter
from offramp.engine.account import Account, Spent
from offramp.engine.admission import check_engine, check_exits, check_request
from offramp.engine.commit import commit_tokens
from offramp.engine.draft_rows import DraftRows
from offramp.engine.events import block_event, end_event, extend_prompt_logprobs
from offramp.engine.exit_points import ExitBatching
from offramp.engine.outcome import Outcome
from offramp.engine.pack import Batch, pack
from offramp.engine.planner import PlanItem, Planner
from offramp.engine.runner import Runner
from offramp.engine.speculation import Speculation
from offramp.engine.statistics import Statistics
from offramp.engine.taps import Taps
from offramp.engine.task import Task
from offramp.errors import NumericError, OfframpError
from offramp.exits.policy import ExitPolicy
from offramp.model.executor import LayerExecutor
from offramp.sample.sampler import sample_rows_numpy
from offramp.verify.by_request import VerifierByRequest
from offramp.verify.choice import VerifierChoice
from offramp.verify.exact import SampleRows

PROMPT_LOGITS_ROWS = 32
"""Rows of prompt logits held at once: the vocabulary times this many f32."""


class Engine:
    """Runs requests to their end. Add requests, then call `step` while `has_work`.

    `max_context` bounds prompt plus output of a sequence, `max_num_seqs` the sequences running at once,
    `max_num_batched_tokens` the rows of a step. `lengths` decides how much runs of what `drafter` proposes (None: all).
    Requests choose from `exit_policies` by name; `exit_batching` is how rows of one step leave (`literal` is for
    benchmarks: tokens depend on the batch). At most `max_pending` tokens of a sequence wait for their skipped layers.
    `sample_rows` draws tokens (numpy or native, equal bits); without a `verifier` each request names its own. `costs`
    is told what steps took in which no row could leave early. `draft_rows`, over the same executor, is what drafters
    that need layers were made with, `taps` what those were made with that look at hidden states. `little` writes for
    requests that name one of its policies.
    """

    def __init__(
        self,
        executor: LayerExecutor,
        *,
        max_context: int,
        max_num_seqs: int = 16,
        max_num_batched_tokens: int = 512,
        drafter: Drafter | None = None,
        lengths: LengthController | None = None,
        exit_policies: Mapping[str, ExitPolicy] | None = None,
        exit_batching: ExitBatching = "compact",
        verifier: Verifier | None = None,
        sample_rows: SampleRows = sample_rows_numpy,
        prefix_cache: bool = True,
        max_pending: int = 4,
        costs: CostModel | None = None,
        draft_rows: DraftRows | None = None,
        taps: Taps | None = None,
        little: Little | None = None,
    ) -> None:
        check_engine(
            executor,
            max_context=max_context,
            max_num_seqs=max_num_seqs,
            max_num_batched_tokens=max_num_batched_tokens,
            max_pending=max_pending,
        )
        self._policies = dict(exit_policies or {})
        check_exits(self._policies, exit_batching, executor.config.num_layers)
        self.max_context = max_context
        self._config = executor.config
        self._pool = PagePool(executor.num_pages)
        self._prefix = PrefixCache(self._pool, enabled=prefix_cache)
        self._planner = Planner(self._pool, max_num_seqs=max_num_seqs, max_num_batched_tokens=max_num_batched_tokens)
        self._little_policies = frozenset(little.policies) if little is not None else frozenset()
        own = verifier or VerifierChoice(sample_rows)
        self._verifier = own if little is None else VerifierByRequest(own, little)
        self._statistics = Statistics(num_pages=executor.num_pages)
        self._runner = Runner(
            executor,
            self._policies,
            batching=exit_batching,
            max_pending=max_pending,
            statistics=self._statistics,
            taps=taps,
        )
        self._account = Account(self._statistics, costs, self._config.num_layers)
        self._speculation = Speculation(
            drafter or NoDrafter(),
            lengths or FixedLength(),
            self._pool,
            self._config.vocab_size,
            draft_rows,
            taps,
            little,
        )
        self._tasks: dict[str, list[Task]] = {}  # unfinished choices by request id
        self._events: list[TokenEvent] = []  # for the next step to return
        self._arrivals = 0

    @property
    def has_work(self) -> bool:
        """`step` has something to run or to tell."""
        return bool(self._tasks or self._events)

    @property
    def statistics(self) -> Statistics:
        """Live counters; the gauges are as of this call."""
        self._statistics.num_running = len(self._planner.running)
        self._statistics.num_waiting = len(self._planner.waiting)
        self._statistics.num_used_pages = self._pool.num_used
        return self._statistics

    def check_request(self, request: Request) -> None:
        """Raise what `add_request` would. Changes nothing, and may be called while another thread steps."""
        check_request(
            request,
            self._config.vocab_size,
            self.max_context,
            self._pool.num_pages,
            self._tasks.keys(),
            self._policies.keys(),
            self._little_policies,
        )

    def add_request(self, request: Request) -> None:
        """Queue all choices of a request. One that can never be served raises (InvalidRequestError, ResourceError)."""
        self.check_request(request)
        tasks: list[Task] = []
        for choice in range(request.params.n):
            sequence = Sequence(request, choice, arrival=self._arrivals, max_context=self.max_context)
            cache = SequenceCache(self._pool, self._prefix, self._config.num_layers, request.cache_salt)
            tasks.append(Task(sequence, cache, leader=tasks[0] if tasks and self._prefix.enabled else None))
        self._arrivals += 1
        self._tasks[request.request_id] = tasks
        for task in tasks:
            self._planner.add(task)

    def abort(self, request_id: str) -> bool:
        """End a request now; its pages come back at once and the next step tells. False when it isn't running."""
        tasks = self._tasks.get(request_id)
        if tasks is None:
            return False
        for task in list(tasks):
            self._events.append(self._finish(task, "abort"))
        return True

    def has_started(self, request_id: str) -> bool:
        """Some unfinished choice of the request has run a row."""
        return any(task.num_cached is not None for task in self._tasks.get(request_id, ()))

    def step(self) -> list[TokenEvent]:
        """Advance every planned sequence by a chunk, or by at least one token; returns what happened."""
        began = time.perf_counter()
        plan = self._planner.plan()
        for task in plan.preempted:
            self._runner.forget(task.sequence.key)
            self._statistics.num_preemptions += 1
        if plan.by_key:
            items = plan.items
            self._runner.copy_pages([copy for item in items for copy in item.copies])
            drafts = self._speculation.draft(plan, self._account)
            batch = pack(items, drafts, self._speculation.started())
            begin = time.perf_counter()
            outcome = self._runner.forward(batch)
            run_seconds = time.perf_counter() - begin
            verdicts = outcome.judge(self._verifier, batch.places)
            before = self._statistics.num_generated_tokens
            self._commit(items, batch, outcome, verdicts)
            num_tokens = self._statistics.num_generated_tokens - before
            step_seconds = time.perf_counter() - began
            speculation = self._speculation
            spent = Spent(speculation.seconds, run_seconds, step_seconds, draft_run=speculation.run_seconds)
            self._account.add(batch, num_tokens, spent)
        events, self._events = self._events, []
        return events

    @contextmanager
    def lend_pages(self, most: int, *, least: int = 0) -> Iterator[Ids]:
        """At most so many pages that no request holds, to run something else with between steps.

        Free ones; if they are too few, also those of the least recently used cached prefixes, which are forgotten.
        None, and nothing is forgotten, where `least` can't be had.
        """
        count = min(most, self._pool.num_available)
        pages = self._prefix.allocate(count if count >= least else 0)
        try:
            yield np.array(pages, dtype=np.int32)
        finally:
            for page in reversed(pages):
                self._pool.release(page)

    def check_integrity(self) -> None:
        """Assert that pages, references, fill and debts agree; cheap enough for every step in tests."""
        tasks = [task for tasks in self._tasks.values() for task in tasks]
        self._pool.check_integrity([task.cache.pages.view.tolist() for task in tasks])
        self._prefix.check_integrity()
        assert len(tasks) == len(self._planner.running) + len(self._planner.waiting)
        for task in tasks:
            fill = task.cache.fill
            fill.check_integrity()
            assert fill.filled < len(task.sequence), "a sequence is always behind by at least one token"
            assert task.cache.missing(fill.filled) == 0, "fill without pages"
            assert self._runner.num_pending(task.sequence.key) == fill.filled - fill.paid, "debt without hidden state"

    def _commit(
        self,
        items: list[PlanItem],
        batch: Batch,
        outcome: Outcome,
        verdicts: list[Verdict],
    ) -> None:
        places = iter(zip(batch.places, verdicts, strict=True))
        for index, item in enumerate(items):
            task = item.task
            place, verdict = next(places) if item.yields else (None, None)
            if task.sequence.finish_reason is not None:
                continue  # another choice of its request failed in this step
            failure = self._collect_prompt_logprobs(task, batch, outcome, index)
            if failure is not None:
                self._fail(task, failure)
            elif place is not None and verdict is not None:
                self._speculation.observe(index, verdict)
                self._commit_block(task, place, verdict, outcome)

    def _commit_block(self, task: Task, place: Place, verdict: Verdict, outcome: Outcome) -> None:
        """Append a verified block, keep the K/V of its drafts, publish, tell, and finish or fail."""
        sequence, cache = task.sequence, task.cache
        before = len(sequence)
        if sequence.output_len == 0:
            self._statistics.num_prompt_tokens += sequence.prompt_len
            self._statistics.num_cached_tokens += task.num_cached or 0
        task.exact_kv &= cache.fill.tainted_from is None
        done = commit_tokens(sequence, verdict.token_ids)
        self._statistics.num_generated_tokens += done.count
        if verdict.written is not None:
            self._statistics.observe_written(verdict.written.cut(done.count), num_emitted=done.count)
        elif len(place.tree):
            num_accepted = min(done.count, len(verdict.accepted))
            self._statistics.observe_draft(place.tree, num_accepted=num_accepted, num_emitted=done.count)
        accepted = verdict.accepted[: done.count]
        self._keep_drafts(task, before, accepted)
        self._speculation.keep(sequence.key, accepted)
        if done.count:  # finite logits vouch for all K/V that they saw
            cache.publish(sequence.tokens.view)
            layers = int(outcome.exit_layers[place.row])
            self._events.append(block_event(task, place.tree, verdict, done, outcome.rows_of(place), layers))
            if sequence.request.exits.policy is not None:
                self._statistics.num_exits_per_layer[layers] += done.count
        if done.finish_reason is not None:
            self._end(task, done.finish_reason)
        elif verdict.error is not None:
            self._fail(task, verdict.error)

    def _keep_drafts(self, task: Task, before: int, accepted: Items[int]) -> None:
        """Move accepted K/V from scratch slots to their positions; the pages of the others go back."""
        cache = task.cache
        if accepted:
            target = np.arange(before, before + len(accepted), dtype=np.int32)
            source = np.array(accepted, dtype=np.int32) + before
            moved = source != target
            if moved.any():
                self._runner.copy_slots(cache.physical(source[moved]), cache.physical(target[moved]))
            cache.fill.advance(before, before + len(accepted), 0, self._config.num_layers)
        cache.trim_pages(len(task.sequence))

    def _collect_prompt_logprobs(self, task: Task, batch: Batch, outcome: Outcome, index: int) -> OfframpError | None:
        """Log-probabilities of the prompt tokens that this chunk's rows predict; an error if one is not a number."""
        hidden, rows = outcome.prompt_hidden[index], batch.prompt_rows[index]
        for begin in range(0, len(rows), PROMPT_LOGITS_ROWS):
            assert hidden is not None
            part = np.arange(begin, min(begin + PROMPT_LOGITS_ROWS, len(rows)), dtype=np.int32)
            logits = self._runner.logits(hidden.take(part))
            try:
                extend_prompt_logprobs(task, logits)
            except NumericError as error:
                return error
        return None

    def _fail(self, task: Task, error: OfframpError) -> None:
        """End all choices of a request because of an error; nobody else is touched."""
        for other in list(self._tasks[task.sequence.request.request_id]):
            self._events.append(self._finish(other, "error", error))

    def _finish(self, task: Task, reason: FinishReason, error: OfframpError | None = None) -> TokenEvent:
        self._end(task, reason)
        return end_event(task, reason, error)

    def _end(self, task: Task, reason: FinishReason) -> None:
        """Take a sequence out of everything that knows it."""
        sequence = task.sequence
        sequence.finish_reason = reason
        self._planner.remove(task)
        self._runner.forget(sequence.key)
        if sequence.request.exits.policy is not None:
            self._policies[sequence.request.exits.policy].forget(sequence.key)
        self._speculation.forget(sequence)
        tasks = self._tasks[sequence.request.request_id]
        tasks.remove(task)
        if not tasks:
            del self._tasks[sequence.request.request_id]
        self._statistics.num_finished[reason] += 1
