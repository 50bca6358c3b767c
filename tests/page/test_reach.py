"""The page for everyone: by keyboard, on a phone, light and dark, legibly."""

from __future__ import annotations

import re
from itertools import product

import pytest

from tests.page.browsing import Visit
from tests.page.conftest import Open, Start
from tests.page.models import NGRAM, mixer, speaker

LOOP = "hello 12 hello 12 hello 12 hello 12"
LONG = "w" * 200
AA = 4.5


def focused(visit: Visit) -> str:
    return str(visit.page.evaluate("document.activeElement.id || document.activeElement.className"))


def test_everything_by_keyboard(start: Start, open_page: Open) -> None:
    visit = open_page(start(speaker("hi", LOOP), NGRAM))
    keys = visit.page.keyboard
    assert focused(visit) == "question", "where one begins"
    visit.at(".skip").focus()
    assert visit.at(".skip").bounding_box()["width"] > 50  # type: ignore[index]
    keys.press("Enter")
    assert focused(visit) == "question"
    keys.type("hi")
    keys.press("Enter")
    visit.at(".foot").filter(has_text="mode lossless").wait_for()
    assert focused(visit) == "question"
    keys.press("Shift+Tab")
    assert focused(visit).startswith("token"), "one stop for the whole answer"
    assert visit.at("#tip").is_visible()
    first = visit.at("#tip").inner_text()
    for key, place in (("ArrowRight", 1), ("ArrowRight", 2), ("ArrowLeft", 1), ("End", -1), ("Home", 0)):
        keys.press(key)
        assert visit.tokens.nth(place).evaluate("node => node === document.activeElement")
        assert visit.tokens.nth(place).get_attribute("aria-describedby") == "tip"
    assert visit.at("#tip").inner_text() == first
    keys.press("Escape")
    assert visit.at("#tip").is_hidden()
    keys.press("Shift+Tab")
    assert visit.at("#views input:checked").evaluate("node => node === document.activeElement")
    keys.press("ArrowLeft")
    assert visit.at("#views input[value=depth]").is_checked()
    keys.press("Shift+Tab")
    assert focused(visit) == "max-tokens"


def test_shift_enter_breaks_the_line(start: Start, open_page: Open) -> None:
    visit = open_page(start(speaker("a\nb", "hello")))
    visit.at("#question").type("a")
    visit.page.keyboard.press("Shift+Enter")
    visit.at("#question").type("b")
    visit.page.keyboard.press("Enter")
    visit.at(".foot").filter(has_text="mode").wait_for()
    assert visit.answers.text_content() == "hello"


def test_pointers_and_taps_tell_too(start: Start, open_page: Open) -> None:
    visit = open_page(start(speaker("hi", "hello 12")), has_touch=True)
    visit.ask("hi")
    visit.tokens.nth(1).hover()
    assert "probability" in visit.at("#tip").inner_text()
    visit.at("#question").hover()
    assert visit.at("#tip").is_hidden()
    visit.tokens.nth(0).tap()
    assert "token hello" in visit.at("#tip").inner_text()


@pytest.mark.parametrize(("width", "height"), [(320, 568), (320, 200), (768, 1024), (1280, 720)])
def test_nothing_scrolls_sideways(start: Start, open_page: Open, width: int, height: int) -> None:
    names = (f"model-{LONG[:80]}", "other")
    visit = open_page(
        start(speaker(LONG, LONG, num_pages=64), served_names=names), viewport={"width": width, "height": height}
    )

    def fits() -> bool:
        return bool(visit.page.evaluate("document.documentElement.scrollWidth <= innerWidth"))

    assert fits()
    visit.at("#settings").evaluate("node => { node.open = true; }")
    assert fits()
    assert visit.ask(LONG) == LONG
    visit.tokens.last.focus()
    box = visit.at("#tip").bounding_box()
    assert box is not None
    assert box["x"] >= 0
    assert box["x"] + box["width"] <= width
    assert fits()


def channels(colour: str) -> tuple[float, float, float, float]:
    values = [float(number) for number in re.findall(r"[\d.]+", colour)]
    return values[0], values[1], values[2], values[3] if len(values) > 3 else 1.0


def luminance(colour: str) -> float:
    red, green, blue, _ = (value / 255 for value in channels(colour))
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in (red, green, blue)]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one: str, other: str) -> float:
    dark, light = sorted((luminance(one), luminance(other)))
    return (light + 0.05) / (dark + 0.05)


def test_contrast_is_that_of_the_standard() -> None:
    assert contrast("rgb(0, 0, 0)", "rgb(255, 255, 255)") == pytest.approx(21)
    assert contrast("rgb(119, 119, 119)", "rgb(255, 255, 255)") == pytest.approx(4.48, abs=0.01)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_text_is_legible(start: Start, open_page: Open, scheme: str) -> None:
    visit = open_page(start(speaker("hi", "hello 12")), color_scheme=scheme, reduced_motion="reduce")
    visit.ask("hi")
    paper, ink = visit.style("body", "backgroundColor"), visit.style("body", "color")
    assert (luminance(paper) < 0.1) == (scheme == "dark")
    assert contrast(ink, paper) >= 7
    for view, name in [*product(["depth"], [f"depth-{n}" for n in range(8)]), ("draft", "drafted")]:
        visit.at("#conversation").evaluate("(node, view) => { node.dataset.view = view; }", view)
        visit.tokens.first.evaluate("(node, name) => { node.className = `token ${name}`; }", name)
        ground = visit.style(".answer .token", "backgroundColor")
        assert channels(ground)[3] == 1
        assert contrast(visit.style(".answer .token", "color"), ground) >= AA, name
    for selector in (".foot", "#controls .note", "#gauges dt", "#legend", "#clear", "#views legend"):
        assert contrast(visit.style(selector, "color"), paper) >= AA, selector
    for selector in ("#send", "#alert", "#notice", "#tip"):
        assert contrast(visit.style(selector, "color"), visit.style(selector, "backgroundColor")) >= AA, selector


def test_steps_of_depth_differ_in_lightness_and_order(start: Start, open_page: Open) -> None:
    """So that they can be told apart without telling hues apart."""
    visit = open_page(start(speaker("hi", "hello 12")), reduced_motion="reduce")
    visit.ask("hi")
    visit.at("#conversation").evaluate("node => { node.dataset.view = 'depth'; }")
    seen = []
    for n in range(8):
        visit.tokens.first.evaluate("(node, n) => { node.className = `token depth-${n}`; }", n)
        seen.append(luminance(visit.style(".answer .token", "backgroundColor")))
    assert seen[2:] == sorted(seen[2:], reverse=True)


def test_the_page_asks_nobody_else(start: Start, open_page: Open) -> None:
    url = start(mixer())
    visit = open_page(url)
    visit.at("#max-tokens").fill("2")
    visit.ask("a")
    assert {request.url.removeprefix(url)[:1] for request in visit.asked} == {"/"}
