"""The client for asyncio programs. It needs httpx; what the calls do is said at ModboxClient."""

from __future__ import annotations

import asyncio
import itertools
import math
import ssl
import time
from contextlib import asynccontextmanager
from types import TracebackType
from typing import (
    TYPE_CHECKING,
    Any,
    AsyncGenerator,
    AsyncIterator,
    Awaitable,
    Callable,
    Literal,
    Mapping,
    Optional,
    Sequence,
    Tuple,
    Type,
    TypeVar,
    overload,
)

from . import _calls as calls
from . import _signin, terminals
from ._calls import MAX_WAIT_SECONDS, Call, EventReader
from ._executions import AsyncExecutions, AsyncStreams
from ._files import AsyncFiles
from ._pages import AsyncPages
from ._ports import AsyncPorts
from ._session import DEFAULTS as _DEFAULTS
from ._session import Settings, parse, read_async
from ._signin import AsyncAccount, AsyncRenewing, Credentials, OnSession
from ._stateful import AsyncCheckpoints, AsyncSnapshots, AsyncStates
from .account import AsyncTokens
from .audit import AsyncAudit
from .client import waited
from .errors import ModboxError
from .images import AsyncImages, AsyncSandboxImages
from .models import (
    AnyExecResult,
    Event,
    ExecEvent,
    ExecResult,
    Identity,
    Sandbox,
    SandboxState,
    ServerVersion,
    Stats,
    Usage,
    UserSession,
)
from .platform import AsyncPlatform
from .registries import AsyncRegistries
from .terminals import AsyncSession
from .transport import AsyncHttpxTransport, AsyncResponse, AsyncTransport, Request
from .users import AsyncUsers
from .workspaces import AsyncWorkspaces

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from .options import AsyncConnectOptions, CreateOptions

T = TypeVar("T")


class _Session:
    """Performs calls."""

    def __init__(self, settings: Settings, transport: AsyncTransport, renewing: AsyncRenewing) -> None:
        self._settings = settings
        self._transport = transport
        self._renewing = renewing

    @property
    def credentials(self) -> Credentials:
        return self._renewing.credentials

    def address(self, path: str) -> str:
        return self._settings.base_url + path

    async def perform(self, call: Call[T]) -> T:
        request = await self._request(call)

        async def once() -> bytes:
            return await read_async(await self._transport.send(request))

        return parse(call, await self._try(call, once))

    async def renew(self) -> UserSession:
        return await self._renewing.renew(self.perform)

    async def connect(self, attach: terminals.Attach) -> terminals.AsyncSession:
        request = await self._request(attach.call)
        return await self._try(attach.call, lambda: terminals.connect_async(attach, request, self._settings.ssl_context))

    async def stream(self, call: Call[bytes]) -> AsyncGenerator[bytes, None]:
        """Yields the answer's body as it comes; closing the iterator closes the connection."""
        request = await self._request(call)

        async def once() -> AsyncResponse:
            response = await self._transport.send(request)
            if not 200 <= response.status < 300:
                await read_async(response)  # raises
            return response

        response = await self._try(call, once)
        try:
            async for chunk in response.chunks():
                yield chunk
        finally:
            await response.close()

    async def _request(self, call: Call[Any]) -> Request:
        # Not within the tries: it may renew a session, which is never done twice.
        return self._settings.request(call, None if call.anonymous else await self._renewing.bearer(self.perform))

    async def _try(self, call: Call[Any], once: Callable[[], Awaitable[T]]) -> T:
        for attempt in itertools.count():
            try:
                return await once()
            except ModboxError as err:
                delay = self._settings.retry_delay(call, attempt, err)
                if delay is None:
                    raise
                await asyncio.sleep(delay)
        raise AssertionError("count has no end")

    async def close(self) -> None:
        await self._transport.close()


