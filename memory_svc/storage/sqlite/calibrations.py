"""What was chosen for each agent's recall, and the calibrations that follow from its rows."""

import heapq
from collections.abc import Sequence
from typing import Any

import apsw
import msgspec

from memory_svc.domain.memory import Episode, Kind, Memory, Precision, Vector, digest
from memory_svc.domain.recall.calibration import ROWS_MIN, Calibration, text_of
from memory_svc.storage.interface import Due, Sample
from memory_svc.storage.sqlite import episodes, memories
from memory_svc.storage.sqlite.connection import Readers, Writer, numbers

PRECISION_COLUMNS = "id, agent, project, beta, method, z_factor, percentile, sample_size, revision"
# An agent's memories and episodes as they are, in a few counts that every change of what is searched keeps.
CORPUS = "sum(corpora.rows) || ':' || sum(corpora.terms) || ':' || sum(corpora.windows)"
RULE = "coalesce(precisions.id || ':' || precisions.revision, '') || ' ' || ?"
DUE = (
    f"SELECT corpora.agent, {CORPUS}, sum(corpora.rows), coalesce(calibrations.rows, 0),"
    f" calibrations.rule IS NOT {RULE}"
    " FROM corpora LEFT JOIN calibrations ON calibrations.agent = corpora.agent AND fingerprint = ?"
    " LEFT JOIN precisions ON precisions.agent = corpora.agent"
    f" GROUP BY corpora.agent HAVING sum(corpora.rows) >= {ROWS_MIN}"
    f" AND (calibrations.corpus IS NOT {CORPUS} OR calibrations.rule IS NOT {RULE}) ORDER BY min(corpora.code)"
)
THRESHOLD = (
    "SELECT threshold FROM calibrations WHERE agent = ?1 AND fingerprint = ?2"
    f" AND (SELECT sum(rows) FROM corpora WHERE agent = ?1) >= {ROWS_MIN}"
)
SAMPLED = (
    f"SELECT {memories.COLUMNS}, vectors.vector FROM memories JOIN vectors ON document = memories.id << 4"
    " WHERE agent = ? AND fingerprint = ? AND vector IS NOT NULL ORDER BY digest, project, channel LIMIT ?"
)
EPISODE_DOCUMENT = f"episodes.id << 4 | {Kind.EPISODE.code}"
SUMMARIES = (
    "SELECT summary, keywords, project, channel, episodes.id FROM episodes"
    f" JOIN vectors ON document = {EPISODE_DOCUMENT} WHERE agent = ? AND fingerprint = ? AND vector IS NOT NULL"
)
SAMPLED_EPISODES = (
    f"SELECT {episodes.COLUMNS}, vectors.vector FROM json_each(?) AS asked CROSS JOIN episodes"
    f" ON episodes.id = asked.value JOIN vectors ON document = {EPISODE_DOCUMENT} ORDER BY asked.key"
)
UNREADY = (
    "SELECT EXISTS (SELECT 1 FROM memories LEFT JOIN vectors ON document = memories.id << 4"
    " WHERE agent = ?1 AND fingerprint IS NOT ?2)"
    f" OR EXISTS (SELECT 1 FROM episodes LEFT JOIN vectors ON document = {EPISODE_DOCUMENT}"
    " WHERE agent = ?1 AND fingerprint IS NOT ?2)"
)


def select_precisions(connection: apsw.Connection, condition: str, values: Sequence[Any]) -> list[Precision]:
    """The precisions for which the condition holds."""
    statement = f"SELECT {PRECISION_COLUMNS} FROM precisions WHERE {condition}"
    return [
        Precision(**dict(zip(Precision.__struct_fields__, row, strict=True)))
        for row in connection.execute(statement, values)
    ]


def put_precision(connection: apsw.Connection, precision: Precision) -> int:
    """Write a precision whole, by its id; id 0 = a new one. The id it has."""
    values = msgspec.structs.astuple(precision)
    connection.execute(
        f"INSERT INTO precisions ({PRECISION_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)"
        " ON CONFLICT (id) DO UPDATE SET (agent, project, beta, method, z_factor, percentile, sample_size, revision) ="
        " (excluded.agent, excluded.project, excluded.beta, excluded.method, excluded.z_factor, excluded.percentile,"
        " excluded.sample_size, excluded.revision)",
        (precision.id or None, *values[1:]),
    )
    return precision.id or connection.last_insert_rowid()


