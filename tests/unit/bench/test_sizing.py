"""What the measuring of sizes adds up: every byte of a database has a part, and an old one is brought up in truth."""

import asyncio
import contextlib
import itertools
from pathlib import Path

import apsw

from bench import sizing
from bench.memory import corpus, filling
from memory_svc.app import DATABASE

TEXTS = list(itertools.islice(corpus.memories(corpus.Language()), 40))


def test_every_table_has_a_part_and_all_of_them_fill_the_file(tmp_path: Path) -> None:
    asyncio.run(filling.fill_ours(tmp_path, TEXTS, 384))
    disk = sizing.on_disk(tmp_path / DATABASE)
    assert disk["all"] == (tmp_path / DATABASE).stat().st_size
    parts = [disk[part] for part in set(sizing.PARTS.values())]
    assert min(parts) > 0
    assert disk["all"] / 2 < sum(parts) < disk["all"]
    with contextlib.closing(apsw.Connection(str(tmp_path / DATABASE))) as connection:
        assert connection.execute("SELECT DISTINCT length(vector) FROM vectors").fetchall() == [(384 * 4,)]


def test_the_upgrade_that_is_timed_is_a_whole_one() -> None:
    found = sizing.upgraded(TEXTS)
    assert found.rows == len(TEXTS)
    assert found.bytes_before < found.bytes_after
    assert min(found.seconds, found.cpu_seconds, found.copy_seconds) > 0


def test_the_report_tells_the_machine_and_every_store() -> None:
    disk = {"rows": 100, "journal": 200, "vectors": 300, "words": 400, "all": 1_100}
    store = sizing.Store(rows=10, dimensions=384, disk=disk, ready=90.0, asked=100.0, peak=120.0)
    told = sizing.report([store], sizing.Upgrade(10, 1.5, 1.2, 0.1, 1_000_000, 2_000_000))
    assert "- processor: " in told
    assert "| 10 | 384 | 10 | 20 | 30 | 40 | 110 | 90 | 100 | 120 |" in told
    assert "10 memories: 1.5 s (1.2 s of the processor), 1 MB to 2 MB" in told
