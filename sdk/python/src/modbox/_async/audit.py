"""The audit log."""

from __future__ import annotations

from typing import TYPE_CHECKING, Optional

from .. import _audit as calls
from .._pages import AsyncPages
from .._schemas import AuditEntry, AuditFilter, AuditReport
from .requester import AsyncRequester

if TYPE_CHECKING:
    from typing_extensions import Unpack


class AsyncAudit:
    """The audit log."""

    def __init__(self, requester: AsyncRequester) -> None:
        self._requester = requester

    def list(
        self, *, limit: Optional[int] = None, cursor: Optional[str] = None, **filter: Unpack[AuditFilter],
    ) -> AsyncPages[AuditEntry]:
        """Lists the records of the workspace, the newest first. For owners and admins."""
        return AsyncPages(self._requester, calls.records("/v1/audit", filter), limit, cursor)

    def list_installation(
        self, *, workspace: Optional[str] = None, limit: Optional[int] = None, cursor: Optional[str] = None, **filter: Unpack[AuditFilter],
    ) -> AsyncPages[AuditEntry]:
        """As list, for all workspaces, or for the workspace of this id, with the records of no workspace. For administrators."""
        return AsyncPages(self._requester, calls.records("/v1/audit/installation", filter, workspace), limit, cursor)

    async def verify(self) -> AuditReport:
        """Has the server check the chain of the whole log. For administrators."""
        return await self._requester.perform(calls.verify())
