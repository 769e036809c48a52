# Made from ../_async/files.py by tools/unasync.py. Change that file, then run make gen.
"""The files of a sandbox, one at a time."""

from __future__ import annotations

from typing import Generator, Mapping, Optional

from .. import _calls as calls
from .._pages import Page
from .._schemas import FileChange, FileInfo
from ..transport import Content
from .requester import Requester
from .trees import FileTrees


class Files(FileTrees):
    """Files of a sandbox; ``ref`` is its id or name.

    Paths that are not absolute begin at the image's working directory. A missing
    file raises FileNotFoundError, a missing sandbox another NotFoundError.
    """

    def __init__(self, requester: Requester) -> None:
        self._requester = requester

    def read(self, ref: str, path: str) -> bytes:
        """Reads a whole file into memory."""
        return self._requester.perform(calls.read_file(ref, path))

    def read_text(self, ref: str, path: str) -> str:
        """Reads a whole file as UTF-8."""
        content = self.read(ref, path)
        return content.decode()

    def read_stream(self, ref: str, path: str) -> Generator[bytes, None, None]:
        """Reads a file of any size as it comes; nothing is sent before the first chunk is asked for."""
        return self._requester.stream(calls.read_file(ref, path))

    def write(
        self,
        ref: str,
        path: str,
        content: Content,
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
        return self._requester.perform(calls.write_file(ref, path, content, mode, parents, user, metadata))

    def list(self, ref: str, path: str, *, limit: Optional[int] = None, cursor: Optional[str] = None) -> Page[FileInfo]:
        """Lists a directory, sorted by name."""
        return Page(self._requester, calls.list_files(ref, path), limit, cursor)

    def stat(self, ref: str, path: str) -> FileInfo:
        """Describes a path, not following a last symlink."""
        return self._requester.perform(calls.stat_file(ref, path))

    def diff(self, ref: str, *, path: Optional[str] = None, limit: Optional[int] = None, cursor: Optional[str] = None) -> Page[FileChange]:
        """Lists what a running or paused sandbox has written at ``path`` and below, by default everything.

        That is, since it was made from its image or snapshot. A running sandbox stands still
        while a page of it is made.
        """
        return Page(self._requester, calls.diff(ref, path), limit, cursor)

    def original(self, ref: str, path: str) -> bytes:
        """Reads a file of up to 16 MiB of the image or snapshot that the sandbox was made from."""
        return self._requester.perform(calls.original_file(ref, path))

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
        return self._requester.perform(calls.mkdir(ref, path, mode, parents, user))

    def move(self, ref: str, source: str, to: str, *, overwrite: Optional[bool] = None) -> FileInfo:
        """Renames a path; raises ConflictError when ``to`` exists, unless ``overwrite`` is set."""
        return self._requester.perform(calls.move(ref, source, to, overwrite))

    def delete(self, ref: str, path: str, *, recursive: Optional[bool] = None) -> None:
        """Deletes a file or an empty directory; with ``recursive`` everything below, too."""
        self._requester.perform(calls.delete_file(ref, path, recursive))
