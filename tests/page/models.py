"""Models for the page: what they answer is known."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from offramp.llm.loading import LoadedModel
from offramp.llm.serving import Serving
from offramp.model.generation import GenerationDefaults
from offramp.testing.gate import Gate, gated_model
from offramp.testing.models import chat_tokenizer, says, scripted_model
from offramp.testing.scripted import Script, mixing
from tests.llm.exiting import certified, serving, toy_pack

NGRAM = Serving(draft="ngram", draft_length="fixed", max_draft=4, draft_memory=0)
"""Drafts that need no costs measured."""


def prompt_of(*turns: str) -> str:
    """A conversation as the template writes it, up to the next answer; questions and answers in turn."""
    roles = ("user", "assistant")
    told = "".join(f"<|im_start|>{roles[n % 2]}\n{text}<|im_end|>\n" for n, text in enumerate(turns))
    return f"{told}<|im_start|>assistant\n"


def answering(*turns: str) -> Script:
    """A script that holds this conversation: question, answer, question, answer, ..."""
    ends = range(1, len(turns), 2)
    return says(*((prompt_of(*turns[:end]), turns[end]) for end in ends))


def greedy(loaded: LoadedModel) -> LoadedModel:
    """The model, whose files recommend the temperature 0."""
    return replace(loaded, generation=GenerationDefaults(temperature=0.0))


def speaker(*turns: str, num_pages: int = 16) -> LoadedModel:
    return greedy(scripted_model(answering(*turns), num_pages=num_pages))


def mixer(num_pages: int = 64) -> LoadedModel:
    """Says any bytes, parts of characters too, and never ends by itself."""
    return greedy(scripted_model(mixing(chat_tokenizer().vocab_size, first=3), num_pages=num_pages))


def gated(gate: Gate, *turns: str) -> LoadedModel:
    return greedy(gated_model(answering(*turns), gate))


def exiting(folder: Path, model: Path, mode: str = "unchecked") -> tuple[LoadedModel, Serving]:
    """Random exits of a tiny network, at all of its layers; certified for the risks 0.02 and 0.1."""
    pack = toy_pack(folder / "mine", model)
    loaded = certified(model, pack, 0.02, 0.1, ignore_eos=False)
    risk = {"risk": 0.02} if mode == "calibrated" else {}
    return loaded, serving(pack, mode, **({"threshold": "1:0.11,2:0.11,3:0.08"} if mode == "unchecked" else {}), **risk)
