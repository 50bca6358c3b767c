"""`offramp generate`: the text on stdout, one line of statistics on stderr, or one JSON object."""

from __future__ import annotations

import json
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from offramp import LLM, NumericError, SamplingParams
from offramp.cli.generate import print_stream
from offramp.testing.models import chat_tokenizer, says, scripted_model, write_chat_model


@pytest.fixture
def llm(toy_model: str, offramp: Callable[..., Any]) -> LLM:
    return LLM(toy_model, threads=1)  # after `offramp` has set the cache folder


@pytest.mark.parametrize("options", [{}, {"seed": 3, "temperature": 1.2, "top_k": 40}, {"stop": ("t",)}])
def test_the_text_is_that_of_python(
    offramp: Callable[..., Any], toy_model: str, llm: LLM, options: dict[str, Any]
) -> None:
    args = ["--max-tokens", "30"]
    for name, value in options.items():
        args += [f"--{name.replace('_', '-')}", value[0] if isinstance(value, tuple) else str(value)]
    done = offramp("generate", "hello", "-m", toy_model, "--threads", "1", *args)
    params = SamplingParams(**{"temperature": 0.0, "max_tokens": 30, **options})
    assert (done.code, done.out) == (0, llm.generate("hello", params)[0].outputs[0].text + "\n")
    assert len(done.err.splitlines()) == 1


def test_the_statistics_line(offramp: Callable[..., Any], toy_model: str) -> None:
    done = offramp("generate", "abc", "-m", toy_model, "--max-tokens", "5", "--ignore-eos")
    assert done.err.startswith("3 prompt tokens, 5 output tokens, ")
    assert "tokens/s, first token after " in done.err
    assert done.err.endswith("finished by length\n")
    done = offramp("generate", "a", "-m", toy_model, "--max-tokens", "1", "--ignore-eos")
    assert done.err.startswith("1 prompt token, 1 output token, first token after ")


@pytest.mark.parametrize("json_options", [[], ["--json"]])
def test_more_tokens_than_the_context_holds_are_noted_if_asked_for(
    offramp: Callable[..., Any], toy_model: str, json_options: list[str]
) -> None:
    done = offramp("generate", "abc", "-m", toy_model, "--max-tokens", "254", *json_options)
    assert done.code == 0
    assert done.err.splitlines()[0] == (
        "note: --max-tokens=254 exceeds the context of 256 tokens, 253 behind this prompt: it ends there"
    )
    for fitting in (["--max-tokens", "253"], []):  # the default of 256 was not asked for
        assert "note" not in offramp("generate", "abc", "-m", toy_model, *fitting, *json_options).err


def test_chat_wraps_the_prompt(offramp: Callable[..., Any], toy_model: str, llm: LLM) -> None:
    done = offramp("generate", "hi", "-m", toy_model, "--chat", "--system", "be brief", "--json", "--max-tokens", "8")
    messages = [{"role": "system", "content": "be brief"}, {"role": "user", "content": "hi"}]
    answer = json.loads(done.out)
    assert answer["prompt_token_ids"] == llm.encode_chat(messages)
    assert (
        answer["outputs"][0]["text"] == llm.chat(messages, SamplingParams(temperature=0, max_tokens=8)).outputs[0].text
    )


def test_variables_of_the_chat_template(offramp: Callable[..., Any], toy_model: str, llm: LLM) -> None:
    args = ["generate", "hi", "-m", toy_model, "--chat", "--max-tokens", "8", "--chat-template-kwargs"]
    done = offramp(*args, '{"opening": "Well"}', "--json")
    messages = [{"role": "user", "content": "hi"}]
    ids = llm.encode_chat(messages, chat_template_kwargs={"opening": "Well"})
    assert json.loads(done.out)["prompt_token_ids"] == ids != llm.encode_chat(messages)
    text = offramp(*args, '{"opening": "Well"}').out
    assert text == json.loads(done.out)["outputs"][0]["text"] + "\n"
    for value, message in (
        ("{", "not JSON"),
        ("[" * 100_000, "not JSON"),
        ("[]", "holds a list"),
        ('{"thinking": 1}', "knows no 'thinking'"),
    ):
        done = offramp(*args, value)
        assert done.code == 2
        assert message in done.err


def test_variables_without_a_chat_are_refused(offramp: Callable[..., Any], toy_model: str) -> None:
    done = offramp("generate", "hi", "-m", toy_model, "--chat-template-kwargs", "{}")
    assert (done.code, "--chat-template-kwargs needs --chat" in done.err) == (2, True)


