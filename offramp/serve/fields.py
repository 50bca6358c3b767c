"""Every field that a request may hold, on one of three lists: honoured, accepted without effect, refused by name.

A field on no list is refused by name too. A refused field passes where its value asks for nothing.
"""

from __future__ import annotations

import re

from offramp.llm.field_lists import FieldLists, Refusal
from offramp.llm.tool_choice import ALLOWED_TOOLS, TOOL_CHOICE
from offramp.llm.tools import FUNCTION, TOOL


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


SAMPLING = _names(
    "temperature top_p top_k min_p n seed stop stop_token_ids ignore_eos min_tokens max_tokens "
    "presence_penalty frequency_penalty repetition_penalty logit_bias best_of"
)
COMMON = _names("model stream stream_options prompt_logprobs cache_salt offramp response_format structured_outputs")

NO_EFFECT = _names("user metadata store service_tier safety_identifier")
PROMPT_CACHE = _names("prompt_cache_key prompt_cache_options prompt_cache_retention")

OLD_TOOLS = "OpenAI replaced it"
OLD_GUIDED = "vLLM dropped it"
LLAMA_NAME = "it is llama.cpp's name"
STATELESS = "this server keeps no responses"
TEXT_ONLY = "this version reads and writes text only"

REFUSED = {
    "use_beam_search": Refusal("beam search is not implemented", neutral=(False,)),
    "length_penalty": Refusal("beam search is not implemented", neutral=(1, 1.0)),
    "early_stopping": Refusal("beam search is not implemented", neutral=(False,)),
    "skip_special_tokens": Refusal("answers never show special tokens", neutral=(True,)),
    "spaces_between_special_tokens": Refusal("answers never show special tokens", neutral=(True,)),
    "include_stop_str_in_output": Refusal("answers end before the stop string", neutral=(False,)),
    "truncate_prompt_tokens": Refusal("prompts are never cut", "shorten the prompt"),
    "bad_words": Refusal("it is not implemented", "use logit_bias", ([],)),
    "allowed_token_ids": Refusal("it is not implemented", "use logit_bias"),
    "priority": Refusal("requests have no priorities: clients take turns", neutral=(0,)),
    "return_token_ids": Refusal("it is not implemented", 'use offramp: {"report": "tokens"}', (False,)),
    "return_tokens_as_token_ids": Refusal("it is not implemented", 'use offramp: {"report": "tokens"}', (False,)),
    "guided_json": Refusal(OLD_GUIDED, 'use structured_outputs: {"json": ...}'),
    "guided_regex": Refusal(OLD_GUIDED, 'use structured_outputs: {"regex": ...}'),
    "guided_choice": Refusal(OLD_GUIDED, 'use structured_outputs: {"choice": ...}'),
    "guided_grammar": Refusal(OLD_GUIDED, 'use structured_outputs: {"grammar": ...}'),
    "thinking_token_budget": Refusal("it is not implemented", "use max_tokens"),
    # llama.cpp
    "n_predict": Refusal(LLAMA_NAME, "use max_tokens", (-1,)),
    "repeat_penalty": Refusal(LLAMA_NAME, "use repetition_penalty", (1, 1.0)),
    "grammar": Refusal(LLAMA_NAME, 'use structured_outputs: {"grammar": ...}', ("",)),
    "json_schema": Refusal(LLAMA_NAME, 'use structured_outputs: {"json": ...}'),
    "n_probs": Refusal(LLAMA_NAME, "use logprobs", (0,)),
    "cache_prompt": Refusal("cached prompts are always used", "use cache_salt", (True,)),
    "return_tokens": Refusal("it is not implemented", 'use offramp: {"report": "tokens"}', (False,)),
    "timings_per_token": Refusal("times come once, at the end", "read the answer's offramp object", (False,)),
    "id_slot": Refusal("requests have no slots", neutral=(-1,)),
    "typical_p": Refusal("it is not implemented", "use min_p", (1, 1.0)),
    "mirostat": Refusal("it is not implemented", neutral=(0,)),
    "dry_multiplier": Refusal("it is not implemented", neutral=(0, 0.0)),
    "xtc_probability": Refusal("it is not implemented", neutral=(0, 0.0)),
}

