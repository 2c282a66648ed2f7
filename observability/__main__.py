"""`python -m observability write`: the dashboards as JSON. `… check ADDRESS`: ask a Prometheus all that they ask."""

import sys
from pathlib import Path

from observability.boards import ALL
from observability.check import DASHBOARDS, dashboards, faults
from observability.panels import encoded


def write(folder: Path) -> None:
    """Write every dashboard into a folder."""
    for board in ALL:
        (folder / f"{board.uid}.json").write_text(encoded(board), encoding="utf-8")


def check(address: str) -> int:
    """Print every query that finds nothing; 1 if there is one, 2 if no Prometheus answers at that address."""
    try:
        found = [fault for each in dashboards() for fault in faults(each, address)]
    except (OSError, ValueError) as error:
        sys.stderr.write(
            f"{address}: no Prometheus answers there ({error}); give an address like http://127.0.0.1:9090\n"
        )
        return 2
    sys.stdout.write("".join(f"{fault}\n" for fault in found))
    return int(bool(found))


def main(arguments: list[str]) -> int:
    """Do what the command line asks; its exit status."""
    match arguments:
        case ["write", *folder]:
            write(Path(folder[0]) if folder else DASHBOARDS)
            return 0
        case ["check", address]:
            return check(address.rstrip("/"))
    sys.stderr.write(f"{__doc__}\n")
    return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
