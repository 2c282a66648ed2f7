"""The command `embed-svc`: `serve`, `bench` and `reference`."""

import argparse
import signal
import sys
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version
from typing import NoReturn

from embed_svc import app, observe, reference, settings
from embed_svc.errors import Invalid, Unavailable

_BAD_SETTINGS = 2
_UNAVAILABLE = 1
_BENCH_SECONDS_MAX = 60.0


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; return its exit status (2 where the settings forbid it, 1 where the model cannot be had)."""
    asked = _parser().parse_args(arguments)
    if asked.command == "reference":
        sys.stdout.write(reference.reference())
        return 0
    return _bench(asked) if asked.command == "bench" else _serve()


def _bench(asked: argparse.Namespace) -> int:
    try:
        chosen = settings.from_environment()
        observe.configure_logging("error")
        sys.stdout.write(app.bench(chosen, min(max(asked.seconds, 0.0), _BENCH_SECONDS_MAX), asked.json))
    except (Invalid, Unavailable) as problem:
        sys.stderr.write(f"embed-svc: {problem.text}\n")
        return _BAD_SETTINGS if isinstance(problem, Invalid) else _UNAVAILABLE
    return 0


def _serve() -> int:
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _leave)
    try:
        chosen = settings.from_environment()
        observe.configure_logging(chosen.log_level)
        app.serve(chosen)
    except Invalid as problem:
        sys.stderr.write(f"embed-svc: {problem.text}\n")
        return _BAD_SETTINGS
    return 0


def _leave(*_: object) -> NoReturn:
    """Leave quietly, whether the signal comes before the server runs or is raised again after it has stopped."""
    raise SystemExit(0)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="embed-svc",
        description="An embedding server: POST /embed turns texts into vectors.",
        epilog="Settings are read from EMBED_* variables; `embed-svc reference` explains each. A start without any "
        "serves on 127.0.0.1:8401.",
    )
    parser.add_argument("--version", action="version", version=_version())
    commands = parser.add_subparsers(dest="command", required=True, metavar="command")
    commands.add_parser("serve", help="serve until told to stop; it listens at once, /readyz tells when it can embed")
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
