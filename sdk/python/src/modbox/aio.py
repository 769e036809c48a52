"""The client for asyncio programs. It needs httpx."""

from ._async.client import AsyncModbox
from ._async.codesandbox import AsyncCodeSandbox, AsyncSandboxPool
from ._async.commands import AsyncCommand, AsyncCommands
from ._async.platform import AsyncModboxClient
from ._async.sandbox import AsyncSandbox
from ._async.sandboxes import AsyncSandboxes

__all__ = [
    "AsyncCodeSandbox",
    "AsyncCommand",
    "AsyncCommands",
    "AsyncModbox",
    "AsyncModboxClient",
    "AsyncSandbox",
    "AsyncSandboxPool",
    "AsyncSandboxes",
]
