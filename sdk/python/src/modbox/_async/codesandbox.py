"""Code in sandboxes that are used again."""

from __future__ import annotations

from dataclasses import dataclass
from types import TracebackType
from typing import Dict, List, Optional, Type

from .._codesandbox import WORK_DIR, ExecutionResult, SandboxConfig, blocked_result, counted, execution_result
from .._locks import AsyncLock
from .._schemas import Finding
from ..errors import CodeBlockedError, ModboxError, new_error
from .client import AsyncModbox
from .sandbox import AsyncSandbox


class AsyncCodeSandbox:
    """A sandbox that runs programs, each with the limits of its config.

    The sandbox is created by the first call, and deleted by ``close``, at the end of ``with``, or by its
    ``ttl_seconds``. What a program leaves, such as files, the next program finds: ``reset`` removes it, and
    AsyncSandboxPool gives each user a sandbox without it. Safe for concurrent use.
    """

    def __init__(self, config: Optional[SandboxConfig] = None, *, client: Optional[AsyncModbox] = None) -> None:
        self.config = config or SandboxConfig()
        #: The directory in which programs run.
        self.work_dir = WORK_DIR
        #: The sandbox; None before the first call.
        self.sandbox: Optional[AsyncSandbox] = None
        self._client = client
        self._lock = AsyncLock()
        self._turn = AsyncLock()  # held while a program runs
        self._clean: Optional[str] = None
        self._closed = False

    async def start(self) -> AsyncSandbox:
        """Creates the sandbox, unless it exists, and returns it when it runs.

        Raises an error of code ``conflict`` after ``close``, and after the release to a pool.
        """
        async with self._lock:
            if self._closed:
                raise new_error("conflict", "this CodeSandbox was closed, or released to its pool: make or acquire another")
            if self.sandbox is None:
                sandbox = await AsyncSandbox.create(client=self._client, **self.config.create_options())
                try:
                    await sandbox.files.mkdir(WORK_DIR)
                    self._clean = (await sandbox.checkpoints.create()).id
                except BaseException:
                    await sandbox.delete()
                    raise
                self.sandbox = sandbox
            return self.sandbox

    async def execute(self, code: str) -> ExecutionResult:
        """Runs a program to its end, and returns its output and how it ended. Programs run one after the other.

        A program that fails, exceeds a limit or runs out of time raises nothing. Raises EndedError when the sandbox has
        ended, ProgramNotFoundError when its image does not have the language.
        """
        sandbox = await self.start()
        findings: List[Finding] = []
        if self.config.scan != "off":
            scan = await sandbox.scan_code(code, language=self.config.language, allowed_imports=self.config.allowed_imports)
            findings = counted(self.config, scan)
            if findings and self.config.scan == "block":
                return blocked_result(findings)
        async with self._turn:
            try:
                result = await sandbox.run(
                    self.config.program(code),
                    cwd=WORK_DIR,
                    timeout_seconds=self.config.timeout_seconds,
                    limits=self.config.limits(),
                )
            except CodeBlockedError as err:
                return ExecutionResult(stderr=f"{err.message}\n", exit_code=1, findings=findings, blocked=True)
        return execution_result(self.config, result, findings)

    async def reset(self) -> None:
        """Takes the sandbox back to its state after ``start``: files, processes, environment, memory, network and ports."""
        sandbox = await self.start()
        assert self._clean is not None  # start has set it
        await _restore(sandbox, self._clean, self.config)

    async def close(self) -> None:
        """Deletes the sandbox; later calls of ``execute`` raise an error of code ``conflict``."""
        async with self._lock:
            self._closed = True
            sandbox, self.sandbox = self.sandbox, None
        if sandbox is not None:
            await sandbox.delete()

    async def __aenter__(self) -> AsyncCodeSandbox:
        return self

    async def __aexit__(
        self, kind: Optional[Type[BaseException]], err: Optional[BaseException], trace: Optional[TracebackType]
    ) -> None:
        await self.close()


async def _restore(sandbox: AsyncSandbox, clean: str, config: SandboxConfig) -> None:
    """Takes a sandbox back to a checkpoint. Variables, network and ports are no part of a checkpoint."""
    await sandbox.checkpoints.restore(clean)
    calls = sandbox.client.sandboxes
    changed: Dict[str, Optional[str]] = {name: None for name in await calls.update_env(sandbox.id, {})}
    changed.update(config.env)
    if changed:
        await calls.update_env(sandbox.id, changed)
    await calls.set_network(sandbox.id, enabled=config.network, ports=[])


@dataclass
class _Member:
    """A sandbox of a pool, and the checkpoint of its clean state."""

    sandbox: AsyncSandbox
    clean: str
    #: It was given out since it was in its clean state.
    used: bool = False


