"""Background work: it mends what it can, and a step that fails does not end it."""

import contextlib
import datetime as dt
import shutil
from pathlib import Path

import anyio
import apsw
import pytest

from memory_svc.domain.change import PutMemory
from memory_svc.domain.scope import Scope
from memory_svc.errors import Unavailable
from memory_svc.services.operation import Call
from memory_svc.settings import Settings
from memory_svc.storage.interface import Query, Storage
from memory_svc.storage.sqlite.engine import SqliteStorage
from tests.conftest import House
from tests.support.corpus import candidates, memory, vector, write


async def test_the_worker_fills_in_vectors_while_it_runs(house: House) -> None:
    house.server.fault = "status"
    for number in range(70):
        await house.call("store", agent_id="a", content=f"fact {number}")
    house.server.fault = ""
    async with house.worker.running():
        with anyio.fail_after(20):
            while await house.storage.derived.waiting_count("1:fake"):  # noqa: ASYNC110
                await anyio.sleep(0.05)
    vector = await house.embedder.embed(["fact 7"], "query")
    assert vector is not None
    found = await candidates(house.storage, Scope(), Query((), vector[0], 100))
    assert len(found.vectors) == 70


async def test_a_step_that_fails_is_counted_and_the_others_run(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    async def fails() -> None:
        raise Unavailable("the disk is gone")

    monkeypatch.setitem(house.worker.steps, "checkpoint", fails)
    await house.call("store", agent_id="a", content="secret")
    await house.call("delete_memory", memory_id=1)
    await house.worker.run_once()
    registry = house.metrics.registry
    assert registry.get_sample_value("memory_worker_failures_total", {"step": "checkpoint"}) == 1
    assert not await house.storage.upkeep.erasing()


async def test_a_round_at_rest_looks_at_no_more_of_the_file_however_many_rows_there_are(
    house: House, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[apsw.Connection] = []
    monkeypatch.setattr(apsw, "connection_hooks", [opened.append])
    storage = SqliteStorage(tmp_path / "many.db")
    monkeypatch.setattr(house.worker, "_storage", storage)

    def pages() -> int:
        counts = (apsw.SQLITE_DBSTATUS_CACHE_HIT, apsw.SQLITE_DBSTATUS_CACHE_MISS)
        found = 0
        for connection in opened:
            with contextlib.suppress(apsw.ConnectionClosedError):
                found += sum(connection.status(count)[0] for count in counts)
        return found

    async def of_a_round() -> int:
        await house.worker.run_once()
        before = pages()
        await house.worker.run_once()
        return pages() - before

    async def stored(count: int) -> None:
        changes = tuple(PutMemory(memory(f"fact {number} of {count} {'word ' * 50}")) for number in range(count))
        await storage.apply(write(*changes), {at: vector(str(at), "1:fake", 64) for at in range(count)})

    await stored(20)
    of_few = await of_a_round()
    await stored(2000)
    assert await of_a_round() <= of_few + 100
    await storage.close()


async def test_every_step_is_shown_before_one_has_failed(house: House) -> None:
    registry = house.metrics.registry
    async with house.worker.running():
        for step in house.worker.steps:
            assert registry.get_sample_value("memory_worker_failures_total", {"step": step}) == 0


async def test_the_disk_of_the_data_folder_is_measured(house: House, settings: Settings) -> None:
    await house.worker.run_once()
    assert house.gauge("memory_disk_bytes") == shutil.disk_usage(settings.data_dir).total
    assert 0 < house.gauge("memory_disk_free_bytes") <= house.gauge("memory_disk_bytes")


async def test_rows_stored_while_the_model_changes_end_with_vectors_of_the_new_one(house: House) -> None:
    await house.call("store", agent_id="a", content="old")
    house.server.fingerprint = "1:new"
    await house.worker.run_once()
    await house.worker.run_once()
    assert await house.storage.derived.waiting_count("1:fake") == 0
    await house.call("recall", agent_id="a", query="anything")
    await house.worker.run_once()
    assert await house.storage.derived.waiting_count("1:new") == 0


async def test_without_an_embedding_server_there_is_nothing_to_fill_in(plain_house: House) -> None:
    await plain_house.call("store", agent_id="a", content="x")
    await plain_house.worker.run_once()
    assert plain_house.server.asked == []


async def test_old_idempotency_keys_are_forgotten(house: House) -> None:
    call = Call(idempotency_key="k1")
    await house.call("archive_episode", call, agent_id="a", summary="s")
    await house.worker.run_once()
    assert (await house.call("archive_episode", call, agent_id="a", summary="s"))["episode_id"] == 1
    house.clock.now += dt.timedelta(hours=25)
    await house.worker.run_once()
    assert (await house.call("archive_episode", call, agent_id="a", summary="s"))["episode_id"] == 2


async def test_a_model_change_goes_on_after_a_restart_and_recall_says_how_far_it_is(
    house: House, storage: Storage, settings: Settings
) -> None:
    for number in range(40):
        await house.call("store", agent_id="a", content=f"fact {number}")
    later = House(storage, settings)
    later.server.fingerprint = "1:new"
    await later.worker.backfill()
    assert later.embedder.waiting == 0
    await house.embedder.close()
    house.server.fingerprint = "1:newest"
    last = House(storage, settings)
    last.server.fingerprint = "1:newest"
    await last.call("recall", agent_id="a", query="fact 7")
    last.embedder.waiting = await storage.derived.waiting_count("1:newest")
    answer = await last.call("recall", agent_id="a", query="fact 7")
    assert answer["channels"]["waiting"] == 40
    await last.call("store", agent_id="a", content="written meanwhile")
    await last.worker.run_once()
    answer = await last.call("recall", agent_id="a", query="fact 7", limit=100, trace=True)
    assert "waiting" not in answer["channels"]
    assert all("vectors" in row["match_reason"]["arms"] for row in answer["messages"])
    await later.embedder.close()
    await last.embedder.close()
