# Made from ../_async/workers.py by tools/unasync.py. Change that file, then run make gen.
"""The workers of a server."""

from __future__ import annotations

from typing import Optional

from .. import _workers as calls
from .._calls import _body
from .._pages import Page
from .._schemas import Worker
from .requester import Requester


class Workers:
    """The workers of the server, for administrators; ``worker`` is an id or a name."""

    def __init__(self, requester: Requester) -> None:
        self._requester = requester

    def list(self, *, limit: Optional[int] = None, cursor: Optional[str] = None) -> Page[Worker]:
        """Lists the workers, the first that joined first; none if the server runs sandboxes on its own machine."""
        return Page(self._requester, calls.list_all(), limit, cursor)

    def get(self, worker: str) -> Worker:
        """Returns a worker."""
        return self._requester.perform(calls.get(worker))

    def update(self, worker: str, *, draining: Optional[bool] = None) -> Worker:
        """Drains a worker, or ends that: a worker that is being drained gets no new sandboxes."""
        return self._requester.perform(calls.update(worker, _body(draining=draining)))

    def delete(self, worker: str, *, force: bool = False) -> None:
        """Removes a worker for good; one with sandboxes only with ``force``: they end, or go back to their last checkpoint."""
        self._requester.perform(calls.delete(worker, force))
