"""The workers of a server."""

from __future__ import annotations

from typing import Optional

from .. import _workers as calls
from .._calls import _body
from .._pages import AsyncPages
from .._schemas import Worker
from .requester import AsyncRequester


class AsyncWorkers:
    """The workers of the server, for administrators; ``worker`` is an id or a name."""

    def __init__(self, requester: AsyncRequester) -> None:
        self._requester = requester

    def list(self, *, limit: Optional[int] = None, cursor: Optional[str] = None) -> AsyncPages[Worker]:
        """Lists the workers, the first that joined first; none if the server runs sandboxes on its own machine."""
        return AsyncPages(self._requester, calls.list_all(), limit, cursor)

    async def get(self, worker: str) -> Worker:
        """Returns a worker."""
        return await self._requester.perform(calls.get(worker))

    async def update(self, worker: str, *, draining: Optional[bool] = None) -> Worker:
        """Drains a worker, or ends that: a worker that is being drained gets no new sandboxes."""
        return await self._requester.perform(calls.update(worker, _body(draining=draining)))

    async def delete(self, worker: str, *, force: bool = False) -> None:
        """Removes a worker for good; one with sandboxes only with ``force``: they end, or go back to their last checkpoint."""
        await self._requester.perform(calls.delete(worker, force))
