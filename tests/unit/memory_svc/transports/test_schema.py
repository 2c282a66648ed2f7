"""The plain schema: one type a property, nothing to look up, nothing nullable."""

import datetime as dt
import enum
from collections.abc import Iterator
from typing import Annotated, Any, Literal

import jsonschema
import msgspec
import pytest
from msgspec import UNSET, Meta, UnsetType

from memory_svc.services.operation import Effect, Operation, Request
from memory_svc.transports.schema import fitted, hints, input_schema
from tests.support import toy_server


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Source(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """Where it is from."""

    type: str = "User"
    names: list[list[str]] = []


class Tree(msgspec.Struct):
    """A tree."""

    children: list["Tree"] = []


class Circle(msgspec.Struct, tag_field="shape"):
    """A circle."""

    radius: float


class Square(msgspec.Struct, tag_field="shape"):
    """A square."""

    side: float
    colour: Colour = Colour.RED


class Everything(Request, frozen=True, kw_only=True):
    """Not shown: the tool has its own words."""

    text: Annotated[str, Meta(description="A text.", min_length=1, max_length=9, pattern="^a")]
    count: Annotated[int, Meta(ge=1, le=100, description="How many.")] = 10
    share: Annotated[float, Meta(gt=0, lt=1)] = 0.5
    flag: bool = False
    maybe: Annotated[str | None, Meta(description="Perhaps.")] = None
    either: str | UnsetType = UNSET
    any_number: int | float = 0
    either_form: Annotated[dict[str, Any] | str, Meta(description="A message.")] = {}
    texts_or_text: list[str] | str = []
    bare: list[Any] = []
    nested: list[list[dict[str, Any]]] = []
    counts: dict[str, int] = {}
    anything: Any = None
    source: Annotated[Source | None, Meta(description="The source.")] = None
    plain_source: Source | UnsetType = UNSET
    colour: Colour = Colour.BLUE
    mode: Literal["lite", "pro"] | None = None
    mixed: Literal["all", 1, 2] = "all"
    pair: tuple[int, str] = (1, "a")
    unique: set[str] = set()
    when: dt.datetime | None = None
    tree: Tree | None = None
    shapes: list[Circle | Square] = []
    raw: bytes = b""


SCHEMA = input_schema(Everything)
PROPERTIES = SCHEMA["properties"]
FORBIDDEN = {"$ref", "$defs", "anyOf", "oneOf", "allOf", "default", "title", "nullable", "const", "prefixItems"}
TOY_SCHEMAS = [input_schema(each.request) for each in toy_server.OPERATIONS]


def nodes(schema: Any) -> Iterator[dict[str, Any]]:
    """Every schema inside a schema."""
    yield schema
    for each in schema.get("properties", {}).values():
        yield from nodes(each)
    for key in ("items", "additionalProperties"):
        if key in schema:
            yield from nodes(schema[key])


@pytest.mark.parametrize("schema", [SCHEMA, *TOY_SCHEMAS])
def test_every_node_is_a_schema_of_one_type_without_references_unions_and_defaults(schema: dict[str, Any]) -> None:
    jsonschema.Draft202012Validator.check_schema(schema)
    for node in nodes(schema):
        assert isinstance(node, dict)
        assert not FORBIDDEN & set(node), node
        assert isinstance(node.get("type", "any"), str)
        assert ("items" in node) == (node.get("type") == "array"), node


def test_the_whole_is_an_object_that_says_what_is_required_and_forbids_nothing() -> None:
    assert set(SCHEMA) == {"type", "properties", "required"}
    assert SCHEMA["required"] == ["text"]
    assert input_schema(toy_server.Nothing) == {"type": "object", "properties": {}}


def test_only_what_may_be_anything_has_no_type() -> None:
    assert [name for name, each in PROPERTIES.items() if "type" not in each] == ["anything"]
    assert PROPERTIES["anything"] == {}


def test_limits_and_words_are_kept() -> None:
    assert PROPERTIES["text"] == {
        "description": "A text.",
        "type": "string",
        "minLength": 1,
        "maxLength": 9,
        "pattern": "^a",
    }
    assert PROPERTIES["share"]["exclusiveMinimum"] == 0


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("count", "How many. Default: 10."),
        ("flag", "Default: false."),
        ("colour", 'Default: "blue".'),
        ("bare", "Default: []."),
        ("maybe", "Perhaps."),
    ],
)
def test_a_default_is_told_in_words_and_null_is_none(name: str, words: str) -> None:
    assert PROPERTIES[name]["description"] == words


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("maybe", "string"),
        ("either", "string"),
        ("any_number", "number"),
        ("either_form", "object"),
        ("colour", "string"),
        ("mode", "string"),
        ("mixed", "string"),
        ("when", "string"),
        ("raw", "string"),
        ("unique", "array"),
    ],
)
def test_one_type_stands_for_several(name: str, kind: str) -> None:
    assert PROPERTIES[name]["type"] == kind


