"""API keys: who may ask, and how clients are told apart without keeping their keys around."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Sequence

from offramp.serve.errors import HttpError


class ApiKeys:
    """The keys that are let in; none at all lets everyone in. Only hashes are kept."""

    def __init__(self, keys: Sequence[str]) -> None:
        self._digests = [_digest(key.encode("ascii")) for key in keys]

    def identify(self, authorization: str | None) -> str | None:
        """A name for the key in an Authorization header, None where no key is asked for. Raises HttpError (401).

        Takes the same time whichever key is right, or none.
        """
        if not self._digests:
            return None
        scheme, _, given = (authorization or "").partition(" ")
        digest = _digest(given.strip().encode("utf-8", "surrogateescape"))
        right = [hmac.compare_digest(digest, known) for known in self._digests]
        if scheme.lower() != "bearer" or not any(right):
            what = "the API key is wrong" if authorization else "an API key is needed"
            raise HttpError(401, what, hint="send it as Authorization: Bearer KEY", code="invalid_api_key")
        return digest.hex()[:16]


def _digest(key: bytes) -> bytes:
    return hashlib.sha256(key).digest()
