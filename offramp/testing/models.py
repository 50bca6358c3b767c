"""Whole models for tests of the front doors: a byte-level tokenizer with a chat template, and weights or a script."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from pathlib import Path

from offramp.llm.loading import LoadedModel
from offramp.model.executor import LayerExecutor
from offramp.model.generation import GenerationDefaults
from offramp.model.template import ChatTemplate
from offramp.model.tokenizer import Tokenizer
from offramp.model.vocabulary import byte_alphabet
from offramp.testing.checkpoints import role_values, write_gguf
from offramp.testing.metadata import GgufValue
from offramp.testing.scripted import Script, ScriptedModel, follow
from offramp.testing.toy import toy_config, toy_source

CONTROLS = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
END_OF_TEXT, TURN, END_OF_TURN = range(len(CONTROLS))
MERGES = ["h e", "l l", "he ll", "hell o", "Ġ w", "Ġ Ġ", "1 2", "Ã ©"]
TEMPLATE = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{{ opening }}{% endif %}"
)
"""Its `opening` is a variable of the caller's."""
TOOL_TEMPLATE = (
    "{% for tool in tools or [] %}<|im_start|>tool\n"
    "{{ tool.function.name }}: {{ tool.function.description }}<|im_end|>\n{% endfor %}"
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}{% for call in m.tool_calls %}"
    "<tool_call>\n{{ call.function | tojson }}\n</tool_call>{% endfor %}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{{ opening }}{% endif %}"
)
"""One for tools, whose calls are written as Qwen and Hermes do."""
NORMAL, CONTROL = 1, 3


def tokenizer_metadata(*, template: bool = True, bos: bool = True) -> dict[str, GgufValue]:
    """GGUF metadata of the tokenizer: three control tokens, the 256 bytes, a few merges."""
    tokens = [*CONTROLS, *byte_alphabet(), *("".join(merge.split()) for merge in MERGES)]
    values: dict[str, GgufValue] = {
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": "smollm",
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.token_type": [CONTROL] * len(CONTROLS) + [NORMAL] * (len(tokens) - len(CONTROLS)),
        "tokenizer.ggml.merges": MERGES,
        "tokenizer.ggml.eos_token_id": END_OF_TURN,
        "tokenizer.ggml.add_bos_token": False,
    }
    if bos:
        values["tokenizer.ggml.bos_token_id"] = TURN
    if template:
        values["tokenizer.chat_template"] = TEMPLATE
    return values


@cache
def chat_tokenizer(*, bos: bool = True) -> Tokenizer:
    """The tokenizer itself."""
    return Tokenizer.from_gguf(tokenizer_metadata(bos=bos))


def write_chat_model(path: Path, *, template: bool = True, bos: bool = True, max_context: int = 256) -> Path:
    """A tiny model with random weights as one GGUF file; returns its path."""
    metadata = tokenizer_metadata(template=template, bos=bos)
    tokens = metadata["tokenizer.ggml.tokens"]
    assert isinstance(tokens, list)
    config = toy_config(vocab_size=len(tokens), max_context=max_context)
    weights = role_values(toy_source(config, seed=3))
    return write_gguf(path, config, weights, matrix_type="Q8_0", metadata=metadata)


def loaded_model(
    executor: LayerExecutor,
    *,
    max_context: int | None = None,
    template: str | None = TEMPLATE,
    bos: bool = True,
    generation: GenerationDefaults | None = None,
) -> LoadedModel:
    """Any executor with the tokenizer above, as `LLM.from_loaded` takes it."""
    tokenizer = chat_tokenizer(bos=bos)
    return LoadedModel(
        name="toy",
        executor=executor,
        tokenizer=tokenizer,
        template=ChatTemplate({} if template is None else {"default": template}),
        generation=generation or GenerationDefaults(),
        max_context=max_context or executor.config.max_context,
        source_hash="",
    )


def scripted_model(
    script: Script, *, num_pages: int = 16, max_context: int | None = None, template: str = TEMPLATE
) -> LoadedModel:
    """A model that follows a script over the tokenizer above."""
    executor = ScriptedModel(script, num_pages=num_pages, vocab_size=chat_tokenizer().vocab_size)
    return loaded_model(executor, max_context=max_context, template=template)


def says(*exchanges: tuple[str, str], end: int = END_OF_TURN) -> Script:
    """Greedily continues each prompt with its answer, then `end`; token by token as the tokenizer cuts them."""
    tokenizer = chat_tokenizer()
    sequences: Iterable[list[int]] = [
        [*tokenizer.encode(prompt), *tokenizer.encode(answer), end] for prompt, answer in exchanges
    ]
    return follow(*sequences, vocab_size=tokenizer.vocab_size, otherwise=end)
