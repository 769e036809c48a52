"""Output of commands as text, and the callbacks that take it."""

from __future__ import annotations

import asyncio
import codecs
import inspect
import queue
import threading
from dataclasses import dataclass
from typing import Any, AsyncGenerator, Awaitable, Callable, Dict, Generator, List, Literal, Mapping, Optional, Sequence, Tuple, TypeVar, Union

from ._schemas import CodeScan
from .errors import CommandError
from .models import ExecResult, LimitName

T = TypeVar("T")

#: A function that a call gives values while it waits.
Callback = Callable[[T], object]
#: As Callback; may be a coroutine function.
AsyncCallback = Callable[[T], Union[object, Awaitable[object]]]

StreamName = Literal["stdout", "stderr"]

#: The bytes of each of stdout and stderr that a result has.
MAX_OUTPUT_BYTES = 1 << 20

#: Chunks that wait for the reader of several streams.
_WAITING_CHUNKS = 16


@dataclass(frozen=True)
class OutputChunk:
    """A piece of the output of a command, with whole characters."""

    stream: StreamName
    text: str


class TextDecoder:
    """Decodes the two streams of a command as they come: a character that two chunks share stays whole."""

    def __init__(self) -> None:
        decoder = codecs.getincrementaldecoder("utf-8")
        self._decoders: Dict[StreamName, codecs.IncrementalDecoder] = {
            "stdout": decoder(errors="replace"),
            "stderr": decoder(errors="replace"),
        }

    def feed(self, stream: StreamName, data: bytes, final: bool = False) -> List[OutputChunk]:
        """The text that is complete: one chunk, or none."""
        text = self._decoders[stream].decode(data, final)
        return [OutputChunk(stream, text)] if text else []

    def end(self) -> List[OutputChunk]:
        """The incomplete characters at the ends of the streams."""
        return [*self.feed("stdout", b"", True), *self.feed("stderr", b"", True)]


class Collector:
    """Collects the output of a command, up to a number of bytes of each stream."""

    def __init__(self, max_output_bytes: Optional[int]) -> None:
        self._max = MAX_OUTPUT_BYTES if max_output_bytes is None else max_output_bytes
        self._bytes: Dict[StreamName, bytearray] = {"stdout": bytearray(), "stderr": bytearray()}
        self._truncated: Dict[StreamName, bool] = {"stdout": False, "stderr": False}

    def add(self, stream: StreamName, data: bytes) -> None:
        left = self._max - len(self._bytes[stream])
        self._bytes[stream] += data[:left]
        self._truncated[stream] = self._truncated[stream] or len(data) > left

    def full(self, stream: StreamName) -> bool:
        return self._truncated[stream]

    def truncate(self, stream: StreamName) -> None:
        """Says that there was more output than the collector got."""
        self._truncated[stream] = True

    def result(
        self, exit_code: int, signal: int, timed_out: bool, duration_ms: int, limit_exceeded: Optional[LimitName], scan: Optional[CodeScan] = None
    ) -> ExecResult[str]:
        return ExecResult(
            exit_code=exit_code,
            signal=signal,
            timed_out=timed_out,
            duration_ms=duration_ms,
            limit_exceeded=limit_exceeded,
            scan=scan,
            stdout=self._bytes["stdout"].decode(errors="replace"),
            stderr=self._bytes["stderr"].decode(errors="replace"),
            stdout_truncated=self._truncated["stdout"],
            stderr_truncated=self._truncated["stderr"],
        )


def checked(command: Union[str, Sequence[str]], result: ExecResult[str], check: bool) -> ExecResult[str]:
    """Returns the result; with ``check`` raises CommandError for a command that failed."""
    if not check or result.exit_code == 0 and not result.timed_out and result.limit_exceeded is None:
        return result
    shown = command if isinstance(command, str) else " ".join(command)
    end = "ran out of time" if result.timed_out else f"exited with {result.exit_code}"
    if result.limit_exceeded is not None:
        end = f"exceeded its limit of {result.limit_exceeded}"
    last = last_words(result.stdout, result.stderr)
    raise CommandError(f"command {shown[:200]!r} {end}{f': {last}' if last else ''}", result)


def last_words(stdout: str, stderr: str) -> str:
    """The ends of both outputs, standard error first, together some 500 characters: pip and pytest, for
    example, explain a failure on standard output."""
    most = 500
    errors = stderr.strip()[-most:]
    left = most - len(errors)
    output = stdout.strip()[-left:] if left > 0 else ""
    return f"{errors}\nstdout: {output}" if errors and output else errors or output


def tell(callback: Optional[Callback[T]], value: T) -> None:
    if callback is not None:
        callback(value)


async def tell_async(callback: Optional[AsyncCallback[T]], value: T) -> None:
    if callback is not None:
        returned = callback(value)
        if inspect.isawaitable(returned):
            await returned


_Item = Tuple[StreamName, Union[bytes, BaseException, None]]


def merged(sources: Mapping[StreamName, Generator[bytes, None, None]]) -> Generator[Tuple[StreamName, bytes], None, None]:
    """Reads streams at the same time, each in a thread, and yields their chunks as they come.

    A thread whose reader has left ends with its next chunk, or with its stream.
    """
    items: queue.Queue[_Item] = queue.Queue(_WAITING_CHUNKS)
    left = threading.Event()

    def put(item: _Item) -> None:
        while not left.is_set():
            try:
                return items.put(item, timeout=0.5)
            except queue.Full:
                pass

    def read(name: StreamName, chunks: Generator[bytes, None, None]) -> None:
        try:
            for chunk in chunks:
                put((name, chunk))
                if left.is_set():
                    break
            put((name, None))
        except BaseException as err:  # the reader raises it
            put((name, err))
        finally:
            chunks.close()

    for name, chunks in sources.items():
        threading.Thread(target=read, args=(name, chunks), daemon=True).start()
    try:
        running = len(sources)
        while running:
            name, item = items.get()
            if isinstance(item, BaseException):
                raise item
            if item is None:
                running -= 1
            else:
                yield name, item
    finally:
        left.set()


async def merged_async(
    sources: Mapping[StreamName, AsyncGenerator[bytes, None]]
) -> AsyncGenerator[Tuple[StreamName, bytes], None]:
    """Reads streams at the same time, each in a task, and yields their chunks as they come."""
    items: asyncio.Queue[_Item] = asyncio.Queue(_WAITING_CHUNKS)

    async def read(name: StreamName, chunks: AsyncGenerator[bytes, None]) -> None:
        try:
            async for chunk in chunks:
                await items.put((name, chunk))
            await items.put((name, None))
        except Exception as err:  # the reader raises it
            await items.put((name, err))
        finally:
            await chunks.aclose()

    tasks: List[asyncio.Task[Any]] = [asyncio.ensure_future(read(name, chunks)) for name, chunks in sources.items()]
    try:
        running = len(tasks)
        while running:
            name, item = await items.get()
            if isinstance(item, BaseException):
                raise item
            if item is None:
                running -= 1
            else:
                yield name, item
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
