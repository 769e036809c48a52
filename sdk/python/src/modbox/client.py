"""The client for programs that wait for each call."""

from __future__ import annotations

import itertools
import math
import ssl
import time
from contextlib import contextmanager
from types import TracebackType
from typing import TYPE_CHECKING, Any, Callable, Generator, Iterator, Literal, Mapping, Optional, Sequence, Tuple, Type, TypeVar, overload

from . import _calls as calls
from . import _signin, terminals
from ._calls import MAX_WAIT_SECONDS, Call, EventReader
from ._executions import Executions, Streams
from ._files import Files
from ._pages import Page
from ._ports import Ports
from ._session import DEFAULTS as _DEFAULTS
from ._session import Settings, parse, read
from ._signin import Account, Credentials, Renewing
from ._stateful import Checkpoints, Snapshots, States
from .account import Tokens
from .audit import Audit
from .errors import ModboxError, new_error
from .images import Images, SandboxImages
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
from .platform import Platform
from .registries import Registries
from .terminals import Session
from .transport import Request, Response, Transport, default_transport
from .users import Users
from .workspaces import Workspaces

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from .options import ConnectOptions, CreateOptions

T = TypeVar("T")


class _Session:
    """Performs calls."""

    def __init__(self, settings: Settings, transport: Transport, renewing: Renewing) -> None:
        self._settings = settings
        self._transport = transport
        self._renewing = renewing

    @property
    def credentials(self) -> Credentials:
        return self._renewing.credentials

    def address(self, path: str) -> str:
        return self._settings.base_url + path

    def perform(self, call: Call[T]) -> T:
        request = self._request(call)
        return parse(call, self._try(call, lambda: read(self._transport.send(request))))

    def renew(self) -> UserSession:
        return self._renewing.renew(self.perform)

    def connect(self, attach: terminals.Attach) -> terminals.Session:
        request = self._request(attach.call)
        return self._try(attach.call, lambda: terminals.connect(attach, request, self._settings.ssl_context))

    def stream(self, call: Call[bytes]) -> Generator[bytes, None, None]:
        """Yields the answer's body as it comes; ending the iteration closes the connection."""
        request = self._request(call)
        response: Response = self._try(call, lambda: self._open(request))
        try:
            yield from response.chunks()
        finally:
            response.close()

    def _request(self, call: Call[Any]) -> Request:
        # Not within the tries: it may renew a session, which is never done twice.
        return self._settings.request(call, None if call.anonymous else self._renewing.bearer(self.perform))

    def _open(self, request: Request) -> Response:
        response = self._transport.send(request)
        if not 200 <= response.status < 300:
            read(response)  # raises
        return response

    def _try(self, call: Call[Any], once: Callable[[], T]) -> T:
        for attempt in itertools.count():
            try:
                return once()
            except ModboxError as err:
                delay = self._settings.retry_delay(call, attempt, err)
                if delay is None:
                    raise
                time.sleep(delay)
        raise AssertionError("count has no end")

    def close(self) -> None:
        self._transport.close()


