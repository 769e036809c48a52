# Made from ../_async/snapshotfiles.py by tools/unasync.py. Change that file, then run make gen.
"""The files of snapshots."""

from __future__ import annotations

from typing import Generator, Literal, Optional

from .. import _snapshotfiles as calls
from .._decode import decode
from .._pages import Page
from .._schemas import SnapshotDownload, SnapshotFile
from .requester import Requester


class SnapshotFiles:
    """The part of Snapshots that is about their files."""

    _requester: Requester

    def files(
        self, snapshot: str, *, path: Optional[str] = None, recursive: Optional[bool] = None, sha256: Optional[bool] = None, limit: Optional[int] = None, cursor: Optional[str] = None,
    ) -> Page[SnapshotFile]:
        """Lists the files in the root of a snapshot, or in ``path``, or with ``recursive`` all below.

        Those of its image are included; a directory comes before what is in it. ``sha256``
        gives hashes, of files of up to 64 MiB.
        """
        return Page(self._requester, calls.files(snapshot, path, recursive, sha256), limit, cursor)

    def download(
        self, snapshot: str, *, path: Optional[str] = None, format: Optional[Literal["tar.gz", "tar"]] = None
    ) -> Generator[bytes, None, None]:
        """Packs a directory or file of a snapshot, by default its root, as it is read, as ``tar.gz`` unless told."""
        return self._requester.stream(calls.download(snapshot, path, format))

    def share(self, snapshot: str, *, path: Optional[str] = None) -> SnapshotDownload:
        """Makes an address of a directory or file of a snapshot, by default its root.

        It can be downloaded there without a token, for an hour.
        """
        wire = self._requester.perform(calls.share(snapshot, path))
        return decode(SnapshotDownload, {**wire, "url": self._requester.address(wire["url"])})
