"""The HTTP application: routes, and what stands around them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from importlib.metadata import version

from fastapi import FastAPI
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from offramp.errors import OfframpError
from offramp.serve.answering import MakeAnswering, choices
from offramp.serve.chat import ChatWriter, ask_chat
from offramp.serve.completions import CompletionWriter, ask_completion
from offramp.serve.errors import HttpError, failure_of
from offramp.serve.gate import Gate
from offramp.serve.generation import Ask, Generation
from offramp.serve.metrics import METRICS_TYPE, make_registry, metrics_text
from offramp.serve.model_metrics import model_collectors
from offramp.serve.models import Models
from offramp.serve.openapi import describe
from offramp.serve.page import PAGE, add_page
from offramp.serve.piped import PipedRoute
from offramp.serve.pipeline_metrics import PipelineCollector
from offramp.serve.pipelines import Pipelines
from offramp.serve.request_metrics import RequestMetrics
from offramp.serve.response_answer import ResponseAnswer
from offramp.serve.responses import ask_response
from offramp.serve.served import Served
from offramp.serve.settings import ServerSettings
from offramp.serve.site import Site, caller_of
from offramp.serve.tokens import detokenize, tokenize

Endpoint = Callable[[Request], Awaitable[Response]]


def make_app(models: Models, settings: ServerSettings, pipelines: Pipelines | None = None) -> FastAPI:
    """The application over these models, and pipelines of them; whoever made them stops them."""
    site = Site(models, settings)
    registry = make_registry([*model_collectors(models), *map(PipelineCollector, pipelines or ())])
    routes = _Routes(site, lambda: metrics_text(registry), pipelines)
    table = routes.table()
    gate = Middleware(
        Gate,
        settings=settings,
        metrics=RequestMetrics(registry, {hosted.name: hosted.mode for hosted in models}),
        routes=[*(path for _, path, _ in table), "/openapi.json", *PAGE],
    )
    app = FastAPI(title="offramp", version=version("offramp"), docs_url=None, redoc_url=None, middleware=[gate])
    app.router.redirect_slashes = False
    for method, path, endpoint in table:
        app.add_api_route(path, endpoint, methods=[method], response_model=None)
        if method == "GET":
            app.add_route(path, endpoint, methods=["HEAD"])
    add_page(app)
    app.add_exception_handler(OfframpError, _refuse)
    app.add_exception_handler(HTTPException, _refuse_route)
    describe(app)
    return app


class _Routes:
    """The endpoints."""

    def __init__(self, site: Site, metrics_page: Callable[[], bytes], pipelines: Pipelines | None) -> None:
        self._site = site
        self._metrics_page = metrics_page
        self._pipelines = pipelines
        self._chat = self._generating("/chat/completions", ask_chat, choices(ChatWriter))
        self._responses = self._generating("/responses", ask_response, ResponseAnswer)
        self._completions = self._generating("/completions", ask_completion, choices(CompletionWriter), chat=False)

    def _generating(
        self, path: str, ask: Ask, make_answering: MakeAnswering, *, chat: bool = True
    ) -> Generation | PipedRoute:
        """A route; where there are pipelines it looks for them first. `chat`: prompts come through a chat template."""
        generation = Generation(self._site, ask, make_answering)
        if self._pipelines is None:
            return generation
        return PipedRoute(self._site, generation, self._pipelines, path, chat=chat)

    def table(self) -> list[tuple[str, str, Endpoint]]:
        return [
            ("GET", "/v1/models", self.models),
            ("GET", "/v1/models/{model:path}", self.model),
            ("POST", "/v1/chat/completions", self._chat.answer),
            ("POST", "/v1/completions", self._completions.answer),
            ("POST", "/v1/responses", self._responses.answer),
            ("POST", "/tokenize", self.tokenize),
            ("POST", "/detokenize", self.detokenize),
            ("GET", "/health", self.health),
            ("GET", "/metrics", self.metrics),
            ("GET", "/version", self.version),
        ]

    async def models(self, request: Request) -> Response:
        return JSONResponse((self._pipelines or self._site.models).listing())

    async def model(self, request: Request) -> Response:
        name = request.path_params["model"]
        if self._pipelines is not None and (pipeline := self._pipelines.find(name)) is not None:
            return JSONResponse(self._pipelines.card(pipeline))
        return JSONResponse(self._site.models.card(name))

    async def tokenize(self, request: Request) -> Response:
        return await self._at_once(request, tokenize)

    async def detokenize(self, request: Request) -> Response:
        return await self._at_once(request, detokenize)

    async def _at_once(
        self, request: Request, ask: Callable[[Mapping[str, object], Served], dict[str, object]]
    ) -> Response:
        """An answer that takes no engine."""
        async with self._site.read(request, lambda values, served: JSONResponse(ask(values, served))) as (answer, _):
            return answer

    async def health(self, request: Request) -> Response:
        failed = self._site.models.failure is not None
        return JSONResponse({"status": "failed" if failed else "ok"}, 503 if failed else 200)

    async def metrics(self, request: Request) -> Response:
        return Response(self._metrics_page(), media_type=METRICS_TYPE)

    async def version(self, request: Request) -> Response:
        return JSONResponse({"version": version("offramp")})


async def _refuse(request: Request, error: Exception) -> Response:
    assert isinstance(error, OfframpError)
    failure = failure_of(error)
    caller_of(request.scope).trace.failed(failure)
    return failure.response()


async def _refuse_route(request: Request, error: Exception) -> Response:
    """No such route, or not with this method."""
    assert isinstance(error, HTTPException)
    allowed: Mapping[str, str] = error.headers or {}
    what = f"{request.method} {request.url.path[:80]}"
    if error.status_code == 405:
        if allowed.get("Allow") == "GET":
            allowed = {**allowed, "Allow": "GET, HEAD"}
        hint = f"this path takes {allowed.get('Allow', 'another method')}"
        failure = HttpError(405, f"{what} is not allowed", hint=hint, code="method_not_allowed")
    else:
        hint = "the server's routes are in /openapi.json"
        failure = HttpError(error.status_code, f"there is no {what}", hint=hint, code="not_found")
    response = await _refuse(request, failure)
    response.headers.update(allowed)
    return response
