"""Schema: the words in which routes say what they take and give. JSON Schema, as OpenAPI 3.1 has it.

Place: routes use these in their tables; openapi.py prints them. Nothing is validated with them: handlers read bodies
with body.py, which says in a sentence what is wrong.
"""

from __future__ import annotations

from typing import Final

from penstock.broker.admin import Json

Schema = dict[str, Json]

ANY: Final[Schema] = {}
STRING: Final[Schema] = {"type": "string"}
INTEGER: Final[Schema] = {"type": "integer"}
NUMBER: Final[Schema] = {"type": "number"}
BOOLEAN: Final[Schema] = {"type": "boolean"}
OBJECT: Final[Schema] = {"type": "object"}
LIST: Final[Schema] = {"type": "array", "items": {"type": "object"}}
SHORT: Final[Schema] = {"type": "string", "maxLength": 255}
NAME: Final[Schema] = {"type": "string", "minLength": 1, "maxLength": 255}
# rabbitmqadmin sends true and false, and numbers, as strings.
FLAG: Final[Schema] = {"enum": [True, False, "true", "false"]}
COUNT: Final[Schema] = {"anyOf": [{"type": "integer"}, {"type": "string", "pattern": "^[0-9]{1,9}$"}]}
TABLE: Final[Schema] = {"anyOf": [{"type": "object"}, {"type": "array", "maxItems": 0}]}  # Erlang's empty table is []


def obj(required: dict[str, Schema] | None = None, optional: dict[str, Schema] | None = None) -> Schema:
    """An object that may have other keys too, as RabbitMQ allows."""
    need, may = required or {}, optional or {}
    schema: Schema = {"type": "object", "properties": {**need, **may}}
    if need:
        schema["required"] = list(need)
    return schema


def array(items: Schema) -> Schema:
    return {"type": "array", "items": items}


def either(*schemas: Schema) -> Schema:
    return {"anyOf": list(schemas)}


def one_of(*words: str) -> Schema:
    return {"type": "string", "enum": list(words)}


PAGE: Final = obj(
    {
        "filtered_count": INTEGER,
        "item_count": INTEGER,
        "items": LIST,
        "page": INTEGER,
        "page_count": INTEGER,
        "page_size": INTEGER,
        "total_count": INTEGER,
    }
)
LISTED: Final = either(LIST, PAGE)
"""A list; with ?page, one page of it."""
FAULT: Final = obj({"error": STRING, "reason": STRING})
