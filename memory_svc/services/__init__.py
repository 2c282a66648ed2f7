"""What callers may ask, as Operations. `OPERATIONS` names them all, in the order of the docs."""

from memory_svc.services.memory import contents, episodes, profiles, recall, remember

OPERATIONS = (
    *remember.OPERATIONS,
    *recall.OPERATIONS,
    *contents.OPERATIONS,
    *episodes.OPERATIONS,
    *profiles.OPERATIONS,
)
