"""The contexts, ports and checkpoints of one sandbox."""

from __future__ import annotations

from typing import Mapping, Optional, Union

from .._pages import AsyncPages
from .._schemas import Checkpoint, CodeContext, ExecLimits, PortAccess, PortLink, PublishedPort, SandboxInfo
from .code import AsyncContexts
from .ports import AsyncPorts
from .states import AsyncCheckpoints


class AsyncSandboxContexts:
    """The contexts of a sandbox: interpreters that keep their state. ``context`` is a CodeContext or its id."""

    def __init__(self, contexts: AsyncContexts, sandbox_id: str) -> None:
        self._contexts = contexts
        self._sandbox_id = sandbox_id

    async def create(
        self,
        *,
        language: Optional[str] = None,
        cwd: Optional[str] = None,
        env: Optional[Mapping[str, str]] = None,
        limits: Optional[ExecLimits] = None,
    ) -> CodeContext:
        """Starts an interpreter with a state of its own: python when ``language`` is omitted; at most 32 in a sandbox.

        ``cwd`` is its working directory, by default the image's; ``env`` is added to the sandbox's environment;
        ``limits`` are for code that has none of its own. Raises an error of code ``unsupported`` for a language that
        the sandbox does not have.
        """
        return await self._contexts.create(self._sandbox_id, language=language, cwd=cwd, env=env, limits=limits)

    def list(self, *, limit: Optional[int] = None, cursor: Optional[str] = None) -> AsyncPages[CodeContext]:
        """Lists the contexts, oldest first."""
        return self._contexts.list(self._sandbox_id, limit=limit, cursor=cursor)

    async def interrupt(self, context: Union[CodeContext, str]) -> None:
        """Interrupts the code that runs in a context."""
        await self._contexts.interrupt(self._sandbox_id, context)

    async def restart(self, context: Union[CodeContext, str]) -> CodeContext:
        """Starts the interpreter of a context again, without its state."""
        return await self._contexts.restart(self._sandbox_id, context)

    async def delete(self, context: Union[CodeContext, str]) -> None:
        """Ends a context."""
        await self._contexts.delete(self._sandbox_id, context)


class AsyncSandboxPorts:
    """The published ports of a sandbox. AsyncSandbox.url publishes a port and returns its URL."""

    def __init__(self, ports: AsyncPorts, sandbox_id: str) -> None:
        self._ports = ports
        self._sandbox_id = sandbox_id

    def list(self, *, limit: Optional[int] = None, cursor: Optional[str] = None) -> AsyncPages[PublishedPort]:
        """Lists the published ports, by number."""
        return self._ports.list(self._sandbox_id, limit=limit, cursor=cursor)

    async def publish(self, port: int, *, access: Optional[PortAccess] = None) -> PublishedPort:
        """Gives a port a URL of its own, or changes the access of a port that has one; a change cuts off all visitors.

        ``access`` is ``public`` when omitted. Raises ValidationError for a port outside 1 to 65535 and for 49983,
        which the agent uses, and QuotaError for a 33rd port.
        """
        return await self._ports.publish(self._sandbox_id, port, access=access)

    async def unpublish(self, port: int) -> None:
        """Unpublishes a port: its URL and all links to it stop working at once, and open connections are cut off."""
        await self._ports.unpublish(self._sandbox_id, port)

    async def rotate(self, port: int) -> PublishedPort:
        """Gives a published port another URL; the old URL and all links to it stop working at once."""
        return await self._ports.rotate(self._sandbox_id, port)

    async def create_link(self, port: int, *, expires_in_seconds: Optional[int] = None) -> PortLink:
        """Makes a signed link to a private port, for 60 to 604800 seconds (a week); an hour when omitted.

        Raises ConflictError for a public port, and AuthError when the link would outlive the client's token.
        """
        return await self._ports.create_link(self._sandbox_id, port, expires_in_seconds=expires_in_seconds)


class AsyncSandboxCheckpoints:
    """The saved states of a sandbox; ``checkpoint`` is an id or a name."""

    def __init__(self, checkpoints: AsyncCheckpoints, sandbox_id: str) -> None:
        self._checkpoints = checkpoints
        self._sandbox_id = sandbox_id

    async def create(self, *, name: Optional[str] = None) -> Checkpoint:
        """Saves memory and files of a running or paused sandbox, which goes on. Without a name the server chooses one."""
        return await self._checkpoints.create(self._sandbox_id, name=name)

    def list(self, *, limit: Optional[int] = None, cursor: Optional[str] = None) -> AsyncPages[Checkpoint]:
        """Lists the checkpoints, oldest first."""
        return self._checkpoints.list(self._sandbox_id, limit=limit, cursor=cursor)

    async def restore(self, checkpoint: str) -> SandboxInfo:
        """Returns the sandbox to a checkpoint; all changes since then are lost. The checkpoint stays."""
        return await self._checkpoints.restore(self._sandbox_id, checkpoint)

    async def delete(self, checkpoint: str) -> None:
        """Deletes a checkpoint."""
        await self._checkpoints.delete(self._sandbox_id, checkpoint)