CHAT = FieldLists(
    honoured=SAMPLING
    | COMMON
    | _names("messages max_completion_tokens logprobs top_logprobs chat_template_kwargs prediction")
    | _names("tools tool_choice parallel_tool_calls"),
    without_effect=NO_EFFECT | PROMPT_CACHE,
    refused=REFUSED
    | {
        # OpenAI
        "functions": Refusal(OLD_TOOLS, "use tools", ([],)),
        "function_call": Refusal(OLD_TOOLS, "use tool_choice", ("none", "auto")),
        "modalities": Refusal(TEXT_ONLY, neutral=(["text"],)),
        "audio": Refusal(TEXT_ONLY),
        "reasoning_effort": Refusal("reasoning can't be set", neutral=("none",)),
        "verbosity": Refusal("the length of answers can't be set", "say it in a message", ("medium",)),
        "web_search_options": Refusal("there is no web search"),
        "moderation": Refusal("there is no moderation"),
        # vLLM
        "chat_template": Refusal("templates come with the model only"),
        "documents": Refusal("it is not implemented", "put them into a message", ([],)),
        "add_generation_prompt": Refusal("the answer always begins a turn", "use /v1/completions", (True,)),
        "continue_final_message": Refusal("the answer always begins a turn", "use /v1/completions", (False,)),
        "add_special_tokens": Refusal("the template alone adds special tokens", neutral=(False,)),
        "echo": Refusal("a chat can't be echoed", "use /v1/completions", (False,)),
    },
)

RESPONSE = FieldLists(
    honoured=_names(
        "model input instructions stream stream_options max_output_tokens temperature top_p top_logprobs include text "
        "tools tool_choice parallel_tool_calls metadata top_k min_p seed stop presence_penalty frequency_penalty "
        "repetition_penalty logit_bias chat_template_kwargs cache_salt offramp"
    ),
    without_effect=(NO_EFFECT - {"metadata"}) | PROMPT_CACHE | {"max_tool_calls"},  # that counts tools of the server's
    refused={
        "previous_response_id": Refusal(STATELESS, "send the whole conversation as input"),
        "conversation": Refusal(STATELESS, "send the whole conversation as input"),
        "prompt": Refusal(STATELESS, "send the prompt's text as instructions"),
        "background": Refusal("answers come at once", neutral=(False,)),
        "background_options": Refusal("answers come at once"),
        "context_management": Refusal("it is not implemented", neutral=([],)),
        "truncation": Refusal("conversations are never cut", "shorten the input", ("disabled",)),
        "reasoning": Refusal("reasoning can't be set", neutral=({}, {"effort": "none"})),
        "moderation": Refusal("there is no moderation"),
        "access_programs": Refusal("it is not implemented"),
        "image": Refusal(TEXT_ONLY),
    },
)

COMPLETION = FieldLists(
    honoured=SAMPLING | COMMON | _names("prompt echo logprobs"),
    without_effect=NO_EFFECT,
    refused=REFUSED
    | {
        "suffix": Refusal("text can't be inserted", neutral=("",)),
        "add_special_tokens": Refusal("BOS is added as the model's files say", neutral=(True,)),
    },
)

TOKENIZE = FieldLists(
    honoured=_names(
        "model prompt messages tools add_special_tokens add_generation_prompt chat_template_kwargs return_token_strs"
    ),
    without_effect=frozenset(),
    refused={
        "chat_template": CHAT.refused["chat_template"],
        "continue_final_message": CHAT.refused["continue_final_message"],
    },
)

DETOKENIZE = FieldLists(_names("model tokens"), frozenset(), {})

STREAM_OPTIONS = FieldLists(
    honoured=frozenset({"include_usage"}),
    without_effect=frozenset({"include_obfuscation"}),
    refused={"continuous_usage_stats": Refusal("usage comes once, at the end", neutral=(False,))},
)

MESSAGE = FieldLists(
    honoured=_names("role content name tool_calls tool_call_id"),
    without_effect=frozenset({"parsed"}),  # the official client's own reading of the content
    refused={
        "function_call": Refusal(OLD_TOOLS, "use tool_calls"),
        "audio": Refusal(TEXT_ONLY),
        "refusal": Refusal("the template has no place for it", "put it into content"),
        "annotations": Refusal("the template has no place for it", neutral=([],)),
    },
)
TOOL_CALL = FieldLists(_names("id type function"), frozenset({"index"}), {})
CALLED_FUNCTION = FieldLists(_names("name arguments"), frozenset({"parsed_arguments"}), {})

