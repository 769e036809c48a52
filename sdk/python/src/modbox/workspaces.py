"""Workspaces and their members, for both clients."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, List, Literal, Optional

from ._calls import Call, _body, _into, _items, _nothing, _segment
from .models import _by, _time, decode

if TYPE_CHECKING:
    from . import aio, client

#: What a member may do in a workspace; docs/auth.md has the table.
Role = Literal["owner", "admin", "member", "viewer"]


@dataclass(frozen=True)
class Workspace:
    """What people share: sandboxes, images, snapshots and tokens belong to one."""

    id: str
    name: str
    #: Names it in references, such as ``@slug/snapshot:tag``.
    slug: str
    created_at: datetime = _time()
    updated_at: datetime = _time()
    description: str = ""
    #: The caller's.
    role: str = ""
    created_by: str = ""


@dataclass(frozen=True)
class Member:
    """A user in a workspace."""

    user_id: str
    name: str
    role: Role
    created_at: datetime = _time()
    email: str = ""


@dataclass(frozen=True)
class WorkspaceDetail(Workspace):
    """A workspace with its members."""

    members: List[Member] = _by(lambda w: [decode(Member, item) for item in w], default_factory=list)


@dataclass(frozen=True)
class Invitation:
    """An open invitation to a workspace."""

    id: str
    email: str
    role: str
    created_by: str
    created_at: datetime = _time()
    expires_at: datetime = _time()


@dataclass(frozen=True)
class NewInvitation(Invitation):
    """An invitation just made; its code is shown only now."""

    code: str = field(default="", repr=False)


@dataclass(frozen=True)
class AddedMember:
    """Who was added: the member, or, for an address that is nobody's, the invitation."""

    member: Optional[Member] = _by(lambda w: decode(Member, w), default=None)
    invitation: Optional[NewInvitation] = _by(lambda w: decode(NewInvitation, w), default=None)


def _path(workspace_id: str, call: str = "") -> str:
    return f"/v1/workspaces/{_segment(workspace_id)}{call}"


def create(name: str, slug: Optional[str], description: Optional[str]) -> Call[WorkspaceDetail]:
    body = _body(name=name, slug=slug, description=description)
    return Call("POST", "/v1/workspaces", _into(WorkspaceDetail), repeatable=False, json=body)


def list_all() -> Call[List[Workspace]]:
    return Call("GET", "/v1/workspaces", _items(Workspace), repeatable=True)


def get(workspace_id: str) -> Call[WorkspaceDetail]:
    return Call("GET", _path(workspace_id), _into(WorkspaceDetail), repeatable=True)


def update(workspace_id: str, name: Optional[str], slug: Optional[str], description: Optional[str]) -> Call[WorkspaceDetail]:
    body = _body(name=name, slug=slug, description=description)
    return Call("PATCH", _path(workspace_id), _into(WorkspaceDetail), repeatable=True, json=body)


def delete(workspace_id: str) -> Call[None]:
    return Call("DELETE", _path(workspace_id), _nothing, repeatable=False)


def add_member(workspace_id: str, email: Optional[str], name: Optional[str], role: Role) -> Call[AddedMember]:
    body = _body(email=email, name=name, role=role)
    return Call("POST", _path(workspace_id, "/members"), _into(AddedMember), repeatable=False, json=body)


def set_role(workspace_id: str, user_id: str, role: Role) -> Call[Member]:
    path = _path(workspace_id, f"/members/{_segment(user_id)}")
    return Call("PUT", path, _into(Member), repeatable=True, json={"role": role})


def remove_member(workspace_id: str, user_id: str) -> Call[None]:
    return Call("DELETE", _path(workspace_id, f"/members/{_segment(user_id)}"), _nothing, repeatable=False)


def invitations(workspace_id: str) -> Call[List[Invitation]]:
    return Call("GET", _path(workspace_id, "/invitations"), _items(Invitation), repeatable=True)


def withdraw_invitation(workspace_id: str, invitation_id: str) -> Call[None]:
    return Call("DELETE", _path(workspace_id, f"/invitations/{_segment(invitation_id)}"), _nothing, repeatable=False)


