"""Write all generated pages again from the results that are kept, and renew numbers elsewhere. Nothing is measured.

    python -m benchmarks.pages      # or make pages

Numbers in pages written by hand are renewed where a comment names their result; the sentences around them stay, so
read what changed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from benchmarks import report
from benchmarks.claims import renewed
from benchmarks.early_exit import page as early_exit
from benchmarks.little import page as student
from benchmarks.session import note
from benchmarks.speculation import page as speculation
from benchmarks.structured import page as structured
from benchmarks.trained_drafters import page as trained_drafters
from benchmarks.worker import ROOT

RESULTS = ROOT / "benchmarks" / "results"
DOCS = ROOT / "docs"


@dataclass(frozen=True, slots=True)
class Page:
    """Results, the page that is made of them, and what makes it, its charts too."""

    results: Path
    page: Path
    write: Callable[[Path, Path], None]


PAGES = (
    Page(RESULTS / "peers.jsonl", DOCS / "performance.md", report.write_page),
    Page(RESULTS / "speculation.jsonl", DOCS / "speculation.md", speculation.write_page),
    Page(RESULTS / "early_exit.jsonl", DOCS / "early-exit.md", early_exit.write_page),
    Page(RESULTS / "structured.jsonl", DOCS / "structured.md", structured.write_page),
    Page(RESULTS / "student.jsonl", DOCS / "student.md", student.write_page),
    Page(RESULTS / "trained_drafters.jsonl", DOCS / "trained-drafters.md", trained_drafters.write_page),
)


def by_hand() -> list[Path]:
    """The README and the pages of docs/ that no program writes."""
    generated = {"cli.md", *(each.page.name for each in PAGES)}
    return [ROOT / "README.md", *sorted(page for page in DOCS.glob("*.md") if page.name not in generated)]


def main() -> None:
    for each in PAGES:
        if each.results.exists():
            each.write(each.results, each.page)
            note(f"wrote {each.page.relative_to(ROOT)}")
        else:
            note(f"no {each.results.relative_to(ROOT)} yet")
    for page in by_hand():
        before = page.read_text(encoding="utf-8")
        after = renewed(before, ROOT)
        if after != before:
            page.write_text(after, encoding="utf-8")
            note(f"renewed numbers of {page.relative_to(ROOT)}: read its sentences")


if __name__ == "__main__":
    main()