TEXT_PART = FieldLists(_names("type text"), frozenset(), {})
RESPONSE_FORMAT = FieldLists(
    honoured=_names("type json_schema"),
    without_effect=frozenset(),
    refused={"schema": Refusal("a schema has a name", 'use json_schema: {"name": ..., "schema": ...}')},
)
JSON_SCHEMA = FieldLists(_names("name description schema strict"), frozenset(), {})
STRUCTURED_OUTPUTS = FieldLists(
    honoured=_names("json regex choice grammar json_object whitespace_pattern disable_any_whitespace"),
    without_effect=_names("disable_fallback"),
    refused={
        "structural_tag": Refusal("it is not implemented", "use grammar"),
        "disable_additional_properties": Refusal(
            "a schema says itself what it allows", 'write "additionalProperties": false', (False,)
        ),
    },
)
PREDICTION = FieldLists(_names("type content"), frozenset(), {})

RESPONSE_TEXT = FieldLists(
    _names("format"), frozenset(), {"verbosity": Refusal("the length of answers can't be set", neutral=("medium",))}
)
RESPONSE_FORMATS = FieldLists(_names("type name description schema strict"), frozenset(), {})
RESPONSE_STREAM_OPTIONS = FieldLists(frozenset(), _names("include_obfuscation"), {})
RESPONSE_TOOL = FieldLists(
    honoured=_names("type name description parameters strict"),
    without_effect=_names("output_schema"),
    refused={
        "allowed_callers": Refusal("models call tools directly", neutral=(["direct"],)),
        "async": Refusal("calls wait for their results", neutral=(False,)),
        "defer_loading": Refusal("all tools are loaded", neutral=(False,)),
    },
)
RESPONSE_CHOICE = FieldLists(_names("type name mode tools"), frozenset(), {})
RESPONSE_ALLOWED = FieldLists(_names("type name"), frozenset(), {})
INPUT_MESSAGE = FieldLists(_names("type role content"), _names("id status phase"), {})
INPUT_TEXT = FieldLists(_names("type text"), _names("annotations logprobs parsed prompt_cache_breakpoint"), {})
INPUT_CALL = FieldLists(
    honoured=_names("type call_id name arguments"),
    without_effect=_names("id status parsed_arguments"),
    refused={
        "async": Refusal("calls wait for their results", neutral=(False,)),
        "caller": Refusal("models call tools directly", neutral=({"type": "direct"},)),
        "namespace": Refusal("it is not implemented"),
    },
)
CALL_OUTPUT = FieldLists(
    honoured=_names("type call_id output"),
    without_effect=_names("id status name"),
    refused={"caller": INPUT_CALL.refused["caller"], "namespace": INPUT_CALL.refused["namespace"]},
)

OFFRAMP = FieldLists(
    honoured=_names("mode risk exits draft max_draft references verifier report"),
    without_effect=frozenset(),
    refused={},
)

_LISTS = (
    CHAT,
    COMPLETION,
    TOKENIZE,
    DETOKENIZE,
    STREAM_OPTIONS,
    MESSAGE,
    TOOL,
    FUNCTION,
    TOOL_CHOICE,
    ALLOWED_TOOLS,
    TOOL_CALL,
    CALLED_FUNCTION,
    TEXT_PART,
    RESPONSE,
    RESPONSE_TEXT,
    RESPONSE_FORMATS,
    RESPONSE_TOOL,
    RESPONSE_CHOICE,
    INPUT_MESSAGE,
    INPUT_TEXT,
    INPUT_CALL,
    CALL_OUTPUT,
    RESPONSE_FORMAT,
    PREDICTION,
    OFFRAMP,
)
KNOWN = frozenset(name for each in _LISTS for name in (*each.honoured, *each.without_effect, *each.refused))


def field_of(param: str) -> str | None:
    """The known field at the head of a path, such as "messages.role" of "messages[3].role": no text of a client's."""
    names: list[str] = []
    for part in param.split("."):
        name = re.sub(r"(\[\d+\])+$", "", part)
        if name not in KNOWN:
            break
        names.append(name)
    return ".".join(names) or None
