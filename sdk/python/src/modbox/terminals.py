"""Commands under way with everything: input, terminal, signals.

A session is a WebSocket, for which the package wsproto must be installed (``modbox[terminal]``).
Sessions read from their connection only when an event is asked for, so that a command
whose output nobody takes waits.
"""

from __future__ import annotations

import asyncio
import builtins
import selectors
import socket
import ssl
import threading
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING, Any, Dict, Iterator, Mapping, Optional, Tuple, Type, Union
from urllib.parse import urlsplit

from ._calls import Call, _body, _nothing, _query, _segment, broken, sandbox_path
from .errors import ModboxError, new_error
from .models import ExecEvent
from .transport import CHUNK_BYTES, Request

if TYPE_CHECKING:
    from ._websocket import WebSocket

_CONNECT_SECONDS = 30.0
#: How much input one message carries.
_WRITE_BYTES = 32 << 10


def _web_socket(request: Request) -> WebSocket:
    try:
        from ._websocket import WebSocket
    except ImportError as err:
        raise ImportError(f"terminals need wsproto: pip install 'modbox[terminal]' ({err})") from err
    return WebSocket(request)


class _Address:
    """Where a request goes, and how."""

    def __init__(self, request: Request, ssl_context: Optional[ssl.SSLContext]) -> None:
        url = urlsplit(request.url)
        if url.scheme not in ("http", "https") or not url.hostname:
            raise new_error("invalid", f"{request.url}: not an http or https URL")
        self.host = url.hostname
        self.port = url.port or (443 if url.scheme == "https" else 80)
        self.tls = (ssl_context or ssl.create_default_context()) if url.scheme == "https" else None
        # As for other requests: connecting is never worth waiting for as long as an answer.
        self.connect_seconds = min(request.timeout or _CONNECT_SECONDS, _CONNECT_SECONDS)


@dataclass(frozen=True)
class Attach:
    """A session to open."""

    call: Call[None]
    #: The message with the command to run; None for a command that runs already.
    first: Optional[Mapping[str, Any]] = None
    offset: int = 0


def attach(ref: str, command: Dict[str, Any], tty: Optional[Tuple[int, int]], stdin: Optional[bool]) -> Attach:
    call = Call("GET", sandbox_path(ref, "/exec/attach"), _nothing, repeatable=False)
    return Attach(call, _body(**command, tty=None if tty is None else {"rows": tty[0], "cols": tty[1]}, stdin=stdin))


def attach_execution(ref: str, execution_id: str, offset: int) -> Attach:
    path = sandbox_path(ref, f"/executions/{_segment(execution_id)}/attach")
    return Attach(Call("GET", _query(path, offset=offset), _nothing, repeatable=True), offset=offset)


@contextmanager
def _failing(request: Request) -> Iterator[None]:
    """Has what the libraries raise be errors of ours."""
    try:
        yield
    except ModboxError:
        raise
    except asyncio.TimeoutError as err:  # before Python 3.11 another one than the builtin
        raise request.failed(builtins.TimeoutError()) from err
    except (OSError, UnicodeError) as err:
        raise request.failed(err) from err


def connect(attach: Attach, request: Request, ssl_context: Optional[ssl.SSLContext]) -> Session:
    """Opens a session."""
    protocol, address = _web_socket(request), _Address(request, ssl_context)
    with _failing(request):
        connection = socket.create_connection((address.host, address.port), address.connect_seconds)
        try:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if address.tls is not None:
                connection = address.tls.wrap_socket(connection, server_hostname=address.host)
            connection.settimeout(request.timeout)
            connection.sendall(protocol.taken())
            while not protocol.opened():
                protocol.receive(connection.recv(CHUNK_BYTES))
            if attach.first is not None:
                protocol.control(attach.first)
                connection.sendall(protocol.taken())
            connection.setblocking(False)
        except BaseException:
            connection.close()
            raise
    return Session(protocol, connection, attach.offset)


