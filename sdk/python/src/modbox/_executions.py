"""Executions and their streams, for both clients."""

from __future__ import annotations

import math
import time
from typing import TYPE_CHECKING, Any, AsyncGenerator, AsyncIterable, Dict, Generator, Iterable, Literal, Optional, Union

from ._calls import DEFAULT, MAX_WAIT_SECONDS, WAIT_SLACK_SECONDS, Call, Listing, _body, _into, _load, _nothing, _query, _raw, _segment, execution_body, listing, sandbox_path
from ._pages import AsyncPages, Page
from .errors import ModboxError, new_error
from .records import Execution
from .terminals import AsyncSession, Session, attach_execution

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from . import aio, client
    from .options import ExecutionCommand

#: How often in a row a connection may break at once, without a byte, before it is given up.
_MAX_FRUITLESS = 3
#: A connection that held for so long was none that broke at once.
_HELD_SECONDS = 10.0


def start(ref: str, body: Dict[str, Any], wait_seconds: Optional[int]) -> Call[Execution]:
    return Call(
        "POST",
        sandbox_path(ref, "/executions"),
        _into(Execution),
        repeatable=False,
        json={**body, **_body(wait_seconds=wait_seconds)},
        timeout=wait_seconds + WAIT_SLACK_SECONDS if wait_seconds else DEFAULT,
    )


def list_executions(ref: str, kind: Optional[str]) -> Listing[Execution]:
    return listing(Execution, sandbox_path(ref, "/executions"), kind=kind)


def get(execution_id: str, wait_seconds: Optional[int] = None) -> Call[Execution]:
    path = _query(f"/v1/executions/{_segment(execution_id)}", wait_seconds=wait_seconds)
    timeout = wait_seconds + WAIT_SLACK_SECONDS if wait_seconds else DEFAULT
    return Call("GET", path, _into(Execution), repeatable=True, timeout=timeout)


def cancel(execution_id: str, force: Optional[bool]) -> Call[Execution]:
    path = f"/v1/executions/{_segment(execution_id)}/cancel"
    return Call("POST", path, _into(Execution), repeatable=True, json=_body(force=force))


def _stream_path(stream_id: str) -> str:
    return f"/v1/streams/{_segment(stream_id)}"


def read_stream(stream_id: str, offset: int, follow: Optional[bool], timestamps: Optional[bool]) -> Call[bytes]:
    path = _query(_stream_path(stream_id), offset=offset or None, follow=follow, timestamps=timestamps)
    return Call("GET", path, _raw, repeatable=True, timeout=None if follow else DEFAULT)


def create_stream() -> Call[str]:
    def parse(content: bytes) -> str:
        return str(_load(content)["id"])

    return Call("POST", "/v1/streams", parse, repeatable=True)


def write_stream(stream_id: str, content: Any, end: Optional[bool]) -> Call[None]:
    return Call(
        "PUT",
        _query(_stream_path(stream_id), eof=end),
        _nothing,
        repeatable=False,
        content=content.encode() if isinstance(content, str) else content,
        headers={"content-type": "application/octet-stream"},
        timeout=None,
    )


def ended(execution: Execution, over: bool, timeout_seconds: float) -> bool:
    """Whether a wait is done; raises when its time is over."""
    if execution.state not in ("queued", "running"):
        return True
    if over:
        raise new_error("timeout", f"execution {execution.id} is still {execution.state} after {timeout_seconds:g} s")
    return False


def stream_of(execution: Execution, output: Literal["stdout", "stderr"]) -> str:
    """The id of an execution's stream."""
    kept = execution.stdout if output == "stdout" else execution.stderr
    if not kept.stream_id:
        raise new_error("not_found", f"execution {execution.id} keeps no {output}")
    return kept.stream_id


class Position:
    """Where a reader of a stream is, and whether it may go on after a broken connection."""

    def __init__(self, offset: int, timestamps: Optional[bool]) -> None:
        self.offset = offset
        self._timestamps = timestamps
        self._fruitless = 0

    def connecting(self) -> None:
        self._began = time.monotonic()
        self._from = self.offset

    def broke(self, err: ModboxError) -> None:
        """Raises err unless it is worth connecting again."""
        if err.code != "connection" or self._timestamps:
            raise err
        held = self.offset > self._from or time.monotonic() - self._began > _HELD_SECONDS
        self._fruitless = 0 if held else self._fruitless + 1
        if self._fruitless > _MAX_FRUITLESS:
            raise err