def test_json_is_one_object_with_everything(offramp: Callable[..., Any], toy_model: str) -> None:
    args = ["--json", "--n", "2", "--temperature", "1", "--seed", "9", "--logprobs", "1", "--max-tokens", "6"]
    done = offramp("generate", "hello", "-m", toy_model, *args)
    answer = json.loads(done.out)
    assert (done.code, done.err, done.out.count("\n")) == (0, "", 1)
    assert answer["model"] == toy_model
    assert [choice["index"] for choice in answer["outputs"]] == [0, 1]
    assert [choice["seed"] for choice in answer["outputs"]] == [9, 9]
    for choice in answer["outputs"]:
        assert [entry["token_id"] for entry in choice["logprobs"]] == choice["token_ids"]
    assert answer["report"]["output_tokens"] == sum(len(choice["token_ids"]) for choice in answer["outputs"])
    assert (answer["report"]["mode"], answer["report"]["exact_kv"]) == ("lossless", True)


@pytest.mark.parametrize(
    ("options", "draft"),
    [
        ([], "auto"),
        (["--draft", "suffix", "--max-draft", "3", "--draft-length", "fixed"], "suffix"),
        (["--reference", "FILE"], "auto"),
        (["--reference", "FILE", "--draft", "reference", "--draft-length", "confidence"], "reference"),
        (["--max-draft", "0"], "off"),
        (["--verifier", "rejection"], "auto"),
        (["--draft", "off", "--max-draft", "0"], "off"),
        (["--draft-model", "MODEL", "--draft-length", "fixed"], "auto"),
        (["--draft-model", "MODEL", "--draft", "model,reference", "--reference", "FILE"], "model,reference"),
    ],
)
def test_drafts_change_no_text(
    offramp: Callable[..., Any], toy_model: str, tmp_path: Path, options: list[str], draft: str
) -> None:
    args = ["generate", "hello hello", "-m", toy_model, "--max-tokens", "30", "--ignore-eos"]
    plain = offramp(*args, "--draft", "off").out
    file = tmp_path / "reference.txt"
    file.write_text(plain, encoding="utf-8", errors="replace")
    places = {"FILE": str(file), "MODEL": toy_model}
    done = offramp(*args, "--json", *(places.get(option, option) for option in options))
    answer = json.loads(done.out)
    assert answer["outputs"][0]["text"] + "\n" == plain
    report = answer["report"]
    assert report["draft"] == draft
    if report["num_drafts"]:
        assert report["mean_acceptance_length"] == report["num_emitted_tokens"] / report["num_drafts"]
        assert report["draft_acceptance_rate"] == report["num_accepted_tokens"] / report["num_draft_tokens"]
    else:
        assert report["mean_acceptance_length"] is report["draft_acceptance_rate"] is None
    assert len(answer["report"]["num_draft_tokens_per_pos"]) <= (3 if "--max-draft" in options else 16)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--draft", "telepathy"], "error: --draft='telepathy': no drafter is called 'telepathy'"),
        (["--draft", ""], "error: --draft='': no drafter is called ''"),
        (["--draft-length", "long"], "error: --draft-length='long' is impossible"),
        (["--max-draft", "65"], "error: --max-draft=65 is impossible"),
        (["--reference", "none.txt"], "error: can't read none.txt: No such file or directory"),
        (["--reference", __file__, "--draft", "off"], "error: references: drafts are off"),
        (
            ["--reference", __file__, "--max-draft", "0"],
            "error: references: drafts are off: the engine was started with --max-draft=0",
        ),
        (["--draft", "ngram", "--max-draft", "0"], "error: --draft='ngram' beside --max-draft=0"),
        (["--draft", "off", "--max-draft", "4"], "error: --max-draft 4 beside --draft off"),
        (["--draft", "off", "--draft-length", "fixed"], "error: --draft-length fixed beside --draft off"),
        (["--reference", __file__, "--draft", "ngram"], "error: references: --draft='ngram' reads none"),
        (["--draft", "reference"], "error: --draft='reference': there is no reference to copy from"),
        (["--draft", "ngram,reference"], "error: --draft='ngram,reference': there is no reference to copy from"),
        (["--draft", "model"], "error: --draft='model' needs a draft model"),
        (["--draft", "early_exit"], "error: --draft='early_exit' needs an exit pack"),
        (["--draft", "eagle"], "error: --draft='eagle' needs a drafter pack"),
        (["--draft", "ngram", "--drafter", "x"], "error: --drafter x has nothing to do: the drafter is ngram"),
        (
            ["--draft", "suffix", "--draft-model", "x"],
            "error: --draft-model x has nothing to do: the drafter is suffix",
        ),
        (["--max-draft", "0", "--draft-model", "x"], "error: --draft-model x has nothing to do: the drafter is off"),
        (["--draft", "off", "--verifier", "rejection"], "error: --verifier rejection has nothing to judge"),
        (["--mode", "full", "--verifier", "rejection"], "error: --verifier rejection has nothing to judge"),
        (["--verifier", "typical"], "error: --verifier='typical' is impossible"),
        (
            ["--mode", "full", "--draft-model", "x"],
            "error: --draft-model x has nothing to do: mode full runs no drafts",
        ),
    ],
)
def test_drafts_that_can_not_be_had_are_refused_by_name(
    offramp: Callable[..., Any], toy_model: str, options: list[str], message: str
) -> None:
    for model in (toy_model, "no such model"):  # before one is looked for
        done = offramp("generate", "a", "-m", model, *options)
        assert (done.code, done.out) == (2, "")
        assert done.err.splitlines()[0] == message
        assert done.err.splitlines()[1].startswith("hint: ")


