"""Prompts of our own on which drafts fare differently: from what repeats word for word to what never does."""

from __future__ import annotations

from collections.abc import Mapping

REPORT = (
    "The town library closes for repairs on Monday. Books can be returned at the school until Friday. "
    "The reading room stays open in the evening, and the repairs take three weeks."
)
CODE = '''def area(width, height):
    """Area of a rectangle."""
    return width * height


def perimeter(width, height):
    """Perimeter of a rectangle."""
    return'''
CITIES = '[{"city": "Oslo", "country": "Norway"}, {"city": "Rome", "country": "Italy"}, {"city": "Paris", '
MAIL = "Hi Sam,\n> Could you send the keys of the blue van to Anna before noon?\nYou asked: "


def chat(text: str) -> str:
    """One turn in the markup of the default model."""
    return f"<|im_start|>user\n{text}<|im_end|>\n<|im_start|>assistant\n"


PROMPTS: Mapping[str, str] = {
    "summary": chat(f"Summarize in two sentences: {REPORT}"),
    "retrieval": chat(f"{REPORT}\n\nHow long do the repairs take? Answer with a full sentence from the text."),
    "code": CODE,
    "code edit": chat(f"Rename width to w and height to h:\n{CODE} 2 * (width + height)"),
    "json": CITIES,
    "quote": chat(f"Quote the second sentence of this text word for word: {REPORT}"),
    "mail": MAIL,
    "translation": chat("Translate to French: The cat sleeps on the warm stone, and the dog sleeps beside the cat."),
    "repetition": "I will never miss a bus again. " * 4,
    "table": "| n | square |\n|---|---|\n| 1 | 1 |\n| 2 | 4 |\n| 3 | 9 |\n",
    "story": "Once upon a time, in a village by the sea, there lived an old clockmaker who",
    "one word": "Because",
}
