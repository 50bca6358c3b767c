"""`offramp chat`: many turns, commands, interruptions and full contexts, none of which ends the program."""

from __future__ import annotations

import io
import json
import os
import pty
import select
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from offramp import LLM, InvalidRequestError, ResourceError, SamplingParams
from offramp.cli.chat import converse
from offramp.cli.chat.commands import COMMANDS, Command, is_command, obey
from offramp.cli.chat.conversation import Conversation, load, save
from offramp.cli.chat.session import Session
from offramp.llm.serving import Serving
from offramp.testing.models import END_OF_TURN, chat_tokenizer, scripted_model
from offramp.testing.scripted import Script, peak

TOKENIZER = chat_tokenizer()
CUE = TOKENIZER.encode("<|im_start|>assistant\n")
GREEDY = SamplingParams(temperature=0, max_tokens=None)


def echo(history: tuple[int, ...], depth: int) -> NDArray[np.float32]:
    """Answers the last message with its own text in brackets."""
    starts = [i + len(CUE) for i in range(len(history)) if list(history[i : i + len(CUE)]) == CUE]
    said = len(history) - starts[-1] if starts else 0
    head = TOKENIZER.decode(history[: len(history) - said], skip_special=False)
    question = head.rpartition("<|im_start|>user\n")[2].partition("<|im_end|>")[0]
    answer = [*TOKENIZER.encode(f"[{question}]"), END_OF_TURN]
    return peak(answer[min(said, len(answer) - 1)], TOKENIZER.vocab_size)


def session(script: Script = echo, *, max_context: int | None = None) -> Session:
    """Without drafts: a script may act on the row it is asked about, and drafts ask about rows that never come."""
    llm = LLM.from_loaded(scripted_model(script, max_context=max_context), Serving(draft="off"))
    return Session(llm, GREEDY, Conversation())


def contents(chat: Session) -> list[str]:
    return [message["content"] for message in chat.conversation.messages]


def test_turns_add_up(capsys: pytest.CaptureFixture[str]) -> None:
    chat = session()
    chat.ask("one, two, three, four")
    chat.ask("five 👍")
    assert contents(chat) == ["one, two, three, four", "[one, two, three, four]", "five 👍", "[five 👍]"]
    captured = capsys.readouterr()
    assert captured.out == "[one, two, three, four]\n[five 👍]\n"
    assert len(captured.err.splitlines()) == 2
    assert "(32 cached)" in captured.err.splitlines()[1]


def test_variables_reach_the_template_at_every_turn() -> None:
    told: list[str] = []

    def script(history: tuple[int, ...], depth: int) -> NDArray[np.float32]:
        told.append(TOKENIZER.decode(history, skip_special=False))
        return peak(END_OF_TURN, TOKENIZER.vocab_size)

    llm = LLM.from_loaded(scripted_model(script), Serving(draft="off"))
    chat = Session(llm, GREEDY, Conversation(), {"opening": "Well"})
    chat.ask("a")
    chat.ask("b")
    assert told[-1].endswith("b<|im_end|>\n<|im_start|>assistant\nWell")
    assert told[0] == "<|im_start|>user\na<|im_end|>\n<|im_start|>assistant\nWell"


def interrupting(at: str) -> Script:
    """`echo` that presses Ctrl-C once the answer ends with `at`."""

    def script(history: tuple[int, ...], depth: int) -> NDArray[np.float32]:
        if TOKENIZER.decode(history).endswith(at):
            signal.raise_signal(signal.SIGINT)
        return echo(history, depth)

    return script


def test_ctrl_c_keeps_what_was_said(capsys: pytest.CaptureFixture[str]) -> None:
    chat = session(interrupting("[he"))
    chat.ask("he is here")
    assert contents(chat) == ["he is here", "[he"]
    captured = capsys.readouterr()
    assert captured.out == "[he\n"
    statistics, told = captured.err.splitlines()
    assert statistics.startswith(f"{len(chat.llm.encode_chat(chat.conversation.messages[:1]))} prompt tokens, 2 output")
    assert statistics.endswith("finished by abort")
    assert told == "stopped: what was said so far is kept"
    chat.ask("go on")
    assert contents(chat)[-1] == "[go on]"
    assert chat.llm.statistics.num_used_pages == 0


