"""One chat at work: questions answered as they stream, commands obeyed, errors told and survived."""

from __future__ import annotations

from typing import TYPE_CHECKING

from offramp.cli.chat.conversation import Conversation, Turn
from offramp.cli.messages import say, show_error, statistics_line
from offramp.cli.streams import OutputError, put
from offramp.errors import ContextLengthError, InvalidRequestError, OfframpError

if TYPE_CHECKING:
    from offramp.core import SamplingParams
    from offramp.llm import LLM, StreamDelta

OVERFLOW_HINT = "/forget drops the oldest exchange, /reset starts anew; or raise --max-context"


class Session:
    """A model, a conversation and the settings of its answers. Commands change these directly."""

    def __init__(self, llm: LLM, params: SamplingParams, conversation: Conversation) -> None:
        self.llm = llm
        self.params = params
        self.conversation = conversation

    def ask(self, text: str) -> None:
        """Answer a message; one that can't be answered leaves the conversation as it was."""
        self._answer([*self.conversation.messages, {"role": "user", "content": text}])

    def ask_again(self) -> None:
        """Answer the last message anew; the old answer stays if there is no new one."""
        messages = self.conversation.messages
        if not messages or messages[-1]["role"] != "assistant":
            raise InvalidRequestError("there is no answer to regenerate", hint="ask something first")
        self._answer(messages[:-1])

    def _answer(self, messages: list[Turn]) -> None:
        """Stream the answer to the last message and keep both, also an answer that was cut short."""
        parts: list[str] = []
        whole = False
        try:
            self._stream(messages, parts)
        except KeyboardInterrupt:
            _end_line(parts)
            say("stopped")
        except OutputError:
            raise
        except ContextLengthError as error:
            show_error(error.message, OVERFLOW_HINT)
        except OfframpError as error:
            _end_line(parts)
            show_error(error.message, error.hint)
        else:
            whole = True
        if whole or any(parts):
            self.conversation.messages = [*messages, {"role": "assistant", "content": "".join(parts)}]

    def _stream(self, messages: list[Turn], parts: list[str]) -> None:
        """Show the answer, collecting its pieces; raises what ends it early."""
        with self.llm.stream_chat(messages, self.params) as stream:
            for delta in stream:
                parts.append(delta.text)
                put(delta.text)
                if delta.error is not None:
                    raise delta.error
                if delta.report is not None:
                    _end_line(parts)
                    self._close(delta)

    def _close(self, delta: StreamDelta) -> None:
        report = delta.report
        assert report is not None
        say(statistics_line(report))
        if report.prompt_tokens + report.output_tokens >= self.llm.max_context:
            say(f"note: the context of {self.llm.max_context} tokens is full. {OVERFLOW_HINT}")


def _end_line(parts: list[str]) -> None:
    if any(parts):
        put("\n")
