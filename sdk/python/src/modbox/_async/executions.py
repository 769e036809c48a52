"""Executions and their streams."""

from __future__ import annotations

import math
import time
from typing import TYPE_CHECKING, AsyncGenerator, Literal, Optional

from .. import _executions as calls
from .._calls import MAX_WAIT_SECONDS, execution_body
from .._executions import Position
from .._pages import AsyncPages
from .._schemas import Execution, ExecutionCommand
from ..errors import ModboxError
from ..terminals import AsyncSession, attach_execution
from ..transport import AsyncContent
from .requester import AsyncRequester

if TYPE_CHECKING:
    from typing_extensions import Unpack


class AsyncExecutions:
    """Commands that go on whatever becomes of this client and of the server.

    They are kept with their output after their end.
    """

    def __init__(self, requester: AsyncRequester, streams: AsyncStreams) -> None:
        self._requester = requester
        self._streams = streams

    async def start(self, ref: str, *, wait_seconds: Optional[int] = None, **command: Unpack[ExecutionCommand]) -> Execution:
        """Starts a command, described by the members of ExecutionCommand; never sent twice.

        Returns as soon as it has started, or with ``wait_seconds`` (at most 600) when it has ended.
        That it could not be started is told by the execution, which then is ``failed``.
        """
        return await self._requester.perform(calls.start(ref, execution_body(command), wait_seconds))

    def list(
        self, ref: str, *, kind: Optional[Literal["exec", "job", "main"]] = None, limit: Optional[int] = None, cursor: Optional[str] = None,
    ) -> AsyncPages[Execution]:
        """Lists the executions of a sandbox, newest first."""
        return AsyncPages(self._requester, calls.list_executions(ref, kind), limit, cursor)

    async def get(self, execution_id: str) -> Execution:
        """Returns an execution."""
        return await self._requester.perform(calls.get(execution_id))

    async def wait(self, execution_id: str, *, timeout_seconds: float = 60) -> Execution:
        """Returns when the execution has ended, in whatever way: look at ``state``.

        Raises TimeoutError, and the execution goes on, when that takes longer.
        """
        end = time.monotonic() + timeout_seconds
        while True:
            seconds = min(MAX_WAIT_SECONDS, max(1, math.ceil(end - time.monotonic())))
            execution = await self._requester.perform(calls.get(execution_id, seconds))
            if calls.ended(execution, time.monotonic() >= end, timeout_seconds):
                return execution

    async def cancel(self, execution_id: str, *, force: Optional[bool] = None) -> Execution:
        """Ends an execution, and does not wait for the end.

        Its processes get SIGTERM, and SIGKILL 5 seconds later; with ``force`` SIGKILL at once.
        """
        return await self._requester.perform(calls.cancel(execution_id, force))

    async def logs(
        self,
        execution_id: str,
        *,
        output: Literal["stdout", "stderr"] = "stdout",
        offset: int = 0,
        follow: Optional[bool] = None,
        timestamps: Optional[bool] = None,
    ) -> AsyncGenerator[bytes, None]:
        """Reads an execution's output; as Streams.read."""
        stream_id = calls.stream_of(await self.get(execution_id), output)
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
        return await self._requester.connect(attach_execution(ref, execution_id, offset))


class AsyncStreams:
    """The durable output, and input, of executions."""

    def __init__(self, requester: AsyncRequester) -> None:
        self._requester = requester

    async def read(
        self, stream_id: str, *, offset: int = 0, follow: Optional[bool] = None, timestamps: Optional[bool] = None
    ) -> AsyncGenerator[bytes, None]:
        """Reads a stream from a byte on, while it grows and afterwards, in bytes as they come.

        ``follow`` waits at the end for more, until the stream ends; ``timestamps`` puts the time
        at which it came before every line. When the connection breaks it goes on where it was; with
        ``timestamps``, whose bytes ``offset`` does not count, it raises instead. Closing the
        generator has no effect on the command.
        """
        position = Position(offset, timestamps)
        while True:
            position.connecting()
            chunks = self._requester.stream(calls.read_stream(stream_id, position.offset, follow, timestamps))
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
        return await self._requester.perform(calls.create_stream())

    async def write(
        self, stream_id: str, content: AsyncContent, *, end: Optional[bool] = None
    ) -> None:
        """Adds content of any size to an input stream as it comes, and ends it unless ``end`` is False. Never sent twice."""
        await self._requester.perform(calls.write_stream(stream_id, content, end))