async def connect_async(attach: Attach, request: Request, ssl_context: Optional[ssl.SSLContext]) -> AsyncSession:
    """Opens a session."""
    protocol, address = _web_socket(request), _Address(request, ssl_context)
    with _failing(request):
        opening = asyncio.open_connection(address.host, address.port, ssl=address.tls)
        reader, writer = await asyncio.wait_for(opening, address.connect_seconds)
        try:
            writer.write(protocol.taken())
            while not protocol.opened():
                protocol.receive(await asyncio.wait_for(reader.read(CHUNK_BYTES), request.timeout))
            if attach.first is not None:
                protocol.control(attach.first)
                writer.write(protocol.taken())
        except BaseException:
            writer.transport.abort()
            raise
    return AsyncSession(protocol, reader, writer, attach.offset)


def _encode(data: Union[str, bytes]) -> bytes:
    return data.encode() if isinstance(data, str) else data


class Session:
    """A command under way. Iterate over it for what it reports; the last event is ``exit``, or an error is raised.

    A loop may be left and another one begun. One thread reads while others write; none of
    that may be done by handlers of signals. A ``with`` block, or ``close``, ends the session.
    """

    def __init__(self, protocol: WebSocket, connection: socket.socket, offset: int = 0) -> None:
        #: Where ``executions.attach`` goes on: the bytes of stdout that came before the next event.
        self.offset = offset
        # Taken in this order. The first two are held while their owners wait for the
        # connection, the last one guards it and the protocol, and is never held for long.
        self._reading = threading.Lock()
        self._writing = threading.Lock()
        self._lock = threading.Lock()
        self._protocol = protocol
        self._connection = connection
        self._ended = False

    def __iter__(self) -> Session:
        return self

    def __next__(self) -> ExecEvent:
        """Waits for the next event."""
        if self._ended:
            raise StopIteration
        try:
            with self._reading:
                event = self._next()
        except ModboxError:
            self.close()
            raise
        if event.type == "stdout":
            self.offset += len(event.data)
        elif event.type == "exit":
            self._ended = True
            self.close()
        return event

    def write(self, data: Union[str, bytes]) -> None:
        """Sends to the command's stdin, text as UTF-8, and waits while the command does not take it.

        A command that waits for its output to be read takes nothing: have another thread read.
        """
        content = _encode(data)
        with self._writing:
            for i in range(0, len(content), _WRITE_BYTES):
                with self._lock:
                    self._protocol.write(content[i : i + _WRITE_BYTES])
                self._flush()

    def close_stdin(self) -> None:
        """Tells the command that its input ends."""
        self._control(type="stdin_eof")

    def resize(self, rows: int, cols: int) -> None:
        """Tells the command's terminal its size."""
        self._control(type="resize", rows=rows, cols=cols)

    def kill(self, signal: int) -> None:
        """Sends a signal, by number, to the command's process group."""
        self._control(type="signal", signal=signal)

    def close(self) -> None:
        """Ends the session, also for the threads that wait for it.

        A command of ``sandboxes.attach`` that still runs is killed; an execution goes on.
        """
        with self._lock:
            self._protocol.close()
            with suppress(OSError, ValueError):  # or it is closed, or gone
                self._send()
            with suppress(OSError):
                self._connection.shutdown(socket.SHUT_RDWR)  # wakes who waits for it
        with self._reading, self._writing:  # not while others wait for it: its number could become another file's
            self._connection.close()

    def __enter__(self) -> Session:
        return self

    def __exit__(
        self, kind: Optional[Type[BaseException]], err: Optional[BaseException], trace: Optional[TracebackType]
    ) -> None:
        self.close()

    def _control(self, **message: Union[str, int]) -> None:
        with self._writing:
            with self._lock:
                self._protocol.control(message)
            self._flush()

    def _next(self) -> ExecEvent:
        while True:
            with self._lock:
                event = self._protocol.next()
                if event is not None:
                    return event
                awaited = self._receive()
            if awaited:
                self._wait(awaited)

    def _flush(self) -> None:
        """Returns when all is sent."""
        while True:
            with self._lock:
                try:
                    awaited = self._send()
                except OSError as err:
                    raise broken(err) from err
            if not awaited:
                return
            self._wait(awaited)

    def _receive(self) -> int:
        """Reads what there is. Without anything returns what to wait for, else 0."""
        awaited = 0
        try:
            self._protocol.receive(self._connection.recv(CHUNK_BYTES))
        except (BlockingIOError, ssl.SSLWantReadError):
            awaited = selectors.EVENT_READ
        except ssl.SSLWantWriteError:
            awaited = selectors.EVENT_WRITE
        except OSError:
            self._protocol.receive(b"")
        with suppress(OSError):  # what cannot be sent is no end: there may be more to read
            self._send()
        return awaited

    def _send(self) -> int:
        """Sends as much as it can without waiting; returns the events to wait for, 0 when all is sent."""
        out = self._protocol.out
        try:
            while out:
                del out[: self._connection.send(out)]
        except (BlockingIOError, ssl.SSLWantWriteError):
            return selectors.EVENT_WRITE
        except ssl.SSLWantReadError:
            return selectors.EVENT_READ
        return 0

    def _wait(self, awaited: int) -> None:
        with selectors.DefaultSelector() as selector:
            selector.register(self._connection, awaited)
            selector.select()


