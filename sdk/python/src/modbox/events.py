"""The events of all sandboxes of a workspace."""

from ._async.events import AsyncEvents
from ._schemas import Event
from ._sync.events import Events

__all__ = [
    "AsyncEvents",
    "Event",
    "Events",
]