def test_the_forms_that_are_not_shown_are_told_in_words() -> None:
    assert "May also be given as string." in PROPERTIES["either_form"]["description"]
    assert "May also be given as string." in PROPERTIES["texts_or_text"]["description"]
    assert "Also taken: 1, 2." in PROPERTIES["mixed"]["description"]


def test_the_items_of_a_list_inside_a_list_have_their_schema() -> None:
    assert PROPERTIES["nested"]["items"] == {"type": "array", "items": {"type": "object"}}
    assert PROPERTIES["bare"]["items"] == {}
    assert PROPERTIES["pair"]["items"] == {"type": "integer"}


def test_an_object_inside_is_written_out_and_its_field_has_the_first_word() -> None:
    assert PROPERTIES["source"]["description"] == "The source. Where it is from."
    assert PROPERTIES["source"]["properties"]["names"]["items"]["items"] == {"type": "string"}
    assert PROPERTIES["plain_source"]["description"] == "Where it is from."
    assert PROPERTIES["counts"]["additionalProperties"] == {"type": "integer"}


def test_an_object_inside_itself_ends_as_an_object_of_any_shape() -> None:
    assert PROPERTIES["tree"]["properties"]["children"]["items"] == {"type": "object"}


def test_objects_of_several_shapes_become_one_that_requires_what_all_require() -> None:
    shape = PROPERTIES["shapes"]["items"]
    assert shape["type"] == "object"
    assert set(shape["properties"]) == {"shape", "radius", "side", "colour"}
    assert shape["properties"]["shape"] == {"type": "string", "enum": ["Circle", "Square"]}
    assert shape["required"] == ["shape"]


@pytest.mark.parametrize(
    ("effect", "idempotent", "expected"),
    [
        (Effect.READ, True, {"readOnlyHint": True}),
        (Effect.ADD, True, (False, False, True, False)),
        (Effect.CHANGE, False, (False, False, False, False)),
        (Effect.ERASE, True, (False, True, True, False)),
    ],
)
def test_hints_follow_from_the_effect(effect: Effect, idempotent: bool, expected: Any) -> None:
    names = ("readOnlyHint", "destructiveHint", "idempotentHint", "openWorldHint")
    toy: Operation = msgspec.structs.replace(toy_server.add, effect=effect, idempotent=idempotent)
    assert hints(toy) == (expected if isinstance(expected, dict) else dict(zip(names, expected, strict=True)))


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"count": 5.0}, {"count": 5}),
        ({"count": 5.5}, {"count": 5.5}),
        ({"count": 1e300}, {"count": 1e300}),
        ({"count": True}, {"count": True}),
        ({"share": 1.0}, {"share": 1.0}),
        ({"anything": 5.0}, {"anything": 5.0}),
        ({"either_form": {"a": 5.0}}, {"either_form": {"a": 5.0}}),
        ({"pair": [5.0, "a"]}, {"pair": [5, "a"]}),
        ({"source": {"names": [[5.0]]}}, {"source": {"names": [[5.0]]}}),
        ({"unknown": 5.0}, {"unknown": 5.0}),
        ({"pair": 5.0}, {"pair": 5.0}),
    ],
)
def test_a_whole_number_written_with_a_fraction_is_an_integer_where_one_is_wanted(given: Any, expected: Any) -> None:
    made = fitted(given, SCHEMA)
    assert made == expected
    assert [type(value) for value in made.values()] == [type(value) for value in expected.values()]
