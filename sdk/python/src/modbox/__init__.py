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
    Stats,
    Timeouts,
    Token,
    Usage,
    WaitResult,
)
from .options import CreateOptions, ExecutionCommand, SnapshotFilter
from .records import Checkpoint, Execution, Forked, OutputStream, Snapshot, SnapshotPage
from .transport import AsyncHttpxTransport, HttpxTransport, UrllibTransport

__version__ = "0.1.0"

__all__ = [
    "AsyncHttpxTransport",
    "AsyncModboxClient",
    "AuthError",
    "Cause",
    "Checkpoint",
    "ConflictError",
    "ConnectionError",
    "CreateOptions",
    "DestroyResult",
    "EndedError",
    "Event",
    "ExecEvent",
    "ExecResult",
    "Execution",
    "ExecutionCommand",
    "FieldError",
    "FileEvent",
    "FileInfo",
    "FileList",
    "Forked",
    "HttpxTransport",
    "Identity",
    "Image",
    "ModboxClient",
    "ModboxError",
    "NetworkOptions",
    "NewToken",
    "NotFoundError",
    "OutputStream",
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
    "SnapshotFilter",
    "SnapshotPage",
    "Stats",
    "TimeoutError",
    "Timeouts",
    "Token",
    "UrllibTransport",
    "Usage",
    "ValidationError",
    "WaitResult",
]
