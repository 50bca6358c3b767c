"""A model behind somebody else's OpenAI-compatible server: asked with retries, time-outs and a budget of calls."""

from __future__ import annotations

import asyncio
import json
import os
import ssl
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager

import httpx2

from offramp.collaborate.pipeline.budget import CallBudget
from offramp.collaborate.pipeline.spec import RemoteSpec
from offramp.errors import InvalidRequestError, ResourceError
from offramp.params import shown
from offramp.serve.errors import HttpError, UnavailableError

AGAIN = frozenset({408, 429, 500, 502, 503, 504})
"""Statuses after which a call is tried again."""
KEY = frozenset({401, 403})
FIRST_DELAY, LONGEST_DELAY = 0.5, 20.0
"""Seconds before the first retry, which double; at most, whatever the endpoint asks for."""
LARGEST_ANSWER = 64 << 20
"""Bytes."""
SHOWN_ERROR = 500
"""Characters of an endpoint's own message."""
COME_AGAIN = 5.0

Sleep = Callable[[float], Awaitable[object]]


class Remote:
    """One endpoint and one model there. Used from one event loop at a time."""

    def __init__(
        self,
        spec: RemoteSpec,
        *,
        transport: httpx2.AsyncBaseTransport | None = None,
        clock: Callable[[], float] = time.monotonic,
        sleep: Sleep = asyncio.sleep,
    ) -> None:
        """Raises InvalidRequestError where the key's variable is not set."""
        self._spec = spec
        self._transport = transport
        self._sleep = sleep
        self._ssl = ssl.create_default_context() if spec.url.startswith("https") else False
        self.budget = CallBudget(spec.budget_calls, spec.budget_seconds, clock=clock)
        self._headers = {"accept-encoding": "identity"}
        if spec.key_env is not None:
            key = os.environ.get(spec.key_env)
            if not key:
                hint = f"set it to the key for {spec.url}"
                raise InvalidRequestError(f"the variable {spec.key_env} is not set", hint=hint, param="key_env")
            self._headers["authorization"] = f"Bearer {key}"

    @property
    def name(self) -> str:
        """The model's name there."""
        return self._spec.model

    async def check(self) -> None:
        """See that the endpoint is there, takes the key and has the model. Raises ResourceError naming the fault."""
        spec = self._spec
        try:
            async with self._client() as client:
                response = await client.get("/models")
        except (httpx2.HTTPError, httpx2.InvalidURL, OSError) as error:
            hint = "start it, or check url"
            raise ResourceError(f"{spec.url} can't be reached: {_reason(error)}", hint=hint) from error
        if response.status_code in KEY:
            hint = "name the variable that holds its key in key_env"
            raise ResourceError(f"{spec.url} refuses the key ({response.status_code})", hint=hint)
        if response.status_code >= 400:
            hint = "check url: it ends with /v1 on most servers"
            raise ResourceError(f"{spec.url}/models answers {response.status_code}", hint=hint)
        names = _names(response.content)
        if names is not None and spec.model not in names:
            listed = ", ".join(sorted(names)[:10])
            raise ResourceError(f"{spec.url} has no model {shown(spec.model)}", hint=f"it has {listed or 'none'}")

    async def answer(self, path: str, body: Mapping[str, object]) -> dict[str, object]:
        """A whole answer. Raises UnavailableError where the endpoint fails, HttpError for what it refuses."""
        try:
            async with asyncio.timeout(self._spec.timeout):
                async with self.opened(path, body) as response:
                    return _object(await _read(response), self._spec.url)
        except TimeoutError as error:
            raise self._unavailable(f"no answer in {self._spec.timeout:g} s", "endpoint_timeout") from error

    @asynccontextmanager
    async def opened(self, path: str, body: Mapping[str, object]) -> AsyncIterator[httpx2.Response]:
        """An answer of which the status has come, and is a good one. Raises as `answer` does."""
        content = json.dumps({**body, "model": self._spec.model}, ensure_ascii=False, allow_nan=False).encode()
        headers = {"content-type": "application/json"}
        async with self._client() as client:
            request = client.build_request("POST", path, content=content, headers=headers)
            response = await self._sent(client, request)
            try:
                await self._check(response)
                yield response
            finally:
                await response.aclose()

    async def _sent(self, client: httpx2.AsyncClient, request: httpx2.Request) -> httpx2.Response:
        """The answer to the first try that is worth no other."""
        for number in range(self._spec.retries + 1):
            last = number == self._spec.retries
            delay = FIRST_DELAY * 2**number
            try:
                response = await client.send(request, stream=True)
            except httpx2.TransportError as error:
                if isinstance(error, httpx2.ReadTimeout | httpx2.WriteTimeout):  # it may be at work on the request
                    raise self._unavailable(_reason(error), "endpoint_timeout") from error
                if last:
                    raise self._unavailable(_reason(error), "endpoint_unreachable") from error
            else:
                if last or response.status_code not in AGAIN:
                    return response
                delay = _asked_delay(response, delay)
                await response.aclose()
            await self._sleep(min(delay, LONGEST_DELAY))
        raise AssertionError("there is always a last try")

    async def _check(self, response: httpx2.Response) -> None:
        status = response.status_code
        if status < 300:
            return
        if status in KEY or status in AGAIN or status >= 500 or status < 400:
            raise self._unavailable(f"it answers {status}", "endpoint_failed")
        message = _message(await _read(response)) or f"status {status}"
        hint = "the pipeline's big model can't honour it"
        raise HttpError(status, f"the endpoint refuses the request: {message}", hint=hint, code="endpoint_refused")

    def _unavailable(self, why: str, code: str) -> UnavailableError:
        return UnavailableError(
            f"the endpoint of {self._spec.model} failed: {why}",
            hint="try again later",
            code=code,
            retry_after_seconds=COME_AGAIN,
        )

    def _client(self) -> httpx2.AsyncClient:
        spec = self._spec
        return httpx2.AsyncClient(
            base_url=spec.url,
            headers=self._headers,
            timeout=httpx2.Timeout(spec.timeout, connect=spec.connect_timeout),
            transport=self._transport,
            verify=self._ssl,
        )


