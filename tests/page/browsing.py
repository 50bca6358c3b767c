"""The page as a person uses it."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Locator, Page, Request, Route

CHAT = "/v1/chat/completions"
PATIENCE_MS = 15_000


class Visit:
    """One tab with the page, and what went over its wires."""

    def __init__(self, page: Page) -> None:
        self.page = page
        self.errors: list[str] = []  # of the console, and of scripts
        self.asked: list[Request] = []
        page.set_default_timeout(PATIENCE_MS)
        page.on("console", lambda message: message.type in ("error", "warning") and self.errors.append(message.text))
        page.on("pageerror", lambda error: self.errors.append(str(error)))
        page.on("request", lambda request: self.asked.append(request))  # Playwright marks what it calls

    def at(self, selector: str) -> Locator:
        return self.page.locator(selector)

    @property
    def answers(self) -> Locator:
        return self.at(".answer")

    @property
    def tokens(self) -> Locator:
        return self.at(".answer .token")

    def send(self, text: str = "hello") -> None:
        """Ask, and do not wait for an answer."""
        self.at("#question").fill(text)
        self.at("#question").press("Enter")

    def ask(self, text: str = "hello") -> str:
        """Ask, and wait for the answer's end; returns its text."""
        count = self.answers.count()
        self.send(text)
        self.at(".reply .foot").nth(count).filter(has_text=re.compile(r"\S")).wait_for()
        self.at("#send").wait_for()
        return self.answers.nth(count).text_content() or ""

    def bodies(self) -> list[dict[str, Any]]:
        """What was sent to be answered."""
        return [json.loads(request.post_data or "{}") for request in self.asked if request.url.endswith(CHAT)]

    def overheard(self) -> list[str]:
        """From now on answers come through the test, whole; returns the list that their texts are put into."""
        texts: list[str] = []

        def pass_on(route: Route) -> None:
            response = route.fetch()
            texts.append(response.text())
            route.fulfill(response=response)

        self.page.route(f"**{CHAT}", pass_on)
        return texts

    def allow(self, *parts: str) -> None:
        """Take what the browser says of failed requests from the console; anything else stays, and fails the test."""
        self.errors = [error for error in self.errors if not any(part in error for part in parts)]

    def style(self, selector: str, name: str) -> str:
        return str(self.at(selector).first.evaluate("(node, name) => getComputedStyle(node)[name]", name))


@contextmanager
def visit(browser: Browser, url: str, **context: Any) -> Iterator[Visit]:
    """Open the page, and wait until it knows its server, or asks for a key."""
    tab = browser.new_context(**{"viewport": {"width": 1100, "height": 800}, **context})
    try:
        visited = Visit(tab.new_page())
        visited.page.goto(url)
        visited.at("#send:enabled, #key-form:not([hidden])").first.wait_for()
        yield visited
        assert visited.errors == []
    finally:
        tab.close()


def chunks_of(text: str) -> list[dict[str, Any]]:
    """The events of a stream, [DONE] left out."""
    return [json.loads(event[6:]) for event in text.split("\n\n") if event.startswith("data: {")]
