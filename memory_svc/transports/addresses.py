"""The addresses of resources: `memory://<agent>/mem:<id>`, `memory://<agent>/ep:<id>`, `memory://<agent>/profile`.

The agent is percent-encoded; the one without a name has nothing between the slashes: `memory:///profile`.
"""

import re
from urllib.parse import quote, unquote_to_bytes

import msgspec

from memory_svc.domain.memory import Kind, Ref

PROFILE = "profile"
ADDRESS = re.compile(r"memory://([^/?#]*)/(profile|(?:mem|ep):[0-9]{1,18})")
MEMORY_TEMPLATE = "memory://{agent}/mem:{id}"
EPISODE_TEMPLATE = "memory://{agent}/ep:{id}"
PROFILE_TEMPLATE = "memory://{agent}/profile"


class Address(msgspec.Struct, frozen=True):
    """What a resource's address says: whose it is, and the ref of a row or `profile`."""

    agent: str
    name: str

    @property
    def uri(self) -> str:
        """The address as it is listed and announced."""
        return f"memory://{quote(self.agent, safe='')}/{self.name}"

    @classmethod
    def of_row(cls, agent: str, ref: Ref) -> "Address":
        """Where a row can be read: a profile under its agent alone."""
        return cls(agent, PROFILE if ref.kind is Kind.PROFILE else str(ref))

    @classmethod
    def parse(cls, uri: str) -> "Address | None":
        """The address in this text, None when it is none of ours."""
        found = ADDRESS.fullmatch(uri)
        if found is None:
            return None
        try:
            return cls(unquote_to_bytes(found[1]).decode(), found[2])
        except UnicodeDecodeError:
            return None
