"""What a server's own counters say about speculation: the difference between two of its metrics pages."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

from prometheus_client.parser import text_string_to_metric_families

PREFIXES = ("offramp:", "vllm:", "llamacpp:")
NAMES = {
    "spec_decode_num_drafts_total": "drafts",
    "spec_decode_num_draft_tokens_total": "draft_tokens",
    "spec_decode_num_accepted_tokens_total": "accepted_tokens",
}
EMITTED = "spec_decode_num_emitted_tokens_total"
"""Not every server counts them."""
PER_POSITION = "spec_decode_num_accepted_tokens_per_pos_total"


@dataclass(frozen=True, slots=True)
class SpeculationCounts:
    """Drafts, their tokens, those accepted, in all and by position in the draft, and all tokens of drafted steps."""

    drafts: int
    draft_tokens: int
    accepted_tokens: int
    accepted_per_position: Mapping[int, int] = field(default_factory=dict)
    emitted_tokens: int | None = None  # None: the server does not tell

    @property
    def acceptance_length(self) -> float:
        """Tokens a drafted step yields; where the server does not tell, as if each had its recovered or bonus token.

        There must be a draft.
        """
        emitted = self.drafts + self.accepted_tokens if self.emitted_tokens is None else self.emitted_tokens
        return emitted / self.drafts

    def since(self, before: SpeculationCounts) -> SpeculationCounts | None:
        """What was added; None when a counter fell: the server began anew."""
        earlier = before.accepted_per_position
        per_position = {at: count - earlier.get(at, 0) for at, count in self.accepted_per_position.items()}
        added = SpeculationCounts(
            self.drafts - before.drafts,
            self.draft_tokens - before.draft_tokens,
            self.accepted_tokens - before.accepted_tokens,
            per_position,
            _difference(self.emitted_tokens, before.emitted_tokens),
        )
        counted = (added.drafts, added.draft_tokens, added.accepted_tokens, added.emitted_tokens or 0)
        falls = min(*counted, *per_position.values()) < 0
        return None if falls else added


def read_counts(page: bytes | None) -> SpeculationCounts | None:
    """The counters on a metrics page, all models and engines together; None when it does not have them."""
    totals: Counter[str] = Counter()
    per_position: Counter[int] = Counter()
    emitted: int | None = None
    try:
        for family in text_string_to_metric_families((page or b"").decode("utf-8")):
            for sample in family.samples:
                name = _without_prefix(sample.name)
                if name in NAMES:
                    totals[NAMES[name]] += int(sample.value)
                elif name == EMITTED:
                    emitted = (emitted or 0) + int(sample.value)
                elif name == PER_POSITION:
                    per_position[int(sample.labels["position"])] += int(sample.value)
    except (ValueError, KeyError, OverflowError):
        return None  # not a page of metrics, or not one that we can read
    if set(totals) != set(NAMES.values()):
        return None
    by_position = dict(sorted(per_position.items()))
    return SpeculationCounts(**totals, accepted_per_position=by_position, emitted_tokens=emitted)


def _difference(after: int | None, before: int | None) -> int | None:
    return None if after is None or before is None else after - before


def _without_prefix(name: str) -> str:
    for prefix in PREFIXES:
        if name.startswith(prefix):
            return name.removeprefix(prefix)
    return ""
