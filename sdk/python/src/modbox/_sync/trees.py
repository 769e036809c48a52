# Made from ../_async/trees.py by tools/unasync.py. Change that file, then run make gen.
"""Files by the many: batches, archives and watches."""

from __future__ import annotations

from typing import Any, Generator, List, Mapping, Optional, Union

from .. import _trees as calls
from .._trees import WatchReader
from ..models import FileEvent
from .requester import Requester


class FileTrees:
    """The part of Files that is about many files."""

    _requester: Requester

    def write_many(self, ref: str, files: Mapping[str, Union[str, bytes]], *, mode: Optional[str] = None) -> None:
        """Writes files by their paths, in order, each all or nothing, with the parents they miss.

        At most 1000 with 32 MiB together. An error names its file; those before it are written.
        """
        self._requester.perform(calls.write_many(ref, files, mode))

    def upload_archive(
        self, ref: str, path: str, archive: Any, *, format: Optional[str] = None, keep_links: Optional[bool] = None
    ) -> None:
        """Unpacks an archive (bytes or chunks of them) below a directory, which is made when it is missing.

        ``format`` is ``tar.gz``, ``zip`` or ``tar``, found out when None; ``keep_links``
        keeps symlinks that lead out. Raises ValidationError for one that is damaged or hostile.
        """
        self._requester.perform(calls.upload_archive(ref, path, archive, format, keep_links))

    def download_archive(self, ref: str, path: str, *, format: Optional[str] = None) -> Generator[bytes, None, None]:
        """Packs a directory or file as it is read, as ``tar.gz`` unless told; raises when it breaks off."""
        return self._requester.stream(calls.download_archive(ref, path, format))

    def watch(self, ref: str, path: str, *, recursive: Optional[bool] = None) -> Generator[FileEvent, None, None]:
        """Tells what happens in a directory, or to a file, from when this returns until the directory is gone.

        Closing the generator ends the watch. Raises when it breaks off.
        """
        chunks = self._requester.stream(calls.watch(ref, path, recursive))
        reader = WatchReader()
        first: List[FileEvent] = []
        for chunk in chunks:
            first = reader.feed(chunk)
            if reader.ready:
                break

        def events() -> Generator[FileEvent, None, None]:
            try:
                for event in first:
                    yield event
                for chunk in chunks:
                    for event in reader.feed(chunk):
                        yield event
            finally:
                chunks.close()
            reader.end()

        return events()
