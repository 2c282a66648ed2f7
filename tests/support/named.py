"""Five hundred things that are asked for by name, taken from real code when they are needed: nothing is copied here.

The same Python and the same checkout give the same ones. Each stands in one sentence, beside one that looks like it.
"""

import errno
import os
import re
import sysconfig
from collections.abc import Callable, Iterable, Iterator
from itertools import chain, islice
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
LIBRARY = Path(sysconfig.get_paths()["stdlib"])
PACKAGES = ("asyncio", "concurrent", "email", "http", "importlib", "json", "logging", "unittest", "urllib", "xml")
EACH = 100
A_FILE = 4
NAME = re.compile(r"^ *(?:async )?(?:def|class) ([A-Za-z]\w*(?:_|[a-z][A-Z])\w*)", re.MULTILINE)
RAISED = re.compile(r"raise (\w+)\(\s*[\"']([A-Za-z][^\"'`%{}\\]{15,90})[\"']\)")
PIN = re.compile(r"^([a-z0-9][a-z0-9._-]*)==(\d+(?:\.\d+)+)", re.MULTILINE)
PART = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+")
PHRASE = re.compile(r"\b[a-z]+ [a-z]+ [a-z]+ [a-z]+ [a-z]+\b")
SENTENCES = (
    "On Tuesday we saw {} again in the staging log.",
    "Note for later: {} is where the nightly import went wrong.",
    "Ann asked about {} during the review.",
    "The customer's ticket only says {} and nothing else.",
    "After the upgrade {} showed up for the first time.",
)
BESIDE = (
    "Somebody mentioned {} in passing, on another subject.",
    "The minutes list {} as separate points.",
)


class Named(NamedTuple):
    """What is asked for, the one sentence that holds it, and one that holds much of the same otherwise."""

    query: str
    sentence: str
    beside: str


def named() -> dict[str, list[Named]]:
    """Those of each sort, a hundred of each."""
    errors = chain(islice(_raised(), EACH // 2), _system_errors())
    quoted = [each._replace(query=f'"{each.query}"') for each in _told(_phrases(), _turned)]
    return {
        "identifiers": _told(_identifiers(), _parts),
        "errors": _told(errors, _turned),
        "paths": _told(_paths(), _parts),
        "versions": _told(_versions(), _next_version),
        "phrases": quoted,
    }


def _told(found: Iterable[str], other: Callable[[str], str]) -> list[Named]:
    """The first hundred distinct ones, in sentences."""
    kept = list(islice(dict.fromkeys(found), EACH))
    assert len(kept) == EACH, kept
    return [
        Named(text, SENTENCES[at % len(SENTENCES)].format(text), BESIDE[at % len(BESIDE)].format(other(text)))
        for at, text in enumerate(kept)
    ]


def _library() -> list[Path]:
    return sorted(path for package in PACKAGES for path in (LIBRARY / package).rglob("*.py"))


def _ours() -> list[Path]:
    return sorted(path for package in ("memory_svc", "embed_svc") for path in (ROOT / package).rglob("*.py"))


def _identifiers() -> Iterator[str]:
    """Names of functions and classes, every second one with its module."""
    for path in chain(_ours()[:30], _library()):
        for at, name in enumerate(islice(dict.fromkeys(NAME.findall(path.read_text(encoding="utf-8"))), A_FILE)):
            yield f"{path.stem}.{name}" if at % 2 and path.stem != "__init__" else name


def _raised() -> Iterator[str]:
    """Errors as the last line of a traceback has them."""
    for path in _library():
        for kind, text in islice(RAISED.findall(path.read_text(encoding="utf-8")), A_FILE):
            yield f"{kind}: {text}"


def _system_errors() -> Iterator[str]:
    for code in sorted(errno.errorcode):
        yield f"OSError: [Errno {code}] {os.strerror(code)}"


def _paths() -> Iterator[str]:
    """Files, every second one with a line."""
    found = [*(path.relative_to(ROOT) for path in _ours()[::3]), *(path.relative_to(LIBRARY) for path in _library())]
    for at, path in enumerate(found):
        yield f"{path.as_posix()}:{10 + 7 * at}" if at % 2 else path.as_posix()


def _versions() -> Iterator[str]:
    """Versions of packages, every second one as pip writes it."""
    text = "\n".join(path.read_text(encoding="utf-8") for path in sorted((ROOT / "requirements").glob("*.txt")))
    for at, (name, version) in enumerate(dict.fromkeys(PIN.findall(text))):
        yield f"{name}=={version}" if at % 2 else f"{name} {version}"


def _phrases() -> Iterator[str]:
    """Five words in a row of our own pages, none from the same line."""
    for path in sorted((ROOT / "docs" / "explain").glob("*.md")):
        for line in path.read_text(encoding="utf-8").splitlines():
            yield from islice(PHRASE.findall(line), 1)


def _parts(text: str) -> str:
    return " and ".join(PART.findall(text))


def _turned(text: str) -> str:
    return " ".join(reversed(text.split()))


def _next_version(text: str) -> str:
    head, last = re.fullmatch(r"(.*?)(\d+)", text).groups()
    return f"{head}{int(last) + 1}"
