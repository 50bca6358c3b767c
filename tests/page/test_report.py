"""The report as a file in a browser: without a network, on a phone, in the dark, on paper."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from offramp.bench.report.page import page
from offramp.bench.report.reading import read_results
from tests.bench.report.made import whole

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

AA = 4.5
RESULTS, IMAGES = "OFFRAMP_REPORT", "OFFRAMP_REPORT_IMAGES"
"""The results that the documentation's pictures show, and the folder that they are put into."""
CONTRAST = """() => {
  const luminance = ([r, g, b]) => [r, g, b].map((v) => v / 255)
    .map((v) => (v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4))
    .reduce((sum, v, place) => sum + v * [0.2126, 0.7152, 0.0722][place], 0);
  const numbers = (text) => text.match(/[\\d.]+/g).map(Number);
  const ground = (node) => {
    for (let at = node; at; at = at.parentElement) {
      const [r, g, b, a = 1] = numbers(getComputedStyle(at).backgroundColor);
      if (a === 1) return [r, g, b];
    }
    return [255, 255, 255];
  };
  const found = [];
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const node = walker.currentNode.parentElement;
    if (!walker.currentNode.data.trim() || node.closest("script, title, desc, .unseen")) continue;
    const style = getComputedStyle(node);
    const [one, two] = [numbers(node.closest("svg") ? style.fill : style.color), ground(node)].map(luminance);
    const contrast = (Math.max(one, two) + 0.05) / (Math.min(one, two) + 0.05);
    found.push([contrast, walker.currentNode.data.trim().slice(0, 40)]);
  }
  return found;
}"""

Show = Callable[..., "Page"]


@contextmanager
def shown(browser: Browser, path: Path, **context: Any) -> Iterator[Page]:
    """The file in a new tab; the network is down, and the console must stay empty."""
    tab = browser.new_context(**{"viewport": {"width": 1180, "height": 900}, "offline": True, **context})
    try:
        opened, told, asked = tab.new_page(), [], []
        opened.on("console", lambda message: told.append(message.text))
        opened.on("pageerror", lambda error: told.append(str(error)))
        opened.on("request", lambda request: asked.append(request.url))
        opened.goto(path.as_uri())
        yield opened
        assert told == []
        assert asked == [path.as_uri()]
    finally:
        tab.close()


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("report") / "report.html"
    path.write_text(page([whole(), whole()]), encoding="utf-8")
    return path


@pytest.fixture
def show(browser: Browser, report: Path) -> Iterator[Show]:
    with ExitStack() as stack:
        yield lambda **context: stack.enter_context(shown(browser, report, **context))


def test_it_opens_by_itself(show: Show) -> None:
    opened = show()
    assert "offramp report · smollm2-135m" in opened.title()
    assert opened.locator(".lead").first.is_visible()
    assert opened.locator("svg.chart:visible").count() > 20
    assert not opened.locator(".narrow").first.is_visible()


def test_it_is_read_without_scripts(show: Show) -> None:
    opened = show(java_script_enabled=False)
    assert opened.locator("table.figures, .figures table").first.is_visible()
    assert opened.locator("thead button").count() == 0


@pytest.mark.parametrize("width", [320, 360, 768, 1180])
def test_nothing_but_tables_scrolls_sideways(show: Show, width: int) -> None:
    opened = show(viewport={"width": width, "height": 740})
    assert opened.evaluate("document.documentElement.scrollWidth") <= width
    wide = opened.evaluate(
        "() => [...document.querySelectorAll('body *')].filter((node) => !node.closest('.scroll, .unseen, svg *') "
        "&& node.getBoundingClientRect().right > innerWidth + 1).map((node) => node.outerHTML.slice(0, 80))"
    )
    assert wide == []
    assert opened.locator(".narrow").first.is_visible() == (width < 704)


def test_charts_stay_legible_on_a_phone(show: Show) -> None:
    opened = show(viewport={"width": 360, "height": 740})
    sizes = opened.evaluate(
        "() => [...document.querySelectorAll('svg.chart text')].filter((node) => node.getClientRects().length)"
        ".map((node) => 12 * node.getScreenCTM().a)"
    )
    assert min(sizes) > 10.5


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_all_text_has_contrast(show: Show, scheme: str) -> None:
    opened = show(color_scheme=scheme)
    found = opened.evaluate(CONTRAST)
    assert len(found) > 500
    assert [(text, round(contrast, 2)) for contrast, text in found if contrast < AA] == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_it_prints_dark_on_light(show: Show, scheme: str) -> None:
    opened = show(color_scheme=scheme)
    opened.emulate_media(media="print")
    assert opened.locator(".lead").first.evaluate("node => getComputedStyle(node).color") == "rgb(33, 31, 27)"
    assert not opened.locator("nav").is_visible()
    assert opened.locator(".scroll").first.evaluate("node => getComputedStyle(node).overflowX") == "visible"
    found = opened.evaluate(CONTRAST)
    assert [(text, round(contrast, 2)) for contrast, text in found if contrast < AA] == []


def test_tables_are_sorted_by_their_headings(show: Show) -> None:
    opened = show()
    table = opened.locator(".figures table").first
    button = table.get_by_role("button", name="decode, tokens/s")
    for direction in ("descending", "ascending"):
        button.press("Enter")
        place = table.locator("thead th").evaluate_all(
            "(heads, direction) => heads.findIndex((head) => head.getAttribute('aria-sort') === direction)", direction
        )
        values = table.locator("tbody tr").evaluate_all(
            "(rows, place) => rows.map((row) => Number(row.cells[place].dataset.value))", place
        )
        assert values == sorted(values, reverse=direction == "descending")
    table.get_by_role("button", name="times plain").first.click()
    last = table.locator("tbody tr").last
    assert "plain" in last.inner_text(), "what is missing comes last"


def test_links_lead_to_the_files(show: Show) -> None:
    opened = show()
    for link in opened.locator("nav a").all():
        assert opened.locator(str(link.get_attribute("href"))).count() == 1


def test_pictures_for_the_documentation(browser: Browser, tmp_path: Path) -> None:
    """report-light.png and report-dark.png, of the results that OFFRAMP_REPORT names, in OFFRAMP_REPORT_IMAGES."""
    results, folder = os.environ.get(RESULTS), os.environ.get(IMAGES)
    if not (results and folder):
        pytest.skip(f"{RESULTS} and {IMAGES} name no results and folder")
    path = tmp_path / "report.html"
    path.write_text(page([read_results(Path(results))]), encoding="utf-8")
    size = {"width": 1180, "height": 1500}
    for scheme in ("light", "dark"):
        with shown(browser, path, viewport=size, color_scheme=scheme) as opened:
            opened.screenshot(path=Path(folder) / f"report-{scheme}.png")
