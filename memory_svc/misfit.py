"""Why values do not fit a struct: where, and what would. What was given is not repeated."""

import re
from collections.abc import Iterator, Sequence

import msgspec
from msgspec import inspect

_UNKNOWN_WORD = "Invalid enum value"
_STEP = re.compile(r"\.(\w+)|(\[)")


def misfit(error: msgspec.ValidationError, struct: type[msgspec.Struct]) -> tuple[str, str]:
    """The place inside the struct, "" for the whole of it, and what is wrong there in words that name the remedy."""
    wrong, _, place = str(error).rpartition(" - at `$")
    place = place.rstrip("`")
    if not wrong:
        return "", str(error)
    if wrong.startswith(_UNKNOWN_WORD):
        steps = [name or item for name, item in _STEP.findall(place)]
        wrong = f"is none of {', '.join(_words(inspect.type_info(struct), steps))}; give one of them"
    return place.lstrip("."), wrong


def _words(kind: inspect.Type, steps: Sequence[str]) -> Iterator[str]:
    """The words that may stand where these steps lead; the empty one, which stands for "left out", is not told."""
    match kind:
        case inspect.Metadata(type=inner):
            yield from _words(inner, steps)
        case inspect.UnionType(types=kinds):
            for each in kinds:
                yield from _words(each, steps)
        case inspect.StructType(fields=fields) if steps:
            for field in fields:
                if field.encode_name == steps[0]:
                    yield from _words(field.type, steps[1:])
        case inspect.ListType(item_type=item) | inspect.VarTupleType(item_type=item) if steps:
            yield from _words(item, steps[1:])
        case inspect.LiteralType(values=values) if not steps:
            yield from (str(value) for value in values if value != "")
