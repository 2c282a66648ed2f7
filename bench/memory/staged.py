"""Our server with a stopwatch at each stage of a recall: `python -m bench.memory.staged serve`, else as `memory_svc`.

What a stage costs is the processor time of the thread that runs it, without the stages inside it. SIGUSR1 sets the sums
to zero; at the end they are written to `stages.json` in the data folder.
"""

import functools
import inspect
import json
import os
import signal
import sys
import threading
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

from memory_svc.__main__ import main
from memory_svc.embedding import Embedder
from memory_svc.services import operation
from memory_svc.services.memory import recall
from memory_svc.storage.sqlite import phrases, search, words
from memory_svc.storage.sqlite.vectors import Resident
from memory_svc.transports import rest

FILE = "stages.json"
STAGES = ("embed", "convert", "words arm", "vectors arm", "rows", "snapshot", "fuse", "encode")


class Stopwatch:
    """Sums of processor time by stage, each without the stages inside it."""

    def __init__(self) -> None:
        self.milliseconds: Counter[str] = Counter()
        self.calls: Counter[str] = Counter()
        self._inner = threading.local()

    def around(self, stage: str, function: Callable[..., Any]) -> Callable[..., Any]:
        """A function, or a coroutine function, whose time counts for the stage."""
        if inspect.iscoroutinefunction(function):

            @functools.wraps(function)
            async def awaited(*arguments: Any, **named: Any) -> Any:
                begin = self._begin()
                try:
                    found: Awaitable[Any] = function(*arguments, **named)
                    return await found
                finally:
                    self._end(stage, begin)

            return awaited

        @functools.wraps(function)
        def called(*arguments: Any, **named: Any) -> Any:
            begin = self._begin()
            try:
                return function(*arguments, **named)
            finally:
                self._end(stage, begin)

        return called

    def clear(self) -> None:
        """Forget what was measured so far."""
        self.milliseconds.clear()
        self.calls.clear()

    def _begin(self) -> tuple[float, float]:
        outer = getattr(self._inner, "seconds", 0.0)
        self._inner.seconds = 0.0
        return time.thread_time(), outer

    def _end(self, stage: str, begin: tuple[float, float]) -> None:
        began, outer = begin
        seconds = time.thread_time() - began
        self.milliseconds[stage] += (seconds - self._inner.seconds) * 1000
        self.calls[stage] += 1
        self._inner.seconds = outer + seconds


def put_in(stopwatch: Stopwatch) -> None:
    """Put the stopwatch around the functions that are the stages. One call at a time is then measured rightly."""
    places: list[tuple[str, Any, str]] = [
        ("embed", Embedder, "embed"),
        ("convert", rest, "arguments_in"),
        ("convert", rest, "fitted"),
        ("convert", operation, "read"),
        ("words arm", words, "windowed"),
        ("words arm", phrases, "substrings"),
        ("words arm", phrases, "phrased"),
        ("vectors arm", Resident, "nearest"),
        ("vectors arm", Resident, "cosines"),
        ("rows", search, "rows"),
        ("snapshot", search.Search, "_candidates"),
        ("fuse", recall, "_verdict"),
        ("fuse", recall, "_kept"),
        ("fuse", recall, "_answer"),
    ]
    for stage, owner, name in places:
        setattr(owner, name, stopwatch.around(stage, getattr(owner, name)))
    _time_encoding(stopwatch, operation, rest)


def _time_encoding(stopwatch: Stopwatch, *modules: ModuleType) -> None:
    for module in modules:
        library: Any = vars(module)["msgspec"]
        encode = stopwatch.around("encode", library.json.encode)
        mine = SimpleNamespace(**vars(library))
        mine.to_builtins = stopwatch.around("encode", library.to_builtins)
        mine.json = SimpleNamespace(**{**vars(library.json), "encode": encode})
        vars(module)["msgspec"] = mine


if __name__ == "__main__":
    watch = Stopwatch()
    put_in(watch)
    signal.signal(signal.SIGUSR1, lambda *_: watch.clear())
    status = main(sys.argv[1:])
    told = {"milliseconds": watch.milliseconds, "calls": watch.calls}
    Path(os.environ["MEMORY_DATA_DIR"], FILE).write_text(json.dumps(told), encoding="utf-8")
    sys.exit(status)
