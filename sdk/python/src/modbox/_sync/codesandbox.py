# Made from ../_async/codesandbox.py by tools/unasync.py. Change that file, then run make gen.
"""Code in sandboxes that are used again."""

from __future__ import annotations

from dataclasses import dataclass
from types import TracebackType
from typing import Dict, List, Optional, Type

from .._codesandbox import WORK_DIR, ExecutionResult, SandboxConfig, blocked_result, counted, execution_result
from .._locks import Lock
from .._schemas import Finding
from ..errors import CodeBlockedError, ModboxError, new_error
from .client import Modbox
from .sandbox import Sandbox


class CodeSandbox:
    """A sandbox that runs programs, each with the limits of its config.

    The sandbox is created by the first call, and deleted by ``close``, at the end of ``with``, or by its
    ``ttl_seconds``. What a program leaves, such as files, the next program finds: ``reset`` removes it, and
    SandboxPool gives each user a sandbox without it. Safe for concurrent use.
    """

    def __init__(self, config: Optional[SandboxConfig] = None, *, client: Optional[Modbox] = None) -> None:
        self.config = config or SandboxConfig()
        #: The directory in which programs run.
        self.work_dir = WORK_DIR
        #: The sandbox; None before the first call.
        self.sandbox: Optional[Sandbox] = None
        self._client = client
        self._lock = Lock()
        self._turn = Lock()  # held while a program runs
        self._clean: Optional[str] = None
        self._closed = False

    def start(self) -> Sandbox:
        """Creates the sandbox, unless it exists, and returns it when it runs.

        Raises an error of code ``conflict`` after ``close``, and after the release to a pool.
        """
        with self._lock:
            if self._closed:
                raise new_error("conflict", "this CodeSandbox was closed, or released to its pool: make or acquire another")
            if self.sandbox is None:
                sandbox = Sandbox.create(client=self._client, **self.config.create_options())
                try:
                    sandbox.files.mkdir(WORK_DIR)
                    self._clean = (sandbox.checkpoints.create()).id
                except BaseException:
                    sandbox.delete()
                    raise
                self.sandbox = sandbox
            return self.sandbox

    def execute(self, code: str) -> ExecutionResult:
        """Runs a program to its end, and returns its output and how it ended. Programs run one after the other.

        A program that fails, exceeds a limit or runs out of time raises nothing. Raises EndedError when the sandbox has
        ended, ProgramNotFoundError when its image does not have the language.
        """
        sandbox = self.start()
        findings: List[Finding] = []
        if self.config.scan != "off":
            scan = sandbox.scan_code(code, language=self.config.language, allowed_imports=self.config.allowed_imports)
            findings = counted(self.config, scan)
            if findings and self.config.scan == "block":
                return blocked_result(findings)
        with self._turn:
            try:
                result = sandbox.run(
                    self.config.program(code),
                    cwd=WORK_DIR,
                    timeout_seconds=self.config.timeout_seconds,
                    limits=self.config.limits(),
                )
            except CodeBlockedError as err:
                return ExecutionResult(stderr=f"{err.message}\n", exit_code=1, findings=findings, blocked=True)
        return execution_result(self.config, result, findings)

    def reset(self) -> None:
        """Takes the sandbox back to its state after ``start``: files, processes, environment, memory, network and ports."""
        sandbox = self.start()
        assert self._clean is not None  # start has set it
        _restore(sandbox, self._clean, self.config)

    def close(self) -> None:
        """Deletes the sandbox; later calls of ``execute`` raise an error of code ``conflict``."""
        with self._lock:
            self._closed = True
            sandbox, self.sandbox = self.sandbox, None
        if sandbox is not None:
            sandbox.delete()

    def __enter__(self) -> CodeSandbox:
        return self

    def __exit__(
        self, kind: Optional[Type[BaseException]], err: Optional[BaseException], trace: Optional[TracebackType]
    ) -> None:
        self.close()


def _restore(sandbox: Sandbox, clean: str, config: SandboxConfig) -> None:
    """Takes a sandbox back to a checkpoint. Variables, network and ports are no part of a checkpoint."""
    sandbox.checkpoints.restore(clean)
    calls = sandbox.client.sandboxes
    changed: Dict[str, Optional[str]] = {name: None for name in calls.update_env(sandbox.id, {})}
    changed.update(config.env)
    if changed:
        calls.update_env(sandbox.id, changed)
    calls.set_network(sandbox.id, enabled=config.network, ports=[])


@dataclass
class _Member:
    """A sandbox of a pool, and the checkpoint of its clean state."""

    sandbox: Sandbox
    clean: str
    #: It was given out since it was in its clean state.
    used: bool = False


