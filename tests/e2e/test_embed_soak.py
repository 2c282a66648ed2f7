"""Many mixed requests on the packaged model: what the process holds afterwards is what it held when it was ready."""

import concurrent.futures
import json
import random
import urllib.request
from pathlib import Path

import pytest

from tests.support.processes import Process, running

pytestmark = [pytest.mark.e2e, pytest.mark.model, pytest.mark.slow]
CLIENTS = 8
GROWTH_BYTES_MAX = 0.3e9
WORDS = Path(__file__).read_text(encoding="utf-8").split()


def resident(server: Process) -> float:
    """What the server says it holds."""
    with urllib.request.urlopen(f"{server.url}/metrics", timeout=10) as answer:
        lines = answer.read().decode().splitlines()
    return next(float(line.split()[1]) for line in lines if line.startswith("embed_resident_bytes "))


def request(server: Process, number: int) -> int:
    """Ask for texts of a few words to more than the window holds, by either route and in either form; how many."""
    chance = random.Random(number)
    longest = chance.choice([4, 8, 8, 16, 16, 16, 32, 64, 128, 2_000 if number % 50 == 0 else 16])
    texts = [
        " ".join(chance.choices(WORDS, k=chance.randrange(1, longest + 1)))
        for _ in range(chance.choice([1, 1, 1, 2, 4]))
    ]
    form = chance.choice(["float", "base64"])
    if number % 3:
        path, body = "/embed", {"texts": texts, "encoding_format": form, "token_info": number % 5 == 0}
    else:
        path, body = "/v1/embeddings", {"input": texts, "encoding_format": form}
    asked = urllib.request.Request(server.url + path, data=json.dumps(body).encode())
    with urllib.request.urlopen(asked, timeout=120) as answer:
        got = json.load(answer)
    return len(got["embeddings"] if number % 3 else got["data"])


@pytest.mark.parametrize(
    "requests", [1_000, pytest.param(10_000, marks=[pytest.mark.soak, pytest.mark.timeout(3_600)])]
)
def test_resident_memory_stays_what_it_was_right_after_ready(tmp_path: Path, requests: int) -> None:
    with running("embed_svc", tmp_path / "data") as server:
        ready = resident(server)
        seen = [ready]
        with concurrent.futures.ThreadPoolExecutor(CLIENTS) as clients:
            for number, texts in enumerate(clients.map(lambda number: request(server, number), range(requests))):
                assert texts
                if number % (requests // 10) == 0:
                    seen.append(resident(server))
        seen.append(resident(server))
        told = ", ".join(f"{value / 1e6:.0f}" for value in seen)
        print(f"resident MB, right after ready and at each tenth of {requests} requests: {told}")
        assert max(seen) - ready < GROWTH_BYTES_MAX, told
