"""Arguments as the formats have them, from their JSON."""

from __future__ import annotations

import json

from offramp.model.tool_format import TAG_CLOSE, TAG_OPEN, TAG_VALUE, ToolFormat


def arguments_in(layout: ToolFormat, text: str) -> str:
    """In tags where the format has them there: strings as they are, other values as JSON."""
    if not layout.tags:
        return text
    values = json.loads(text).items()
    return "".join(f"{TAG_OPEN}{name}{TAG_VALUE}{value_in_tag(value)}{TAG_CLOSE}" for name, value in values)


def value_in_tag(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def calls_in(layout: ToolFormat, *calls: tuple[str, str]) -> str:
    """Calls, names and JSON of arguments, as a model writes them that does it right."""
    written = [layout.head_of(name) + arguments_in(layout, text) + layout.tail for name, text in calls]
    return layout.begin + layout.between.join(written) + layout.end
