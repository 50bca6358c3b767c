"""An item's prompt as a model reads it."""

from __future__ import annotations

from offramp.bench.workloads.item import Item
from offramp.errors import InvalidRequestError
from offramp.llm.loading import LoadedModel
from offramp.llm.prompts import as_messages, encode_prompt


def prompt_ids(item: Item, loaded: LoadedModel) -> list[int]:
    """Its token ids, through the chat template unless it is raw. Raises OfframpError."""
    content = item.content
    if not item.raw:
        messages = [{"role": "user", "content": content}] if isinstance(content, str) else content
        return loaded.template.encode_chat(loaded.tokenizer, as_messages(messages))
    if not isinstance(content, str):
        raise InvalidRequestError("a conversation can't be continued raw", hint="leave out --raw")
    return encode_prompt(content, loaded.tokenizer, loaded.bos_token_id)
