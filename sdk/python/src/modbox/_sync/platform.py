# Made from ../_async/platform.py by tools/unasync.py. Change that file, then run make gen.
"""The calls of the Modbox platform."""

from __future__ import annotations

import math
import time
from typing import TYPE_CHECKING, List, Mapping, Optional

from .. import _platform as calls
from .._calls import MAX_WAIT_SECONDS
from .._platform import AddedWorkspaceMember, DestroyResult, PlatformWorkspace, PlatformWorkspaces, ProvisionResult, SandboxDetail, SandboxList, WaitResult
from .._schemas import Registry, Role, SandboxImage, SandboxImageChanges, SandboxImageOptions
from .client import Modbox

if TYPE_CHECKING:
    from typing_extensions import Unpack


class ModboxClient(Modbox):
    """Modbox with the calls of the Modbox platform's client, so that programs for the platform run unchanged.

    It exists for compatibility: new programs use Sandbox.
    """

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
        return self._requester.perform(calls.provision_sandbox(task_id, image_id, image, ttl_seconds, env_vars, replace))

    def wait_for_sandbox(self, *, task_id: str, timeout: int = 120) -> WaitResult:
        """Waits until the sandbox is running, or has ended, or the time has passed: look at ``ready``."""
        started = time.monotonic()
        left = timeout
        while True:
            answer = self._requester.perform(calls.wait_for_sandbox(task_id, min(MAX_WAIT_SECONDS, left)))
            elapsed = time.monotonic() - started
            if calls.wait_over(answer) or elapsed >= timeout:
                return WaitResult(bool(answer.get("ready")), elapsed)
            left = math.ceil(timeout - elapsed)

    def get_sandbox(self, id_or_task_id: str) -> SandboxDetail:
        """Returns a sandbox by its id or its task id."""
        return self._requester.perform(calls.get_sandbox(id_or_task_id))

    def list_sandboxes(self, *, status: Optional[str] = None) -> SandboxList:
        """Lists sandboxes, all or those of one status."""
        return self._requester.perform(calls.list_sandboxes(status))

    def destroy_sandbox(self, *, task_id: str) -> DestroyResult:
        """Ends a sandbox and frees everything it held. A task without one is no error: look at ``success``."""
        return self._requester.perform(calls.destroy_sandbox(task_id))

    def list_sandbox_images(self) -> List[SandboxImage]:
        """Lists the images that ``image_id`` may name."""
        return self._requester.perform(calls.list_sandbox_images())

    def create_sandbox_image(self, *, name: str, image: str, **options: Unpack[SandboxImageOptions]) -> SandboxImage:
        """Adds an image to the workspace, for ``image_id``, described by the members of SandboxImageOptions."""
        return self._requester.perform(calls.create_sandbox_image(name, image, options))

    def update_sandbox_image(self, image_id: str, **options: Unpack[SandboxImageChanges]) -> SandboxImage:
        """Changes the given settings of an image."""
        return self._requester.perform(calls.update_sandbox_image(image_id, options))

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
        return self._requester.perform(calls.create_registry(name, server, username, password, email, enabled))

    def create_workspace(self, *, name: str, description: Optional[str] = None) -> PlatformWorkspace:
        """Makes a workspace that the caller owns."""
        return self._requester.perform(calls.create_workspace(name, description))

    def list_workspaces(self) -> PlatformWorkspaces:
        """Lists the caller's workspaces, without their members."""
        return self._requester.perform(calls.list_workspaces())

    def get_workspace(self, workspace_id: str) -> PlatformWorkspace:
        """Returns a workspace with its members."""
        return self._requester.perform(calls.get_workspace(workspace_id))

    def add_workspace_member(self, workspace_id: str, *, email: str, role: Role) -> AddedWorkspaceMember:
        """Adds the user of an e-mail address to a workspace, or invites it."""
        return self._requester.perform(calls.add_workspace_member(workspace_id, email, role))