class Executions:
    """Commands that go on whatever becomes of this client and of the server.

    They are kept with their output after their end.
    """

    def __init__(self, session: client._Session, streams: Streams) -> None:
        self._session = session
        self._streams = streams

    def start(self, ref: str, *, wait_seconds: Optional[int] = None, **command: Unpack[ExecutionCommand]) -> Execution:
        """Starts a command, described by the members of ExecutionCommand; never sent twice.

        Returns as soon as it has started, or with ``wait_seconds`` (at most 600) when it has ended.
        That it could not be started is told by the execution, which then is ``failed``.
        """
        return self._session.perform(start(ref, execution_body(command), wait_seconds))

    def list(
        self, ref: str, *, kind: Optional[Literal["exec", "job"]] = None, limit: Optional[int] = None, cursor: Optional[str] = None,
    ) -> Page[Execution]:
        """Lists the executions of a sandbox, newest first."""
        return Page(self._session, list_executions(ref, kind), limit, cursor)

    def get(self, execution_id: str) -> Execution:
        """Returns an execution."""
        return self._session.perform(get(execution_id))

    def wait(self, execution_id: str, *, timeout_seconds: float = 60) -> Execution:
        """Returns when the execution has ended, in whatever way: look at ``state``.

        Raises TimeoutError, and the execution goes on, when that takes longer.
        """
        end = time.monotonic() + timeout_seconds
        while True:
            seconds = min(MAX_WAIT_SECONDS, max(1, math.ceil(end - time.monotonic())))
            execution = self._session.perform(get(execution_id, seconds))
            if ended(execution, time.monotonic() >= end, timeout_seconds):
                return execution

    def cancel(self, execution_id: str, *, force: Optional[bool] = None) -> Execution:
        """Ends an execution, and does not wait for the end.

        Its processes get SIGTERM, and SIGKILL 5 seconds later; with ``force`` SIGKILL at once.
        """
        return self._session.perform(cancel(execution_id, force))

    def logs(
        self,
        execution_id: str,
        *,
        output: Literal["stdout", "stderr"] = "stdout",
        offset: int = 0,
        follow: Optional[bool] = None,
        timestamps: Optional[bool] = None,
    ) -> Generator[bytes, None, None]:
        """Reads an execution's output; as Streams.read."""
        stream_id = stream_of(self.get(execution_id), output)
        yield from self._streams.read(stream_id, offset=offset, follow=follow, timestamps=timestamps)

    def attach(self, ref: str, execution_id: str, *, offset: int = 0) -> Session:
        """Connects to an execution of a sandbox, from a byte of its stdout on. Needs the extra ``modbox[terminal]``.

        It goes on when the session ends, and any number of sessions may be attached. ``offset`` of a
        session is where another one goes on; stderr that is a stream of its own comes from its beginning.
        """
        return self._session.connect(attach_execution(ref, execution_id, offset))


class Streams:
    """The durable output, and input, of executions."""

    def __init__(self, session: client._Session) -> None:
        self._session = session

    def read(
        self, stream_id: str, *, offset: int = 0, follow: Optional[bool] = None, timestamps: Optional[bool] = None
    ) -> Generator[bytes, None, None]:
        """Reads a stream from a byte on, while it grows and afterwards, in bytes as they come.

        ``follow`` waits at the end for more, until the stream ends; ``timestamps`` puts the time
        at which it came before every line. When the connection breaks it goes on where it was; with
        ``timestamps``, whose bytes ``offset`` does not count, it raises instead. Closing the
        generator has no effect on the command.
        """
        position = Position(offset, timestamps)
        while True:
            position.connecting()
            chunks = self._session.stream(read_stream(stream_id, position.offset, follow, timestamps))
            try:
                for chunk in chunks:
                    position.offset += len(chunk)
                    yield chunk
                return
            except ModboxError as err:
                position.broke(err)
            finally:
                chunks.close()

    def create(self) -> str:
        """Makes an input stream, for ``stdin_stream_id`` of a command that is to come, and returns its id."""
        return self._session.perform(create_stream())

    def write(self, stream_id: str, content: Union[str, bytes, Iterable[bytes]], *, end: Optional[bool] = None) -> None:
        """Adds content of any size to an input stream as it comes, and ends it unless ``end`` is False. Never sent twice."""
        self._session.perform(write_stream(stream_id, content, end))


