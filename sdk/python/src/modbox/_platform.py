"""The Modbox platform's own calls, without a version in their paths, for both clients."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Dict, List, Mapping, Optional

from ._calls import WAIT_SLACK_SECONDS, Call, _body, _into, _items, _load, _query, _segment, known
from ._decode import _by, _optional_time, _required, decode, parse_time
from ._schemas import Registry, SandboxImage, SandboxImageChanges, SandboxImageOptions
from .errors import new_error


@dataclass(frozen=True)
class ProvisionResult:
    """A sandbox that was asked for; ``sandbox_url`` is empty until the server knows it."""

    sandbox_id: str
    status: str = "provisioning"
    sandbox_url: str = ""


@dataclass(frozen=True)
class WaitResult:
    """Whether a sandbox is ready; False when the time passed or it ended."""

    ready: bool
    elapsed_seconds: float = 0.0


@dataclass(frozen=True)
class SandboxDetail:
    """A sandbox by its task: ``name`` is the task id, ``sandbox_url`` empty unless it is running."""

    id: str
    name: str
    status: str
    created_at: datetime = _required(parse_time)
    created_by: str = ""
    updated_at: Optional[datetime] = _optional_time()
    sandbox_url: str = ""
    image: Optional[str] = None
    destroyed_at: Optional[datetime] = _optional_time()


@dataclass(frozen=True)
class SandboxList:
    """All sandboxes that match."""

    sandboxes: List[SandboxDetail] = _by(lambda w: [decode(SandboxDetail, item) for item in w])
    total: int = 0


@dataclass(frozen=True)
class DestroyResult:
    """Whether a sandbox was ended; False when there is none of that task."""

    success: bool
    error: Optional[str] = None


@dataclass(frozen=True)
class WorkspaceMember:
    """A member of a workspace."""

    user_id: str
    role: str
    name: str = ""
    email: Optional[str] = None
    created_at: Optional[datetime] = _optional_time()


@dataclass(frozen=True)
class PlatformWorkspace:
    """A workspace; ``members`` is empty in lists."""

    id: str
    name: str
    realm: str
    created_by: str
    created_at: datetime = _required(parse_time)
    updated_at: datetime = _required(parse_time)
    description: Optional[str] = None
    members: List[WorkspaceMember] = _by(lambda w: [decode(WorkspaceMember, item) for item in w], default_factory=list)


@dataclass(frozen=True)
class PlatformWorkspaces:
    """The caller's workspaces."""

    workspaces: List[PlatformWorkspace] = _by(lambda w: [decode(PlatformWorkspace, item) for item in w])


@dataclass(frozen=True)
class AddedWorkspaceMember:
    """The added member, or, when ``invited``, an address that is nobody's; the code is shown only now."""

    role: str
    invited: bool = False
    user_id: Optional[str] = None
    name: Optional[str] = None
    email: Optional[str] = None
    created_at: Optional[datetime] = _optional_time()
    code: Optional[str] = field(default=None, repr=False)
    expires_at: Optional[datetime] = _optional_time()


def provision_sandbox(
    task_id: str,
    image_id: Optional[str],
    image: Optional[str],
    ttl_seconds: Optional[int],
    env_vars: Optional[Mapping[str, str]],
    replace: Optional[bool],
) -> Call[ProvisionResult]:
    def parse(content: bytes) -> ProvisionResult:
        wire = _load(content)
        # This API may say no in an answer whose status is a success.
        if not wire.get("success"):
            raise new_error("conflict", f"provision {task_id}: {wire.get('error') or 'the server gave no reason'}", status=200)
        return decode(ProvisionResult, wire)

    return Call(
        "POST",
        "/sandboxes/provision",
        parse,
        # The same request for a live task answers the sandbox that is there.
        repeatable=True,
        json=_body(
            task_id=task_id,
            image_id=image_id,
            image=image,
            ttl_seconds=ttl_seconds,
            env_vars=env_vars,
            replace=replace,
        ),
    )


def wait_for_sandbox(task_id: str, timeout: int) -> Call[Dict[str, Any]]:
    return Call(
        "POST",
        "/sandboxes/wait",
        _load,
        repeatable=True,
        json={"task_id": task_id, "timeout": timeout},
        timeout=max(0, timeout) + WAIT_SLACK_SECONDS,
    )


def get_sandbox(id_or_task_id: str) -> Call[SandboxDetail]:
    return Call("GET", f"/sandboxes/detail/{_segment(id_or_task_id)}", _into(SandboxDetail), repeatable=True)


def list_sandboxes(status: Optional[str]) -> Call[SandboxList]:
    return Call("GET", _query("/sandboxes", status=status), _into(SandboxList), repeatable=True)


def destroy_sandbox(task_id: str) -> Call[DestroyResult]:
    return Call(
        "POST",
        "/sandboxes/destroy",
        _into(DestroyResult),
        repeatable=True,
        json={"task_id": task_id},
    )


def list_sandbox_images() -> Call[List[SandboxImage]]:
    return Call("GET", "/sandbox-images", _items(SandboxImage, "images"), repeatable=True)


def create_sandbox_image(name: str, image: str, o: SandboxImageOptions) -> Call[SandboxImage]:
    known(SandboxImageOptions, o)
    return Call("POST", "/sandbox-images", _into(SandboxImage), repeatable=False, json=_body(name=name, image=image, **o))


def update_sandbox_image(image_id: str, o: SandboxImageChanges) -> Call[SandboxImage]:
    known(SandboxImageChanges, o)
    return Call("PUT", f"/sandbox-images/{_segment(image_id)}", _into(SandboxImage), repeatable=True, json=_body(**o))


def create_registry(
    name: str, server: str, username: str, password: str, email: Optional[str], enabled: Optional[bool]
) -> Call[Registry]:
    body = _body(name=name, server=server, username=username, password=password, email=email, enabled=enabled)
    return Call("POST", "/registries", _into(Registry), repeatable=False, json=body)


def create_workspace(name: str, description: Optional[str]) -> Call[PlatformWorkspace]:
    body = _body(name=name, description=description)
    return Call("POST", "/workspaces", _into(PlatformWorkspace), repeatable=False, json=body)


def list_workspaces() -> Call[PlatformWorkspaces]:
    return Call("GET", "/workspaces", _into(PlatformWorkspaces), repeatable=True)


def get_workspace(workspace_id: str) -> Call[PlatformWorkspace]:
    return Call("GET", f"/workspaces/{_segment(workspace_id)}", _into(PlatformWorkspace), repeatable=True)


def add_workspace_member(workspace_id: str, email: str, role: str) -> Call[AddedWorkspaceMember]:
    path = f"/workspaces/{_segment(workspace_id)}/members"
    return Call("POST", path, _into(AddedWorkspaceMember), repeatable=False, json={"email": email, "role": role})


def wait_over(answer: Dict[str, Any]) -> bool:
    """Whether waiting longer changes nothing."""
    return bool(answer.get("ready")) or answer.get("status", "provisioning") != "provisioning"
