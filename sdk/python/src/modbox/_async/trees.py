"""Files by the many: batches, archives and watches."""

from __future__ import annotations

from typing import Any, AsyncGenerator, List, Mapping, Optional, Union

from .. import _trees as calls
from .._trees import WatchReader
from ..models import FileEvent
from .requester import AsyncRequester


class AsyncFileTrees:
    """The part of Files that is about many files."""

    _requester: AsyncRequester

    async def write_many(self, ref: str, files: Mapping[str, Union[str, bytes]], *, mode: Optional[str] = None) -> None:
        """Writes files by their paths, in order, each all or nothing, with the parents they miss.

        At most 1000 with 32 MiB together. An error names its file; those before it are written.
        """
        await self._requester.perform(calls.write_many(ref, files, mode))

    async def upload_archive(
        self, ref: str, path: str, archive: Any, *, format: Optional[str] = None, keep_links: Optional[bool] = None
    ) -> None:
        """Unpacks an archive (bytes or chunks of them) below a directory, which is made when it is missing.

        ``format`` is ``tar.gz``, ``zip`` or ``tar``, found out when None; ``keep_links``
        keeps symlinks that lead out. Raises ValidationError for one that is damaged or hostile.
        """
        await self._requester.perform(calls.upload_archive(ref, path, archive, format, keep_links))

    def download_archive(self, ref: str, path: str, *, format: Optional[str] = None) -> AsyncGenerator[bytes, None]:
        """Packs a directory or file as it is read, as ``tar.gz`` unless told; raises when it breaks off."""
        return self._requester.stream(calls.download_archive(ref, path, format))

    async def watch(self, ref: str, path: str, *, recursive: Optional[bool] = None) -> AsyncGenerator[FileEvent, None]:
        """Tells what happens in a directory, or to a file, from when this returns until the directory is gone.

        Closing the generator ends the watch. Raises when it breaks off.
        """
        chunks = self._requester.stream(calls.watch(ref, path, recursive))
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