class AsyncExecutions:
    """Commands that go on whatever becomes of this client and of the server; as Executions."""

    def __init__(self, session: aio._Session, streams: AsyncStreams) -> None:
        self._session = session
        self._streams = streams

    async def start(self, ref: str, *, wait_seconds: Optional[int] = None, **command: Unpack[ExecutionCommand]) -> Execution:
        """Starts a command, described by the members of ExecutionCommand; never sent twice."""
        return await self._session.perform(start(ref, execution_body(command), wait_seconds))

    def list(
        self, ref: str, *, kind: Optional[Literal["exec", "job"]] = None, limit: Optional[int] = None, cursor: Optional[str] = None,
    ) -> AsyncPages[Execution]:
        """Lists the executions of a sandbox, newest first."""
        return AsyncPages(self._session, list_executions(ref, kind), limit, cursor)

    async def get(self, execution_id: str) -> Execution:
        """Returns an execution."""
        return await self._session.perform(get(execution_id))

    async def wait(self, execution_id: str, *, timeout_seconds: float = 60) -> Execution:
        """Returns when the execution has ended, in whatever way; raises TimeoutError when that takes longer."""
        end = time.monotonic() + timeout_seconds
        while True:
            seconds = min(MAX_WAIT_SECONDS, max(1, math.ceil(end - time.monotonic())))
            execution = await self._session.perform(get(execution_id, seconds))
            if ended(execution, time.monotonic() >= end, timeout_seconds):
                return execution

    async def cancel(self, execution_id: str, *, force: Optional[bool] = None) -> Execution:
        """Ends an execution, and does not wait for the end."""
        return await self._session.perform(cancel(execution_id, force))

    async def logs(
        self,
        execution_id: str,
        *,
        output: Literal["stdout", "stderr"] = "stdout",
        offset: int = 0,
        follow: Optional[bool] = None,
        timestamps: Optional[bool] = None,
    ) -> AsyncGenerator[bytes, None]:
        """Reads an execution's output; as AsyncStreams.read."""
        stream_id = stream_of(await self.get(execution_id), output)
        chunks = self._streams.read(stream_id, offset=offset, follow=follow, timestamps=timestamps)
        try:
            async for chunk in chunks:
                yield chunk
        finally:
            await chunks.aclose()

    async def attach(self, ref: str, execution_id: str, *, offset: int = 0) -> AsyncSession:
        """Connects to an execution of a sandbox, from a byte of its stdout on. Needs the extra ``modbox[terminal]``.

        It goes on when the session ends, and any number of sessions may be attached. ``offset`` of a
        session is where another one goes on; stderr that is a stream of its own comes from its beginning.
        """
        return await self._session.connect(attach_execution(ref, execution_id, offset))


class AsyncStreams:
    """The durable output, and input, of executions; as Streams."""

    def __init__(self, session: aio._Session) -> None:
        self._session = session

    async def read(
        self, stream_id: str, *, offset: int = 0, follow: Optional[bool] = None, timestamps: Optional[bool] = None
    ) -> AsyncGenerator[bytes, None]:
        """Reads a stream from a byte on, while it grows and afterwards, in bytes as they come."""
        position = Position(offset, timestamps)
        while True:
            position.connecting()
            chunks = self._session.stream(read_stream(stream_id, position.offset, follow, timestamps))
            try:
                async for chunk in chunks:
                    position.offset += len(chunk)
                    yield chunk
                return
            except ModboxError as err:
                position.broke(err)
            finally:
                await chunks.aclose()

    async def create(self) -> str:
        """Makes an input stream, for ``stdin_stream_id`` of a command that is to come, and returns its id."""
        return await self._session.perform(create_stream())

    async def write(
        self, stream_id: str, content: Union[str, bytes, Iterable[bytes], AsyncIterable[bytes]], *, end: Optional[bool] = None
    ) -> None:
        """Adds content of any size to an input stream as it comes, and ends it unless ``end`` is False."""
        await self._session.perform(write_stream(stream_id, content, end))
