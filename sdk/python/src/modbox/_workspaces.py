"""Workspaces and their members, for both clients."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from datetime import datetime
from typing import List, Literal, Optional

from ._calls import Call, Listing, _body, _into, _nothing, _segment, listing
from .models import URLAccess, _by, _time, decode

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


def delete_member(workspace_id: str, user_id: str) -> Call[None]:
    return Call("DELETE", _path(workspace_id, f"/members/{_segment(user_id)}"), _nothing, repeatable=False)


def members(workspace_id: str) -> Listing[Member]:
    return listing(Member, _path(workspace_id, "/members"))


def invitations(workspace_id: str) -> Listing[Invitation]:
    return listing(Invitation, _path(workspace_id, "/invitations"))


def delete_invitation(workspace_id: str, invitation_id: str) -> Call[None]:
    return Call("DELETE", _path(workspace_id, f"/invitations/{_segment(invitation_id)}"), _nothing, repeatable=False)
