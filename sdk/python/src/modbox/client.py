"""The client for programs that wait for each call."""

from ._sync.client import Modbox
from ._sync.codesandbox import CodeSandbox, SandboxPool
from ._sync.commands import Command, Commands
from ._sync.platform import ModboxClient
from ._sync.sandbox import Sandbox
from ._sync.sandboxes import Sandboxes

__all__ = ["CodeSandbox", "Command", "Commands", "Modbox", "ModboxClient", "Sandbox", "SandboxPool", "Sandboxes"]