class AsyncSandboxes(AsyncStates):
    """The sandboxes of a workspace; ``ref`` is a sandbox's id or name.

    One that does not exist raises NotFoundError.
    """

    def __init__(self, session: _Session) -> None:
        self._session = session
        #: Files of a sandbox.
        self.files = AsyncFiles(session)
        #: Saved states of a sandbox.
        self.checkpoints = AsyncCheckpoints(session)
        #: Published ports of a sandbox.
        self.ports = AsyncPorts(session)

    async def create(self, **options: Unpack[CreateOptions]) -> Sandbox:
        """Makes a sandbox, described by the members of CreateOptions, or answers the live one of the same request.

        Without ``wait_seconds`` it is usually still provisioning when this returns. Raises
        ConflictError when a different live sandbox has the name.
        """
        return await self._session.perform(calls.create(options))

    @asynccontextmanager
    async def temporary(self, **options: Unpack[CreateOptions]) -> AsyncIterator[Sandbox]:
        """Makes a sandbox for a ``async with`` block: it runs when the block begins, and is destroyed when it ends.

        Raises as wait does, when it does not run within ``wait_seconds``, by default 60.
        """
        wait_seconds = options.pop("wait_seconds", None)
        sandbox = await self.create(**options)
        try:
            yield await self.wait(sandbox.id, timeout_seconds=wait_seconds or 60)
        finally:
            await self.destroy(sandbox.id)

    async def get(self, ref: str) -> Sandbox:
        """Returns a sandbox; ended ones stay visible."""
        return await self._session.perform(calls.get(ref))

    def list(
        self,
        *,
        states: Sequence[SandboxState] = (),
        name: Optional[str] = None,
        labels: Optional[Mapping[str, str]] = None,
        snapshot_id: Optional[str] = None,
        limit: Optional[int] = None,
        cursor: Optional[str] = None,
    ) -> AsyncPages[Sandbox]:
        """Lists sandboxes, newest first; without ``states`` those that have not ended."""
        return AsyncPages(self._session, calls.list_sandboxes(states, name, labels, snapshot_id), limit, cursor)

    async def destroy(self, ref: str) -> Sandbox:
        """Ends a sandbox and returns when nothing of it is left. One that has ended is answered as it is."""
        return await self._session.perform(calls.destroy(ref))

    async def wait(
        self, ref: str, *, state: Literal["running", "paused", "destroyed", "failed"] = "running", timeout_seconds: float = 60
    ) -> Sandbox:
        """Returns as soon as the sandbox is in the state.

        Raises EndedError when it ended instead, TimeoutError when it did not get there in time.
        """
        end = time.monotonic() + timeout_seconds
        while True:
            seconds = min(MAX_WAIT_SECONDS, max(1, math.ceil(end - time.monotonic())))
            sandbox = await self._session.perform(calls.wait(ref, state, seconds))
            if waited(sandbox, ref, state, time.monotonic() >= end, timeout_seconds):
                return sandbox

    @overload
    async def exec(
        self,
        ref: str,
        command: Optional[Sequence[str]] = None,
        *,
        shell: Optional[str] = None,
        cwd: Optional[str] = None,
        env: Optional[Mapping[str, str]] = None,
        user: Optional[str] = None,
        stdin: Optional[str] = None,
        timeout_seconds: Optional[int] = None,
        max_output_bytes: Optional[int] = None,
        output: Literal["text"] = "text",
    ) -> ExecResult[str]: ...

    @overload
    async def exec(
        self,
        ref: str,
        command: Optional[Sequence[str]] = None,
        *,
        shell: Optional[str] = None,
        cwd: Optional[str] = None,
        env: Optional[Mapping[str, str]] = None,
        user: Optional[str] = None,
        stdin: Optional[str] = None,
        timeout_seconds: Optional[int] = None,
        max_output_bytes: Optional[int] = None,
        output: Literal["bytes"],
    ) -> ExecResult[bytes]: ...

    async def exec(
        self,
        ref: str,
        command: Optional[Sequence[str]] = None,
        *,
        shell: Optional[str] = None,
        cwd: Optional[str] = None,
        env: Optional[Mapping[str, str]] = None,
        user: Optional[str] = None,
        stdin: Optional[str] = None,
        timeout_seconds: Optional[int] = None,
        max_output_bytes: Optional[int] = None,
        output: Literal["text", "bytes"] = "text",
    ) -> AnyExecResult:
        """Runs a command to its end: exactly one of ``command`` (program and arguments) and ``shell`` (a script).

        A command that fails is no error: look at ``exit_code``. It is ended after
        ``timeout_seconds`` (default 60, at most 3600). Of each of stdout and stderr
        ``max_output_bytes`` are kept (default 1 MiB, at most 16 MiB). It is never sent twice.
        """
        body = calls.command_body(command, shell, cwd, env, user, stdin, timeout_seconds)
        return await self._session.perform(calls.execute(ref, body, max_output_bytes, output))

    async def exec_stream(
        self,
        ref: str,
        command: Optional[Sequence[str]] = None,
        *,
        shell: Optional[str] = None,
        cwd: Optional[str] = None,
        env: Optional[Mapping[str, str]] = None,
        user: Optional[str] = None,
        stdin: Optional[str] = None,
        timeout_seconds: Optional[int] = None,
    ) -> AsyncGenerator[ExecEvent, None]:
        """Runs a command and gives its output as it comes, in bytes; the last event is ``exit``.

        The command starts with the first event asked for. Closing the iterator kills it;
        leaving the loop early closes it only when it is garbage collected, so use
        ``contextlib.aclosing`` for that. Raises when the end of the command is not known.
        """
        body = calls.command_body(command, shell, cwd, env, user, stdin, timeout_seconds)
        chunks = self._session.stream(calls.execute_stream(ref, body))
        reader = EventReader()
        try:
            async for chunk in chunks:
                for event in reader.feed(chunk):
                    yield event
        finally:
            await chunks.aclose()
        reader.end()

    async def attach(
        self,
        ref: str,
        command: Optional[Sequence[str]] = None,
        *,
        shell: Optional[str] = None,
        cwd: Optional[str] = None,
        env: Optional[Mapping[str, str]] = None,
        user: Optional[str] = None,
        timeout_seconds: Optional[int] = None,
        tty: Optional[Tuple[int, int]] = None,
        stdin: Optional[bool] = None,
    ) -> AsyncSession:
        """Runs a command and stays connected to it: input, terminal, signals. Needs the extra ``modbox[terminal]``.

        With ``tty``, a terminal of so many rows and columns, everything is on stdout. Without it and
        ``stdin`` the command has no input. Closing the session kills the command. Never sent twice.
        """
        body = calls.command_body(command, shell, cwd, env, user, None, timeout_seconds)
        return await self._session.connect(terminals.attach(ref, body, tty, stdin))

    def events(
        self,
        ref: str,
        *,
        after_seq: Optional[int] = None,
        order: Optional[Literal["asc", "desc"]] = None,
        limit: Optional[int] = None,
        cursor: Optional[str] = None,
    ) -> AsyncPages[Event]:
        """Lists what happened to a sandbox, oldest first unless asked otherwise; with ``after_seq`` only what came later."""
        return AsyncPages(self._session, calls.events(ref, after_seq, order), limit, cursor)

    async def stats(self, ref: str) -> Stats:
        """Measures a running sandbox now."""
        return await self._session.perform(calls.stats(ref))

    async def usage(self, ref: str) -> Usage:
        """What a sandbox has used in all, also after its end."""
        return await self._session.perform(calls.usage(ref))

    async def update(self, ref: str, *, checkpoint_interval_seconds: Optional[int] = None) -> Sandbox:
        """Changes settings of a sandbox; None leaves one as it is.

        ``checkpoint_interval_seconds`` 0 switches automatic checkpoints off and deletes the automatic checkpoint.
        """
        return await self._session.perform(calls.update(ref, checkpoint_interval_seconds))

    async def set_network(self, ref: str, *, enabled: Optional[bool] = None, ports: Optional[Sequence[int]] = None) -> Sandbox:
        """Changes the network of a running or paused sandbox; None leaves it as it is.

        Switching it off cuts its connections; ``ports`` replaces the list of published ports, and a port
        that stays in it keeps its URL.
        """
        return await self._session.perform(calls.set_network(ref, enabled, ports))


