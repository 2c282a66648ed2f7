"""The event loop of the verbs that serve: uvloop's, in C, but on Windows, where there is none."""

import asyncio
import sys
from collections.abc import Coroutine
from typing import Any

if sys.platform == "win32":
    LOOP_FACTORY = None
else:
    import uvloop

    LOOP_FACTORY = uvloop.new_event_loop


def run(work: Coroutine[Any, Any, None]) -> None:
    """Run it to its end."""
    with asyncio.Runner(loop_factory=LOOP_FACTORY) as runner:
        runner.run(work)
