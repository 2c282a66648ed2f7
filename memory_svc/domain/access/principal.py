"""A principal: the caller behind a token, and the most it may do."""

import enum

import msgspec


class Permission(enum.IntEnum):
    """What an operation needs; a higher permission includes the lower ones."""

    NONE = 0
    READ = 1
    WRITE = 2


class Principal(msgspec.Struct, frozen=True):
    """A caller known by name."""

    name: str
    permission: Permission = Permission.WRITE

    def may(self, needs: Permission) -> bool:
        """Whether this caller may do what needs that permission."""
        return self.permission >= needs


OWNER = Principal(name="owner")
