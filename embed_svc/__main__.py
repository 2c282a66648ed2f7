"""The command `embed-svc`: serving, and what one does before or beside it."""

import argparse
import signal
import sys
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import NoReturn

from embed_svc import app, models, observe, reference, settings
from embed_svc.errors import Invalid, Problem

_NOT_NOW = 1
_BAD_SETTINGS = 2
_BENCH_SECONDS_MAX = 60.0


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; return its exit status: 2 where settings or arguments forbid it, 1 where it cannot be now."""
    given = _parser().parse_args(arguments)
    try:
        return _run(given)
    except Invalid as problem:
        sys.stderr.write(f"embed-svc: {problem.text}\n")
        return _BAD_SETTINGS
    except Problem as problem:
        sys.stderr.write(f"embed-svc: {problem.text}\n")
        return _NOT_NOW


def _run(given: argparse.Namespace) -> int:
    if given.command == "reference":
        sys.stdout.write(reference.reference())
        return 0
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _leave)
    chosen = settings.from_environment()
    if given.command == "serve":
        observe.configure_logging(chosen.log_level)
        app.serve(chosen, settings.traces_from_environment())
    elif given.command == "models":
        sys.stdout.write(app.listing(chosen))
    elif given.command == "download":
        app.download(chosen, given.model, sys.stderr)
    elif given.command == "bench":
        observe.configure_logging("error")
        sys.stdout.write(app.bench(chosen, min(max(given.seconds, 0.0), _BENCH_SECONDS_MAX), given.json))
    else:
        sys.stdout.write(app.compare(chosen, given.model, given.other, Path(given.file)))
    return 0


def _leave(*_: object) -> NoReturn:
    """Leave quietly, whether the signal comes before the server runs or is raised again after it has stopped."""
    raise SystemExit(0)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="embed-svc",
        description="An embedding server: POST /embed or /v1/embeddings turns texts into vectors.",
        epilog="Settings are read from EMBED_* variables; `embed-svc reference` explains each. A start without any "
        "serves on 127.0.0.1:8401.",
    )
    parser.add_argument("--version", action="version", version=_version())
    commands = parser.add_subparsers(dest="command", required=True, metavar="command")
    commands.add_parser("serve", help="serve until told to stop; it listens at once, /readyz tells when it can embed")
    commands.add_parser(
        "models", help="list the models: size, licence, languages, whether one can be had, which is chosen"
    )
    fetching = commands.add_parser(
        "download", help="fetch a model's files before they are needed; HF_ENDPOINT, HF_TOKEN, HF_HUB_OFFLINE count"
    )
    fetching.add_argument("model", nargs="?", default=models.DEFAULT.name, help="its name; left out, the default model")
    comparing = commands.add_parser("compare", help="measure how far two models rank the lines of a file alike")
    for name, text in (("model", "a name or a folder"), ("other", "another"), ("file", "UTF-8, one text a line")):
        comparing.add_argument(name, help=text)
    bench = commands.add_parser("bench", help="measure how fast the chosen model runs here")
    bench.add_argument("--seconds", type=float, default=3.0, help="for each of the four or so loads; 60 at most")
    bench.add_argument("--json", action="store_true", help="write JSON instead of a table")
    commands.add_parser("reference", help="write the reference (settings, errors, metrics, models) as Markdown")
    return parser


def _version() -> str:
    try:
        return version("agent-memory")
    except PackageNotFoundError:
        return "unknown"


if __name__ == "__main__":
    sys.exit(main())
