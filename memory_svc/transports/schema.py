"""Request types as the plain JSON Schema that every MCP client accepts, and the hints of their tools."""

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from memory_svc.services.operation import Effect, Operation

REF = "#/$defs/"
SCALARS = {bool: "boolean", int: "integer", float: "number", str: "string"}
KEPT = (
    "pattern",
    "format",
    "contentEncoding",
    "minLength",
    "maxLength",
    "minimum",
    "maximum",
    "exclusiveMinimum",
    "exclusiveMaximum",
    "multipleOf",
    "minItems",
    "maxItems",
    "uniqueItems",
    "minProperties",
    "maxProperties",
    "examples",
)
Schema = dict[str, Any]
ANYTHING: Schema = {}
EXACT_MAX = 2**53


def hints(operation: Operation) -> dict[str, bool]:
    """The tool annotations of an operation, under their names on the wire."""
    if operation.effect is Effect.READ:
        return {"readOnlyHint": True}
    return {
        "readOnlyHint": False,
        "destructiveHint": operation.effect is Effect.ERASE,
        "idempotentHint": operation.idempotent,
        "openWorldHint": False,
    }


def input_schema(request: type[msgspec.Struct]) -> Schema:
    """The arguments of an operation: an object whose properties have one type each, with nothing to look up.

    What may be left out is not required and never null; its default is told in its description.
    """
    whole = msgspec.json.schema(request)
    plain = _plain(whole, whole["$defs"], ())
    return {
        "type": "object",
        "properties": plain.get("properties", {}),
        **({"required": plain["required"]} if plain.get("required") else {}),
    }


def fitted(value: Any, schema: Schema) -> Any:
    """The value, with integers where the schema asks for one: to JSON 5.0 and 5 are the same number."""
    kind = schema.get("type")
    if kind == "integer" and isinstance(value, float) and value.is_integer() and abs(value) <= EXACT_MAX:
        return int(value)
    if kind == "object" and isinstance(value, Mapping) and "properties" in schema:
        properties = schema["properties"]
        return {name: fitted(each, properties.get(name, ANYTHING)) for name, each in value.items()}
    if kind == "array" and isinstance(value, list):
        return [fitted(each, schema["items"]) for each in value]
    return value


def _plain(node: Mapping[str, Any], definitions: Mapping[str, Any], within: tuple[str, ...]) -> Schema:
    """One node without references, unions, booleans for schemas, titles and defaults."""
    if "$ref" in node:
        return _inlined(node, definitions, within)
    if "anyOf" in node:
        made = _one_of([_plain(each, definitions, within) for each in node["anyOf"] if each.get("type") != "null"])
    elif "enum" in node:
        made = _enumerated(node["enum"])
    else:
        made = _typed(node, definitions, within)
    made |= {key: node[key] for key in KEPT if key in node}
    words = _sentences(node.get("description"), made.pop("description", None), _default(node))
    return {**({"description": words} if words else {}), **made}


def _inlined(node: Mapping[str, Any], definitions: Mapping[str, Any], within: tuple[str, ...]) -> Schema:
    """What a reference names; a type inside itself is an object of any shape. A field's own words go first."""
    name = node["$ref"].removeprefix(REF)
    target: Mapping[str, Any] = {"type": "object"} if name in within else definitions[name]
    own = {key: node[key] for key in ("description", "default") if key in node}
    return _plain({**target, **own}, definitions, (*within, name))


def _typed(node: Mapping[str, Any], definitions: Mapping[str, Any], within: tuple[str, ...]) -> Schema:
    """A node of one type, or of none: anything goes."""
    kind = node.get("type")
    if kind == "array":
        items: Mapping[str, Any] = node.get("items") or next(iter(node.get("prefixItems", ())), {})
        return {"type": "array", "items": _plain(items, definitions, within)}
    if kind != "object":
        return {"type": kind} if kind else {}
    made: Schema = {"type": "object"}
    if "properties" in node:
        made["properties"] = {name: _plain(each, definitions, within) for name, each in node["properties"].items()}
    if node.get("required"):
        made["required"] = list(node["required"])
    values = node.get("additionalProperties")
    if isinstance(values, Mapping) and values:
        made["additionalProperties"] = _plain(values, definitions, within)
    return made


def _enumerated(values: Iterable[object]) -> Schema:
    """Values of one type; those of another are told in words."""
    given = [value for value in values if value is not None]
    first = next((type(value) for value in given if isinstance(value, str)), type(given[0]))
    others = [value for value in given if type(value) is not first]
    made: Schema = {"type": SCALARS[first], "enum": [value for value in given if type(value) is first]}
    if others:
        made["description"] = f"Also taken: {', '.join(_json(value) for value in others)}."
    return made


def _one_of(choices: list[Schema]) -> Schema:
    """The one form shown for several: objects become one object, else the widest is shown and the others told."""
    kinds = list(dict.fromkeys(choice.get("type") for choice in choices))
    if "number" in kinds and "integer" in kinds:
        choices = [choice for choice in choices if choice.get("type") != "integer"]
        kinds.remove("integer")
    objects = [choice for choice in choices if choice.get("type") == "object"]
    shown = dict(_merged(objects) if len(objects) > 1 else (objects or choices or [{}])[0])
    others = [str(kind) for kind in kinds if kind and kind != shown.get("type")]
    if others:
        shown["description"] = _sentences(shown.get("description"), f"May also be given as {' or '.join(others)}.")
    return shown


def _merged(objects: list[Schema]) -> Schema:
    """Every property of these objects; required is what all of them require. One name twice shows as either form."""
    forms: dict[str, list[Schema]] = {}
    for each in objects:
        for name, form in each.get("properties", {}).items():
            known = forms.setdefault(name, [])
            if form not in known:
                known.append(form)
    required = [name for name in forms if all(name in each.get("required", ()) for each in objects)]
    words = " Or: ".join(each["description"] for each in objects if "description" in each)
    return {
        "type": "object",
        **({"description": words} if words else {}),
        **({"properties": {name: _either(known) for name, known in forms.items()}} if forms else {}),
        **({"required": required} if required else {}),
    }


def _either(forms: list[Schema]) -> Schema:
    """One form for a property that several objects have: the values they list are put together."""
    if len(forms) > 1 and all("enum" in form for form in forms):
        return {**forms[0], **_enumerated([value for form in forms for value in form["enum"]])}
    return _one_of(forms)


def _default(node: Mapping[str, Any]) -> str | None:
    """What counts when the value is left out; nothing stands for null, which is never sent."""
    value = node.get("default")
    return None if value is None else f"Default: {_json(value)}."


def _sentences(*texts: str | None) -> str:
    """These texts one after the other, each once."""
    return " ".join(dict.fromkeys(text for text in texts if text))


def _json(value: object) -> str:
    return msgspec.json.encode(value).decode()