def test_ctrl_c_before_the_first_word_takes_the_question_back(capsys: pytest.CaptureFixture[str]) -> None:
    chat = session(interrupting("assistant\n"))
    chat.ask("hello")
    assert contents(chat) == []
    statistics, told = capsys.readouterr().err.splitlines()
    assert statistics.endswith("prompt tokens, 0 output tokens, finished by abort")
    assert told == "stopped before an answer: your message was dropped; the up arrow brings it back"


def test_a_conversation_that_no_longer_fits_says_what_to_do(capsys: pytest.CaptureFixture[str]) -> None:
    chat = session(max_context=96)
    chat.ask("first")
    chat.ask("x" * 90)
    error, hint = capsys.readouterr().err.splitlines()[-2:]
    assert error.startswith("error: ")
    assert "96" in error
    assert "/forget" in hint
    assert "/reset" in hint
    assert contents(chat) == ["first", "[first]"]
    obey(chat, "/forget")
    chat.ask("again")
    assert contents(chat) == ["again", "[again]"]


def test_an_answer_that_fills_the_context_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    chat = session(max_context=64)
    chat.ask("y" * 30)
    statistics, note = capsys.readouterr().err.splitlines()
    assert "finished by length" in statistics
    assert note.startswith("note: the context of 64 tokens is full")
    assert contents(chat)[1].startswith("[yyy")


def test_an_answer_that_reaches_its_limit_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    chat = session()
    obey(chat, "/set max_tokens 3")
    chat.ask("a long question")
    assert capsys.readouterr().err.splitlines()[2:] == [
        "note: stopped at max_tokens=3; /set max_tokens none lifts the limit"
    ]
    obey(chat, "/set max_tokens none")
    chat.ask("a long question")
    assert "note" not in capsys.readouterr().err


def test_set_changes_sampling_and_refuses_nonsense(capsys: pytest.CaptureFixture[str]) -> None:
    chat = session()
    obey(chat, "/set temperature 0.3")
    obey(chat, "/set max_tokens 2")
    obey(chat, '/set stop ["a", "b"]')
    assert (chat.params.temperature, chat.params.max_tokens, chat.params.stop) == (0.3, 2, ("a", "b"))
    obey(chat, "/set max_tokens none")
    assert chat.params.max_tokens is None
    obey(chat, "/set max_tokens 7")
    obey(chat, "/set max_tokens 0")
    assert chat.params.max_tokens is None
    assert capsys.readouterr().err.splitlines() == [
        "temperature=0.3",
        "max_tokens=2",
        "stop=('a', 'b')",
        "max_tokens=None",
        "max_tokens=7",
        "max_tokens=None",
    ]
    obey(chat, "/set max_tokens 9999")
    assert "note: max_tokens=9999 exceeds the context of" in capsys.readouterr().err
    for nothing in ("null", "none", "[]"):
        obey(chat, f"/set stop {nothing}")
        assert chat.params.stop == ()
    for line in ("/set stop 5", '/set stop {"a": 1}', '/set stop [""]', "/set stop true", "/set ignore_eos no"):
        with pytest.raises(InvalidRequestError):
            obey(chat, line)
    for line in ("/set top_p 9", "/set nosuch 1", "/set temperature", "/set n 2", "/set temperature hot"):
        with pytest.raises(InvalidRequestError):
            obey(chat, line)
    obey(chat, "/set")
    assert "temperature=0.3" in capsys.readouterr().err


def test_system_and_reset(capsys: pytest.CaptureFixture[str]) -> None:
    chat = session()
    obey(chat, "/system be brief")
    obey(chat, "/system")
    obey(chat, f"/system {'long ' * 100}")
    assert capsys.readouterr().err.splitlines() == [
        "system: be brief",
        "system: be brief",
        f"system: {'long ' * 40}...",
    ]
    obey(chat, "/system be brief")
    chat.ask("one")
    assert contents(chat) == ["be brief", "one", "[one]"]
    obey(chat, "/system be kind")
    obey(chat, "/reset")
    assert contents(chat) == ["be kind"]
    capsys.readouterr()
    obey(chat, "/system none")
    assert capsys.readouterr().err == "system: none\n"
    assert contents(chat) == []


