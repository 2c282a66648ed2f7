"""Samples go by what memories say; calibrations are due when memories or choices change, and go with the agent."""

from memory_svc.domain.change import Forget, ForgetAgent, PutEpisode, PutMemory, PutPrecision
from memory_svc.domain.memory import Kind, Precision, Ref, kind_of
from memory_svc.domain.recall.calibration import Calibration, Rule, Summary, text_of
from memory_svc.domain.scope import Scope
from memory_svc.storage.interface import Query, Storage
from tests.support.corpus import episode, memory, vector, write

TEXTS = [f"fact {number}" for number in range(40)]
SUMMARY = Summary(
    threshold=0.5,
    pairs=1,
    mean=0.0,
    std=0.0,
    median=0.0,
    p95=0.0,
    null_admit_rate=0.0,
    own_mean=0.0,
    own_admit_rate=0.0,
    youden_j=0.0,
)
RULE = Rule(method="zscore", beta=1.0, z_factor=1.0, percentile=0.95, sample_size=200)


async def fill(storage: Storage, texts: list[str], agent: str = "a") -> None:
    """Store these with their vectors."""
    changes = tuple(PutMemory(memory(text, agent=agent)) for text in texts)
    await storage.apply(write(*changes), {at: vector(text) for at, text in enumerate(texts)})


async def calibrate(storage: Storage, agent: str = "a", rule_name: str = " d") -> Calibration:
    """Keep a calibration of the agent as it is."""
    sample = await storage.calibrations.sample(agent, "f1", 10)
    made = Calibration(
        agent=agent,
        fingerprint="f1",
        corpus=sample.corpus,
        rule_name=rule_name,
        rule=RULE,
        rows=sample.rows_count,
        sampled=len(sample.rows),
        dimensions=32,
        summary=SUMMARY,
    )
    await storage.calibrations.put(made)
    return made


async def threshold(storage: Storage, fingerprint: str = "f1") -> float | None:
    """What a query sees."""
    query = Query(("fact",), vector("q", fingerprint), 5)
    return await storage.search.candidates(Scope(agent="a"), query, lambda found: found.threshold)


async def test_a_sample_goes_by_what_memories_say_and_is_of_one_agent_and_model(storage: Storage) -> None:
    await fill(storage, TEXTS)
    await fill(storage, TEXTS[::-1], agent="b")
    ours, theirs = [await storage.calibrations.sample(agent, "f1", 10) for agent in "ab"]
    assert [(row.content, values) for row, values in ours.rows] == [
        (row.content, values) for row, values in theirs.rows
    ]
    assert (len(ours.rows), ours.rows_count) == (10, 40)
    assert (ours.corpus, ours.corpus == theirs.corpus) != ("", False)
    other = await storage.calibrations.sample("a", "f2", 10)
    assert (other.rows, other.corpus) == ([], "")
    assert (await storage.calibrations.sample("nobody", "f1", 10)).rows == []


async def test_a_sample_is_of_memories_and_episodes_alike_by_what_they_say(storage: Storage) -> None:
    await fill(storage, TEXTS[:20])
    episodes = [PutEpisode(episode(text)) for text in TEXTS[20:]]
    await storage.apply(write(*episodes), {at: vector(text) for at, text in enumerate(TEXTS[20:])})
    await fill(storage, TEXTS, agent="b")
    ours, theirs = [await storage.calibrations.sample(agent, "f1", 30) for agent in "ab"]
    assert [text_of(row) for row, _ in ours.rows] == [text_of(row) for row, _ in theirs.rows]
    assert [values for _, values in ours.rows] == [values for _, values in theirs.rows]
    assert (len(ours.rows), ours.rows_count, {kind_of(row) for row, _ in ours.rows}) == (
        30,
        40,
        {Kind.MEMORY, Kind.EPISODE},
    )
    assert [each.agent for each in await storage.calibrations.due("f1", "d")] == ["a", "b"]
    await storage.apply(write(PutEpisode(episode("no vector yet"))))
    assert (await storage.calibrations.sample("a", "f1", 30)).corpus == ""


async def test_a_calibration_goes_with_the_last_row_of_any_kind(storage: Storage) -> None:
    await fill(storage, TEXTS[:1])
    await storage.apply(write(PutEpisode(episode("summed up"))), {0: vector("summed up")})
    await calibrate(storage)
    await storage.apply(write(Forget(Ref(Kind.MEMORY, 1))))
    assert await storage.calibrations.get("a", "f1") is not None
    await storage.apply(write(Forget(Ref(Kind.EPISODE, 1))))
    assert await storage.calibrations.get("a", "f1") is None


async def test_a_sample_of_memories_that_wait_for_vectors_stands_for_nothing(storage: Storage) -> None:
    await fill(storage, TEXTS)
    await storage.apply(write(PutMemory(memory("no vector yet"))))
    sample = await storage.calibrations.sample("a", "f1", 100)
    assert (len(sample.rows), sample.corpus) == (40, "")


async def test_an_agent_is_due_when_its_memories_or_choices_change(storage: Storage) -> None:
    async def due(defaults: str = "d") -> list[tuple[str, int, int, bool]]:
        found = await storage.calibrations.due("f1", defaults)
        return [(each.agent, each.rows_count, each.calibrated_rows, each.is_rule_new) for each in found]

    await fill(storage, TEXTS[:29])
    assert await due() == []
    await fill(storage, TEXTS[29:])
    assert await due() == [("a", 40, 0, True)]
    made = await calibrate(storage)
    assert await storage.calibrations.get("a", "f1") == made
    assert await due() == []
    assert await due("other") == [("a", 40, 40, True)]
    await fill(storage, ["one more"])
    assert await due() == [("a", 41, 40, False)]
    await calibrate(storage)
    await storage.apply(write(PutPrecision(Precision(agent="a", beta=2.0))))
    assert await due() == [("a", 41, 41, True)]
    await calibrate(storage, rule_name="1:1 d")
    assert await due() == []
    await storage.apply(write(PutPrecision(Precision(agent="a"))), {})
    await storage.apply(write(PutPrecision(Precision(agent="a", beta=3.0))), {})
    assert await due() == [("a", 41, 41, True)]


async def test_a_query_sees_the_threshold_of_its_agent_and_model(storage: Storage) -> None:
    await fill(storage, TEXTS[:30])
    assert await threshold(storage) is None
    await calibrate(storage)
    assert (await threshold(storage), await threshold(storage, "f2")) == (0.5, None)
    await storage.apply(write(Forget(Ref(Kind.MEMORY, 3))))
    assert await threshold(storage) is None
    await storage.apply(write(ForgetAgent("a")))
    assert await storage.calibrations.get("a", "f1") is None
    await storage.calibrations.put(await calibrate(storage))
    assert await storage.calibrations.get("a", "f1") is None


async def test_what_was_chosen_is_replayed_elsewhere_and_erased(storage: Storage) -> None:
    await storage.apply(write(PutPrecision(Precision(agent="a", beta=2.0, method="percentile", percentile=0.9))))
    rows = await storage.journal.after(0, 10)
    assert (await storage.calibrations.precision("a")) == rows[0].effect.row
    await storage.apply(write(ForgetAgent("a")))
    assert await storage.calibrations.precision("a") is None
    assert [row.effect for row in await storage.journal.after(0, 10)] == [None, None]
    await storage.journal.replay(rows)
    assert await storage.calibrations.precision("a") is None
    assert await storage.upkeep.verify() == []
