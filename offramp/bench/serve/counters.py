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
PER_POSITION = "spec_decode_num_accepted_tokens_per_pos_total"


@dataclass(frozen=True, slots=True)
class SpeculationCounts:
    """Drafts, their tokens, and those accepted, in all and by position in the draft."""

    drafts: int
    draft_tokens: int
    accepted_tokens: int
    accepted_per_position: Mapping[int, int] = field(default_factory=dict)

    def since(self, before: SpeculationCounts) -> SpeculationCounts | None:
        """What was added; None when a counter fell: the server began anew."""
        earlier = before.accepted_per_position
        per_position = {at: count - earlier.get(at, 0) for at, count in self.accepted_per_position.items()}
        added = SpeculationCounts(
            self.drafts - before.drafts,
            self.draft_tokens - before.draft_tokens,
            self.accepted_tokens - before.accepted_tokens,
            per_position,
        )
        falls = min(added.drafts, added.draft_tokens, added.accepted_tokens, *per_position.values()) < 0
        return None if falls else added


def read_counts(page: bytes | None) -> SpeculationCounts | None:
    """The counters on a metrics page, all models and engines together; None when it does not have them."""
    totals: Counter[str] = Counter()
    per_position: Counter[int] = Counter()
    try:
        for family in text_string_to_metric_families((page or b"").decode("utf-8")):
            for sample in family.samples:
                name = _without_prefix(sample.name)
                if name in NAMES:
                    totals[NAMES[name]] += int(sample.value)
                elif name == PER_POSITION:
                    per_position[int(sample.labels["position"])] += int(sample.value)
    except (ValueError, KeyError, OverflowError):
        return None  # not a page of metrics, or not one that we can read
    if set(totals) != set(NAMES.values()):
        return None
    return SpeculationCounts(**totals, accepted_per_position=dict(sorted(per_position.items())))


def _without_prefix(name: str) -> str:
    for prefix in PREFIXES:
        if name.startswith(prefix):
            return name.removeprefix(prefix)
    return ""
