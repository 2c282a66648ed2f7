"""What callers may ask, as Operations. `OPERATIONS` names them all, in the order of the docs."""

from memory_svc.services import health, tools
from memory_svc.services.memory import (
    calibrate,
    contents,
    context,
    episodes,
    lists,
    profiles,
    recall,
    reconstruct,
    remember,
)

OPERATIONS = (
    *remember.OPERATIONS,
    *recall.OPERATIONS,
    *context.OPERATIONS,
    *reconstruct.OPERATIONS,
    *calibrate.OPERATIONS,
    *contents.OPERATIONS,
    *lists.OPERATIONS,
    *episodes.OPERATIONS,
    *profiles.OPERATIONS,
    *health.OPERATIONS,
    *tools.OPERATIONS,
)
