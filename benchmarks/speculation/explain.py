"""Why a target was missed, from the figures of its line."""

from __future__ import annotations

from benchmarks.page import Json


def explain(line: Json) -> str:
    """The product that the ratio is made of: tokens a step over the cost of a step."""
    drafted, accepted = line["num_draft_tokens"], line["num_accepted_tokens"]
    text = f"* {line['what']}: {line['ratio']['median']:.2f}, since a step brought {line['tokens_per_step']:.2f} tokens"
    text += f" at {line['step_cost']:.2f} times the time of a plain one, {line['draft_share']:.1%} of it drafting. "
    if not drafted:
        return text + "Nothing was drafted."
    text += (
        f"{accepted} of {drafted} draft tokens were accepted, {line['mean_acceptance_length']:.2f} tokens a drafted "
    )
    return text + "step."
