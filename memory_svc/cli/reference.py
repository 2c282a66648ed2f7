"""`memory-svc reference`: the reference pages, from the code."""

import argparse
import sys
from pathlib import Path

from memory_svc.reference import pages


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Where the pages go."""
    parser.add_argument("folder", help="folder that the pages are written to")


def run(arguments: argparse.Namespace) -> int:
    """Write every page."""
    folder = Path(arguments.folder)
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in pages(verbs=arguments.verbs).items():
        (folder / name).write_text(text, encoding="utf-8")
        sys.stdout.write(f"{folder / name}\n")
    return 0
