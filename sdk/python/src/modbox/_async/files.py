"""The files of a sandbox, one at a time."""

from __future__ import annotations

from typing import AsyncGenerator, Mapping, Optional

from .. import _calls as calls
from .._pages import AsyncPages
from .._schemas import FileChange, FileInfo
from ..transport import AsyncContent
from .requester import AsyncRequester
from .trees import AsyncFileTrees


class AsyncFiles(AsyncFileTrees):
    """Files of a sandbox; ``ref`` is its id or name.

    Paths that are not absolute begin at the image's working directory. A missing
    file raises FileNotFoundError, a missing sandbox another NotFoundError.
    """

    def __init__(self, requester: AsyncRequester) -> None:
        self._requester = requester

    async def read(self, ref: str, path: str) -> bytes:
        """Reads a whole file into memory."""
        return await self._requester.perform(calls.read_file(ref, path))

    async def read_text(self, ref: str, path: str) -> str:
        """Reads a whole file as UTF-8."""
        content = await self.read(ref, path)
        return content.decode()

    def read_stream(self, ref: str, path: str) -> AsyncGenerator[bytes, None]:
        """Reads a file of any size as it comes; nothing is sent before the first chunk is asked for."""
        return self._requester.stream(calls.read_file(ref, path))

    async def write(
        self,
        ref: str,
        path: str,
        content: AsyncContent,
        *,
        mode: Optional[str] = None,
        parents: Optional[bool] = None,
        user: Optional[str] = None,
        metadata: Optional[Mapping[str, str]] = None,
    ) -> FileInfo:
        """Writes a file of any size, all or nothing: no reader ever sees a part of it.

        ``content`` may be an open binary file; ``mode`` is octal, a new file gets
        ``0644``; ``parents`` makes missing directories; a file that is replaced loses its
        ``metadata``. Raises code ``disk_full`` at the sandbox's disk limit.
        """
        return await self._requester.perform(calls.write_file(ref, path, content, mode, parents, user, metadata))

    def list(self, ref: str, path: str, *, limit: Optional[int] = None, cursor: Optional[str] = None) -> AsyncPages[FileInfo]:
        """Lists a directory, sorted by name."""
        return AsyncPages(self._requester, calls.list_files(ref, path), limit, cursor)

    async def stat(self, ref: str, path: str) -> FileInfo:
        """Describes a path, not following a last symlink."""
        return await self._requester.perform(calls.stat_file(ref, path))

    def diff(self, ref: str, *, path: Optional[str] = None, limit: Optional[int] = None, cursor: Optional[str] = None) -> AsyncPages[FileChange]:
        """Lists what a running or paused sandbox has written at ``path`` and below, by default everything.

        That is, since it was made from its image or snapshot. A running sandbox stands still
        while a page of it is made.
        """
        return AsyncPages(self._requester, calls.diff(ref, path), limit, cursor)

    async def original(self, ref: str, path: str) -> bytes:
        """Reads a file of up to 16 MiB of the image or snapshot that the sandbox was made from."""
        return await self._requester.perform(calls.original_file(ref, path))

    async def mkdir(
        self,
        ref: str,
        path: str,
        *,
        mode: Optional[str] = None,
        parents: Optional[bool] = None,
        user: Optional[str] = None,
    ) -> FileInfo:
        """Makes a directory; ``parents`` makes missing parents too, and accepts one that exists."""
        return await self._requester.perform(calls.mkdir(ref, path, mode, parents, user))

    async def move(self, ref: str, source: str, to: str, *, overwrite: Optional[bool] = None) -> FileInfo:
        """Renames a path; raises ConflictError when ``to`` exists, unless ``overwrite`` is set."""
        return await self._requester.perform(calls.move(ref, source, to, overwrite))

    async def delete(self, ref: str, path: str, *, recursive: Optional[bool] = None) -> None:
        """Deletes a file or an empty directory; with ``recursive`` everything below, too."""
        await self._requester.perform(calls.delete_file(ref, path, recursive))
