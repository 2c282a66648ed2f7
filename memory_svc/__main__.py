"""The command `memory-svc`: finds the verb in cli/ and imports only that one."""

import argparse
import importlib
import sys
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from types import ModuleType

from memory_svc.errors import Problem

VERBS: Mapping[str, str] = {
    "run": "start both services on this machine and print how to connect",
    "serve": "serve MCP and HTTP on one port",
    "probe": "ask the server of these settings whether it is well, as a container does",
    "stdio": "serve MCP on standard input and output",
    "reembed": "give vectors of the present model to every row that lacks one",
    "eval": "ask labelled questions, and tell how good the answers are and what they take",
    "canary": "ask a running server for rows that are known, and tell whether every arm of recall finds them",
    "reference": "write the reference pages from the code",
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one verb; the exit status (2 = it could not start, and stderr says why)."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    verb = next((word for word in given if word in VERBS), None)
    module = importlib.import_module(f"memory_svc.cli.{verb}") if verb else None
    parsed = parser(verb, module).parse_args(given)
    try:
        parsed.verbs = VERBS
        status: int = module.run(parsed) if module else 2
    except Problem as problem:
        sys.stderr.write(f"memory-svc: {problem.text}\n")
        return 2
    except KeyboardInterrupt:
        return 0
    return status


def parser(chosen: str | None, module: ModuleType | None) -> argparse.ArgumentParser:
    """The parser of the command line; only the chosen verb knows its arguments."""
    command = argparse.ArgumentParser(
        prog="memory-svc",
        description="A memory for AI agents. Settings are read from MEMORY_* variables: docs/reference/settings.md.",
    )
    command.add_argument("--version", action="version", version=version("agent-memory"))
    verbs = command.add_subparsers(dest="verb", required=True, metavar="verb")
    for name, summary in VERBS.items():
        verb = verbs.add_parser(name, help=summary, description=summary)
        if module and name == chosen and hasattr(module, "add_arguments"):
            module.add_arguments(verb)
    return command


if __name__ == "__main__":
    sys.exit(main())