def test_regenerate_answers_again_and_keeps_the_old_answer_on_failure(capsys: pytest.CaptureFixture[str]) -> None:
    chat = session()
    with pytest.raises(InvalidRequestError, match="no answer"):
        obey(chat, "/regenerate")
    chat.ask("one")
    chat.conversation.messages[-1]["content"] = "old"
    obey(chat, "/regenerate")
    assert contents(chat) == ["one", "[one]"]
    failing = Session(session(interrupting("assistant\n")).llm, GREEDY, chat.conversation)
    capsys.readouterr()
    obey(failing, "/regenerate")
    assert contents(chat) == ["one", "[one]"]
    assert capsys.readouterr().err.endswith("stopped before an answer: the old one stays\n")


def test_not_even_a_bug_costs_the_conversation(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(chat: Session, rest: str) -> bool:
        raise ZeroDivisionError("on purpose")

    chat = session()
    broken = {**COMMANDS, "/forget": Command(fail, "/forget", "")}
    monkeypatch.setattr("offramp.cli.chat.commands.COMMANDS", broken)
    monkeypatch.setattr("sys.stdin", io.StringIO("one\n/forget\n/set top_p 9\ntwo\n"))
    converse(chat)
    assert contents(chat) == ["one", "[one]", "two", "[two]"]
    assert "internal error: ZeroDivisionError: on purpose" in capsys.readouterr().err


def test_a_failure_in_the_middle_of_an_answer_leaves_the_conversation_as_it_was() -> None:
    def fail(history: tuple[int, ...], depth: int) -> NDArray[np.float32]:
        if TOKENIZER.decode(history).endswith("[bad"):
            raise ZeroDivisionError
        return echo(history, depth)

    chat = session(fail)
    chat.ask("one")
    with pytest.raises(ZeroDivisionError):
        chat.ask("bad")
    assert contents(chat) == ["one", "[one]"]


def test_forget_drops_the_oldest_exchange_only() -> None:
    conversation = Conversation([{"role": "system", "content": "s"}])
    for text in ("a", "b"):
        conversation.messages.append({"role": "user", "content": text})
        conversation.messages.append({"role": "assistant", "content": text.upper()})
    assert conversation.forget_oldest()
    assert [message["content"] for message in conversation.messages] == ["s", "b", "B"]
    assert conversation.forget_oldest()
    assert not conversation.forget_oldest()
    assert [message["content"] for message in conversation.messages] == ["s"]


def test_save_and_load_round_trip(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    chat = session()
    obey(chat, "/system be brief")
    chat.ask("emoji 👨‍👩‍👧")
    file = tmp_path / "my chat.json"
    capsys.readouterr()
    obey(chat, f"/save {file}")
    obey(chat, f"/save {file}")
    other = session()
    obey(other, f"/load {file}")
    assert capsys.readouterr().err.splitlines() == [
        f"saved 3 messages to {file}",
        f"replaced {file} with 3 messages",
        f"loaded 3 messages from {file}, with a system message",
    ]
    assert other.conversation.messages == chat.conversation.messages
    assert set(json.loads(file.read_text(encoding="utf-8"))) == {"messages"}
    assert [path.name for path in tmp_path.iterdir()] == ["my chat.json"]


def test_a_failed_save_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "chat.json"
    file.write_text("old")

    def full(handle: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(ResourceError, match="No space left"):
        save(Conversation(), file)
    assert file.read_text() == "old"
    assert list(tmp_path.iterdir()) == [file]


def test_an_impossible_file_name_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ResourceError, match="can't write"):
        save(Conversation(), tmp_path / "none" / "chat.json")
    for command in ("/save", "/load"):
        with pytest.raises(InvalidRequestError, match="needs a file name"):
            obey(session(), command)
        for name in ("/dev/zero", str(tmp_path), "a\0b", "x" * 5000, "~no-such-user/chat.json"):
            with pytest.raises(InvalidRequestError):
                obey(session(), f"{command} {name}")
    assert Path("/dev/zero").is_char_device()


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        '{"messages": 5}',
        '{"messages": ["a"]}',
        '{"messages": [{"role": "robot", "content": "a"}]}',
        '{"messages": [{"role": "user"}]}',
        '{"messages": [{"role": "user", "content": "a"}, {"role": "system", "content": "b"}]}',
        "[" * 100_000,
    ],
)
def test_a_foreign_file_is_refused_and_the_conversation_stays(tmp_path: Path, text: str) -> None:
    file = tmp_path / "foreign.json"
    file.write_text(text)
    chat = session()
    chat.ask("one")
    with pytest.raises(InvalidRequestError, match="no saved conversation"):
        obey(chat, f"/load {file}")
    assert contents(chat) == ["one", "[one]"]


