"""The `prompt` of a completion: one or several, as text or as token ids."""

from __future__ import annotations

from dataclasses import dataclass

from offramp.engine.admission import check_prompt_len
from offramp.errors import InvalidRequestError
from offramp.llm.loading import LoadedModel
from offramp.llm.prompts import encode_prompt
from offramp.model.tokenizer import Tokenizer
from offramp.params import refused
from offramp.serve.fitting import check_texts

WANTED = "a string, a list of token ids, or a list of either"
MAX_PROMPTS = 128


@dataclass(frozen=True, slots=True)
class Prompt:
    """A prompt as the model reads it; `text` is what the client wrote, None where it was ids or messages."""

    token_ids: list[int]
    text: str | None = None

    def shown(self, tokenizer: Tokenizer) -> str:
        """The prompt as an echo shows it."""
        return tokenizer.decode(self.token_ids, skip_special=False) if self.text is None else self.text


def completion_prompts(value: object, loaded: LoadedModel) -> tuple[Prompt, ...]:
    """Every prompt in `value`; special tokens are parsed in text, and an empty prompt becomes BOS.

    The first that is too long is refused before the others are looked at.
    """
    parts = _parts(value)
    if len(parts) > MAX_PROMPTS:
        raise refused("prompt", f"{len(parts)} prompts", f"at most {MAX_PROMPTS} prompts")
    return tuple(_prompt(part, loaded) for part in parts)


def _parts(value: object) -> list[object]:
    """An empty list is one prompt without tokens."""
    if isinstance(value, str):
        return [value]
    if not isinstance(value, list):
        raise refused("prompt", value, WANTED)
    if not value or _is_id(value[0]):
        return [value]
    return value


def _prompt(part: object, loaded: LoadedModel) -> Prompt:
    text = part if isinstance(part, str) else None
    if text is not None:
        check_texts([text], loaded, "prompt")
    elif isinstance(part, list):
        check_prompt_len(len(part), loaded.max_context)
    if text is None and not (isinstance(part, list) and all(map(_is_id, part))):
        raise refused("prompt", part, WANTED)
    assert isinstance(part, str | list)
    token_ids = encode_prompt(part, loaded.tokenizer, loaded.bos_token_id)
    check_prompt_len(len(token_ids), loaded.max_context)
    top = loaded.config.vocab_size
    for token in token_ids:
        if not 0 <= token < top:
            hint = f"token ids of this model are 0..{top - 1}"
            raise InvalidRequestError(f"prompt holds token id {token}", hint=hint, param="prompt")
    return Prompt(token_ids, text)


def _is_id(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)
