"""The servers that are compared: each is filled with the same memories, then asked the same questions, over stdio."""

import asyncio
import contextlib
import functools
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec
import quicktok  # type: ignore[import-untyped]

from bench.memory import wires
from bench.memory.wires import Wire
from bench.quality import evidence
from bench.quality.data import DataSet, Document, Question
from bench.quality.evidence import Quoted
from memory_svc.settings import PREFIX, Settings

LIMIT = 10
OURS = "ours"
RESTARTED = ", restarted"
# The peers that can.
RECONSTRUCTING = ("2.6.14",)
TELL_EACH = 250
# So that other work on the machine costs nobody a vector, and clients know every tool.
PATIENT = {
    "MEMORY_EMBEDDING_QUERY_SECONDS": "60",
    "MEMORY_EMBEDDING_STORE_SECONDS": "300",
    "MEMORY_TOOLS": "full",
}
# Of the gate, beside the default.
PRECISIONS = ("strict", "lenient")
Say = Callable[[str], None]


class Trial(msgspec.Struct, frozen=True):
    """What a server is tried with: the data, a folder of its own, where the vectors are, and whom to tell.

    starting: held by the one that starts a process, in all trials that run at the same time.
    """

    data: DataSet
    folder: Path
    embedding: str
    say: Say
    starting: asyncio.Lock


class Given(msgspec.Struct, frozen=True):
    """One answer: ids of the memories in it, best first ("" = a row that no question knows), and its cl100k tokens."""

    keys: list[str]
    tokens: int


class Answers(msgspec.Struct, frozen=True):
    """What a system answered to every question of a data set, in order.

    quoted: by mode, what it reconstructed for the questions that evidence is gathered for.
    """

    system: str
    given: list[Given]
    quoted: dict[str, list[Quoted]] = {}


class Filled:
    """Which memory is known by which id, as the server called them when they were stored."""

    def __init__(self) -> None:
        self.refs: dict[str, list[str]] = {}
        self.texts: dict[tuple[str, str], list[str]] = {}

    def add(self, document: Document, content: str, answer: dict[str, Any]) -> None:
        """Remember a memory. One that was skipped is the one that was there, where the server tells which."""
        twins = self.texts.setdefault((document.agent, content), [])
        twins.append(document.key)
        if number := answer.get("id"):
            self.refs[f"mem:{number}"] = twins

    def keys(self, agent: str, row: dict[str, Any]) -> list[str]:
        """The ids of a row; several where memories have the same text."""
        if row.get("ref") in self.refs:
            return self.refs[row["ref"]]
        content = str(row.get("content", ""))
        return self.texts.get((agent, content), [])


def modes() -> tuple[str, str, tuple[str, ...]]:
    """The setting that chooses how ranked lists are fused, its default and its other values; none = ("", "", ())."""
    for name, field in msgspec.json.schema(Settings)["$defs"]["Settings"]["properties"].items():
        values = field.get("enum", ())
        if "rrf" in values:
            return PREFIX + name.upper(), field["default"], tuple(each for each in values if each != field["default"])
    return "", "", ()


async def ours(trial: Trial, *, plain: bool = False) -> list[Answers]:
    """Ours right after the memories were stored, after a restart, at other precisions, and in every other mode.

    plain: the memories with the text alone as content, once alone.
    """
    setting, _, others = modes()
    folder = _made(trial.folder)
    name = f"{OURS}, {trial.data.plain}" if plain else OURS
    async with _started(trial, wires.our_stdio(name, folder, trial.embedding, PATIENT)) as wire:
        filled = await _fill(wire, trial, plain=plain)
        found = [await _answers(wire, trial, filled, reconstructs=True)]
    again = {
        f"{OURS}{RESTARTED}": PATIENT,
        **{f"{OURS}, {each}": PATIENT | {"MEMORY_GATE_PRECISION": each} for each in PRECISIONS},
        **{f"{OURS}, {mode}": PATIENT | {setting: mode} for mode in others},
    }
    for name, given in () if plain else again.items():
        async with _started(trial, wires.our_stdio(name, folder, trial.embedding, given)) as wire:
            found.append(await _answers(wire, trial, filled, reconstructs=given is PATIENT))
    return found


