"""The Modbox platform's own calls, without a version in their paths, for both clients."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any, Dict, List, Mapping, Optional

from ._calls import MAX_WAIT_SECONDS, WAIT_SLACK_SECONDS, Call, _body, _into, _items, _load, _query, _segment, known
from .errors import new_error
from .images import SandboxImage
from .models import _by, _optional_time, _time, decode
from .options import SandboxImageChanges, SandboxImageOptions
from .registries import Registry
from .workspaces import Role

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from . import aio, client


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
    created_at: datetime = _time()
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
    created_at: datetime = _time()
    updated_at: datetime = _time()
    description: Optional[str] = None
    members: List[WorkspaceMember] = _by(lambda w: [decode(WorkspaceMember, item) for item in w], default_factory=list)


@dataclass(frozen=True)
class PlatformWorkspaces:
    """The caller's workspaces."""

    workspaces: List[PlatformWorkspace] = _by(lambda w: [decode(PlatformWorkspace, item) for item in w])


@dataclass(frozen=True)
class AddedWorkspaceMember:
    """Who was added: a member, or, when ``invited``, an address that is nobody's; the code is shown only now."""

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


class Platform:
    """The platform's calls of ModboxClient."""

    _session: client._Session

    def provision_sandbox(
        self,
        *,
        task_id: str,
        image_id: Optional[str] = None,
        image: Optional[str] = None,
        ttl_seconds: Optional[int] = None,
        env_vars: Optional[Mapping[str, str]] = None,
        replace: Optional[bool] = None,
    ) -> ProvisionResult:
        """Asks for a sandbox and returns at once.

        The same request for a live task returns the sandbox that is there; a
        different one raises ConflictError, unless ``replace`` is set.
        """
        return self._session.perform(provision_sandbox(task_id, image_id, image, ttl_seconds, env_vars, replace))

    def wait_for_sandbox(self, *, task_id: str, timeout: int = 120) -> WaitResult:
        """Waits until the sandbox is running, or has ended, or the time has passed: look at ``ready``."""
        started = time.monotonic()
        left = timeout
        while True:
            answer = self._session.perform(wait_for_sandbox(task_id, min(MAX_WAIT_SECONDS, left)))
            elapsed = time.monotonic() - started
            if wait_over(answer) or elapsed >= timeout:
                return WaitResult(bool(answer.get("ready")), elapsed)
            left = math.ceil(timeout - elapsed)

    def get_sandbox(self, id_or_task_id: str) -> SandboxDetail:
        """Returns a sandbox by its id or its task id."""
        return self._session.perform(get_sandbox(id_or_task_id))

    def list_sandboxes(self, *, status: Optional[str] = None) -> SandboxList:
        """Lists sandboxes, all or those of one status."""
        return self._session.perform(list_sandboxes(status))

    def destroy_sandbox(self, *, task_id: str) -> DestroyResult:
        """Ends a sandbox and frees everything it held. A task without one is no error: look at ``success``."""
        return self._session.perform(destroy_sandbox(task_id))

    def list_sandbox_images(self) -> List[SandboxImage]:
        """Lists the images that ``image_id`` may name."""
        return self._session.perform(list_sandbox_images())

    def create_sandbox_image(self, *, name: str, image: str, **options: Unpack[SandboxImageOptions]) -> SandboxImage:
        """Adds an image to the workspace, for ``image_id``, described by the members of SandboxImageOptions."""
        return self._session.perform(create_sandbox_image(name, image, options))

    def update_sandbox_image(self, image_id: str, **options: Unpack[SandboxImageChanges]) -> SandboxImage:
        """Changes what is given of an image."""
        return self._session.perform(update_sandbox_image(image_id, options))

    def create_registry(
        self,
        *,
        name: str,
        server: str,
        username: str,
        password: str,
        email: Optional[str] = None,
        enabled: Optional[bool] = None,
    ) -> Registry:
        """Adds a registry to the workspace, whose images are pulled with it."""
        return self._session.perform(create_registry(name, server, username, password, email, enabled))

    def create_workspace(self, *, name: str, description: Optional[str] = None) -> PlatformWorkspace:
        """Makes a workspace that the caller owns."""
        return self._session.perform(create_workspace(name, description))

    def list_workspaces(self) -> PlatformWorkspaces:
        """Lists the caller's workspaces, without their members."""
        return self._session.perform(list_workspaces())

    def get_workspace(self, workspace_id: str) -> PlatformWorkspace:
        """Returns a workspace with its members."""
        return self._session.perform(get_workspace(workspace_id))

    def add_workspace_member(self, workspace_id: str, *, email: str, role: Role) -> AddedWorkspaceMember:
        """Adds the user of an e-mail address to a workspace, or invites it."""
        return self._session.perform(add_workspace_member(workspace_id, email, role))


