"""The page at `/`: static files of the package, the same bytes for everyone, so they need no key.

What the page shows it asks the API for, under the key that its reader types in.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path

from fastapi import FastAPI
from starlette.requests import Request
from starlette.responses import Response

FOLDER = Path(__file__).with_suffix("")

TYPES: Mapping[str, str] = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}

NAMES = (
    "style.css",
    "icon.svg",
    "main.js",
    "answer.js",
    "api.js",
    "colours.js",
    "conversation.js",
    "elements.js",
    "gauges.js",
    "settings.js",
    "tip.js",
    "tokens.js",
    "watch.js",
)

PAGE: Mapping[str, str] = {"/": "index.html", **{f"/page/{name}": name for name in NAMES}}
"""Paths -> files of the folder."""

HEADERS: Mapping[str, str] = {
    "cache-control": "no-cache",  # kept, and asked for again under its tag: a new version is never half there
    "content-security-policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; base-uri 'none'; "
        "form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'"
    ),
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
}


def add_page(app: FastAPI) -> None:
    """Give the application the page's routes, which the API's document leaves out."""
    for path, name in PAGE.items():
        file = _File(FOLDER / name)
        app.add_api_route(path, file.answer, methods=["GET"], include_in_schema=False, response_model=None)
        app.add_route(path, file.answer, methods=["HEAD"], include_in_schema=False)


class _File:
    """One file, read once."""

    def __init__(self, path: Path) -> None:
        self._content = path.read_bytes()
        tag = f'"{hashlib.sha256(self._content).hexdigest()[:16]}"'
        self._headers = {**HEADERS, "content-type": TYPES[path.suffix], "etag": tag}

    async def answer(self, request: Request) -> Response:
        known = request.headers.get("if-none-match", "")
        if self._headers["etag"] in [tag.strip().removeprefix("W/") for tag in known.split(",")] or known == "*":
            return Response(status_code=304, headers=self._headers)
        return Response(self._content, headers=self._headers)
