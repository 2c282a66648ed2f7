"""Isolation axes: whose rows a call may see. A scope is the first argument of every read."""

import msgspec

from memory_svc.domain.labels import Scalar
from memory_svc.domain.memory import Kind

# Rows of it only show whether recall works: whoever names it sees them, nobody else does.
CANARY_AGENT = "_canary"


class Scope(msgspec.Struct, frozen=True):
    """What a read may see.

    agent: exact name, `""` being a bucket of its own; None = every agent the caller may read, but the canary.
    project: None = every project, `""` = rows without a project, `"X"` = those of X and those without one.
    channel: `""` = every channel, `"X"` = rows of X and rows without one.
    source: prefix of a memory's source id; `""` = any. Episodes have no source, so a source hides them.
    since, until: when it was said, from the first to before the second (an episode: when it began, else when it was
    stored). known_by: stored by then, that instant too. Each ISO-8601 in UTC, as `domain.memory.utc` writes it;
    `""` = open.
    tags, metadata: memories that carry all of these tags, folded, and in their metadata these values under these keys,
    as `domain.labels` reads them. Episodes have neither, so that either hides them.
    kinds: of the rows that are searched; () = all.
    now: memories whose time is over by then are hidden; `""` = none is hidden.
    """

    agent: str | None = None
    project: str | None = None
    channel: str = ""
    source: str = ""
    since: str = ""
    until: str = ""
    known_by: str = ""
    now: str = ""
    tags: tuple[str, ...] = ()
    metadata: tuple[tuple[str, Scalar], ...] = ()
    kinds: tuple[Kind, ...] = ()

    @property
    def is_whole(self) -> bool:
        """Whether it holds every row of its agent, of the kinds that it shows."""
        return self == Scope(agent=self.agent, kinds=self.kinds)

    @property
    def is_timed(self) -> bool:
        """Whether it holds the rows of some time alone."""
        return bool(self.since or self.until or self.known_by)

    @property
    def is_filtered(self) -> bool:
        """Whether it holds the memories with some tags or metadata alone."""
        return bool(self.tags or self.metadata)

    def projects(self) -> tuple[str, ...] | None:
        """The project names a read may see, or None for all of them."""
        return None if self.project is None else tuple(dict.fromkeys((self.project, "")))

    def channels(self) -> tuple[str, ...] | None:
        """The channel names a read may see, or None for all of them."""
        return (self.channel, "") if self.channel else None

    def shows(self, kind: Kind) -> bool:
        """Whether rows of a kind are visible: tags and metadata hide episodes, a source unless a channel is named."""
        if self.kinds and kind not in self.kinds:
            return False
        return kind is not Kind.EPISODE or (not self.is_filtered and (not self.source or bool(self.channel)))

    def admits(self, agent: str, project: str) -> bool:
        """Whether a row of this agent and project lies in the scope (channel, source and times aside)."""
        projects = self.projects()
        is_seen = agent != CANARY_AGENT if self.agent is None else agent == self.agent
        return is_seen and (projects is None or project in projects)