class AsyncPlatform:
    """The platform's calls of AsyncModboxClient."""

    _session: aio._Session

    async def provision_sandbox(
        self,
        *,
        task_id: str,
        image_id: Optional[str] = None,
        image: Optional[str] = None,
        ttl_seconds: Optional[int] = None,
        env_vars: Optional[Mapping[str, str]] = None,
        replace: Optional[bool] = None,
    ) -> ProvisionResult:
        """Asks for a sandbox and returns at once.

        The same request for a live task returns the sandbox that is there; a
        different one raises ConflictError, unless ``replace`` is set.
        """
        return await self._session.perform(provision_sandbox(task_id, image_id, image, ttl_seconds, env_vars, replace))

    async def wait_for_sandbox(self, *, task_id: str, timeout: int = 120) -> WaitResult:
        """Waits until the sandbox is running, or has ended, or the time has passed: look at ``ready``."""
        started = time.monotonic()
        left = timeout
        while True:
            answer = await self._session.perform(wait_for_sandbox(task_id, min(MAX_WAIT_SECONDS, left)))
            elapsed = time.monotonic() - started
            if wait_over(answer) or elapsed >= timeout:
                return WaitResult(bool(answer.get("ready")), elapsed)
            left = math.ceil(timeout - elapsed)

    async def get_sandbox(self, id_or_task_id: str) -> SandboxDetail:
        """Returns a sandbox by its id or its task id."""
        return await self._session.perform(get_sandbox(id_or_task_id))

    async def list_sandboxes(self, *, status: Optional[str] = None) -> SandboxList:
        """Lists sandboxes, all or those of one status."""
        return await self._session.perform(list_sandboxes(status))

    async def destroy_sandbox(self, *, task_id: str) -> DestroyResult:
        """Ends a sandbox and frees everything it held. A task without one is no error: look at ``success``."""
        return await self._session.perform(destroy_sandbox(task_id))

    async def list_sandbox_images(self) -> List[SandboxImage]:
        """Lists the images that ``image_id`` may name."""
        return await self._session.perform(list_sandbox_images())

    async def create_sandbox_image(self, *, name: str, image: str, **options: Unpack[SandboxImageOptions]) -> SandboxImage:
        """Adds an image to the workspace, for ``image_id``, described by the members of SandboxImageOptions."""
        return await self._session.perform(create_sandbox_image(name, image, options))

    async def update_sandbox_image(self, image_id: str, **options: Unpack[SandboxImageChanges]) -> SandboxImage:
        """Changes what is given of an image."""
        return await self._session.perform(update_sandbox_image(image_id, options))

    async def create_registry(
        self,
        *,
        name: str,
        server: str,
        username: str,
        password: str,
        email: Optional[str] = None,
        enabled: Optional[bool] = None,
    ) -> Registry:
        """Adds a registry to the workspace, whose images are pulled with it."""
        return await self._session.perform(create_registry(name, server, username, password, email, enabled))

    async def create_workspace(self, *, name: str, description: Optional[str] = None) -> PlatformWorkspace:
        """Makes a workspace that the caller owns."""
        return await self._session.perform(create_workspace(name, description))

    async def list_workspaces(self) -> PlatformWorkspaces:
        """Lists the caller's workspaces, without their members."""
        return await self._session.perform(list_workspaces())

    async def get_workspace(self, workspace_id: str) -> PlatformWorkspace:
        """Returns a workspace with its members."""
        return await self._session.perform(get_workspace(workspace_id))

    async def add_workspace_member(self, workspace_id: str, *, email: str, role: Role) -> AddedWorkspaceMember:
        """Adds the user of an e-mail address to a workspace, or invites it."""
        return await self._session.perform(add_workspace_member(workspace_id, email, role))
