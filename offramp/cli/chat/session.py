"""One chat at work: questions answered as they stream, commands obeyed, errors told and survived."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from offramp.cli.chat.conversation import Conversation, Turn
from offramp.cli.messages import say, show_error, show_failure, statistics_line
from offramp.cli.streams import OutputError, put
from offramp.cli.waiting import ReadingNotice
from offramp.errors import ContextLengthError, InvalidRequestError, OfframpError

if TYPE_CHECKING:
    from offramp.core import SamplingParams
    from offramp.llm import LLM, DeltaStream, Report

OVERFLOW_HINT = "/forget drops the oldest exchange, /reset starts anew; or raise --max-context"


class Session:
    """A model, a conversation and the settings of its answers. Commands change these directly."""

    def __init__(
        self,
        llm: LLM,
        params: SamplingParams,
        conversation: Conversation,
        variables: Mapping[str, object] | None = None,
    ) -> None:
        """`variables` are for the model's chat template."""
        self.llm = llm
        self.params = params
        self.conversation = conversation
        self.variables = variables

    def ask(self, text: str) -> None:
        """Answer a message; one that can't be answered leaves the conversation as it was."""
        unanswered = "your message was dropped; the up arrow brings it back"
        self._answer([*self.conversation.messages, {"role": "user", "content": text}], unanswered)

    def ask_again(self) -> None:
        """Answer the last message anew; the old answer stays if there is no new one."""
        messages = self.conversation.messages
        if not messages or messages[-1]["role"] != "assistant":
            raise InvalidRequestError("there is no answer to regenerate", hint="ask something first")
        self._answer(messages[:-1], "the old one stays")

    def _answer(self, messages: list[Turn], unanswered: str) -> None:
        """Stream the answer to the last message and keep both, also an answer that was cut short.

        `unanswered` says what becomes of the message if Ctrl-C comes before any answer.
        """
        parts: list[str] = []
        whole = False
        try:
            self._stream(messages, parts)
        except KeyboardInterrupt:
            kept = any(parts)
            say("stopped: what was said so far is kept" if kept else f"stopped before an answer: {unanswered}")
        except OutputError:
            raise
        except ContextLengthError as error:
            show_error(error.message, OVERFLOW_HINT)
        except OfframpError as error:
            _end_line(parts)
            show_failure(error)
        else:
            whole = True
        if whole or any(parts):
            self.conversation.messages = [*messages, {"role": "assistant", "content": "".join(parts)}]

    def _stream(self, messages: list[Turn], parts: list[str]) -> None:
        """Show the answer and its statistics, collecting its pieces; raises what ends it early."""
        with self.llm.stream_chat(messages, self.params, chat_template_kwargs=self.variables) as stream:
            try:
                _show(stream, parts)
            except KeyboardInterrupt:
                _end_line(parts)
                say(statistics_line(stream.report()))
                raise
            _end_line(parts)
            self._close(stream.report())

    def _close(self, report: Report) -> None:
        """The statistics of a whole answer, and why it ended if it had more to say."""
        say(statistics_line(report))
        if report.prompt_tokens + report.output_tokens >= self.llm.max_context:
            say(f"note: the context of {self.llm.max_context} tokens is full. {OVERFLOW_HINT}")
        elif report.finish_reasons == ("length",):
            say(f"note: stopped at max_tokens={report.output_tokens}; /set max_tokens none lifts the limit")


def _show(stream: DeltaStream, parts: list[str]) -> None:
    with ReadingNotice(stream.num_prompt_tokens) as notice:
        for delta in stream:
            notice.clear()
            parts.append(delta.text)
            put(delta.text)
            if delta.error is not None:
                raise delta.error


def _end_line(parts: list[str]) -> None:
    if any(parts):
        put("\n")
