"""What does not fit is told with its place and its remedy, whatever the struct."""

from collections.abc import Iterator
from typing import Any

import msgspec
import pytest
from msgspec import inspect

from memory_svc.errors import Invalid
from memory_svc.misfit import misfit
from memory_svc.services import OPERATIONS
from memory_svc.services.operation import Request, read
from memory_svc.settings import Settings

GIVEN = "dreams - at `$.elsewhere`"


def fitting(kind: inspect.Type) -> Any:
    """Something that fits this kind of value."""
    match kind:
        case inspect.Metadata(type=inner):
            return fitting(inner)
        case inspect.LiteralType(values=values):
            return values[0]
        case inspect.IntType():
            return 1
        case _:
            return "x"


def few_words(kind: inspect.Type) -> Iterator[tuple[str, Any, set[str]]]:
    """Wherever one of a few words is asked: the place, a value with another word there, and those words."""
    match kind:
        case inspect.Metadata(type=inner):
            yield from few_words(inner)
        case inspect.UnionType(types=kinds):
            for each in kinds:
                yield from few_words(each)
        case inspect.StructType(fields=fields):
            required = {field.encode_name: fitting(field.type) for field in fields if field.required}
            for field in fields:
                for place, value, words in few_words(field.type):
                    yield f".{field.encode_name}{place}", required | {field.encode_name: value}, words
        case inspect.LiteralType(values=values):
            yield "", GIVEN, {str(value) for value in values} - {""}
        case _:
            for inner in (getattr(kind, name) for name in ("item_type", "value_type") if hasattr(kind, name)):
                for place, value, words in few_words(inner):
                    yield f"[0]{place}", [value], words


ASKED = [
    pytest.param(operation.request, value, place.removeprefix("."), words, id=f"{operation.name}{place}")
    for operation in OPERATIONS
    for place, value, words in few_words(inspect.type_info(operation.request))
]


@pytest.mark.parametrize(("request_type", "arguments", "place", "words"), ASKED)
def test_every_argument_that_is_one_of_a_few_words_is_refused_with_those_words(
    request_type: type[Request], arguments: dict[str, Any], place: str, words: set[str]
) -> None:
    with pytest.raises(Invalid) as refused:
        read(request_type, arguments)
    told, _, what = refused.value.text.partition(": is none of ")
    assert told == place
    assert set(what.removesuffix("; give one of them").split(", ")) == words


def test_lists_arguments_and_arguments_of_arguments_are_among_them() -> None:
    assert {"include[0]", "mode", "method", "precision", "time_cue.confidence"} <= {each.values[2] for each in ASKED}


def test_what_is_wrong_otherwise_is_told_as_it_was() -> None:
    with pytest.raises(msgspec.ValidationError) as refused:
        msgspec.convert({"data_dir": "/x", "port": 70_000}, Settings)
    assert misfit(refused.value, Settings) == ("port", "Expected `int` <= 65535")
    with pytest.raises(msgspec.ValidationError) as refused:
        msgspec.convert({}, Settings)
    assert misfit(refused.value, Settings) == ("", "Object missing required field `data_dir`")
