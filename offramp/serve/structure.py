"""What a body says its answer must be: `response_format`, as OpenAI has it, or vLLM's `structured_outputs`."""

from __future__ import annotations

from collections.abc import Mapping

from offramp.core import Grammar, StructuredOutputsParams
from offramp.errors import InvalidRequestError
from offramp.params import refused
from offramp.serve.errors import renamed
from offramp.serve.fields import JSON_SCHEMA, RESPONSE_FORMAT, STRUCTURED_OUTPUTS
from offramp.serve.schema import SamplingBody, StructuredOutputsBody, read
from offramp.serve.served import Served

NAMED_SCHEMA = "response_format.json_schema"


def structure_of(body: SamplingBody) -> StructuredOutputsParams | None:
    """The one thing that the answer must be, if any. Raises InvalidRequestError."""
    wanted = None if body.response_format is None else _of_format(body.response_format)
    if body.structured_outputs is None:
        return wanted
    if wanted is not None:
        hint = "give one of the two"
        message = "response_format and structured_outputs exclude each other"
        raise InvalidRequestError(message, hint=hint, param="structured_outputs")
    kept = STRUCTURED_OUTPUTS.keep_honoured(body.structured_outputs, "structured_outputs")
    given = read(StructuredOutputsBody, kept, "structured_outputs")
    return StructuredOutputsParams(**given.model_dump(exclude_unset=True, by_alias=True))


def grammar_of(body: SamplingBody, asked: StructuredOutputsParams | None, served: Served) -> Grammar | None:
    """The grammar for it. Errors name the field that the client wrote."""
    if asked is None:
        return None
    try:
        return served.grammars.compile(asked)
    except InvalidRequestError as error:
        names = {} if body.structured_outputs is not None else {"structured_outputs.json": f"{NAMED_SCHEMA}.schema"}
        raise renamed(error, names) from None


def _of_format(response_format: Mapping[str, object]) -> StructuredOutputsParams | None:
    kept = RESPONSE_FORMAT.keep_honoured(response_format, "response_format")
    kind, schema = kept.get("type"), kept.get("json_schema")
    if kind not in ("text", "json_object", "json_schema"):
        raise refused("response_format.type", kind, '"text", "json_object" or "json_schema"')
    if (schema is None) == (kind == "json_schema"):
        hint = 'a json_schema goes with the type "json_schema"'
        message = f"response_format.type={kind!r} {'without' if schema is None else 'beside'} a json_schema"
        raise InvalidRequestError(message, hint=hint, param=NAMED_SCHEMA)
    if schema is not None:
        return StructuredOutputsParams(json=_named_schema(schema))
    return StructuredOutputsParams(json_object=True) if kind == "json_object" else None


def _named_schema(value: object) -> dict[str, object]:
    """OpenAI's wrapping of a schema. It is kept in full whether `strict` or not."""
    if not isinstance(value, dict):
        raise refused(NAMED_SCHEMA, value, "an object with name and schema")
    kept = JSON_SCHEMA.keep_honoured(value, NAMED_SCHEMA)
    for name, kind, wanted in (
        ("name", str, "a string"),
        ("description", str, "a string"),
        ("strict", bool, "a boolean"),
    ):
        if name in kept and not isinstance(kept[name], kind):
            raise refused(f"{NAMED_SCHEMA}.{name}", kept[name], wanted)
    schema = kept.get("schema")
    if not isinstance(schema, dict):
        raise refused(f"{NAMED_SCHEMA}.schema", schema, "a JSON schema")
    return schema
