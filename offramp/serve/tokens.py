"""/tokenize and /detokenize, with vLLM's fields."""

from __future__ import annotations

from collections.abc import Mapping

from offramp.errors import InvalidRequestError
from offramp.llm.tools import chat_tools
from offramp.params import refused
from offramp.serve.fields import DETOKENIZE, TOKENIZE
from offramp.serve.messages import template_messages
from offramp.serve.schema import DetokenizeBody, TokenizeBody, read
from offramp.serve.served import Served


def tokenize(values: Mapping[str, object], served: Served) -> dict[str, object]:
    """Token ids of a prompt, special tokens parsed, or of messages through the chat template."""
    body = read(TokenizeBody, TOKENIZE.keep_honoured(values))
    served.name_of(body.model)
    if (body.prompt is None) == (body.messages is None):
        hint = "give one of the two"
        raise InvalidRequestError("it takes either prompt or messages", hint=hint, param="prompt")
    loaded = served.loaded
    if body.prompt is not None and body.tools:
        hint = "give messages"
        raise InvalidRequestError("tools go with messages", hint=hint, param="tools")
    if body.prompt is not None:
        ids = loaded.tokenizer.encode(body.prompt, add_bos=None if body.add_special_tokens else False)
    else:
        messages = template_messages(body.messages or [])
        ids = loaded.template.encode_chat(
            loaded.tokenizer,
            messages,
            tools=[tool.for_template() for tool in chat_tools(body.tools)] or None,
            add_generation_prompt=body.add_generation_prompt,
            variables=body.chat_template_kwargs,
        )
    texts = [loaded.tokenizer.token_text(token) for token in ids] if body.return_token_strs else None
    return {"count": len(ids), "max_model_len": loaded.max_context, "tokens": ids, "token_strs": texts}


def detokenize(values: Mapping[str, object], served: Served) -> dict[str, object]:
    """The text of token ids, special tokens included."""
    body = read(DetokenizeBody, DETOKENIZE.keep_honoured(values))
    served.name_of(body.model)
    top = served.loaded.config.vocab_size
    for index, token in enumerate(body.tokens):
        if not isinstance(token, int) or isinstance(token, bool) or not 0 <= token < top:
            raise refused(f"tokens[{index}]", token, f"token ids of this model, 0..{top - 1}")
    return {"prompt": served.loaded.tokenizer.decode(body.tokens, skip_special=False)}