async def peer(trial: Trial, version: str, python: Path) -> list[Answers]:
    """The peer right after the memories were stored, and after a restart, when it has calibrated itself."""
    folder = _made(trial.folder)
    name, reconstructs = f"cpersona {version}", version in RECONSTRUCTING
    async with _started(trial, wires.peer_stdio(name, python, folder, trial.embedding)) as wire:
        filled = await _fill(wire, trial)
        await wire.settled()
        first = await _answers(wire, trial, filled, reconstructs=reconstructs)
    async with _started(trial, wires.peer_stdio(f"{name}{RESTARTED}", python, folder, trial.embedding)) as wire:
        await wire.settled()
        return [first, await _answers(wire, trial, filled, reconstructs=reconstructs)]


@contextlib.asynccontextmanager
async def _started(trial: Trial, server: contextlib.AbstractAsyncContextManager[Wire]) -> AsyncIterator[Wire]:
    """A server, started while no other one is: its process is known as the child that is new."""
    async with contextlib.AsyncExitStack() as stack:
        async with trial.starting:
            wire = await stack.enter_async_context(server)
        yield wire


def _made(folder: Path) -> Path:
    folder.mkdir(parents=True)
    return folder


async def _fill(wire: Wire, trial: Trial, *, plain: bool = False) -> Filled:
    filled = Filled()
    for at, document in enumerate(trial.data.documents, start=1):
        message = document.plain if plain else document.message
        answer = await wire.call("store", {"agent_id": document.agent, "message": message})
        if answer.get("embedded") is False:
            raise RuntimeError(f"{wire.name}: a memory got no vector")
        filled.add(document, message["content"], answer)
        _tell(trial, f"{wire.name}: stored", at, len(trial.data.documents))
    return filled


async def _answers(wire: Wire, trial: Trial, filled: Filled, *, reconstructs: bool) -> Answers:
    """What a server answers to every question, and where it reconstructs also that."""
    modes = evidence.BUDGETS if reconstructs and evidence.asked_for(trial.data.questions) else ()
    given = await _ask(wire, trial, filled)
    return Answers(wire.name, given, {mode: await _reconstruct(wire, trial, filled, mode) for mode in modes})


async def _reconstruct(wire: Wire, trial: Trial, filled: Filled, mode: str) -> list[Quoted]:
    asked, found = evidence.asked_for(trial.data.questions), []
    for at, question in enumerate(asked, start=1):
        arguments = {"agent_id": question.agent, "query": question.query, "mode": mode}
        text = await wire.text("reconstruct", arguments)
        if "advisory" in wires.sound("reconstruct", text):
            raise RuntimeError(f"{wire.name}: reconstruct ran without vectors")
        found.append(evidence.quoted(text, functools.partial(filled.keys, question.agent)))
        _tell(trial, f"{wire.name}: reconstructed, {mode},", at, len(asked))
    return found


async def _ask(wire: Wire, trial: Trial, filled: Filled) -> list[Given]:
    counter = quicktok.get_encoding("cl100k_base")
    found = []
    for at, question in enumerate(trial.data.questions, start=1):
        arguments = {"agent_id": question.agent, "query": question.query, "limit": LIMIT}
        text = await wire.text("recall", arguments)
        answer = wires.sound("recall", text)
        if "advisory" in answer:
            raise RuntimeError(f"{wire.name}: recall ran without vectors")
        found.append(Given(_ranked(question, answer["messages"][::-1], filled), counter.count(text)))
        _tell(trial, f"{wire.name}: asked", at, len(trial.data.questions))
    return found


def _tell(trial: Trial, what: str, at: int, count: int) -> None:
    if at % TELL_EACH == 0 or at == count:
        trial.say(f"{what} {at} of {count}")


def _ranked(question: Question, rows: Sequence[dict[str, Any]], filled: Filled) -> list[str]:
    """The id of each row: of the ids of one text, one that the question wants."""
    named = [filled.keys(question.agent, row) for row in rows]
    return [next((key for key in keys if key in question.relevant), keys[0] if keys else "") for keys in named]
