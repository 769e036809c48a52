"""Workspaces and their members, for both clients."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, List, Literal, Optional

from ._calls import Call, Listing, _body, _into, _nothing, _segment, listing
from ._pages import AsyncPages, Page
from .models import URLAccess, _by, _time, decode

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
    #: What the management routes on the URLs of its sandboxes ask for at least.
    url_access: URLAccess = "open"


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


@dataclass(frozen=True)
class Quota:
    """Limits of a workspace, sizes in Kubernetes notation; 0 is none, None the server's default."""

    #: That run at the same time.
    sandboxes: Optional[int] = None
    #: Of those together.
    memory: Optional[str] = None
    cpu: Optional[str] = None
    #: Of everything the workspace keeps.
    disk: Optional[str] = None
    creates_per_minute: Optional[int] = None
    #: The most that one sandbox may ask for.
    sandbox_memory: Optional[str] = None
    sandbox_cpu: Optional[str] = None
    sandbox_disk: Optional[str] = None


@dataclass(frozen=True)
class DiskUse:
    """What the disk of a workspace is used for, in bytes."""

    #: The limits of those that are not paused.
    sandboxes: int = 0
    #: With their memory.
    paused: int = 0
    checkpoints: int = 0
    snapshots: int = 0
    #: Output and input of executions.
    streams: int = 0
    #: The limits of builds and installs that are under way.
    builds: int = 0
    #: Files of builds.
    uploads: int = 0
    #: Those that were built.
    images: int = 0
    #: What builds have left, which goes when something needs the room.
    build_cache: int = 0


@dataclass(frozen=True)
class QuotaUsed:
    """What a workspace has of what its quota limits; ``disk`` is the sum of ``disk_by``."""

    sandboxes: int
    memory: str
    cpu: str
    disk: str
    disk_by: DiskUse = _by(lambda w: decode(DiskUse, w))


@dataclass(frozen=True)
class QuotaReport:
    """The quota of a workspace and what is used of it.

    ``limits`` are those that count, ``set`` those of them that were set for the workspace.
    """

    workspace_id: str
    limits: Quota = _by(lambda w: decode(Quota, w))
    set: Quota = _by(lambda w: decode(Quota, w))
    used: QuotaUsed = _by(lambda w: decode(QuotaUsed, w))


def get_quota(workspace_id: str) -> Call[QuotaReport]:
    return Call("GET", _path(workspace_id, "/quota"), _into(QuotaReport), repeatable=True)


def set_quota(workspace_id: str, quota: Quota) -> Call[QuotaReport]:
    return Call("PUT", _path(workspace_id, "/quota"), _into(QuotaReport), repeatable=True, json=_body(**asdict(quota)))


def create(name: str, slug: Optional[str], description: Optional[str]) -> Call[WorkspaceDetail]:
    body = _body(name=name, slug=slug, description=description)
    return Call("POST", "/v1/workspaces", _into(WorkspaceDetail), repeatable=False, json=body)


def list_all() -> Listing[Workspace]:
    return listing(Workspace, "/v1/workspaces")


def get(workspace_id: str) -> Call[WorkspaceDetail]:
    return Call("GET", _path(workspace_id), _into(WorkspaceDetail), repeatable=True)


def update(
    workspace_id: str, name: Optional[str], slug: Optional[str], description: Optional[str], url_access: Optional[URLAccess]
) -> Call[WorkspaceDetail]:
    body = _body(name=name, slug=slug, description=description, url_access=url_access)
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


def members(workspace_id: str) -> Listing[Member]:
    return listing(Member, _path(workspace_id, "/members"))


def invitations(workspace_id: str) -> Listing[Invitation]:
    return listing(Invitation, _path(workspace_id, "/invitations"))


def withdraw_invitation(workspace_id: str, invitation_id: str) -> Call[None]:
    return Call("DELETE", _path(workspace_id, f"/invitations/{_segment(invitation_id)}"), _nothing, repeatable=False)