async def _read(response: httpx2.Response) -> bytes:
    """The body, as far as it may go."""
    body = bytearray()
    try:
        async for part in response.aiter_bytes():
            body += part
            if len(body) > LARGEST_ANSWER:
                break
    except httpx2.TransportError as error:
        raise broken_off(error) from error
    return bytes(body)


def broken_off(error: httpx2.TransportError) -> UnavailableError:
    """An answer that began."""
    message = f"the endpoint's answer broke off: {_reason(error)}"
    hint = "try again later"
    return UnavailableError(message, hint=hint, code="endpoint_failed", retry_after_seconds=COME_AGAIN)


def _object(body: bytes, url: str) -> dict[str, object]:
    try:
        value = json.loads(body)
    except (ValueError, RecursionError):
        value = None
    if not isinstance(value, dict):
        message = f"what {url} answers is no JSON object"
        hint = "check that it speaks OpenAI's API"
        raise UnavailableError(message, hint=hint, code="endpoint_failed", retry_after_seconds=COME_AGAIN)
    return value


def _message(body: bytes) -> str | None:
    """What an endpoint says of a refusal, in OpenAI's shape."""
    try:
        error = json.loads(body)["error"]
        message = error["message"]
    except (ValueError, RecursionError, KeyError, TypeError):
        return None
    return " ".join(message.split())[:SHOWN_ERROR] if isinstance(message, str) else None


def _names(body: bytes) -> set[str] | None:
    """The models that an endpoint lists; None where it lists none in OpenAI's way."""
    try:
        return {entry["id"] for entry in json.loads(body)["data"]}
    except (ValueError, RecursionError, KeyError, TypeError):
        return None


def _asked_delay(response: httpx2.Response, otherwise: float) -> float:
    """Seconds that an endpoint wants to be left alone."""
    text = response.headers.get("retry-after", "")
    return float(text[:6]) if text.isdecimal() else otherwise


def _reason(error: Exception) -> str:
    return str(error) or type(error).__name__
