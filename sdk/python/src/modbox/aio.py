"""The client for asyncio programs. It needs httpx."""

from ._async.client import AsyncModboxClient
from ._async.sandboxes import AsyncSandboxes

__all__ = ["AsyncModboxClient", "AsyncSandboxes"]
