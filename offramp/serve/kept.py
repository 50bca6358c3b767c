"""An answer that was written whole before anybody was told of it, and now goes out."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from dataclasses import replace

from offramp.llm.output import CompletionOutput, Report, RequestOutput, StreamDelta
from offramp.serve.running import Added, Run


class Kept:
    """A finished run (`offramp.serve.running.Running`); log-probabilities stay only if they were asked for."""

    def __init__(self, run: Run, batches: list[list[Added]], *, with_logprobs: bool) -> None:
        assert run.finished
        self._run = run
        self._with_logprobs = with_logprobs
        self._batches = [[(prompt, self._told(delta)) for prompt, delta in batch] for batch in batches]

    @property
    def finished(self) -> bool:
        return True

    @property
    def started(self) -> float | None:
        return self._run.started

    def close(self) -> None:
        pass

    def report(self) -> Report:
        return self._run.report()

    def outputs(self) -> list[RequestOutput]:
        return [
            replace(each, outputs=[self._choice(choice) for choice in each.outputs]) for each in self._run.outputs()
        ]

    @property
    def choices(self) -> list[CompletionOutput]:
        """All of it, with the log-probabilities."""
        return [choice for output in self._run.outputs() for choice in output.outputs]

    async def batches(self) -> AsyncGenerator[list[Added]]:
        """In one piece, since all of it is there."""
        yield [added for batch in self._batches for added in batch]

    def _choice(self, choice: CompletionOutput) -> CompletionOutput:
        return choice if self._with_logprobs else replace(choice, logprobs=None)

    def _told(self, delta: StreamDelta) -> StreamDelta:
        return delta if self._with_logprobs else replace(delta, logprobs=None)
