"""The client with the calls of the Modbox platform, for compatibility."""

from ._async.platform import AsyncModboxClient
from ._platform import AddedWorkspaceMember, DestroyResult, PlatformWorkspace, PlatformWorkspaces, ProvisionResult, SandboxDetail, SandboxList, WaitResult, WorkspaceMember
from ._sync.platform import ModboxClient

__all__ = [
    "AddedWorkspaceMember",
    "AsyncModboxClient",
    "DestroyResult",
    "ModboxClient",
    "PlatformWorkspace",
    "PlatformWorkspaces",
    "ProvisionResult",
    "SandboxDetail",
    "SandboxList",
    "WaitResult",
    "WorkspaceMember",
]