def test_hints_name_flags(offramp: Callable[..., Any], toy_model: str) -> None:
    done = offramp("generate", "ab" * 400, "-m", toy_model)
    assert (done.code, "or raise --max-context" in done.err) == (2, True)
    done = offramp("generate", "a", "-m", toy_model, "--kv-memory", "1KiB")
    assert (done.code, "raise --kv-memory" in done.err) == (1, True)


def test_a_model_without_a_template_is_asked_without_chat(offramp: Callable[..., Any], tmp_path: Path) -> None:
    model = write_chat_model(tmp_path / "plain.gguf", template=False)
    for options in ([], ["--json"]):
        done = offramp("generate", "a", "--chat", "-m", model, *options)
        assert (done.code, done.out) == (2, "")
        assert "has no chat template\nhint: leave out --chat" in done.err


def test_a_dash_reads_standard_input(offramp: Callable[..., Any], toy_model: str) -> None:
    args = ["-m", toy_model, "--max-tokens", "12"]
    piped = offramp("generate", "-", *args, stdin="hellö\nthere".encode())
    assert piped.out == offramp("generate", "hellö\nthere", *args).out
    assert piped.code == 0


def test_an_empty_standard_input_is_refused(offramp: Callable[..., Any], toy_model: str) -> None:
    done = offramp("generate", "--chat", "-", "-m", toy_model)
    assert (done.code, done.out) == (2, "")
    assert done.err.startswith("error: standard input is empty\nhint: ")
    assert offramp("generate", "-", "-m", toy_model, "--max-tokens", "1", stdin=b"\n").code == 0


def test_standard_input_that_is_not_utf8_is_refused(offramp: Callable[..., Any], toy_model: str) -> None:
    done = offramp("generate", "-", "-m", toy_model, stdin=b"ab\xffc")
    assert (done.code, done.out) == (2, "")
    assert done.err.splitlines()[0] == "error: standard input is not UTF-8 (byte 2)"


def test_an_empty_prompt_starts_from_bos(offramp: Callable[..., Any], toy_model: str) -> None:
    done = offramp("generate", "", "-m", toy_model, "--json", "--max-tokens", "2")
    assert json.loads(done.out)["prompt_token_ids"] == [1]


def test_ctrl_c_leaves_the_statistics(capsys: pytest.CaptureFixture[str]) -> None:
    answers = says(("hi", " there you are"))

    def script(history: tuple[int, ...], depth: int) -> NDArray[np.float32]:
        if chat_tokenizer().decode(history).endswith("the"):
            signal.raise_signal(signal.SIGINT)
        return answers(history, depth)

    llm = LLM.from_loaded(scripted_model(script))
    with pytest.raises(KeyboardInterrupt):
        print_stream(llm, llm.stream("hi", SamplingParams(temperature=0)), asked=None)
    captured = capsys.readouterr()
    assert captured.out == " the"
    assert captured.err.startswith("\n2 prompt tokens, 3 output tokens, ")
    assert captured.err.endswith("finished by abort\n")


def test_an_error_in_the_middle_comes_behind_what_was_said(capsys: pytest.CaptureFixture[str]) -> None:
    answers = says(("hi", " there you are"))

    def script(history: tuple[int, ...], depth: int) -> NDArray[np.float32]:
        broken = chat_tokenizer().decode(history).endswith("the")
        return np.full_like(answers(history, depth), np.nan) if broken else answers(history, depth)

    llm = LLM.from_loaded(scripted_model(script))
    with pytest.raises(NumericError):
        print_stream(llm, llm.stream("hi", SamplingParams(temperature=0)), asked=None)
    captured = capsys.readouterr()
    assert captured.out == " the\n"
    assert captured.err.endswith("finished by error\n")


def test_an_answer_that_fits_a_schema(offramp: Callable[..., Any], toy_model: str, tmp_path: Path) -> None:
    schema = tmp_path / "schema.json"
    schema.write_text('{"enum": ["yes", "no"]}', encoding="utf-8")
    done = offramp("generate", "hello", "-m", toy_model, "--json-schema", str(schema))
    assert (done.code, done.out in ('"yes"\n', '"no"\n')) == (0, True)
    schema.write_text('{"properties": {"a": {"not": {}}}}', encoding="utf-8")
    done = offramp("generate", "hello", "-m", toy_model, "--json-schema", str(schema))
    assert (done.code, done.out) == (2, "")
    assert "at #/properties/a: Unimplemented keys" in done.err
    done = offramp("generate", "hello", "-m", toy_model, "--json-schema", str(tmp_path / "none.json"))
    assert (done.code, "none.json" in done.err) == (2, True)