class AsyncSandboxPool:
    """Sandboxes that are made in advance, and that are clean again for each user.

    ``release`` takes a sandbox back to a checkpoint of its state before its first use: files, processes, environment,
    memory and published ports of its user are gone. Safe for concurrent use. The end of ``with`` deletes the sandboxes.
    """

    def __init__(self, pool_size: int = 3, *, client: Optional[AsyncModbox] = None) -> None:
        if pool_size < 1:
            raise ValueError(f"pool_size is {pool_size}; it must be at least 1")
        #: How many sandboxes the pool has.
        self.pool_size = pool_size
        self._client = client
        self._config: Optional[SandboxConfig] = None
        self._lock = AsyncLock()
        self._available: List[_Member] = []
        self._lent: Dict[AsyncCodeSandbox, _Member] = {}
        self._closed = False

    async def initialize(self, config: Optional[SandboxConfig] = None) -> None:
        """Makes the sandboxes, and returns when all of them run. If that fails, the pool is closed."""
        async with self._lock:
            if self._config is not None or self._closed:
                raise new_error("conflict", "this SandboxPool was initialized or closed before: make another")
            self._config = config or SandboxConfig()
        try:
            for _ in range(self.pool_size):
                await self._keep(await self._made())
        except BaseException:
            await self.close()
            raise

    async def acquire(self) -> Optional[AsyncCodeSandbox]:
        """Returns a clean sandbox for the caller alone, or None when all of them are in use.

        The sandbox lives for ``ttl_seconds`` from now at least. A sandbox that has ended meanwhile is replaced.
        """
        async with self._lock:
            if not self._available:
                return None
            member = self._available.pop(0)
        try:
            if member.used or not await self._lives(member):
                await self._dropped(member)
                member = await self._made()
            return await self._lend(member)
        except BaseException:
            await self._keep(member)
            raise

    async def release(self, sandbox: AsyncCodeSandbox) -> None:
        """Takes a sandbox back, cleans it, and returns when others can acquire it.

        The object that was acquired cannot be used any more. A sandbox that cannot be cleaned is replaced. Raises
        ValueError for an object that this pool has not given out, or that was released before.
        """
        async with self._lock:
            member = self._lent.pop(sandbox, None)
        if member is None:
            raise ValueError("this pool has not given out that sandbox, or it was released before")
        sandbox._closed, sandbox.sandbox = True, None
        try:
            await _restore(member.sandbox, member.clean, self._ready())
            member.used = False
        except ModboxError:
            await self._dropped(member)
            member = await self._made()
        finally:
            await self._keep(member)  # acquire replaces a sandbox that is not clean

    def status(self) -> Dict[str, int]:
        """How many sandboxes there are: ``total``, ``available``, and ``in_use``, which includes those that are cleaned."""
        available = len(self._available)
        return {"total": self.pool_size, "available": available, "in_use": self.pool_size - available}

    async def close(self) -> None:
        """Deletes all sandboxes, also those in use. Then ``acquire`` returns None."""
        async with self._lock:
            self._closed = True
            members, self._available = [*self._available, *self._lent.values()], []
            for handle in self._lent:
                handle._closed, handle.sandbox = True, None
            self._lent = {}
        for member in members:
            await self._dropped(member)

    async def __aenter__(self) -> AsyncSandboxPool:
        return self

    async def __aexit__(
        self, kind: Optional[Type[BaseException]], err: Optional[BaseException], trace: Optional[TracebackType]
    ) -> None:
        await self.close()

    def _ready(self) -> SandboxConfig:
        if self._config is None:
            raise new_error("conflict", "this SandboxPool was not initialized")
        return self._config

    async def _lives(self, member: _Member) -> bool:
        """Gives a sandbox its time to live anew, and returns whether it has not ended."""
        try:
            await member.sandbox.set_timeout(self._ready().ttl_seconds)
        except ModboxError as err:
            if err.code not in ("ended", "not_found", "conflict"):
                raise
            return False
        return True

    async def _made(self) -> _Member:
        """A new sandbox in its clean state."""
        made = AsyncCodeSandbox(self._ready(), client=self._client)
        sandbox = await made.start()
        assert made._clean is not None  # start has set it
        return _Member(sandbox, made._clean)

    async def _keep(self, member: _Member) -> None:
        """Makes a sandbox available, or deletes it if the pool is closed."""
        async with self._lock:
            closed = self._closed
            if not closed:
                self._available.append(member)
        if closed:
            await self._dropped(member)

    async def _lend(self, member: _Member) -> Optional[AsyncCodeSandbox]:
        """The object for the user of a sandbox; None if the pool was closed meanwhile."""
        handle = AsyncCodeSandbox(self._config, client=self._client)
        handle.sandbox, handle._clean = member.sandbox, member.clean
        async with self._lock:
            closed = self._closed
            if not closed:
                member.used = True
                self._lent[handle] = member
        if closed:
            await self._dropped(member)
            return None
        return handle

    async def _dropped(self, member: _Member) -> None:
        """Deletes a sandbox, which may have ended; one that cannot be deleted ends by its ttl."""
        try:
            await member.sandbox.delete()
        except ModboxError:
            pass
