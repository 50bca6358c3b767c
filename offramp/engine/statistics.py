"""Counters of one engine, monotone, and a few gauges of its present load."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from offramp.core import TokenTree, Written


@dataclass(slots=True)
class Statistics:
    """Counts since the engine was made, unless said otherwise."""

    num_steps: int = 0
    num_rows: int = 0
    num_prompt_tokens: int = 0  # of sequences whose prompt has run, cached ones included
    num_cached_tokens: int = 0  # of those, found in the prefix cache
    num_generated_tokens: int = 0
    num_preemptions: int = 0
    num_drafts: int = 0  # non-empty proposals that ran
    num_draft_tokens: int = 0
    num_accepted_tokens: int = 0  # drafted, and became output: none behind the end of a sequence
    num_emitted_tokens: int = 0  # committed by steps of a sequence in which a draft ran
    num_draft_tokens_per_pos: Counter[int] = field(default_factory=Counter)  # by depth, from 0
    num_accepted_tokens_per_pos: Counter[int] = field(default_factory=Counter)  # by depth, from 0
    draft_seconds: float = 0.0  # proposing, and choosing how much of it runs
    run_seconds: float = 0.0  # in the executor
    step_seconds: float = 0.0  # whole steps; what is neither draft nor run is planning, drawing and committing
    drafted_seconds: float = 0.0  # steps in which drafts ran and no prompt did
    drafted_plain_seconds: float = 0.0  # what plain steps would take for the tokens of those, by the cost model
    num_exits_per_layer: Counter[int] = field(default_factory=Counter)  # tokens by layers run, of requests with exits
    num_asked_per_layer: Counter[int] = field(default_factory=Counter)  # rows that a policy was asked about
    num_head_rows_per_layer: Counter[int] = field(default_factory=Counter)  # of those, rows whose logits were computed
    num_paid_debts: int = 0  # tokens whose skipped layers ran later
    num_propagated_rows: int = 0  # tokens whose skipped K/V was projected
    num_forced_rows: int = 0  # rows that went on behind their exit since their sequence owed too much
    num_involuntary_stays: int = 0  # rows that went on behind their exit because of others (barriers)
    num_little_tokens: int = 0  # written by a little model, and output
    num_big_tokens: int = 0  # of the same requests, drawn by the big one
    num_differing_tokens: int = 0  # of the little model's, those that the big one would not have drawn
    num_fallbacks: int = 0  # the little model left the word to the big one
    num_rollbacks: int = 0  # the big one took back what the little model wrote
    num_finished: Counter[str] = field(default_factory=Counter)  # sequences by finish reason
    num_running: int = 0  # now
    num_waiting: int = 0  # now
    num_used_pages: int = 0  # now
    num_pages: int = 0  # that the engine has

    def observe_draft(self, tree: TokenTree, *, num_accepted: int, num_emitted: int) -> None:
        """One draft ran; so many of its tokens became output, and so many tokens were committed in all."""
        self.num_drafts += 1
        self.num_emitted_tokens += num_emitted
        self.num_draft_tokens += len(tree)
        self.num_accepted_tokens += num_accepted
        self.num_draft_tokens_per_pos.update(tree.depths())
        self.num_accepted_tokens_per_pos.update(range(num_accepted))

    def observe_written(self, written: Written, *, num_emitted: int) -> None:
        """So many tokens were committed of a request for which a little model writes."""
        num_big = num_emitted - written.num_little
        self.num_little_tokens += written.num_little
        self.num_big_tokens += num_big
        self.num_differing_tokens += len(written.differing)
        self.num_rollbacks += written.rolled_back
        self.num_fallbacks += num_big - written.rolled_back

    @property
    def estimated_speedup(self) -> float:
        """Of drafted steps against plain ones for the same tokens, as the cost model has it; 0 before any."""
        return self.drafted_plain_seconds / self.drafted_seconds if self.drafted_seconds > 0 else 0.0

    @property
    def mean_exit_layer(self) -> float:
        """Layers run for a token of requests with exits; 0 before any."""
        num_tokens = self.num_exits_per_layer.total()
        return sum(layer * count for layer, count in self.num_exits_per_layer.items()) / max(1, num_tokens)

    @property
    def page_usage(self) -> float:
        """Used / all pages, in [0, 1]; 0 without any."""
        return self.num_used_pages / self.num_pages if self.num_pages else 0.0

    @property
    def acceptance_rate(self) -> float:
        """Accepted / drafted, 0 before the first draft."""
        return self.num_accepted_tokens / self.num_draft_tokens if self.num_draft_tokens else 0.0

    @property
    def mean_acceptance_length(self) -> float:
        """Tokens a drafted step yields, the recovered or bonus token included; 0 before the first draft.

        A step in which the sequence ended may have none of those two.
        """
        return self.num_emitted_tokens / self.num_drafts if self.num_drafts else 0.0
