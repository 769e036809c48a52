"""Client for Modbox, the open, self-hosted sandbox cloud for AI agents.

    from modbox import ModboxClient

    modbox = ModboxClient(token="mbx_…")
    sandbox = modbox.sandboxes.create(image="modbox/code-exec", ttl_seconds=600, wait_seconds=60)
    print(modbox.sandboxes.exec(sandbox.id, ["python3", "-c", "print(1 + 1)"]).stdout)
    modbox.sandboxes.destroy(sandbox.id)
"""

from .aio import AsyncModboxClient
from .client import ModboxClient
from .errors import (
    AuthError,
    ConflictError,
    ConnectionError,
    EndedError,
    FieldError,
    ModboxError,
    NotFoundError,
    TimeoutError,
    ValidationError,
)
from .models import (
    Cause,
    DestroyResult,
    Event,
    ExecEvent,
    ExecResult,
    FileEvent,
    FileInfo,
    FileList,
    Identity,
    Image,
    NetworkOptions,
    NewToken,
    ProvisionResult,
    PublishedPort,
    Requirements,
    Resources,
    Runtime,
    Sandbox,
    SandboxDetail,
    SandboxImage,
    SandboxList,
    SandboxNetwork,
    SandboxPage,
    SandboxState,
    ServerVersion,
    Snapshot,
    Stats,
    Token,
    Usage,
    WaitResult,
)
from .transport import AsyncHttpxTransport, HttpxTransport, UrllibTransport

__version__ = "0.1.0"

__all__ = [
    "AsyncHttpxTransport",
    "AsyncModboxClient",
    "AuthError",
    "Cause",
    "ConflictError",
    "ConnectionError",
    "DestroyResult",
    "EndedError",
    "Event",
    "ExecEvent",
    "ExecResult",
    "FieldError",
    "FileEvent",
    "FileInfo",
    "FileList",
    "HttpxTransport",
    "Identity",
    "Image",
    "ModboxClient",
    "ModboxError",
    "NetworkOptions",
    "NewToken",
    "NotFoundError",
    "ProvisionResult",
    "PublishedPort",
    "Requirements",
    "Resources",
    "Runtime",
    "Sandbox",
    "SandboxDetail",
    "SandboxImage",
    "SandboxList",
    "SandboxNetwork",
    "SandboxPage",
    "SandboxState",
    "ServerVersion",
    "Snapshot",
    "Stats",
    "TimeoutError",
    "Token",
    "UrllibTransport",
    "Usage",
    "ValidationError",
    "WaitResult",
]
