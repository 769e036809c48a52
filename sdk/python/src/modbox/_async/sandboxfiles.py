"""The files of one sandbox."""

from __future__ import annotations

from typing import Any, AsyncGenerator, Mapping, Optional, Union

from .._pages import AsyncPages
from .._schemas import FileChange, FileInfo
from ..errors import FileNotFoundError
from ..models import FileEvent
from ..transport import AsyncContent
from .files import AsyncFiles


class AsyncSandboxFiles:
    """The files of a sandbox.

    Paths that are not absolute begin at the image's working directory. All calls raise EndedError when the sandbox
    has ended, and FileNotFoundError for a path that does not exist.
    """

    def __init__(self, files: AsyncFiles, sandbox_id: str) -> None:
        self._files = files
        self._sandbox_id = sandbox_id

    async def read(self, path: str) -> str:
        """Reads a whole file as UTF-8; raises UnicodeDecodeError for a file that is not text."""
        return await self._files.read_text(self._sandbox_id, path)

    async def read_bytes(self, path: str) -> bytes:
        """Reads a whole file into memory."""
        return await self._files.read(self._sandbox_id, path)

    def read_stream(self, path: str) -> AsyncGenerator[bytes, None]:
        """Yields a file of any size in chunks."""
        return self._files.read_stream(self._sandbox_id, path)

    async def write(
        self,
        path: str,
        content: AsyncContent,
        *,
        mode: Optional[str] = None,
        parents: bool = True,
        user: Optional[str] = None,
        metadata: Optional[Mapping[str, str]] = None,
    ) -> FileInfo:
        """Writes a file, all or nothing: text as UTF-8, bytes, an open binary file, or an iterable of bytes.

        ``mode`` is octal text (a new file gets ``0644``), ``user`` the owner. Missing directories are made unless
        ``parents`` is False. Raises an error of code ``disk_full`` at the sandbox's disk limit.
        """
        return await self._files.write(self._sandbox_id, path, content, mode=mode, parents=parents, user=user, metadata=metadata)

    async def write_many(self, files: Mapping[str, Union[str, bytes]], *, mode: Optional[str] = None) -> None:
        """Writes files by their paths, with missing directories: at most 1000, of 32 MiB together.

        Each is written all or nothing, in order. An error names its file; the files before it are written.
        """
        await self._files.write_many(self._sandbox_id, files, mode=mode)

    def list(self, path: str, *, limit: Optional[int] = None, cursor: Optional[str] = None) -> AsyncPages[FileInfo]:
        """Lists a directory, sorted by name."""
        return self._files.list(self._sandbox_id, path, limit=limit, cursor=cursor)

    def diff(self, *, path: Optional[str] = None, limit: Optional[int] = None, cursor: Optional[str] = None) -> AsyncPages[FileChange]:
        """Lists what the sandbox has written at ``path`` and below, by default everything.

        That is, since it was made from its image or snapshot. A running sandbox stands still
        while a page of it is made.
        """
        return self._files.diff(self._sandbox_id, path=path, limit=limit, cursor=cursor)

    async def original(self, path: str) -> bytes:
        """Reads a file of up to 16 MiB of the image or snapshot that the sandbox was made from."""
        return await self._files.original(self._sandbox_id, path)

    async def stat(self, path: str) -> FileInfo:
        """Describes a path, not following a last symlink."""
        return await self._files.stat(self._sandbox_id, path)

    async def exists(self, path: str) -> bool:
        """Whether the path exists; a symlink counts, also one that leads nowhere."""
        try:
            await self.stat(path)
        except FileNotFoundError:
            return False
        return True

    async def mkdir(
        self, path: str, *, mode: Optional[str] = None, parents: bool = True, user: Optional[str] = None
    ) -> FileInfo:
        """Makes a directory with missing parents; one that exists is no error, unless ``parents`` is False."""
        return await self._files.mkdir(self._sandbox_id, path, mode=mode, parents=parents, user=user)

    async def move(self, source: str, to: str, *, overwrite: Optional[bool] = None) -> FileInfo:
        """Renames a path; raises ConflictError when ``to`` exists, unless ``overwrite`` is set."""
        return await self._files.move(self._sandbox_id, source, to, overwrite=overwrite)

    async def remove(self, path: str, *, recursive: Optional[bool] = None) -> None:
        """Removes a file or an empty directory; with ``recursive`` also everything below it."""
        await self._files.delete(self._sandbox_id, path, recursive=recursive)

    async def watch(self, path: str, *, recursive: Optional[bool] = None) -> AsyncGenerator[FileEvent, None]:
        """Watches a directory or a file: yields the changes from when this returns until the path is gone.

        Closing the generator ends the watch. Raises ConnectionError when the connection breaks.
        """
        return await self._files.watch(self._sandbox_id, path, recursive=recursive)

    async def upload_archive(
        self, path: str, archive: Any, *, format: Optional[str] = None, keep_links: Optional[bool] = None
    ) -> None:
        """Unpacks an archive (bytes or chunks of them) below a directory, which is made when it is missing.

        ``format`` is ``tar.gz``, ``zip`` or ``tar``, detected when omitted; ``keep_links`` keeps symlinks that lead
        out. Raises ValidationError for an archive that is damaged or hostile.
        """
        await self._files.upload_archive(self._sandbox_id, path, archive, format=format, keep_links=keep_links)

    def download_archive(self, path: str, *, format: Optional[str] = None) -> AsyncGenerator[bytes, None]:
        """Packs a directory or file while it is read, as ``tar.gz`` unless ``format`` is ``zip`` or ``tar``."""
        return self._files.download_archive(self._sandbox_id, path, format=format)
