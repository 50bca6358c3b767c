"""Prompts that the shipped drafter pack was trained on: OFFRAMP_DATA=... python scripts/drafter_prompts.py OUT.jsonl

OFFRAMP_DATA is a folder with self_instruct_seed175.jsonl (Self-Instruct, Apache-2.0), gsm8k_train2k.jsonl (training
problems of GSM8K, MIT) and parti_prompts.jsonl (PartiPrompts, Apache-2.0, as subjects). The rest the model writes: user
turns drawn behind the beginning of its own chat template, and texts that are to be summed up, asked about, translated.
Every draw has a seed. Takes about ten minutes on two quiet cores.
"""

from __future__ import annotations

import json
import os
import random
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from offramp import LLM, SamplingParams
from offramp.llm.output import CompletionOutput
from offramp.prompt_lines import prompt_lines

MODEL = "smollm2-135m"
NUM_TURNS, NUM_PROBLEMS, NUM_TEXTS, NUM_SENTENCES = 3840, 720, 528, 256
AT_ONCE = 64
SHORTEST_TURN, LONGEST_TURN, SHORTEST_TEXT = 12, 600, 200
"""Characters."""
KINDS = (
    "Write a short news article about this: {}.",
    "Write an encyclopedia entry about {}.",
    "Write a short story about {}.",
    "Explain {} to a curious student, in two paragraphs.",
)
SUMMARIES = (
    "Summarize: {}",
    "Summarize: {}\nTL;DR:",
    "Give a summary of this text.\n\n{}",
    "{}\n\nSum this up in a few sentences.",
)
QUESTIONS = (
    "What is this about?",
    "Who or what is mentioned first?",
    "What are the main points?",
    "Why does it matter?",
    "What happens in the end?",
)
RETRIEVED = (
    "Use the documents to answer the question.\n\n[1] {}\n\n[2] {}\n\nQuestion: {}\nAnswer:",
    "Context:\n{}\n{}\n\nBased on the context, answer: {}",
)
MARK = "QQQ"


def main() -> None:
    folder, out = Path(os.environ["OFFRAMP_DATA"]), Path(sys.argv[1])
    draw = random.Random(0)
    with LLM(MODEL, weights="q8", draft="off", max_context=2048, max_num_seqs=32) as llm:
        turns = list(dict.fromkeys(own_turns(llm)))
        texts = own_texts(llm, prompts_of(folder / "parti_prompts.jsonl"), draw)
        asked = over_texts(llm, texts, draw)
    seeds = [text.strip() for text in prompts_of(folder / "self_instruct_seed175.jsonl")]
    problems = prompts_of(folder / "gsm8k_train2k.jsonl")
    draw.shuffle(problems)
    prompts = list(dict.fromkeys([*seeds, *problems[:NUM_PROBLEMS], *turns, *asked]))
    draw.shuffle(prompts)
    out.write_text("".join(json.dumps({"prompt": prompt}) + "\n" for prompt in prompts), encoding="utf-8")


def own_turns(llm: LLM) -> Iterator[str]:
    """What users would say, by the model itself: drawn behind all that its template writes before a user's words."""
    before = before_user(llm)
    for start in range(0, NUM_TURNS, AT_ONCE):
        params = [
            SamplingParams(temperature=1.0, top_p=0.97, max_tokens=100, seed=10_000 + start + place)
            for place in range(AT_ONCE)
        ]
        for output in llm.generate([before] * AT_ONCE, params):
            turn, text = output.outputs[0], output.outputs[0].text.strip()
            fits = SHORTEST_TURN <= len(text) <= LONGEST_TURN and "\ufffd" not in text
            if turn.finish_reason == "stop" and fits:
                yield text


def own_texts(llm: LLM, subjects: list[str], draw: random.Random) -> list[str]:
    """Articles, entries, stories and explanations."""
    draw.shuffle(subjects)
    asked = [draw.choice(KINDS).format(subject.rstrip(".")) for subject in subjects[:NUM_TEXTS]]
    texts = [answer.text.strip() for answer in answers(llm, asked, most=230, temperature=0.9, seed=50_000)]
    return [text for text in texts if len(text) > SHORTEST_TEXT]


def over_texts(llm: LLM, texts: Sequence[str], draw: random.Random) -> list[str]:
    """A third to be summed up, a third to be asked about, sentences of the rest to be translated from German."""
    third = len(texts) // 3
    made = [draw.choice(SUMMARIES).format(text) for text in texts[:third]]
    for text in texts[third : 2 * third]:
        documents = [text, draw.choice(texts)[:400]]
        draw.shuffle(documents)
        made.append(draw.choice(RETRIEVED).format(*documents, draw.choice(QUESTIONS)))
    parts = [part for text in texts[2 * third :] for part in text.split(".")[:2]]
    sentences = [part.strip() + "." for part in parts if 30 < len(part) < 200]
    asked = [f"Translate to German: {sentence}" for sentence in sentences[:NUM_SENTENCES]]
    german = [answer.text.strip() for answer in answers(llm, asked, most=80, temperature=0.7, seed=70_000)]
    return made + [f"Translate German to English: {text}" for text in german if len(text) > 20]


def answers(llm: LLM, prompts: Sequence[str], *, most: int, temperature: float, seed: int) -> list[CompletionOutput]:
    """One to each, as a message, drawn."""
    ids = [llm.encode_chat([{"role": "user", "content": prompt}]) for prompt in prompts]
    params = [
        SamplingParams(temperature=temperature, top_p=0.95, max_tokens=most, seed=seed + place)
        for place in range(len(ids))
    ]
    return [output.outputs[0] for output in llm.generate(ids, params)]


def before_user(llm: LLM) -> list[int]:
    """The ids of a conversation up to where a user's words begin."""
    whole = llm.encode_chat([{"role": "user", "content": MARK}])
    mark = llm.model.tokenizer.encode(MARK, add_bos=False)
    at = next(place for place in range(len(whole)) if whole[place : place + len(mark)] == mark)
    return whole[:at]


def prompts_of(path: Path) -> list[str]:
    return [str(line.content) for line in prompt_lines(path)]


if __name__ == "__main__":
    main()
