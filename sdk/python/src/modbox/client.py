"""The client for programs that wait for each call."""

from __future__ import annotations

import itertools
import math
import time
from contextlib import contextmanager
from types import TracebackType
from typing import TYPE_CHECKING, Any, Dict, Generator, Iterable, Iterator, List, Literal, Mapping, Optional, Sequence, Type, TypeVar, Union, overload

from . import _calls as calls
from ._calls import MAX_WAIT_SECONDS, Call, EventReader
from ._executions import Executions, Streams
from ._session import Settings, parse, read
from ._stateful import Checkpoints, Snapshots, States
from ._trees import FileTrees
from .account import Images, Tokens
from .errors import ModboxError, new_error
from .models import (
    AnyExecResult,
    DestroyResult,
    Event,
    ExecEvent,
    ExecResult,
    FileInfo,
    FileList,
    Identity,
    ProvisionResult,
    Sandbox,
    SandboxDetail,
    SandboxImage,
    SandboxList,
    SandboxPage,
    SandboxState,
    ServerVersion,
    Stats,
    Usage,
    WaitResult,
)
from .transport import Response, Transport, default_transport
from .workspaces import Workspaces

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from .options import CreateOptions

T = TypeVar("T")


class _Session:
    """Performs calls."""

    def __init__(self, settings: Settings, transport: Transport) -> None:
        self._settings = settings
        self._transport = transport

    def perform(self, call: Call[T]) -> T:
        return parse(call, self._try(call, lambda: read(self._transport.send(self._settings.request(call)))))

    def stream(self, call: Call[bytes]) -> Generator[bytes, None, None]:
        """Yields the answer's body as it comes; ending the iteration closes the connection."""
        response: Response = self._try(call, lambda: self._open(call))
        try:
            yield from response.chunks()
        finally:
            response.close()

    def _open(self, call: Call[bytes]) -> Response:
        response = self._transport.send(self._settings.request(call))
        if not 200 <= response.status < 300:
            read(response)  # raises
        return response

    def _try(self, call: Call[Any], once: Any) -> Any:
        for attempt in itertools.count():
            try:
                return once()
            except ModboxError as err:
                delay = self._settings.retry_delay(call, attempt, err)
                if delay is None:
                    raise
                time.sleep(delay)

    def close(self) -> None:
        self._transport.close()


