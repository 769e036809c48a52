"""The calls of the Modbox platform."""

from ._async.platform import AsyncPlatform
from ._platform import AddedWorkspaceMember, DestroyResult, PlatformWorkspace, PlatformWorkspaces, ProvisionResult, SandboxDetail, SandboxList, WaitResult, WorkspaceMember
from ._sync.platform import Platform

__all__ = [
    "AddedWorkspaceMember",
    "AsyncPlatform",
    "DestroyResult",
    "Platform",
    "PlatformWorkspace",
    "PlatformWorkspaces",
    "ProvisionResult",
    "SandboxDetail",
    "SandboxList",
    "WaitResult",
    "WorkspaceMember",
]