class Workspaces:
    """The workspaces that the caller is a member of."""

    def __init__(self, session: client._Session) -> None:
        self._session = session

    def create(self, name: str, *, slug: Optional[str] = None, description: Optional[str] = None) -> WorkspaceDetail:
        """Makes a workspace that the caller owns. Never sent twice."""
        return self._session.perform(create(name, slug, description))

    def list(self, *, limit: Optional[int] = None, cursor: Optional[str] = None) -> Page[Workspace]:
        """Lists them, by name."""
        return Page(self._session, list_all(), limit, cursor)

    def get(self, workspace_id: str) -> WorkspaceDetail:
        """Returns a workspace with its members."""
        return self._session.perform(get(workspace_id))

    def update(
        self,
        workspace_id: str,
        *,
        name: Optional[str] = None,
        slug: Optional[str] = None,
        description: Optional[str] = None,
        url_access: Optional[URLAccess] = None,
    ) -> WorkspaceDetail:
        """Changes what is given.

        ``url_access`` is what the management routes on the URLs of the workspace's sandboxes ask for at
        least; ``open`` is what each sandbox asks for.
        """
        return self._session.perform(update(workspace_id, name, slug, description, url_access))

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

    def members(self, workspace_id: str, *, limit: Optional[int] = None, cursor: Optional[str] = None) -> Page[Member]:
        """Lists the members, in the order they came."""
        return Page(self._session, members(workspace_id), limit, cursor)

    def invitations(self, workspace_id: str, *, limit: Optional[int] = None, cursor: Optional[str] = None) -> Page[Invitation]:
        """Lists the open invitations, newest first."""
        return Page(self._session, invitations(workspace_id), limit, cursor)

    def withdraw_invitation(self, workspace_id: str, invitation_id: str) -> None:
        """Ends an invitation."""
        self._session.perform(withdraw_invitation(workspace_id, invitation_id))

    def quota(self, workspace_id: str) -> QuotaReport:
        """The workspace's quota and what is used of it."""
        return self._session.perform(get_quota(workspace_id))

    def set_quota(self, workspace_id: str, quota: Quota) -> QuotaReport:
        """Replaces what was set for the workspace. For administrators."""
        return self._session.perform(set_quota(workspace_id, quota))


class AsyncWorkspaces:
    """The workspaces that the caller is a member of."""

    def __init__(self, session: aio._Session) -> None:
        self._session = session

    async def create(self, name: str, *, slug: Optional[str] = None, description: Optional[str] = None) -> WorkspaceDetail:
        """Makes a workspace that the caller owns. Never sent twice."""
        return await self._session.perform(create(name, slug, description))

    def list(self, *, limit: Optional[int] = None, cursor: Optional[str] = None) -> AsyncPages[Workspace]:
        """Lists them, by name."""
        return AsyncPages(self._session, list_all(), limit, cursor)

    async def get(self, workspace_id: str) -> WorkspaceDetail:
        """Returns a workspace with its members."""
        return await self._session.perform(get(workspace_id))

    async def update(
        self,
        workspace_id: str,
        *,
        name: Optional[str] = None,
        slug: Optional[str] = None,
        description: Optional[str] = None,
        url_access: Optional[URLAccess] = None,
    ) -> WorkspaceDetail:
        """Changes what is given.

        ``url_access`` is what the management routes on the URLs of the workspace's sandboxes ask for at
        least; ``open`` is what each sandbox asks for.
        """
        return await self._session.perform(update(workspace_id, name, slug, description, url_access))

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

    def members(self, workspace_id: str, *, limit: Optional[int] = None, cursor: Optional[str] = None) -> AsyncPages[Member]:
        """Lists the members, in the order they came."""
        return AsyncPages(self._session, members(workspace_id), limit, cursor)

    def invitations(
        self, workspace_id: str, *, limit: Optional[int] = None, cursor: Optional[str] = None,
    ) -> AsyncPages[Invitation]:
        """Lists the open invitations, newest first."""
        return AsyncPages(self._session, invitations(workspace_id), limit, cursor)

    async def withdraw_invitation(self, workspace_id: str, invitation_id: str) -> None:
        """Ends an invitation."""
        await self._session.perform(withdraw_invitation(workspace_id, invitation_id))

    async def quota(self, workspace_id: str) -> QuotaReport:
        """The workspace's quota and what is used of it."""
        return await self._session.perform(get_quota(workspace_id))

    async def set_quota(self, workspace_id: str, quota: Quota) -> QuotaReport:
        """Replaces what was set for the workspace. For administrators."""
        return await self._session.perform(set_quota(workspace_id, quota))
