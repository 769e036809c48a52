# Made from ../_async/workspaces.py by tools/unasync.py. Change that file, then run make gen.
"""Workspaces and their members."""

from __future__ import annotations

from typing import Any, Mapping, Optional, Sequence, Union

from .. import _workspaces as calls
from .._pages import Page
from .._schemas import AddedMember, CodeScanMode, Invitation, Member, Quota, QuotaReport, Role, URLAccess, Workspace, WorkspaceDetail
from .requester import Requester


class Workspaces:
    """The workspaces that the caller is a member of."""

    def __init__(self, requester: Requester) -> None:
        self._requester = requester

    def create(self, name: str, *, slug: Optional[str] = None, description: Optional[str] = None) -> WorkspaceDetail:
        """Makes a workspace that the caller owns. Never sent twice."""
        return self._requester.perform(calls.create(name, slug, description))

    def list(self, *, limit: Optional[int] = None, cursor: Optional[str] = None) -> Page[Workspace]:
        """Lists them, by name."""
        return Page(self._requester, calls.list_all(), limit, cursor)

    def get(self, workspace_id: str) -> WorkspaceDetail:
        """Returns a workspace with its members."""
        return self._requester.perform(calls.get(workspace_id))

    def update(
        self,
        workspace_id: str,
        *,
        name: Optional[str] = None,
        slug: Optional[str] = None,
        description: Optional[str] = None,
        url_access: Optional[URLAccess] = None,
        code_scan: Optional[CodeScanMode] = None,
        code_scan_rules: Optional[Sequence[str]] = None,
        audit_output: Optional[bool] = None,
    ) -> WorkspaceDetail:
        """Changes the given settings.

        ``url_access`` is what the management routes on the URLs of the workspace's sandboxes ask for at
        least; ``open`` is what each sandbox asks for. With ``code_scan`` code is scanned before it runs: ``warn`` adds the findings
        to answers, with ``block`` code with findings does not run. ``code_scan_rules`` are the rules that count; an empty list is all.
        ``audit_output`` has the audit log record the beginning of the output of commands and code.
        """
        return self._requester.perform(
            calls.update(workspace_id, name, slug, description, url_access, code_scan, code_scan_rules, audit_output)
        )

    def delete(self, workspace_id: str) -> None:
        """Deletes a workspace with everything in it; its sandboxes end in the background."""
        self._requester.perform(calls.delete(workspace_id))

    def add_member(
        self, workspace_id: str, *, role: Role, email: Optional[str] = None, name: Optional[str] = None
    ) -> AddedMember:
        """Adds the user of an e-mail address or a name. An address that is nobody's is invited. Never sent twice."""
        return self._requester.perform(calls.add_member(workspace_id, email, name, role))

    def set_role(self, workspace_id: str, user_id: str, role: Role) -> Member:
        """Changes a member's role; raises ConflictError when no owner would be left."""
        return self._requester.perform(calls.set_role(workspace_id, user_id, role))

    def delete_member(self, workspace_id: str, user_id: str) -> None:
        """Deletes a membership; all users may delete their own."""
        self._requester.perform(calls.delete_member(workspace_id, user_id))

    def members(self, workspace_id: str, *, limit: Optional[int] = None, cursor: Optional[str] = None) -> Page[Member]:
        """Lists the members, in the order they came."""
        return Page(self._requester, calls.members(workspace_id), limit, cursor)

    def invitations(
        self, workspace_id: str, *, limit: Optional[int] = None, cursor: Optional[str] = None,
    ) -> Page[Invitation]:
        """Lists the open invitations, newest first."""
        return Page(self._requester, calls.invitations(workspace_id), limit, cursor)

    def delete_invitation(self, workspace_id: str, invitation_id: str) -> None:
        """Deletes an invitation: its code stops working."""
        self._requester.perform(calls.delete_invitation(workspace_id, invitation_id))

    def quota(self, workspace_id: str) -> QuotaReport:
        """The workspace's quota and its use."""
        return self._requester.perform(calls.get_quota(workspace_id))

    def set_quota(self, workspace_id: str, quota: Union[Quota, Mapping[str, Any]]) -> QuotaReport:
        """Replaces the quota set for the workspace. For administrators."""
        return self._requester.perform(calls.set_quota(workspace_id, quota))
