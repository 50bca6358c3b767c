"""A Hugging Face hub of one repository on this machine, as far as huggingface-hub asks for it; remembers who asked."""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

COMMIT = "0123456789abcdef0123456789abcdef01234567"
TOKEN = "hf_secret"


@dataclass(slots=True)
class FakeHub:
    """`files` of `repo`, at one commit that goes by every name; private: asked without the token it knows nothing."""

    repo: str
    files: Mapping[str, bytes]
    endpoint: str = ""
    asked: list[tuple[str, str]] = field(default_factory=list)  # method and path

    def fetched(self) -> list[str]:
        """The files whose bytes were asked for, in alphabetic order; one fetched twice is there twice."""
        start = f"/{self.repo}/resolve/{COMMIT}/"
        return sorted(path.removeprefix(start) for method, path in self.asked if method == "GET" and start in path)

    def answer(self, path: str) -> tuple[int, bytes, dict[str, str]]:
        """Status, body and headers."""
        api, resolve = f"/api/models/{self.repo}", f"/{self.repo}/resolve/"
        if path.startswith(f"{api}/revision/"):
            return 200, json.dumps({"id": self.repo, "sha": COMMIT, "siblings": []}).encode(), {}
        if path.startswith(f"{api}/tree/"):
            tree = [
                {"type": "file", "path": name, "size": len(content), "oid": _digest(content)}
                for name, content in self.files.items()
            ]
            return 200, json.dumps(tree).encode(), {}
        name = path.removeprefix(resolve).partition("/")[2]
        if path.startswith(resolve) and name in self.files:
            content = self.files[name]
            return 200, content, {"ETag": f'"{_digest(content)}"', "X-Repo-Commit": COMMIT}
        return 404, b"", {"X-Error-Code": "EntryNotFound" if path.startswith(resolve) else "RepoNotFound"}


@contextmanager
def serving(hub: FakeHub) -> Iterator[FakeHub]:
    """The hub at its `endpoint`."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            path = self.path.partition("?")[0]
            hub.asked.append((self.command, path))
            known = self.headers.get("Authorization") == f"Bearer {TOKEN}"
            status, body, headers = hub.answer(path) if known else (401, b"", {"X-Error-Code": "RepoNotFound"})
            self.send_response(status)
            for name, value in (headers | {"Content-Length": str(len(body))}).items():
                self.send_header(name, value)
            self.end_headers()
            if self.command == "GET":
                self.wfile.write(body)

        do_HEAD = do_GET  # noqa: N815

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002
            """Nothing on stderr."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    hub.endpoint = f"http://127.0.0.1:{server.server_port}"
    try:
        yield hub
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def _digest(content: bytes) -> str:
    return hashlib.sha1(content).hexdigest()