class Workspaces:
    """The workspaces that the caller is a member of."""

    def __init__(self, session: client._Session) -> None:
        self._session = session

    def create(self, name: str, *, slug: Optional[str] = None, description: Optional[str] = None) -> WorkspaceDetail:
        """Makes a workspace that the caller owns. Never sent twice."""
        return self._session.perform(create(name, slug, description))

    def list(self) -> List[Workspace]:
        """Lists them."""
        return self._session.perform(list_all())

    def get(self, workspace_id: str) -> WorkspaceDetail:
        """Returns a workspace with its members."""
        return self._session.perform(get(workspace_id))

    def update(
        self, workspace_id: str, *, name: Optional[str] = None, slug: Optional[str] = None, description: Optional[str] = None
    ) -> WorkspaceDetail:
        """Changes what is given."""
        return self._session.perform(update(workspace_id, name, slug, description))

    def delete(self, workspace_id: str) -> None:
        """Deletes a workspace with everything in it; its sandboxes end in the background."""
        self._session.perform(delete(workspace_id))

    def add_member(
        self, workspace_id: str, *, role: Role, email: Optional[str] = None, name: Optional[str] = None
    ) -> AddedMember:
        """Adds the user of an e-mail address or a name. An address that is nobody's is invited. Never sent twice."""
        return self._session.perform(add_member(workspace_id, email, name, role))

    def set_role(self, workspace_id: str, user_id: str, role: Role) -> Member:
        """Changes a member's role; raises ConflictError when no owner would be left."""
        return self._session.perform(set_role(workspace_id, user_id, role))

    def remove_member(self, workspace_id: str, user_id: str) -> None:
        """Ends a membership; everybody may end its own."""
        self._session.perform(remove_member(workspace_id, user_id))

    def invitations(self, workspace_id: str) -> List[Invitation]:
        """Lists the open invitations."""
        return self._session.perform(invitations(workspace_id))

    def withdraw_invitation(self, workspace_id: str, invitation_id: str) -> None:
        """Ends an invitation."""
        self._session.perform(withdraw_invitation(workspace_id, invitation_id))


class AsyncWorkspaces:
    """The workspaces that the caller is a member of."""

    def __init__(self, session: aio._Session) -> None:
        self._session = session

    async def create(self, name: str, *, slug: Optional[str] = None, description: Optional[str] = None) -> WorkspaceDetail:
        """Makes a workspace that the caller owns. Never sent twice."""
        return await self._session.perform(create(name, slug, description))

    async def list(self) -> List[Workspace]:
        """Lists them."""
        return await self._session.perform(list_all())

    async def get(self, workspace_id: str) -> WorkspaceDetail:
        """Returns a workspace with its members."""
        return await self._session.perform(get(workspace_id))

    async def update(
        self, workspace_id: str, *, name: Optional[str] = None, slug: Optional[str] = None, description: Optional[str] = None
    ) -> WorkspaceDetail:
        """Changes what is given."""
        return await self._session.perform(update(workspace_id, name, slug, description))

    async def delete(self, workspace_id: str) -> None:
        """Deletes a workspace with everything in it; its sandboxes end in the background."""
        await self._session.perform(delete(workspace_id))

    async def add_member(
        self, workspace_id: str, *, role: Role, email: Optional[str] = None, name: Optional[str] = None
    ) -> AddedMember:
        """Adds the user of an e-mail address or a name. An address that is nobody's is invited. Never sent twice."""
        return await self._session.perform(add_member(workspace_id, email, name, role))

    async def set_role(self, workspace_id: str, user_id: str, role: Role) -> Member:
        """Changes a member's role; raises ConflictError when no owner would be left."""
        return await self._session.perform(set_role(workspace_id, user_id, role))

    async def remove_member(self, workspace_id: str, user_id: str) -> None:
        """Ends a membership; everybody may end its own."""
        await self._session.perform(remove_member(workspace_id, user_id))

    async def invitations(self, workspace_id: str) -> List[Invitation]:
        """Lists the open invitations."""
        return await self._session.perform(invitations(workspace_id))

    async def withdraw_invitation(self, workspace_id: str, invitation_id: str) -> None:
        """Ends an invitation."""
        await self._session.perform(withdraw_invitation(workspace_id, invitation_id))
