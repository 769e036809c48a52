"""Files by the many: batches, archives and watches, for both clients."""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING, Any, AsyncGenerator, Generator, List, Mapping, Optional, Union

from ._calls import Call, _body, _load, _nothing, _query, _raw, sandbox_path
from .errors import new_error
from .models import FileEvent, decode

if TYPE_CHECKING:
    from . import aio, client


def write_many(ref: str, files: Mapping[str, Union[str, bytes]], mode: Optional[str]) -> Call[None]:
    def encode(path: str, content: Union[str, bytes]) -> Any:
        data = content.encode() if isinstance(content, str) else content
        return _body(path=path, content=base64.b64encode(data).decode(), mode=mode)

    json = {"files": [encode(path, content) for path, content in files.items()]}
    return Call("POST", sandbox_path(ref, "/files/batch"), _nothing, repeatable=True, json=json)


def upload_archive(ref: str, path: str, archive: Any, format: Optional[str], keep_links: Optional[bool]) -> Call[None]:
    return Call(
        "PUT",
        _query(sandbox_path(ref, "/files/archive"), path=path, format=format, keep_links=keep_links),
        _nothing,
        # A stream can be read only once.
        repeatable=isinstance(archive, bytes),
        content=archive,
        headers={"content-type": "application/octet-stream"},
        timeout=None,
    )


def download_archive(ref: str, path: str, format: Optional[str]) -> Call[bytes]:
    return Call("GET", _query(sandbox_path(ref, "/files/archive"), path=path, format=format), _raw, repeatable=True)


def watch(ref: str, path: str, recursive: Optional[bool]) -> Call[bytes]:
    call = _query(sandbox_path(ref, "/files/watch"), path=path, recursive=recursive)
    return Call("GET", call, _raw, repeatable=True, timeout=None)


class WatchReader:
    """Reads the lines of a watch from chunks that do not respect the lines."""

    def __init__(self) -> None:
        self.ready = False
        self.ended = False
        self._rest = b""

    def feed(self, chunk: bytes) -> List[FileEvent]:
        """Returns the events that are complete; raises the server's error."""
        *lines, self._rest = (self._rest + chunk).split(b"\n")
        events = []
        for line in lines:
            wire = _load(line)
            kind = wire.get("type")
            if kind == "error":
                raise new_error(wire.get("code") or "internal", wire.get("message") or "the server gave no reason")
            self.ready = self.ready or kind == "ready"
            self.ended = self.ended or kind == "ended"
            if kind in KINDS:  # A newer server may send more.
                events.append(decode(FileEvent, wire))
        return events

    def end(self) -> None:
        """Says that the stream is over; raises unless that was told."""
        if not self.ended:
            raise new_error("connection", "the connection broke while the watch was under way")


KINDS = ("created", "modified", "attributes", "removed", "moved_from", "moved_to", "overflow", "limit")


class FileTrees:
    """The part of Files that is about many files."""

    _session: client._Session

    def write_many(self, ref: str, files: Mapping[str, Union[str, bytes]], *, mode: Optional[str] = None) -> None:
        """Writes files by their paths, in order, each all or nothing, with the parents they miss.

        At most 1000 with 32 MiB together. An error names its file; those before it are written.
        """
        self._session.perform(write_many(ref, files, mode))

    def upload_archive(
        self, ref: str, path: str, archive: Any, *, format: Optional[str] = None, keep_links: Optional[bool] = None
    ) -> None:
        """Unpacks an archive (bytes or chunks of them) below a directory, which is made when it is missing.

        ``format`` is ``tar.gz``, ``zip`` or ``tar``, found out when None; ``keep_links``
        keeps symlinks that lead out. Raises ValidationError for one that is damaged or hostile.
        """
        self._session.perform(upload_archive(ref, path, archive, format, keep_links))

    def download_archive(self, ref: str, path: str, *, format: Optional[str] = None) -> Generator[bytes, None, None]:
        """Packs a directory or file as it is read, as ``tar.gz`` unless told; raises when it breaks off."""
        return self._session.stream(download_archive(ref, path, format))

    def watch(self, ref: str, path: str, *, recursive: Optional[bool] = None) -> Generator[FileEvent, None, None]:
        """Tells what happens in a directory, or to a file, from when this returns until the directory is gone.

        Closing the generator ends the watch. Raises when it breaks off.
        """
        chunks = self._session.stream(watch(ref, path, recursive))
        reader = WatchReader()

        first: List[FileEvent] = []
        for chunk in chunks:
            first = reader.feed(chunk)
            if reader.ready:
                break

        def events() -> Generator[FileEvent, None, None]:
            try:
                yield from first
                for chunk in chunks:
                    yield from reader.feed(chunk)
            finally:
                chunks.close()
            reader.end()

        return events()


class AsyncFileTrees:
    """The part of AsyncFiles that is about many files; as FileTrees."""

    _session: aio._Session

    async def write_many(self, ref: str, files: Mapping[str, Union[str, bytes]], *, mode: Optional[str] = None) -> None:
        """Writes files by their paths, in order, each all or nothing, with the parents they miss."""
        await self._session.perform(write_many(ref, files, mode))

    async def upload_archive(
        self, ref: str, path: str, archive: Any, *, format: Optional[str] = None, keep_links: Optional[bool] = None
    ) -> None:
        """Unpacks an archive (bytes or chunks of them) below a directory, which is made when it is missing."""
        await self._session.perform(upload_archive(ref, path, archive, format, keep_links))

    def download_archive(self, ref: str, path: str, *, format: Optional[str] = None) -> AsyncGenerator[bytes, None]:
        """Packs a directory or file as it is read, as ``tar.gz`` unless told; raises when it breaks off."""
        return self._session.stream(download_archive(ref, path, format))

    async def watch(self, ref: str, path: str, *, recursive: Optional[bool] = None) -> AsyncGenerator[FileEvent, None]:
        """Tells what happens in a directory, or to a file, from when this returns until the directory is gone."""
        chunks = self._session.stream(watch(ref, path, recursive))
        reader = WatchReader()
        first: List[FileEvent] = []
        async for chunk in chunks:
            first = reader.feed(chunk)
            if reader.ready:
                break

        async def events() -> AsyncGenerator[FileEvent, None]:
            try:
                for event in first:
                    yield event
                async for chunk in chunks:
                    for event in reader.feed(chunk):
                        yield event
            finally:
                await chunks.aclose()
            reader.end()

        return events()
