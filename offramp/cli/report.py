"""`offramp report`: results as a page."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from offramp.cli import options
from offramp.cli.messages import counted, say
from offramp.errors import InvalidRequestError, ResourceError

PAGE = "report.html"
PAGES, TABLES = (".html", ".htm"), (".md", ".markdown")


def command(
    results: Annotated[list[Path], typer.Argument(metavar="RESULTS", help="Files of `offramp bench run`.")],
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", help="The page (.html), or a Markdown table (.md).", show_default=PAGE),
    ] = None,
    markdown: Annotated[Path | None, typer.Option(help="File for a Markdown table.")] = None,
    debug: options.Debug = False,
) -> None:
    """Show results: one HTML file that needs nothing else, a Markdown table, or both.

    Several files are shown one after the other, never averaged.
    """
    page, table = _outputs(output, markdown)
    if page is not None and table is not None and page.absolute() == table.absolute():
        raise InvalidRequestError(f"the page and the table are both {page}", hint="give each a file of its own")
    for wanted in filter(None, (page, table)):
        _check(wanted, results)

    from offramp.bench.report.markdown import markdown as as_markdown
    from offramp.bench.report.page import page as as_page
    from offramp.bench.report.reading import read_results

    files = [read_results(path) for path in results]
    for path, write in ((page, as_page), (table, as_markdown)):
        if path is not None:
            content = write(files).encode()
            _write(path, content)
            say(f"{path}: {counted(len(files), 'file')} of results, {len(content) / 1024:.0f} KiB")


def _outputs(output: Path | None, markdown: Path | None) -> tuple[Path | None, Path | None]:
    """Where the page goes, and where the table; None for what nobody wants."""
    if output is None:
        return (None if markdown else Path(PAGE)), markdown
    kind = output.suffix.lower()
    if kind in PAGES:
        return output, markdown
    if kind not in TABLES:
        raise InvalidRequestError(f"--output {output}: no such kind of file", hint="its name ends in .html or .md")
    if markdown is not None:
        raise InvalidRequestError(f"two tables: {output} and {markdown}", hint="leave out --markdown")
    return None, output


def _check(path: Path, results: Sequence[Path]) -> None:
    """Refuse what can't be written, and what would be lost."""
    if path.is_dir() or not path.parent.is_dir():
        raise InvalidRequestError(f"can't write {path}: there is no such folder, or it is one", hint="name a file")
    if any(each.exists() and path.exists() and each.samefile(path) for each in results):
        raise InvalidRequestError(f"{path} holds results, which a report would replace", hint="name another file")


def _write(path: Path, content: bytes) -> None:
    from offramp.whole_file import whole_file

    try:
        with whole_file(path) as file:
            file.write(content)
    except OSError as error:
        raise ResourceError(f"can't write {path}: {error.strerror}", hint="make room, or name another file") from error
