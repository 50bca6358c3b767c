"""The numbers of a load as a page of text."""

from __future__ import annotations

from collections.abc import Sequence

from offramp.bench.serve.summary import Fields

WIDTH = 50
LABEL_WIDTH = 41

COUNTS = (
    ("Answered requests:", "completed"),
    ("Failed requests:", "failed"),
    ("Requests cut off at the end:", "cut_off"),
    ("Requests not sent:", "not_sent"),
    ("Duration (s):", "duration"),
    ("Input tokens:", "total_input_tokens"),
    ("Output tokens:", "total_output_tokens"),
    ("Requests/s:", "request_throughput"),
    ("Output tokens/s:", "output_throughput"),
    ("Output tokens/s, best second:", "max_output_tokens_per_s"),
    ("Input and output tokens/s:", "total_token_throughput"),
    ("Most requests at once:", "max_concurrent_requests"),
)
LATENCIES = (
    ("Time to First Token", "TTFT", "ttft"),
    ("Time per Output Token (after the first)", "TPOT", "tpot"),
    ("Inter-token Latency (between chunks)", "ITL", "itl"),
    ("End-to-end Latency", "E2EL", "e2el"),
)
SPECULATION = (
    ("Acceptance rate (%):", "spec_decode_acceptance_rate"),
    ("Acceptance length:", "spec_decode_acceptance_length"),
    ("Drafts:", "spec_decode_num_drafts"),
    ("Draft tokens:", "spec_decode_draft_tokens"),
    ("Accepted tokens:", "spec_decode_accepted_tokens"),
)


def report(fields: Fields) -> str:
    """A table of counts, latencies and, where the server drafted, its speculation."""
    lines = [_heading("Serving Benchmark Result", "=")]
    lines += [_line(label, fields[name]) for label, name in COUNTS]
    for title, short, name in LATENCIES:
        lines.append(_heading(title, "-"))
        lines += [_line(f"{word} {short} (ms):", fields[f"{word.lower()}_{name}_ms"]) for word in _STATISTICS]
    if fields["spec_decode_num_drafts"]:
        lines.append(_heading("Speculative Decoding", "-"))
        lines += [_line(label, fields[name]) for label, name in SPECULATION]
        lines += _positions(fields["spec_decode_per_position_acceptance_rates"])
    errors = fields["error_counts"]
    if isinstance(errors, dict) and errors:
        lines.append(_heading("Errors", "-"))
        lines += [_line(f"{name}:", count) for name, count in errors.items()]
    return "\n".join([*lines, "=" * WIDTH])


_STATISTICS = ("Mean", "Median", "P99")


def _positions(rates: object) -> list[str]:
    if not isinstance(rates, Sequence) or not rates:
        return []
    positions = [_line(f"  Position {at}:", 100 * rate) for at, rate in enumerate(rates)]
    return ["Per-position acceptance (%):", *positions]


def _heading(title: str, mark: str) -> str:
    return f" {title} ".center(WIDTH, mark)


def _line(label: str, value: object) -> str:
    shown = "-" if value is None else f"{value:.2f}" if isinstance(value, float) else str(value)
    return f"{label:<{LABEL_WIDTH}}{shown}"
