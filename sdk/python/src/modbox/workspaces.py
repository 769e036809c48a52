"""Workspaces and their members."""

from ._async.workspaces import AsyncWorkspaces
from ._schemas import AddedMember, DiskUse, Invitation, Member, NewInvitation, Quota, QuotaReport, QuotaUsed, Role, Workspace, WorkspaceDetail
from ._sync.workspaces import Workspaces

__all__ = [
    "AddedMember",
    "AsyncWorkspaces",
    "DiskUse",
    "Invitation",
    "Member",
    "NewInvitation",
    "Quota",
    "QuotaReport",
    "QuotaUsed",
    "Role",
    "Workspace",
    "WorkspaceDetail",
    "Workspaces",
]
