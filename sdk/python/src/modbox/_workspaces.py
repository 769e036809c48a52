"""Workspaces and their members, for both clients."""

from __future__ import annotations

from typing import Any, Mapping, Optional, Sequence, Union

from ._calls import Call, Listing, _body, _into, _nothing, _segment, encoded, listing
from ._schemas import AddedMember, CodeScanMode, Invitation, Member, Quota, QuotaReport, Role, URLAccess, Workspace, WorkspaceDetail


def _path(workspace_id: str, call: str = "") -> str:
    return f"/v1/workspaces/{_segment(workspace_id)}{call}"


def get_quota(workspace_id: str) -> Call[QuotaReport]:
    return Call("GET", _path(workspace_id, "/quota"), _into(QuotaReport), repeatable=True)


def set_quota(workspace_id: str, quota: Union[Quota, Mapping[str, Any]]) -> Call[QuotaReport]:
    return Call("PUT", _path(workspace_id, "/quota"), _into(QuotaReport), repeatable=True, json=encoded(quota, "quota"))


def create(name: str, slug: Optional[str], description: Optional[str]) -> Call[WorkspaceDetail]:
    body = _body(name=name, slug=slug, description=description)
    return Call("POST", "/v1/workspaces", _into(WorkspaceDetail), repeatable=False, json=body)


def list_all() -> Listing[Workspace]:
    return listing(Workspace, "/v1/workspaces")


def get(workspace_id: str) -> Call[WorkspaceDetail]:
    return Call("GET", _path(workspace_id), _into(WorkspaceDetail), repeatable=True)


def update(
    workspace_id: str,
    name: Optional[str],
    slug: Optional[str],
    description: Optional[str],
    url_access: Optional[URLAccess],
    code_scan: Optional[CodeScanMode],
    code_scan_rules: Optional[Sequence[str]],
    audit_output: Optional[bool],
) -> Call[WorkspaceDetail]:
    rules = None if code_scan_rules is None else list(code_scan_rules)
    body = _body(
        name=name,
        slug=slug,
        description=description,
        url_access=url_access,
        code_scan=code_scan,
        code_scan_rules=rules,
        audit_output=audit_output,
    )
    return Call("PATCH", _path(workspace_id), _into(WorkspaceDetail), repeatable=True, json=body)


def delete(workspace_id: str) -> Call[None]:
    return Call("DELETE", _path(workspace_id), _nothing, repeatable=False)


def add_member(workspace_id: str, email: Optional[str], name: Optional[str], role: Role) -> Call[AddedMember]:
    body = _body(email=email, name=name, role=role)
    return Call("POST", _path(workspace_id, "/members"), _into(AddedMember), repeatable=False, json=body)


def set_role(workspace_id: str, user_id: str, role: Role) -> Call[Member]:
    path = _path(workspace_id, f"/members/{_segment(user_id)}")
    return Call("PUT", path, _into(Member), repeatable=True, json={"role": role})


def delete_member(workspace_id: str, user_id: str) -> Call[None]:
    return Call("DELETE", _path(workspace_id, f"/members/{_segment(user_id)}"), _nothing, repeatable=False)


def members(workspace_id: str) -> Listing[Member]:
    return listing(Member, _path(workspace_id, "/members"))


def invitations(workspace_id: str) -> Listing[Invitation]:
    return listing(Invitation, _path(workspace_id, "/invitations"))


def delete_invitation(workspace_id: str, invitation_id: str) -> Call[None]:
    return Call("DELETE", _path(workspace_id, f"/invitations/{_segment(invitation_id)}"), _nothing, repeatable=False)
