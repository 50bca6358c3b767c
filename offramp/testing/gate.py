"""A scripted model that runs only when the test lets it: step by step, or freely."""

from __future__ import annotations

import asyncio
import threading

from offramp.core import Rows
from offramp.llm.loading import LoadedModel
from offramp.model.hidden import ArrayHidden
from offramp.testing.models import chat_tokenizer, loaded_model
from offramp.testing.scripted import Script, ScriptedModel

PATIENCE_SECONDS = 30.0
"""A gate that is waited for longer is a mistake of the test, and fails instead of hanging."""


class Gate:
    """Each step of the engine passes it. Open at first; when closed, steps pass one by one, as the test lets them."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._is_open = True
        self._permits = 0
        self._taken = False  # someone stands before it

    def close(self) -> None:
        """The next step that begins will wait."""
        with self._changed:
            self._is_open, self._permits = False, 0

    def open(self) -> None:
        """Let everything pass from now on."""
        with self._changed:
            self._is_open = True
            self._changed.notify_all()

    def pass_through(self) -> None:
        """What the model calls when a step begins."""
        with self._changed:
            self._taken = True
            self._changed.notify_all()
            passed = self._changed.wait_for(lambda: self._is_open or self._permits > 0, PATIENCE_SECONDS)
            assert passed, "the gate was not opened"
            self._permits = max(0, self._permits - 1)
            self._taken = False
            self._changed.notify_all()

    async def reached(self) -> None:
        """Wait until a step stands before the closed gate: everything before it has happened, nothing of it."""
        await asyncio.to_thread(self.wait_until_reached)

    async def step(self) -> None:
        """Let the step that stands there, or comes next, pass; it may still run when this returns."""
        await asyncio.to_thread(self._let_one_pass)

    async def turn(self) -> None:
        """Let one step pass and wait until the next one stands there."""
        await self.step()
        await self.reached()

    def wait_until_reached(self) -> None:
        """`reached`, with the event loop standing still."""
        with self._changed:
            assert self._changed.wait_for(lambda: self._taken, PATIENCE_SECONDS), "no step came"

    def _let_one_pass(self) -> None:
        with self._changed:
            assert self._changed.wait_for(lambda: self._taken, PATIENCE_SECONDS), "no step came"
            self._permits = 1
            self._changed.notify_all()
            assert self._changed.wait_for(lambda: self._permits == 0, PATIENCE_SECONDS), "the step did not pass"


class GatedModel(ScriptedModel):
    """A scripted model whose every step passes a gate."""

    def __init__(self, script: Script, gate: Gate, *, num_pages: int, vocab_size: int) -> None:
        super().__init__(script, num_pages=num_pages, vocab_size=vocab_size)
        self._gate = gate

    def embed(self, rows: Rows) -> ArrayHidden:
        self._gate.pass_through()
        return super().embed(rows)


def gated_model(script: Script, gate: Gate, *, num_pages: int = 16) -> LoadedModel:
    """It with the tokenizer of `offramp.testing.models`."""
    return loaded_model(GatedModel(script, gate, num_pages=num_pages, vocab_size=chat_tokenizer().vocab_size))