class SandboxPool:
    """Sandboxes that are made in advance, and that are clean again for each user.

    ``release`` takes a sandbox back to a checkpoint of its state before its first use: files, processes, environment,
    memory and published ports of its user are gone. Safe for concurrent use. The end of ``with`` deletes the sandboxes.
    """

    def __init__(self, pool_size: int = 3, *, client: Optional[Modbox] = None) -> None:
        if pool_size < 1:
            raise ValueError(f"pool_size is {pool_size}; it must be at least 1")
        #: How many sandboxes the pool has.
        self.pool_size = pool_size
        self._client = client
        self._config: Optional[SandboxConfig] = None
        self._lock = Lock()
        self._available: List[_Member] = []
        self._lent: Dict[CodeSandbox, _Member] = {}
        self._closed = False

    def initialize(self, config: Optional[SandboxConfig] = None) -> None:
        """Makes the sandboxes, and returns when all of them run. If that fails, the pool is closed."""
        with self._lock:
            if self._config is not None or self._closed:
                raise new_error("conflict", "this SandboxPool was initialized or closed before: make another")
            self._config = config or SandboxConfig()
        try:
            for _ in range(self.pool_size):
                self._keep(self._made())
        except BaseException:
            self.close()
            raise

    def acquire(self) -> Optional[CodeSandbox]:
        """Returns a clean sandbox for the caller alone, or None when all of them are in use.

        The sandbox lives for ``ttl_seconds`` from now at least. A sandbox that has ended meanwhile is replaced.
        """
        with self._lock:
            if not self._available:
                return None
            member = self._available.pop(0)
        try:
            if member.used or not self._lives(member):
                self._dropped(member)
                member = self._made()
            return self._lend(member)
        except BaseException:
            self._keep(member)
            raise

    def release(self, sandbox: CodeSandbox) -> None:
        """Takes a sandbox back, cleans it, and returns when others can acquire it.

        The object that was acquired cannot be used any more. A sandbox that cannot be cleaned is replaced. Raises
        ValueError for an object that this pool has not given out, or that was released before.
        """
        with self._lock:
            member = self._lent.pop(sandbox, None)
        if member is None:
            raise ValueError("this pool has not given out that sandbox, or it was released before")
        sandbox._closed, sandbox.sandbox = True, None
        try:
            _restore(member.sandbox, member.clean, self._ready())
            member.used = False
        except ModboxError:
            self._dropped(member)
            member = self._made()
        finally:
            self._keep(member)  # acquire replaces a sandbox that is not clean

    def status(self) -> Dict[str, int]:
        """How many sandboxes there are: ``total``, ``available``, and ``in_use``, which includes those that are cleaned."""
        available = len(self._available)
        return {"total": self.pool_size, "available": available, "in_use": self.pool_size - available}

    def close(self) -> None:
        """Deletes all sandboxes, also those in use. Then ``acquire`` returns None."""
        with self._lock:
            self._closed = True
            members, self._available = [*self._available, *self._lent.values()], []
            for handle in self._lent:
                handle._closed, handle.sandbox = True, None
            self._lent = {}
        for member in members:
            self._dropped(member)

    def __enter__(self) -> SandboxPool:
        return self

    def __exit__(
        self, kind: Optional[Type[BaseException]], err: Optional[BaseException], trace: Optional[TracebackType]
    ) -> None:
        self.close()

    def _ready(self) -> SandboxConfig:
        if self._config is None:
            raise new_error("conflict", "this SandboxPool was not initialized")
        return self._config

    def _lives(self, member: _Member) -> bool:
        """Gives a sandbox its time to live anew, and returns whether it has not ended."""
        try:
            member.sandbox.set_timeout(self._ready().ttl_seconds)
        except ModboxError as err:
            if err.code not in ("ended", "not_found", "conflict"):
                raise
            return False
        return True

    def _made(self) -> _Member:
        """A new sandbox in its clean state."""
        made = CodeSandbox(self._ready(), client=self._client)
        sandbox = made.start()
        assert made._clean is not None  # start has set it
        return _Member(sandbox, made._clean)

    def _keep(self, member: _Member) -> None:
        """Makes a sandbox available, or deletes it if the pool is closed."""
        with self._lock:
            closed = self._closed
            if not closed:
                self._available.append(member)
        if closed:
            self._dropped(member)

    def _lend(self, member: _Member) -> Optional[CodeSandbox]:
        """The object for the user of a sandbox; None if the pool was closed meanwhile."""
        handle = CodeSandbox(self._config, client=self._client)
        handle.sandbox, handle._clean = member.sandbox, member.clean
        with self._lock:
            closed = self._closed
            if not closed:
                member.used = True
                self._lent[handle] = member
        if closed:
            self._dropped(member)
            return None
        return handle

    def _dropped(self, member: _Member) -> None:
        """Deletes a sandbox, which may have ended; one that cannot be deleted ends by its ttl."""
        try:
            member.sandbox.delete()
        except ModboxError:
            pass
