"""Prompts of the measured student: OFFRAMP_DATA=... python scripts/student_prompts.py BASE.jsonl OUT.jsonl

BASE is what `scripts/drafter_prompts.py` writes; a part of it is taken. OFFRAMP_DATA is a folder with dolly2k.jsonl
(databricks-dolly-15k, CC BY-SA 3.0) and wikitext2_valid.jsonl (WikiText-2, CC BY-SA): the long texts, which the base
has few of. Dolly's texts are asked about as they are there, and summed up; those that `benchmarks.little` chooses its
policy by are left out.
"""

from __future__ import annotations

import json
import os
import random
import re
import sys
from collections.abc import Iterator
from pathlib import Path

from benchmarks.little.asked import DOLLY, asks_for_summary
from offramp.prompt_lines import prompt_lines

NUM_OTHERS = 2400
LEAST_TEXT, MOST_TEXT = 600, 2200
"""Characters of a text that is summed up; longer ones are cut behind a sentence."""
WIKITEXT = "wikitext2_valid.jsonl"
SUMMARIES = (
    "Summarize: {}",
    "Summarize: {}",
    "Summarize: {}\nTL;DR:",
    "{}\n\nSummarize the text above.",
    "Give a short summary of this article.\n\n{}",
)


def main() -> None:
    folder, base, out = Path(os.environ["OFFRAMP_DATA"]), Path(sys.argv[1]), Path(sys.argv[2])
    draw = random.Random(0)
    others = prompts_of(base)
    draw.shuffle(others)
    asked = prompts_of(folder / DOLLY)
    aside = {text for prompt in asked if asks_for_summary(prompt) for text in text_of(prompt)}
    long = [prompt for prompt in asked if any(text not in aside for text in text_of(prompt))]
    texts = [text for prompt in long for text in text_of(prompt)]
    texts += [part for text in prompts_of(folder / WIKITEXT) for part in parts_of(readable(text))]
    summed = [draw.choice(SUMMARIES).format(shortened(text)) for text in dict.fromkeys(texts)]
    prompts = list(dict.fromkeys([*others[:NUM_OTHERS], *long, *summed]))
    draw.shuffle(prompts)
    out.write_text("".join(json.dumps({"prompt": prompt}) + "\n" for prompt in prompts), encoding="utf-8")


def prompts_of(path: Path) -> list[str]:
    return [str(line.content) for line in prompt_lines(path)]


def text_of(prompt: str) -> list[str]:
    """The text that is asked about, which stands below the question; none where it is short."""
    _, _, text = prompt.partition("\n\n")
    return [text.strip()] if len(text.strip()) >= LEAST_TEXT else []


def readable(text: str) -> str:
    """WikiText as it was written, less its headings and the sentences with words that are not known."""
    known = [sentence for sentence in re.split(r"(?<= \.) ", text) if not re.search(r"<unk>|=", sentence)]
    text = " ".join(" ".join(known).split())
    text = re.sub(r" @(.)@ ", r"\1", text)
    text = re.sub(r" ([,.;:!?)%]|'s|n't|'(?= ))", r"\1", text)
    return re.sub(r"\( ", "(", text)


def parts_of(text: str) -> Iterator[str]:
    """Of running text, as long as texts to sum up are."""
    for start in range(0, len(text), MOST_TEXT):
        part = text[start : start + MOST_TEXT]
        if len(part) >= LEAST_TEXT:
            yield part[part.find(" ") + 1 :] if start else part


def shortened(text: str) -> str:
    """Up to the last sentence that fits."""
    if len(text) <= MOST_TEXT:
        return text
    end = text.rfind(". ", 0, MOST_TEXT)
    return text[: end + 1] if end > 0 else text[:MOST_TEXT]


if __name__ == "__main__":
    main()