class Sandboxes(States):
    """The sandboxes of a workspace; ``ref`` is a sandbox's id or name.

    One that does not exist raises NotFoundError.
    """

    def __init__(self, session: _Session) -> None:
        self._session = session
        #: Files of a sandbox.
        self.files = Files(session)
        #: Saved states of a sandbox.
        self.checkpoints = Checkpoints(session)
        #: Published ports of a sandbox.
        self.ports = Ports(session)

    def create(self, **options: Unpack[CreateOptions]) -> Sandbox:
        """Makes a sandbox, described by the members of CreateOptions, or answers the live one of the same request.

        Without ``wait_seconds`` it is usually still provisioning when this returns. Raises
        ConflictError when a different live sandbox has the name.
        """
        return self._session.perform(calls.create(options))

    @contextmanager
    def temporary(self, **options: Unpack[CreateOptions]) -> Iterator[Sandbox]:
        """Makes a sandbox for a ``with`` block: it runs when the block begins, and is destroyed when it ends.

        Raises as wait does, when it does not run within ``wait_seconds``, by default 60.
        """
        wait_seconds = options.pop("wait_seconds", None)
        sandbox = self.create(**options)
        try:
            yield self.wait(sandbox.id, timeout_seconds=wait_seconds or 60)
        finally:
            self.destroy(sandbox.id)

    def get(self, ref: str) -> Sandbox:
        """Returns a sandbox; ended ones stay visible."""
        return self._session.perform(calls.get(ref))

    def list(
        self,
        *,
        states: Sequence[SandboxState] = (),
        name: Optional[str] = None,
        labels: Optional[Mapping[str, str]] = None,
        snapshot_id: Optional[str] = None,
        limit: Optional[int] = None,
        cursor: Optional[str] = None,
    ) -> Page[Sandbox]:
        """Lists sandboxes, newest first; without ``states`` those that have not ended."""
        return Page(self._session, calls.list_sandboxes(states, name, labels, snapshot_id), limit, cursor)

    def destroy(self, ref: str) -> Sandbox:
        """Ends a sandbox and returns when nothing of it is left. One that has ended is answered as it is."""
        return self._session.perform(calls.destroy(ref))

    def wait(
        self, ref: str, *, state: Literal["running", "paused", "destroyed", "failed"] = "running", timeout_seconds: float = 60
    ) -> Sandbox:
        """Returns as soon as the sandbox is in the state.

        Raises EndedError when it ended instead, TimeoutError when it did not get there in time.
        """
        end = time.monotonic() + timeout_seconds
        while True:
            seconds = min(MAX_WAIT_SECONDS, max(1, math.ceil(end - time.monotonic())))
            sandbox = self._session.perform(calls.wait(ref, state, seconds))
            if waited(sandbox, ref, state, time.monotonic() >= end, timeout_seconds):
                return sandbox

    @overload
    def exec(
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
    def exec(
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

    def exec(
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
        What lies between may give up after minutes of silence: ``exec_stream`` is for long commands.
        """
        body = calls.command_body(command, shell, cwd, env, user, stdin, timeout_seconds)
        return self._session.perform(calls.execute(ref, body, max_output_bytes, output))

    def exec_stream(
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
    ) -> Iterator[ExecEvent]:
        """Runs a command and gives its output as it comes, in bytes; the last event is ``exit``.

        The command starts with the first event asked for. Closing the iterator (leaving
        the loop does) kills it. Raises when the end of the command is not known.
        """
        body = calls.command_body(command, shell, cwd, env, user, stdin, timeout_seconds)
        chunks = self._session.stream(calls.execute_stream(ref, body))
        reader = EventReader()
        try:
            for chunk in chunks:
                yield from reader.feed(chunk)
        finally:
            chunks.close()
        reader.end()

    def attach(
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
    ) -> Session:
        """Runs a command and stays connected to it: input, terminal, signals. Needs the extra ``modbox[terminal]``.

        With ``tty``, a terminal of so many rows and columns, everything is on stdout. Without it and
        ``stdin`` the command has no input. Closing the session kills the command. Never sent twice.
        """
        body = calls.command_body(command, shell, cwd, env, user, None, timeout_seconds)
        return self._session.connect(terminals.attach(ref, body, tty, stdin))

    def events(
        self,
        ref: str,
        *,
        after_seq: Optional[int] = None,
        order: Optional[Literal["asc", "desc"]] = None,
        limit: Optional[int] = None,
        cursor: Optional[str] = None,
    ) -> Page[Event]:
        """Lists what happened to a sandbox, oldest first unless asked otherwise; with ``after_seq`` only what came later."""
        return Page(self._session, calls.events(ref, after_seq, order), limit, cursor)

    def stats(self, ref: str) -> Stats:
        """Measures a running sandbox now."""
        return self._session.perform(calls.stats(ref))

    def usage(self, ref: str) -> Usage:
        """What a sandbox has used in all, also after its end."""
        return self._session.perform(calls.usage(ref))

    def update(self, ref: str, *, checkpoint_interval_seconds: Optional[int] = None) -> Sandbox:
        """Changes settings of a sandbox; None leaves one as it is.

        ``checkpoint_interval_seconds`` 0 switches automatic checkpoints off and deletes the automatic checkpoint.
        """
        return self._session.perform(calls.update(ref, checkpoint_interval_seconds))

    def set_network(self, ref: str, *, enabled: Optional[bool] = None, ports: Optional[Sequence[int]] = None) -> Sandbox:
        """Changes the network of a running or paused sandbox; None leaves it as it is.

        Switching it off cuts its connections; ``ports`` replaces the list of published ports, and a port
        that stays in it keeps its URL.
        """
        return self._session.perform(calls.set_network(ref, enabled, ports))


def waited(sandbox: Sandbox, ref: str, state: str, over: bool, timeout_seconds: float) -> bool:
    """Whether a wait is done; raises when it never will be."""
    if sandbox.state == state:
        return True
    if sandbox.state in ("destroyed", "failed"):
        why = sandbox.cause.message if sandbox.cause else "no reason is known"
        raise new_error("ended", f"sandbox {ref} is {sandbox.state}: {why}")
    if over:
        raise new_error("timeout", f"sandbox {ref} is still {sandbox.state} after {timeout_seconds:g} s")
    return False


class ModboxClient(Platform):
    """Calls one Modbox server in the name of one token, or of somebody who has signed in.

    The methods of the client itself are those of the Modbox platform; the
    complete API is under ``sandboxes``, ``executions``, ``streams``, ``snapshots``,
    ``images``, ``sandbox_images``, ``registries``, ``account``, ``tokens``, ``workspaces``,
    ``users`` and ``audit``. All raise ModboxError. Safe for use by several threads.

    ``token`` defaults to the environment's MODBOX_API_TOKEN. Instead, ``session`` is the tokens of
    somebody who has signed in, such as ``account.session`` of another client; they are renewed when they
    must, and ``on_session`` is then called with the new ones, which nothing else uses before it has returned.
    When it raises, so does the call that needs the tokens, and it is called with them again at the next one.
    It may make calls, but ``account.refresh``.

    ``base_url`` defaults to MODBOX_URL, else http://127.0.0.1:7070. ``timeout`` is the seconds of silence
    after which a request is given up, waits and commands excepted. A request
    that may be repeated is tried again ``max_retries`` times. ``ssl_context`` says what TLS trusts,
    in place of the library's default; a ``transport`` has its own, and then it counts for terminals only.
    """

    def __init__(
        self,
        token: Optional[str] = None,
        *,
        session: Optional[UserSession] = None,
        on_session: Optional[Callable[[UserSession], None]] = None,
        base_url: Optional[str] = None,
        workspace_id: Optional[str] = None,
        timeout: float = 60.0,
        max_retries: int = 3,
        ssl_context: Optional[ssl.SSLContext] = None,
        transport: Optional[Transport] = None,
    ) -> None:
        settings = Settings.of(base_url, workspace_id, timeout, max_retries, ssl_context)
        renewing = Renewing(Credentials.of(token, session), on_session)
        self._session = _Session(settings, transport or default_transport(ssl_context), renewing)
        self.sandboxes = Sandboxes(self._session)
        self.streams = Streams(self._session)
        self.executions = Executions(self._session, self.streams)
        self.snapshots = Snapshots(self._session)
        self.images = Images(self._session)
        self.sandbox_images = SandboxImages(self._session)
        self.registries = Registries(self._session)
        self.account = Account(self._session)
        self.tokens = Tokens(self._session)
        self.workspaces = Workspaces(self._session)
        self.users = Users(self._session)
        self.audit = Audit(self._session)

    @classmethod
    def login(
        cls, *, username: str, password: str, transport: Optional[Transport] = None, **options: Unpack[ConnectOptions]
    ) -> ModboxClient:
        """Signs in by name, or e-mail address, and password, and returns a client for the session.

        Raises AuthError when either is wrong.
        """
        return cls._signed_in(_signin.login(username, password), transport, options)

    @classmethod
    def accept_invitation(
        cls,
        *,
        code: str,
        password: str,
        name: Optional[str] = None,
        transport: Optional[Transport] = None,
        **options: Unpack[ConnectOptions],
    ) -> ModboxClient:
        """Uses a code up, chooses a password by it, and returns a client for the session.

        The code is that of an invitation, a new user, or a password that is to be chosen; ``name``
        is what a new user signs in as.
        """
        return cls._signed_in(_signin.accept_invitation(code, password, name), transport, options)

    @classmethod
    def _signed_in(cls, call: Call[UserSession], transport: Optional[Transport], options: ConnectOptions) -> ModboxClient:
        connect = {name: value for name, value in options.items() if name != "on_session"}
        settings = Settings.of(**{**_DEFAULTS, **connect})
        transport = transport or default_transport(settings.ssl_context)
        try:
            session = _Session(settings, transport, Renewing(Credentials(None, None), None)).perform(call)
        except BaseException:
            transport.close()
            raise
        return cls(session=session, transport=transport, **options)

    def __enter__(self) -> "ModboxClient":
        return self

    def __exit__(
        self, kind: Optional[Type[BaseException]], err: Optional[BaseException], trace: Optional[TracebackType]
    ) -> None:
        self.close()

    def close(self) -> None:
        """Closes the connections that are kept."""
        self._session.close()

    def whoami(self) -> Identity:
        """Says who the token speaks for."""
        return self._session.perform(calls.whoami())

    def version(self) -> ServerVersion:
        """Says what the server is."""
        return self._session.perform(calls.version())