class Files(FileTrees):
    """Files of a sandbox; ``ref`` is its id or name.

    Paths that are not absolute begin at the image's working directory. What is
    missing raises NotFoundError.
    """

    def __init__(self, session: _Session) -> None:
        self._session = session

    def read(self, ref: str, path: str) -> bytes:
        """Reads a whole file into memory."""
        return self._session.perform(calls.read_file(ref, path))

    def read_text(self, ref: str, path: str) -> str:
        """Reads a whole file as UTF-8."""
        return self.read(ref, path).decode()

    def read_stream(self, ref: str, path: str) -> Iterator[bytes]:
        """Reads a file of any size as it comes; nothing is sent before the first chunk is asked for."""
        return self._session.stream(calls.read_file(ref, path))

    def write(
        self,
        ref: str,
        path: str,
        content: Union[str, bytes, Iterable[bytes]],
        *,
        mode: Optional[str] = None,
        parents: Optional[bool] = None,
        user: Optional[str] = None,
    ) -> FileInfo:
        """Writes a file of any size, all or nothing: no reader ever sees a part of it.

        ``content`` may be an open binary file; ``mode`` is octal, a new file gets
        ``0644``; ``parents`` makes missing directories. Raises code ``disk_full``
        at the sandbox's disk limit.
        """
        return self._session.perform(calls.write_file(ref, path, content, mode, parents, user))

    def list(self, ref: str, path: str, *, limit: Optional[int] = None) -> FileList:
        """Lists a directory."""
        return self._session.perform(calls.list_files(ref, path, limit))

    def stat(self, ref: str, path: str) -> FileInfo:
        """Describes a path, not following a last symlink."""
        return self._session.perform(calls.stat_file(ref, path))

    def mkdir(
        self,
        ref: str,
        path: str,
        *,
        mode: Optional[str] = None,
        parents: Optional[bool] = None,
        user: Optional[str] = None,
    ) -> FileInfo:
        """Makes a directory; ``parents`` makes missing parents too, and accepts one that exists."""
        return self._session.perform(calls.mkdir(ref, path, mode, parents, user))

    def move(self, ref: str, source: str, to: str, *, overwrite: Optional[bool] = None) -> FileInfo:
        """Renames a path; raises ConflictError when ``to`` exists, unless ``overwrite`` is set."""
        return self._session.perform(calls.move(ref, source, to, overwrite))

    def remove(self, ref: str, path: str, *, recursive: Optional[bool] = None) -> None:
        """Deletes a file or an empty directory; with ``recursive`` everything below, too."""
        self._session.perform(calls.remove(ref, path, recursive))


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
    ) -> Iterator[Sandbox]:
        """Walks over all sandboxes that match, newest first, fetching pages of ``limit`` as they are needed.

        Without ``states`` those that have not ended.
        """
        cursor: Optional[str] = None
        while True:
            page = self.list_page(states=states, name=name, labels=labels, snapshot_id=snapshot_id, limit=limit, cursor=cursor)
            yield from page.items
            cursor = page.next_cursor
            if not cursor:
                return

    def list_page(
        self,
        *,
        states: Sequence[SandboxState] = (),
        name: Optional[str] = None,
        labels: Optional[Mapping[str, str]] = None,
        snapshot_id: Optional[str] = None,
        limit: Optional[int] = None,
        cursor: Optional[str] = None,
    ) -> SandboxPage:
        """Returns one page."""
        return self._session.perform(calls.list_page(states=states, name=name, labels=labels, snapshot_id=snapshot_id, limit=limit, cursor=cursor))

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

    def events(
        self,
        ref: str,
        *,
        after: Optional[int] = None,
        limit: Optional[int] = None,
        order: Optional[Literal["asc", "desc"]] = None,
    ) -> List[Event]:
        """What happened to a sandbox, oldest first unless asked otherwise."""
        return self._session.perform(calls.events(ref, after, limit, order))

    def all_events(
        self, ref: str, *, after: Optional[int] = None, limit: int = 100, order: Optional[Literal["asc", "desc"]] = None
    ) -> Generator[Event, None, None]:
        """Walks over all that happened to a sandbox, fetching pages of ``limit`` as they are needed."""
        while True:
            page = self.events(ref, after=after, limit=limit, order=order)
            yield from page
            if len(page) < limit:
                return
            after = page[-1].seq

    def stats(self, ref: str) -> Stats:
        """Measures a running sandbox now."""
        return self._session.perform(calls.stats(ref))

    def usage(self, ref: str) -> Usage:
        """What a sandbox has used in all, also after its end."""
        return self._session.perform(calls.usage(ref))

    def set_network(self, ref: str, *, enabled: Optional[bool] = None, ports: Optional[Sequence[int]] = None) -> Sandbox:
        """Changes the network of a running or paused sandbox; None leaves it as it is.

        Switching it off cuts its connections; ``ports`` replaces those it publishes.
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


class ModboxClient:
    """Calls one Modbox server in the name of one token.

    The methods of the client itself are those of the Modbox platform; the
    complete API is under ``sandboxes``, ``executions``, ``streams``, ``snapshots``,
    ``images``, ``tokens`` and ``workspaces``. All raise ModboxError. Safe for use by several threads.

    ``token`` defaults to the environment's MODBOX_API_TOKEN, ``base_url`` to
    MODBOX_URL, else http://127.0.0.1:7070. ``timeout`` is the seconds of silence
    after which a request is given up, waits and commands excepted. A request
    that may be repeated is tried again ``max_retries`` times.
    """

    def __init__(
        self,
        token: Optional[str] = None,
        *,
        base_url: Optional[str] = None,
        workspace_id: Optional[str] = None,
        timeout: float = 60.0,
        max_retries: int = 3,
        transport: Optional[Transport] = None,
    ) -> None:
        settings = Settings.of(token, base_url, workspace_id, timeout, max_retries)
        self._session = _Session(settings, transport or default_transport())
        self.sandboxes = Sandboxes(self._session)
        self.streams = Streams(self._session)
        self.executions = Executions(self._session, self.streams)
        self.snapshots = Snapshots(self._session)
        self.images = Images(self._session)
        self.tokens = Tokens(self._session)
        self.workspaces = Workspaces(self._session)

    def __enter__(self) -> "ModboxClient":
        return self

    def __exit__(
        self, kind: Optional[Type[BaseException]], err: Optional[BaseException], trace: Optional[TracebackType]
    ) -> None:
        self.close()

    def close(self) -> None:
        """Closes the connections that are kept."""
        self._session.close()

    def provision_sandbox(
        self,
        *,
        task_id: str,
        image_id: Optional[str] = None,
        image: Optional[str] = None,
        ttl_seconds: Optional[int] = None,
        env_vars: Optional[Mapping[str, str]] = None,
        replace: Optional[bool] = None,
    ) -> ProvisionResult:
        """Asks for a sandbox and returns at once.

        The same request for a live task returns the sandbox that is there; a
        different one raises ConflictError, unless ``replace`` is set.
        """
        return self._session.perform(calls.provision_sandbox(task_id, image_id, image, ttl_seconds, env_vars, replace))

    def wait_for_sandbox(self, *, task_id: str, timeout: int = 120) -> WaitResult:
        """Waits until the sandbox is running, or has ended, or the time has passed: look at ``ready``."""
        started = time.monotonic()
        left = timeout
        while True:
            answer = self._session.perform(calls.wait_for_sandbox(task_id, min(MAX_WAIT_SECONDS, left)))
            elapsed = time.monotonic() - started
            if wait_over(answer) or elapsed >= timeout:
                return WaitResult(bool(answer.get("ready")), elapsed)
            left = math.ceil(timeout - elapsed)

    def get_sandbox(self, id_or_task_id: str) -> SandboxDetail:
        """Returns a sandbox by its id or its task id."""
        return self._session.perform(calls.get_sandbox(id_or_task_id))

    def list_sandboxes(self, *, status: Optional[str] = None) -> SandboxList:
        """Lists sandboxes, all or those of one status."""
        return self._session.perform(calls.list_sandboxes(status))

    def destroy_sandbox(self, *, task_id: str) -> DestroyResult:
        """Ends a sandbox and frees everything it held. A task without one is no error: look at ``success``."""
        return self._session.perform(calls.destroy_sandbox(task_id))

    def list_sandbox_images(self) -> List[SandboxImage]:
        """Lists the images that ``image_id`` may name."""
        return self._session.perform(calls.list_sandbox_images())

    def whoami(self) -> Identity:
        """Says who the token speaks for."""
        return self._session.perform(calls.whoami())

    def version(self) -> ServerVersion:
        """Says what the server is."""
        return self._session.perform(calls.version())


def wait_over(answer: Dict[str, Any]) -> bool:
    """Whether waiting longer changes nothing."""
    return bool(answer.get("ready")) or answer.get("status", "provisioning") != "provisioning"