def test_load_refuses_what_it_cannot_read(tmp_path: Path) -> None:
    with pytest.raises(InvalidRequestError, match="can't read"):
        load(tmp_path / "none.json")
    (tmp_path / "bytes.json").write_bytes(b"\xff\xfe")
    with pytest.raises(InvalidRequestError, match="no saved conversation"):
        load(tmp_path / "bytes.json")


@pytest.mark.parametrize(
    ("line", "expected"),
    [("/help", True), ("/nosuch", True), ("/system a\nb", True), ("/usr/bin\nsecond line", False), ("a /help", False)],
)
def test_which_messages_are_commands(line: str, expected: bool) -> None:
    assert is_command(line) is expected


def test_an_unknown_command_names_the_known_ones() -> None:
    with pytest.raises(InvalidRequestError, match="/nosuch") as caught:
        obey(session(), "/nosuch")
    assert "/regenerate" in caught.value.hint
    assert obey(session(), "/exit") is False
    for line in ("/exit now", "/help me", "/regenerate it", "/forget all", "/reset me"):
        with pytest.raises(InvalidRequestError, match="takes nothing"):
            obey(session(), line)


def test_piped_input_is_one_message_a_line(offramp: Callable[..., Any], toy_model: str, tmp_path: Path) -> None:
    file = tmp_path / "chat.json"
    text = f"/set max_tokens 4\nfirst\nsecond \\\nline\n\n/nosuch\n/save {file}\n"
    done = offramp("chat", "-m", toy_model, "--temperature", "0", "--system", "s", stdin=text.encode())
    assert done.code == 0
    messages = json.loads(file.read_text(encoding="utf-8"))["messages"]
    assert [m["content"] for m in messages if m["role"] != "assistant"] == ["s", "first", "second \nline"]
    assert "error: no command is called '/nosuch'" in done.err
    again = offramp("chat", "-m", toy_model, "--load", str(file), stdin=b"/system\n/exit\nnever\n")
    assert (again.code, again.out) == (0, "")
    assert f"loaded 5 messages from {file}, with a system message" in again.err
    assert "system: s" in again.err


def test_an_answer_has_a_limit_by_default(offramp: Callable[..., Any], toy_model: str) -> None:
    def limit(*args: str) -> str:
        done = offramp("chat", "-m", toy_model, *args, stdin=b"/set\n")
        assert done.code == 0
        return str(done.err)

    assert "max_tokens=1024" in limit()
    assert "note" not in limit()
    assert "max_tokens=7," in limit("--max-tokens", "7")
    for nothing in ("none", "0"):
        assert "max_tokens=None" in limit("--max-tokens", nothing)
    assert "note: --max-tokens=300 exceeds the context of 256 tokens: it ends there" in limit("--max-tokens", "300")


def test_input_that_is_not_utf8_is_told_and_survived(offramp: Callable[..., Any], toy_model: str) -> None:
    done = offramp("chat", "-m", toy_model, stdin=b"\xff\n")
    assert "not UTF-8" in done.err


