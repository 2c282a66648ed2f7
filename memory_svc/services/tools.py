"""Finding operations that a tool list leaves out: any of them can be called, listed or not."""

from typing import Annotated, Any

import msgspec
from msgspec import Meta

from memory_svc.domain.access.principal import Permission
from memory_svc.domain.text import query_words, words
from memory_svc.services.operation import Effect, Operation, Request, Runtime, operation

NAME_WEIGHT = 3


class FindTools(Request, frozen=True, kw_only=True):
    """What is wanted."""

    query: Annotated[str, Meta(max_length=1000, description='What you want to do, in words; "" = all tools.')] = ""
    limit: Annotated[int, Meta(ge=1, le=100, description="Tools at most.")] = 5


class Tool(msgspec.Struct, frozen=True):
    """A tool that can be called now."""

    name: str
    description: str
    input_schema: dict[str, Any]


class Tools(msgspec.Struct, frozen=True):
    """The tools that fit, best first."""

    tools: list[Tool]
    count: int


@operation(needs=Permission.READ, effect=Effect.READ)
async def find_tools(runtime: Runtime, request: FindTools) -> Tools:
    """Find tools that are not in your list, with their arguments. You can call any of them at once."""
    asked = query_words(request.query)
    scored = [(score(each, asked), each) for each in runtime.operations.values()]
    fitting = sorted((pair for pair in scored if pair[0] or not asked), key=lambda pair: -pair[0])
    tools = [Tool(each.name, each.summary, runtime.describe(each)) for _, each in fitting[: request.limit]]
    return Tools(tools, len(tools))


OPERATIONS = (find_tools,)


def score(found: Operation, asked: list[str]) -> int:
    """How many of these words an operation's name (thrice) and description hold, by their beginnings."""
    name, summary = words(found.name), words(found.summary)
    return sum(NAME_WEIGHT * _begins(word, name) + _begins(word, summary) for word in asked)


def _begins(word: str, known: list[str]) -> bool:
    """Either is the beginning of the other: `lock` finds `locked`, `memories` finds `memory` by `memor`."""
    stem = word[: max(3, len(word) - 3)]
    return any(each.startswith(stem) or (len(each) > 2 and word.startswith(each)) for each in known)
