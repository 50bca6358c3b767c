"""A browser, if this machine has one: these tests need the extra `browser` and a Chromium, and fetch neither."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from offramp.llm.loading import LoadedModel
from offramp.llm.serving import Serving
from tests.page.browsing import Visit, visit
from tests.serve.asking import listening, served

if TYPE_CHECKING:
    from playwright.sync_api import Browser

NAMES = ("chromium", "chromium-browser", "google-chrome")

Start = Callable[..., str]
Open = Callable[..., Visit]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.browser)


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    """OFFRAMP_CHROMIUM names another one than the system's."""
    api = pytest.importorskip("playwright.sync_api", reason="Playwright is missing: install offramp[browser]")
    found = os.environ.get("OFFRAMP_CHROMIUM") or next(filter(None, map(shutil.which, NAMES)), None)
    if found is None:
        pytest.skip(f"no Chromium on the path ({', '.join(NAMES)}), and OFFRAMP_CHROMIUM names none")
    with api.sync_playwright() as playwright:
        sandbox = [] if os.geteuid() else ["--no-sandbox"]  # root can't have one
        running = playwright.chromium.launch(executable_path=found, args=sandbox)
        yield running
        running.close()


@pytest.fixture
def start(browser: Browser) -> Iterator[Start]:
    """Start a server; gives its address. After the browser, whose loop stands still while others are made."""
    with ExitStack() as stack:

        def start_one(loaded: LoadedModel, serving: Serving | None = None, **settings: Any) -> str:
            api = stack.enter_context(served(loaded, serving, **settings))
            return stack.enter_context(listening(api.app))

        yield start_one


@pytest.fixture
def open_page(browser: Browser) -> Iterator[Open]:
    """Open the page in a new tab; at the end its console must hold nothing but what the test took from it."""
    with ExitStack() as stack:
        yield lambda url, **context: stack.enter_context(visit(browser, url, **context))
