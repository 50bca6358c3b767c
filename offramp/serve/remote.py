"""A model behind somebody else's OpenAI-compatible server: asked with retries, time-outs and a budget of calls."""

from __future__ import annotations

import asyncio
import json
import os
import ssl
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

import httpx2

from offramp.collaborate.pipeline.budget import CallBudget
from offramp.collaborate.pipeline.spec import RemoteSpec
from offramp.errors import InvalidRequestError, ResourceError
from offramp.params import refused, shown
from offramp.serve.errors import HttpError, UnavailableError
from offramp.serve.remote_answer import COME_AGAIN, answer_of, message_of, names_of, read_whole, reason_of_failure

AGAIN = frozenset({408, 429, 500, 502, 503, 504})
"""Statuses after which a call is tried again."""
KEY = frozenset({401, 403})
KEY_ENV = "key_env"
FIRST_DELAY, LONGEST_DELAY = 0.5, 20.0
"""Seconds before the first retry, which double; at most: an endpoint that asks for longer is left alone."""

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
        """Raises InvalidRequestError where the key's variable is not set, or the address or key can't be used."""
        self._spec = spec
        self._transport = transport
        self._sleep = sleep
        self._ssl = ssl.create_default_context() if spec.url.startswith("https") else False
        self.budget = CallBudget(spec.budget_calls, spec.budget_seconds, clock=clock)
        self._headers = {"accept-encoding": "identity"}
        if spec.key_env is not None:
            self._headers["authorization"] = f"Bearer {_key(spec.key_env, spec.url)}"
        try:
            httpx2.URL(spec.url)
        except httpx2.InvalidURL as error:
            raise refused("url", spec.url, "an address such as http://127.0.0.1:9000/v1") from error

    @property
    def name(self) -> str:
        """The model's name there."""
        return self._spec.model

    async def check(self) -> None:
        """See that the endpoint is there, takes the key and has the model. Raises ResourceError naming the fault."""
        spec = self._spec
        try:
            async with asyncio.timeout(spec.timeout), self._client() as client, client.stream("GET", "/models") as told:
                status, body = told.status_code, await read_whole(told)
        except TimeoutError as error:
            hint = "start it, or check url"
            raise ResourceError(f"{spec.url}/models has no whole answer in {spec.timeout:g} s", hint=hint) from error
        except (httpx2.HTTPError, UnavailableError, OSError) as error:
            hint = "start it, or check url"
            raise ResourceError(f"{spec.url} can't be reached: {reason_of_failure(error)}", hint=hint) from error
        if status in KEY:
            hint = "name the variable that holds its key in key_env"
            raise ResourceError(f"{spec.url} refuses the key ({status})", hint=hint)
        if status >= 300:  # nobody follows it elsewhere: the key is for this address
            hint = "check url: it ends with /v1 on most servers"
            raise ResourceError(f"{spec.url}/models answers {status}", hint=hint)
        names = names_of(body, spec.url)
        if names is not None and spec.model not in names:
            listed = ", ".join(sorted(names)[:10])
            raise ResourceError(f"{spec.url} has no model {shown(spec.model)}", hint=f"it has {listed or 'none'}")

    async def answer(self, path: str, body: Mapping[str, object]) -> dict[str, object]:
        """A whole answer. Raises UnavailableError where the endpoint fails, HttpError for what it refuses."""
        async with self.opened(path, body) as response:
            return answer_of(await read_whole(response), path)

    @asynccontextmanager
    async def opened(self, path: str, body: Mapping[str, object]) -> AsyncIterator[httpx2.Response]:
        """An answer of which the status has come, and is a good one; it ends in time. Raises as `answer` does."""
        try:
            async with asyncio.timeout(self._spec.timeout), self._opened(path, body) as response:
                yield response
        except TimeoutError as error:
            raise self._unavailable(f"no whole answer in {self._spec.timeout:g} s", "endpoint_timeout") from error

    @asynccontextmanager
    async def _opened(self, path: str, body: Mapping[str, object]) -> AsyncIterator[httpx2.Response]:
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
        """The answer to the first try that is worth no other, or can't be paid for: each takes of the budget.

        The first one's part is taken.
        """
        for number in range(self._spec.retries + 1):
            last = number == self._spec.retries
            delay = FIRST_DELAY * 2**number
            try:
                response = await client.send(request, stream=True)
            except httpx2.TransportError as error:
                if isinstance(error, httpx2.ReadTimeout | httpx2.WriteTimeout):  # it may be at work on the request
                    raise self._unavailable(reason_of_failure(error), "endpoint_timeout") from error
                if last or not self.budget.take():
                    raise self._unavailable(reason_of_failure(error), "endpoint_unreachable") from error
            else:
                delay = _asked_delay(response, min(delay, LONGEST_DELAY))
                enough = last or response.status_code not in AGAIN or delay > min(LONGEST_DELAY, self._spec.timeout)
                if enough or not self.budget.take():
                    return response
                await response.aclose()
            await self._sleep(min(delay, LONGEST_DELAY))
        raise AssertionError("there is always a last try")

    async def _check(self, response: httpx2.Response) -> None:
        status = response.status_code
        if status < 300:
            return
        if status in KEY or status in AGAIN or status >= 500 or status < 400:
            delay = max(1.0, _asked_delay(response, COME_AGAIN))
            raise self._unavailable(f"it answers {status}", "endpoint_failed", delay)
        message = message_of(await read_whole(response)) or f"status {status}"
        hint = "the pipeline's big model can't honour it"
        raise HttpError(status, f"the endpoint refuses the request: {message}", hint=hint, code="endpoint_refused")

    def _unavailable(self, why: str, code: str, retry_after_seconds: float = COME_AGAIN) -> UnavailableError:
        return UnavailableError(
            f"the endpoint of {self._spec.model} failed: {why}",
            hint="try again later",
            code=code,
            retry_after_seconds=retry_after_seconds,
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


def _key(variable: str, url: str) -> str:
    """The key that a variable holds; no error shows it."""
    key = os.environ.get(variable)
    if not key:
        raise InvalidRequestError(
            f"the variable {variable} is not set", hint=f"set it to the key for {url}", param=KEY_ENV
        )
    if not key.isascii() or not key.isprintable() or " " in key:
        hint = "set it to the key alone, without blanks and line ends"
        raise InvalidRequestError(f"the variable {variable} holds no key that can be sent", hint=hint, param=KEY_ENV)
    return key


def _asked_delay(response: httpx2.Response, otherwise: float) -> float:
    """Seconds that an endpoint wants to be left alone: a number, or until a date."""
    text = response.headers.get("retry-after", "")
    if text.isdecimal():
        return float(text[:9])
    try:
        until = parsedate_to_datetime(text)
    except ValueError:
        return otherwise
    return max(0.0, (until.astimezone(UTC) - datetime.now(UTC)).total_seconds())