class Terminal:
    """`offramp chat` in a pseudo-terminal."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self.seen = b""

    def type(self, text: bytes) -> None:
        os.write(self._descriptor, text)

    def wait_for(self, text: bytes, *, key: bytes = b"", seconds: float = 30) -> None:
        """Read on until `text` has appeared after everything waited for before.

        `key` is pressed until then: a key pressed while the terminal changes hands is lost.
        """
        end, press = time.monotonic() + seconds, 0.0
        while text not in self.seen:
            now = time.monotonic()
            assert now < end, f"no {text!r} in {self.seen[-2000:]!r}"
            if key and now >= press:
                self.type(key)
                press = now + 1
            if select.select([self._descriptor], [], [], 0.1)[0]:
                self.seen += os.read(self._descriptor, 65536)
        self.seen = self.seen.partition(text)[2]

    def leave(self, pid: int, *, seconds: float = 30) -> int:
        """Press Ctrl-D until the process ends; its exit code."""
        end, press = time.monotonic() + seconds, 0.0
        while not (ended := os.waitpid(pid, os.WNOHANG))[0]:
            now = time.monotonic()
            assert now < end, f"it does not leave; last seen {self.seen[-2000:]!r}"
            with suppress(OSError):  # the other end is closed
                if now >= press:
                    press = now + 1
                    self.type(b"\x04")
                if select.select([self._descriptor], [], [], 0.05)[0]:
                    self.seen += os.read(self._descriptor, 65536)
        return os.waitstatus_to_exitcode(ended[1])


@contextmanager
def terminal(*args: str, cache: Path) -> Iterator[Terminal]:
    pid, descriptor = pty.fork()
    if pid == 0:
        environment = {**os.environ, "OFFRAMP_CACHE": str(cache), "TERM": "xterm"}
        os.execve(sys.executable, [sys.executable, "-m", "offramp", "chat", *args], environment)
    chat = Terminal(descriptor)
    ended = False
    try:
        yield chat
        code = chat.leave(pid)
        ended = True
        assert code == 0
    except BaseException:
        if not ended:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
        raise
    finally:
        os.close(descriptor)


@pytest.mark.filterwarnings("ignore:.*forkpty.*:DeprecationWarning")
def test_a_terminal_takes_a_paste_as_one_message_and_ctrl_c_and_ctrl_d(
    toy_model: str, session_cache: Path, tmp_path: Path
) -> None:
    file = tmp_path / "chat.json"
    pasted = "line one 👍\nline two\nline three"
    args = ["-m", toy_model, "--temperature", "0", "--max-tokens", "3", "--threads", "1"]
    with terminal(*args, cache=session_cache) as chat:
        chat.wait_for(b"> ")
        chat.type(b"\x1b[200~" + pasted.encode() + b"\x1b[201~\r")
        chat.wait_for(b"output tokens")
        chat.wait_for(b"> ")
        chat.type(b"half a line")
        chat.wait_for(b"half a line")
        chat.wait_for(b"Ctrl-D leaves", key=b"\x03")
        chat.wait_for(b"> ")
        chat.type(f"/save {file}\r".encode())
        chat.wait_for(b"saved 2 messages")
    assert json.loads(file.read_text(encoding="utf-8"))["messages"][0]["content"] == pasted


@pytest.mark.filterwarnings("ignore:.*forkpty.*:DeprecationWarning")
def test_a_long_paste_shows_as_a_few_words(toy_model: str, session_cache: Path, tmp_path: Path) -> None:
    file = tmp_path / "long name.json"
    text = "".join(f"line {number} 👍\r" for number in range(2000))
    with terminal("-m", toy_model, "--threads", "1", cache=session_cache) as chat:
        chat.wait_for(b"> ")
        chat.type(b"/system see ")
        chat.type(b"\x1b[200~" + text.encode() + b"\x1b[201~")
        chat.wait_for(b"[pasted 2,000 lines, 22,890 characters]")
        chat.type(b" end\r")
        chat.wait_for(b"system: see line 0")
        chat.type(f"/save {file}\r".encode())
        chat.wait_for(b"saved 1 message to")
    [message] = json.loads(file.read_text(encoding="utf-8"))["messages"]
    assert message["content"] == f"see {text} end".replace("\r", "\n")


def test_a_chat_has_no_references_to_copy_from(offramp: Callable[..., Any]) -> None:
    done = offramp("chat", "-m", "no such model", "--draft", "reference")
    assert (done.code, done.out) == (2, "")
    assert done.err.startswith("error: --draft='reference': there is no reference to copy from\nhint: ")