class AsyncModboxClient(AsyncPlatform):
    """ModboxClient for asyncio: the same calls, awaited.

    Raises ImportError when httpx is not installed and no transport is given.
    For one event loop; tasks may share it.
    """

    def __init__(
        self,
        token: Optional[str] = None,
        *,
        session: Optional[UserSession] = None,
        on_session: Optional[OnSession] = None,
        base_url: Optional[str] = None,
        workspace_id: Optional[str] = None,
        timeout: float = 60.0,
        max_retries: int = 3,
        ssl_context: Optional[ssl.SSLContext] = None,
        transport: Optional[AsyncTransport] = None,
    ) -> None:
        settings = Settings.of(base_url, workspace_id, timeout, max_retries, ssl_context)
        renewing = AsyncRenewing(Credentials.of(token, session), on_session)
        self._session = _Session(settings, transport or AsyncHttpxTransport(ssl_context=ssl_context), renewing)
        self.sandboxes = AsyncSandboxes(self._session)
        self.streams = AsyncStreams(self._session)
        self.executions = AsyncExecutions(self._session, self.streams)
        self.snapshots = AsyncSnapshots(self._session)
        self.images = AsyncImages(self._session)
        self.sandbox_images = AsyncSandboxImages(self._session)
        self.registries = AsyncRegistries(self._session)
        self.account = AsyncAccount(self._session)
        self.tokens = AsyncTokens(self._session)
        self.workspaces = AsyncWorkspaces(self._session)
        self.users = AsyncUsers(self._session)
        self.audit = AsyncAudit(self._session)

    @classmethod
    async def login(
        cls, *, username: str, password: str, transport: Optional[AsyncTransport] = None, **options: Unpack[AsyncConnectOptions]
    ) -> AsyncModboxClient:
        """Signs in by name, or e-mail address, and password, and returns a client for the session."""
        return await cls._signed_in(_signin.login(username, password), transport, options)

    @classmethod
    async def accept_invitation(
        cls,
        *,
        code: str,
        password: str,
        name: Optional[str] = None,
        transport: Optional[AsyncTransport] = None,
        **options: Unpack[AsyncConnectOptions],
    ) -> AsyncModboxClient:
        """Uses a code up, chooses a password by it, and returns a client for the session."""
        return await cls._signed_in(_signin.accept_invitation(code, password, name), transport, options)

    @classmethod
    async def _signed_in(
        cls, call: Call[UserSession], transport: Optional[AsyncTransport], options: AsyncConnectOptions
    ) -> AsyncModboxClient:
        connect = {name: value for name, value in options.items() if name != "on_session"}
        settings = Settings.of(**{**_DEFAULTS, **connect})
        transport = transport or AsyncHttpxTransport(ssl_context=settings.ssl_context)
        try:
            session = await _Session(settings, transport, AsyncRenewing(Credentials(None, None), None)).perform(call)
        except BaseException:
            await transport.close()
            raise
        return cls(session=session, transport=transport, **options)

    async def __aenter__(self) -> "AsyncModboxClient":
        return self

    async def __aexit__(
        self, kind: Optional[Type[BaseException]], err: Optional[BaseException], trace: Optional[TracebackType]
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Closes the connections that are kept."""
        await self._session.close()

    async def whoami(self) -> Identity:
        """Says who the token speaks for."""
        return await self._session.perform(calls.whoami())

    async def version(self) -> ServerVersion:
        """Says what the server is."""
        return await self._session.perform(calls.version())