def threshold(connection: apsw.Connection, agent: str | None, vector: Vector | None) -> float | None:
    """What evidence must reach for the agent and the model of this vector; None = it is not calibrated."""
    if agent is None or vector is None:
        return None
    found = connection.execute(THRESHOLD, (agent, vector.fingerprint)).fetchone()
    return float(found[0]) if found else None


class Calibrations:
    """Calibrations, and what was chosen."""

    def __init__(self, readers: Readers, writer: Writer) -> None:
        self._readers = readers
        self._writer = writer

    async def precision(self, agent: str) -> Precision | None:
        """What was chosen for the agent."""
        found = await self._readers.run(lambda connection: select_precisions(connection, "agent = ?", (agent,)))
        return found[0] if found else None

    async def get(self, agent: str, fingerprint: str) -> Calibration | None:
        """The agent's calibration for that model."""
        statement = "SELECT value FROM calibrations WHERE agent = ? AND fingerprint = ?"
        found = await self._readers.run(
            lambda connection: connection.execute(statement, (agent, fingerprint)).fetchone()
        )
        return msgspec.json.decode(found[0], type=Calibration) if found else None

    async def due(self, fingerprint: str, defaults: str) -> list[Due]:
        """The agents that are to be calibrated. defaults: stands for what is set for all agents."""
        values = (defaults, fingerprint, defaults)
        return await self._readers.run(
            lambda connection: [
                Due(agent, corpus, rows, before, bool(is_new))
                for agent, corpus, rows, before, is_new in connection.execute(DUE, values)
            ]
        )

    async def sample(self, agent: str, fingerprint: str, count: int) -> Sample:
        """So many rows that have a vector of that model, chosen by what they say: in whatever order they came."""
        return await self._readers.run(lambda connection: _sample(connection, agent, fingerprint, count))

    async def put(self, calibration: Calibration) -> None:
        """Keep a calibration in place of the agent's earlier one for that model, if the agent still has rows."""
        await self._writer.run(lambda connection: _put(connection, calibration))


def _sample(connection: apsw.Connection, agent: str, fingerprint: str, count: int) -> Sample:
    statement = f"SELECT {CORPUS}, sum(rows) FROM corpora WHERE agent = ?"
    corpus, rows_count = next(connection.execute(statement, (agent,)))
    unready = next(connection.execute(UNREADY, (agent, fingerprint)))[0]
    rows: list[tuple[Memory | Episode, bytes]] = [
        (memories.memory_of(row[:-1]), row[-1]) for row in connection.execute(SAMPLED, (agent, fingerprint, count))
    ]
    rows += _sampled_episodes(connection, agent, fingerprint, count)
    rows.sort(key=lambda row: digest(text_of(row[0])))
    return Sample("" if unready or not corpus else corpus, rows_count or 0, rows[:count])


def _sampled_episodes(
    connection: apsw.Connection, agent: str, fingerprint: str, count: int
) -> list[tuple[Memory | Episode, bytes]]:
    """So many, in the order of the hashes of what they say, as memories stand by their digests."""
    summaries = connection.execute(SUMMARIES, (agent, fingerprint))
    first = heapq.nsmallest(count, summaries, key=lambda row: (digest(row[0]), *row[1:]))
    found = connection.execute(SAMPLED_EPISODES, (numbers([row[-1] for row in first]),))
    return [(episodes.episode_of(row[:-1]), row[-1]) for row in found]


def _put(connection: apsw.Connection, calibration: Calibration) -> None:
    connection.execute(
        "INSERT INTO calibrations (agent, fingerprint, corpus, rule, rows, threshold, value)"
        " SELECT ?1, ?2, ?3, ?4, ?5, ?6, ?7 WHERE EXISTS (SELECT 1 FROM corpora WHERE agent = ?1)"
        " ON CONFLICT (agent, fingerprint) DO UPDATE SET (corpus, rule, rows, threshold, value) ="
        " (excluded.corpus, excluded.rule, excluded.rows, excluded.threshold, excluded.value)",
        (
            calibration.agent,
            calibration.fingerprint,
            calibration.corpus,
            calibration.rule_name,
            calibration.rows,
            calibration.summary.threshold,
            msgspec.json.encode(calibration).decode(),
        ),
    )
