"""The profile of the one an agent serves."""

from typing import Annotated

import msgspec
from msgspec import UNSET, Meta, UnsetType

from memory_svc.domain.access.principal import Permission
from memory_svc.domain.change import PutProfile
from memory_svc.domain.memory import Profile, clean_content, utc
from memory_svc.domain.scope import Scope
from memory_svc.services.memory.shown import Shown, shown_profile
from memory_svc.services.operation import Effect, Request, Runtime, operation


class GetProfile(Request, frozen=True, kw_only=True):
    """Whose profile."""

    agent_id: Annotated[str, Meta(max_length=1000, description="Whose profile.")]


class ProfileText(msgspec.Struct, frozen=True, kw_only=True):
    """The profile, "" when there is none."""

    profile: str


class UpdateProfile(Request, frozen=True, kw_only=True):
    """The new profile, whole."""

    agent_id: Annotated[str, Meta(max_length=1000, description="Whose profile.")]
    profile: Annotated[str, Meta(description="What is lastingly true, in full: it replaces the old text.")]


class ProfileUpdated(msgspec.Struct, frozen=True, kw_only=True):
    """How many profiles were written: 0 with a reason, or 1."""

    ok: bool
    profiles_updated: int
    truncated: bool | UnsetType = UNSET
    reason: str | UnsetType = UNSET


@operation(needs=Permission.READ, effect=Effect.READ)
async def get_profile(runtime: Runtime, request: GetProfile) -> ProfileText:
    """Read the profile of the one an agent serves."""
    return ProfileText(profile=await _profile(runtime, request.agent_id))


@operation(needs=Permission.WRITE, effect=Effect.CHANGE)
async def update_profile(runtime: Runtime, request: UpdateProfile) -> ProfileUpdated:
    """Replace the profile with a new text; it is not merged. An empty text changes nothing."""
    content, truncated = clean_content(request.profile, runtime.settings.profile_chars_max)
    if not content:
        reason = "empty after sanitization" if request.profile else "empty profile"
        return ProfileUpdated(ok=False, profiles_updated=0, reason=reason)
    profile = Profile(agent=request.agent_id, content=content, updated_at=utc(runtime.clock()))
    await runtime.apply(PutProfile(profile))
    return ProfileUpdated(ok=True, profiles_updated=1, truncated=truncated or UNSET)


OPERATIONS = (get_profile, update_profile)


async def beside(runtime: Runtime, scope: Scope, limit: int) -> list[Shown]:
    """The newest profiles of the scope, as they stand behind an answer's rows; [] where the scope is small."""
    found = await runtime.storage.profiles.beside(scope, limit, runtime.settings.profile_scope_rows_min)
    return [shown_profile(profile) for profile in found]


async def _profile(runtime: Runtime, agent: str) -> str:
    found = await runtime.storage.profiles.of(runtime.present(Scope(agent=agent)))
    return next((profile.content for profile in found if not profile.user and not profile.project), "")
