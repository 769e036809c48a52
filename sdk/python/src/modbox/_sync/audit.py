# Made from ../_async/audit.py by tools/unasync.py. Change that file, then run make gen.
"""The audit log."""

from __future__ import annotations

from typing import TYPE_CHECKING, Optional

from .. import _audit as calls
from .._pages import Page
from .._schemas import AuditEntry, AuditFilter, AuditReport
from .requester import Requester

if TYPE_CHECKING:
    from typing_extensions import Unpack


class Audit:
    """The audit log."""

    def __init__(self, requester: Requester) -> None:
        self._requester = requester

    def list(
        self, *, limit: Optional[int] = None, cursor: Optional[str] = None, **filter: Unpack[AuditFilter],
    ) -> Page[AuditEntry]:
        """Lists the records of the workspace, the newest first. For owners and admins."""
        return Page(self._requester, calls.records("/v1/audit", filter), limit, cursor)

    def list_installation(
        self, *, workspace: Optional[str] = None, limit: Optional[int] = None, cursor: Optional[str] = None, **filter: Unpack[AuditFilter],
    ) -> Page[AuditEntry]:
        """As list, for all workspaces, or for the workspace of this id, with the records of no workspace. For administrators."""
        return Page(self._requester, calls.records("/v1/audit/installation", filter, workspace), limit, cursor)

    def verify(self) -> AuditReport:
        """Has the server check the chain of the whole log. For administrators."""
        return self._requester.perform(calls.verify())
