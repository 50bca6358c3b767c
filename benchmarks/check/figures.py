"""What is compared: ratios within one process, so that the machine's speed of the day cancels."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Figure:
    """A ratio by its name."""

    name: str
    what: str
    more_is_better: bool = False


COPYING = Figure("copying", "tokens a second of auto over plain, texts that repeat their prompt", more_is_better=True)
UNLIKE = Figure("unlike", "the same where there is nothing to copy", more_is_better=True)
BESIDES = Figure("besides", "a plain step's time besides the executor over the executor's")
GRAMMAR = Figure("grammar", "seconds a token under a wide grammar over plain ones")
FORCED = Figure("forced", "tokens a second with forced tokens as drafts over none, one schema", more_is_better=True)
ROWS_4 = Figure("rows-4", "a call of the executor on 4 rows over one on 1 row")
ROWS_16 = Figure("rows-16", "the same on 16 rows")
PREFILL = Figure("prefill", "a prompt of 512 tokens over one decoding step")
LONG = Figure("long", "a decoding step after 1,500 tokens over one after 64")
STREAMS = Figure("streams-16", "tokens a second of 16 streams together over one", more_is_better=True)

FIGURES = {
    figure.name: figure
    for figure in (COPYING, UNLIKE, BESIDES, GRAMMAR, FORCED, ROWS_4, ROWS_16, PREFILL, LONG, STREAMS)
}