class AsyncSession:
    """A command under way, for asyncio; as Session. One task iterates over it while others write."""

    def __init__(
        self, protocol: WebSocket, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, offset: int = 0
    ) -> None:
        #: Where ``executions.attach`` goes on: the bytes of stdout that came before the next event.
        self.offset = offset
        self._writing = asyncio.Lock()
        self._protocol = protocol
        self._reader = reader
        self._writer = writer
        self._ended = False
        # Bytes for which write has returned are not kept here, where closing would lose them.
        writer.transport.set_write_buffer_limits(high=0)

    def __aiter__(self) -> AsyncSession:
        return self

    async def __anext__(self) -> ExecEvent:
        """Waits for the next event. May be cancelled without losing one."""
        if self._ended:
            raise StopAsyncIteration
        try:
            event = await self._next()
        except ModboxError:
            await self.close()
            raise
        if event.type == "stdout":
            self.offset += len(event.data)
        elif event.type == "exit":
            self._ended = True
            await self.close()
        return event

    async def write(self, data: Union[str, bytes]) -> None:
        """Sends to the command's stdin, text as UTF-8, and waits while the command does not take it.

        A command that waits for its output to be read takes nothing: have another task read.
        """
        content = _encode(data)
        async with self._writing:
            for i in range(0, len(content), _WRITE_BYTES):
                self._protocol.write(content[i : i + _WRITE_BYTES])
                await self._flush()

    async def close_stdin(self) -> None:
        """Tells the command that its input ends."""
        await self._control(type="stdin_eof")

    async def resize(self, rows: int, cols: int) -> None:
        """Tells the command's terminal its size."""
        await self._control(type="resize", rows=rows, cols=cols)

    async def kill(self, signal: int) -> None:
        """Sends a signal, by number, to the command's process group."""
        await self._control(type="signal", signal=signal)

    async def close(self) -> None:
        """Ends the session, also for the tasks that wait for it.

        A command of ``sandboxes.attach`` that still runs is killed; an execution goes on.
        """
        self._protocol.close()
        self._send()
        self._writer.transport.abort()
        with suppress(OSError):  # why it broke has been told
            await self._writer.wait_closed()

    async def __aenter__(self) -> AsyncSession:
        return self

    async def __aexit__(
        self, kind: Optional[Type[BaseException]], err: Optional[BaseException], trace: Optional[TracebackType]
    ) -> None:
        await self.close()

    async def _control(self, **message: Union[str, int]) -> None:
        async with self._writing:
            self._protocol.control(message)
            await self._flush()

    async def _next(self) -> ExecEvent:
        while True:
            event = self._protocol.next()
            if event is not None:
                return event
            try:
                data = await self._reader.read(CHUNK_BYTES)
            except OSError:
                data = b""
            self._protocol.receive(data)
            if self._writer.transport.get_write_buffer_size() == 0:
                self._send()  # answers to pings; others are sent with what is written

    async def _flush(self) -> None:
        self._send()
        try:
            await self._writer.drain()
        except OSError as err:
            raise broken(err) from err

    def _send(self) -> None:
        out = self._protocol.taken()
        if out and not self._writer.transport.is_closing():
            self._writer.write(out)
