"""What a request costs around the model: our server on a model that takes no time. `python -m bench.embed.around`.

Processor time of the server's process a request, the median of rounds; texts of 16 tokens, one a request.
"""

import argparse
import json
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from statistics import median

import numpy as np

from bench.embed.__main__ import measured
from bench.embed.servers import Server, running
from embed_svc import app, observe, settings
from embed_svc.models import Info, Role, Tokens
from embed_svc.pooling import Floats

_ROOT = Path(__file__).parents[2]
_DIMENSIONS = 384
_TOKENS = list(range(16))


class Weightless:
    """A model that reads every text as 16 tokens and answers one vector."""

    info = Info(name="weightless", revision="none", dimensions=_DIMENSIONS, window=256, fingerprint="1:" + "0" * 64)

    def __init__(self) -> None:
        vector = np.random.default_rng(1).standard_normal(_DIMENSIONS)
        self._vectors = np.tile(np.asarray(vector / np.linalg.norm(vector), np.float32), (128, 1))

    def measure(self, texts: Sequence[str], _: Role, __: bool = False) -> list[Tokens]:
        """Return as many tokens for each."""
        return [Tokens(ids=_TOKENS, count=len(_TOKENS), end=len(text)) for text in texts]

    def adopt(self, rows: Sequence[Sequence[int]], _: Role) -> list[Tokens]:
        """Return as many tokens for each."""
        return [Tokens(ids=_TOKENS, count=len(_TOKENS)) for _ in rows]

    def embed(self, batch: Sequence[Tokens]) -> Floats:
        """Return the vector for each."""
        return self._vectors[: len(batch)]


def serve() -> None:
    """Serve the weightless model as the real ones are served."""
    chosen = settings.from_environment()
    observe.configure_logging(chosen.log_level)
    model = Weightless()
    served = app.build(chosen, lambda _: model)
    app.DrainingServer(app.uvicorn_config(served, chosen), served, chosen.stop_seconds_max).run()


def compared(clients: Sequence[int], requests: int, rounds: int, roots: Sequence[Path]) -> str:
    """Return a line for each number of clients and checkout: microseconds of processor time a request."""
    bodies = [json.dumps({"texts": [f"text {number} of about sixteen tokens"]}).encode() for number in range(requests)]
    spent: dict[tuple[int, Path], list[float]] = {(count, root): [] for count in clients for root in roots}
    with tempfile.TemporaryDirectory() as folder:
        for number in range(rounds):
            for root in roots if number % 2 == 0 else roots[::-1]:
                with running(_server(root, folder), 1, Path(folder, "log")) as one:
                    for count in clients:
                        spent[count, root].append(measured(one, bodies, count, 1).cpu_milliseconds * 1e3)
    return "\n".join(
        f"{root}: {count} clients: {median(samples):.0f} us a request ({min(samples):.0f} to {max(samples):.0f})"
        for (count, root), samples in spent.items()
    )


def _server(root: Path, folder: str) -> Server:
    return Server(
        name="around",
        command=(sys.executable, __file__, "--serve"),
        settings={"EMBED_DATA_DIR": folder, "EMBED_CACHE_BYTES_MAX": "0", "PYTHONPATH": f"{root}:{_ROOT}"},
        port_setting="EMBED_PORT",
        threads_setting="EMBED_THREADS",
        ready="/readyz",
    )


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m bench.embed.around", description=__doc__)
    parser.add_argument("--clients", type=int, nargs="+", default=[1, 8, 32])
    parser.add_argument("--requests", type=int, default=3_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--roots", type=Path, nargs="+", default=[_ROOT], help="checkouts that are compared")
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    return parser


if __name__ == "__main__":
    asked = _parser().parse_args()
    if asked.serve:
        serve()
    else:
        sys.stdout.write(compared(asked.clients, asked.requests, asked.rounds, asked.roots) + "\n")
