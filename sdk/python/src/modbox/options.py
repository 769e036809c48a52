"""The arguments of calls with many arguments, by keyword. All members are optional; a member that is None counts as absent."""

from __future__ import annotations

import ssl
from typing import Awaitable, Callable, Optional, TypedDict, Union

from ._schemas import (
    BuildOptions,
    CreateOptions,
    ExecutionCommand,
    SandboxImageChanges,
    SandboxImageOptions,
    SnapshotFilter,
)
from .models import UserSession

__all__ = [
    "AsyncConnectOptions",
    "BuildOptions",
    "ConnectOptions",
    "CreateOptions",
    "ExecutionCommand",
    "SandboxImageChanges",
    "SandboxImageOptions",
    "SnapshotFilter",
]


class ConnectOptions(TypedDict, total=False):
    """How a client is made that somebody signs in for; as the arguments of Modbox."""

    base_url: Optional[str]
    workspace_id: Optional[str]
    timeout: float
    max_retries: int
    ssl_context: Optional[ssl.SSLContext]
    #: Called with the session's new tokens whenever they were renewed, to keep them.
    on_session: Optional[Callable[[UserSession], None]]


class AsyncConnectOptions(TypedDict, total=False):
    """As ConnectOptions, for AsyncModbox."""

    base_url: Optional[str]
    workspace_id: Optional[str]
    timeout: float
    max_retries: int
    ssl_context: Optional[ssl.SSLContext]
    #: May be a coroutine function.
    on_session: Union[Callable[[UserSession], None], Callable[[UserSession], Awaitable[None]], None]


