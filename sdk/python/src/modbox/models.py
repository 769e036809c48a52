"""The answers of the server. Times are aware datetimes; a value does not change when the object does."""

from __future__ import annotations

import base64
from dataclasses import dataclass, field
from datetime import datetime
from typing import Generic, Literal, Optional, Sequence, TypeVar, Union

from ._decode import _by, _object
from ._schemas import (
    Cause,
    CodeScan,
    CodeScanMode,
    Event,
    ExecLimits,
    FileInfo,
    Host,
    HostImages,
    HostOperation,
    HostPool,
    HostResource,
    HostSandboxes,
    HostTemplates,
    HostWaiting,
    Identity,
    Image,
    NetworkOptions,
    NewToken,
    PortAccess,
    PortLink,
    PublishedPort,
    Requirements,
    Resources,
    Runtime,
    SandboxInfo,
    SandboxNetwork,
    SandboxState,
    ServerVersion,
    SignInSession,
    SSHKey,
    Stats,
    Timeouts,
    Token,
    URLAccess,
    Usage,
)

__all__ = [
    "AnyExecResult",
    "Cause",
    "CodeScanMode",
    "Event",
    "ExecEvent",
    "ExecLimits",
    "ExecResult",
    "FileEvent",
    "FileInfo",
    "Host",
    "HostImages",
    "HostOperation",
    "HostPool",
    "HostResource",
    "HostSandboxes",
    "HostTemplates",
    "HostWaiting",
    "Identity",
    "Image",
    "LimitName",
    "NetworkOptions",
    "NewToken",
    "PortAccess",
    "PortLink",
    "Program",
    "PublishedPort",
    "Requirements",
    "Resources",
    "Runtime",
    "SandboxInfo",
    "SandboxNetwork",
    "SandboxState",
    "ServerVersion",
    "SSHKey",
    "SignInSession",
    "Stats",
    "Timeouts",
    "Token",
    "URLAccess",
    "Usage",
    "UserSession",
]

@dataclass(frozen=True)
class Program:
    """A program that the server writes to a file, and runs by the interpreter of its language."""

    code: str
    #: The absolute path of its file. Missing parent directories are made; programs import from its directory.
    path: str
    #: Python when it is None.
    language: Optional[Literal["python", "javascript", "bash"]] = None
    #: The packages that the program itself may import: their top-level names; None allows all. It is no boundary. Not
    #: for ``bash``.
    allowed_imports: Optional[Sequence[str]] = None


#: A limit of ExecLimits, as results name it.
LimitName = Literal["memory", "cpu", "file_size", "processes"]

Output = TypeVar("Output", str, bytes)


@dataclass(frozen=True)
class ExecResult(Generic[Output]):
    """How a command ended, and its output."""

    #: 128 + signal when a signal ended it.
    exit_code: int
    stdout: Output
    stderr: Output
    timed_out: bool
    #: There was more than max_output_bytes, or than the server had memory for.
    stdout_truncated: bool
    stderr_truncated: bool
    duration_ms: int
    #: The signal's number; 0 when it exited by itself.
    signal: int = 0
    #: The limit that it exceeded, and that ended it.
    limit_exceeded: Optional[LimitName] = None
    #: The findings of the scan that the policy of the workspace (``code_scan``) demands; None without a scan.
    scan: Optional[CodeScan] = _by(_object(CodeScan), default=None)


@dataclass(frozen=True)
class ExecEvent:
    """A report of a command under way: ``started`` first, ``exit`` last.

    ``data`` is set for ``stdout`` and ``stderr``; ``pid`` and ``scan`` for
    ``started``; the others for ``exit``.
    """

    type: Literal["started", "stdout", "stderr", "exit"]
    data: bytes = _by(base64.b64decode, default=b"")
    pid: int = 0
    exit_code: int = 0
    signal: int = 0
    timed_out: bool = False
    limit_exceeded: Optional[LimitName] = None
    duration_ms: int = 0
    scan: Optional[CodeScan] = _by(_object(CodeScan), default=None)


@dataclass(frozen=True)
class FileEvent:
    """A change of a file; a rename is ``moved_from`` and ``moved_to``.

    ``overflow`` says that events were lost; ``limit`` that the directory, and maybe
    others, is not watched because there are too many.
    """

    type: Literal["created", "modified", "attributes", "removed", "moved_from", "moved_to", "overflow", "limit"]
    path: str = ""
    directory: bool = False


@dataclass(frozen=True)
class UserSession:
    """The tokens of somebody who has signed in."""

    access_token: str = field(repr=False)
    #: Gets the next tokens, once: using one twice ends the session.
    refresh_token: str = field(repr=False)
    #: When the access token ends.
    expires_at: datetime
    refresh_expires_at: datetime


AnyExecResult = Union["ExecResult[str]", "ExecResult[bytes]"]
