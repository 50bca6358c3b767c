"""What is asked: texts to repeat, which drafts copy, and questions whose answers are nowhere in the prompt."""

from __future__ import annotations

from benchmarks.speculation.prompts import Prompt
from offramp.llm.loading import LoadedModel

REPEAT = "Repeat the following text word for word.\n\n{text}"
TEXTS = (
    "The ferry to the northern islands leaves every morning at a quarter past seven from the old stone pier. "
    "Travellers should bring warm clothes, since the wind is cold even in summer. Tickets are sold in the red cabin "
    "beside the lighthouse. Bicycles travel free of charge, and dogs must be kept on a lead. The crossing takes two "
    "hours when the sea is calm, and longer when it is rough.",
    "Order 4417: two boxes of blue ceramic tiles, one bucket of white grout, three wooden floats and a spirit level. "
    "Deliver to the side entrance of the bakery on Mill Street before noon. The driver must call the manager when he "
    "arrives, because the gate is locked. Broken tiles are returned with the same driver, and the invoice is sent to "
    "the office in the harbour.",
    "def area_of_rectangle(width, height):\n    if width < 0:\n        raise ValueError('width must not be negative')\n"
    "    if height < 0:\n        raise ValueError('height must not be negative')\n    return width * height\n\n\n"
    "def area_of_square(side):\n    return area_of_rectangle(side, side)",
    "The committee met on the first Tuesday of the month. Mrs Abel read the minutes, which were accepted. Mr Brandt "
    "reported that the roof of the library has been repaired and that the cost stayed below the estimate. Miss Conti "
    "asked for new chairs in the reading room. The committee decided to buy twelve chairs. Mr Brandt will ask three "
    "carpenters for their prices before the next meeting.",
)
QUESTIONS = (
    "Why do leaves change their colour in autumn?",
    "Tell a short story about a clock that runs backwards.",
    "What should somebody think about before getting a cat?",
)


def copying(loaded: LoadedModel) -> list[Prompt]:
    """Texts to repeat."""
    return _asked(loaded, "copying", [REPEAT.format(text=text) for text in TEXTS])


def unlike(loaded: LoadedModel) -> list[Prompt]:
    """Questions."""
    return _asked(loaded, "unlike", QUESTIONS)


def _asked(loaded: LoadedModel, task: str, texts: list[str] | tuple[str, ...]) -> list[Prompt]:
    encode = loaded.template.encode_chat
    return [
        Prompt(task, f"{task} {number}", encode(loaded.tokenizer, [{"role": "user", "content": text}]))
        for number, text in enumerate(texts)
    ]
