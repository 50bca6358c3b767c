"""Which Host headers are let in: a web page can make a name of its own point at this machine, and ask under it.

A browser then takes the server for a part of that page (DNS rebinding), and hands it everything the server says. The
name that it asked under stays in the Host header.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from offramp.params import refused, shown
from offramp.serve.errors import HttpError

LOCAL = ("localhost", "127.0.0.1", "[::1]")
"""Names of this machine that nobody else can own."""

PORT = re.compile(r":[0-9]*\Z")
NAME = re.compile(r"[a-z0-9._-]+|\[[0-9a-f:.]+\]")


class AllowedHosts:
    """The hosts that requests may name, whatever the port; none at all lets every name in."""

    def __init__(self, hosts: Sequence[str]) -> None:
        self._hosts = frozenset(map(host_name, hosts))

    def check(self, header: str | None) -> None:
        """Raise HttpError (403) for another host. No header is fine: browsers always send one."""
        if not self._hosts or header is None:
            return
        name = _as_in_headers(PORT.sub("", header.strip()))
        if name not in self._hosts:
            hint = "ask under an address of this machine, or start the server with --allowed-host NAME"
            raise HttpError(403, f"the host {shown(header)} is not served", hint=hint, code="host_not_allowed")


def host_name(text: str) -> str:
    """A host as headers have it, without a port. Raises InvalidRequestError for what no header could name."""
    name = _as_in_headers(text)
    if not NAME.fullmatch(name):
        raise refused("allowed_host", text, "a host without a port, such as box.lan")
    return name


def hosts_to_allow(bound: Sequence[str], given: Sequence[str], *, guarded: bool) -> tuple[str, ...]:
    """Hosts for a server bound to these addresses; empty, where every name is let in.

    The check is on where hosts are `given`, and where nothing else guards a server that only this machine reaches.
    """
    if not given and guarded:
        return ()
    own = [name for name in map(_as_in_headers, bound) if NAME.fullmatch(name)]
    return tuple(dict.fromkeys([*LOCAL, *own, *map(host_name, given)]))


def _as_in_headers(text: str) -> str:
    name = text.strip().lower().removesuffix(".")
    return f"[{name}]" if name.count(":") > 1 and not name.startswith("[") else name
