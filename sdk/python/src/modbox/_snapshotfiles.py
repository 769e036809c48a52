"""The files of snapshots, for both clients."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, AsyncGenerator, Dict, Generator, Literal, Mapping, Optional

from ._calls import Call, Listing, _load, _query, _raw, _segment
from ._pages import AsyncPages, Page
from .models import FileInfo, _time, decode

if TYPE_CHECKING:
    from . import aio, client


@dataclass(frozen=True)
class SnapshotFile(FileInfo):
    """A name in a snapshot; ``sha256`` is of a file of up to 64 MiB, when asked for."""

    sha256: Optional[str] = None


@dataclass(frozen=True)
class SnapshotDownload:
    """Where files of a snapshot can be downloaded: ``url`` answers a tar.gz to whoever has it."""

    url: str
    expires_at: datetime = _time()


def _file(wire: Mapping[str, Any]) -> SnapshotFile:
    return decode(SnapshotFile, {**wire, "name": wire["path"].rpartition("/")[2]})


def _path(snapshot: str, call: str) -> str:
    return f"/v1/snapshots/{_segment(snapshot)}/{call}"


def files(snapshot: str, path: Optional[str], recursive: Optional[bool], sha256: Optional[bool]) -> Listing[SnapshotFile]:
    pairs = (("path", path), ("recursive", recursive), ("sha256", sha256))
    return Listing(_path(snapshot, "files"), _file, pairs)


def download(snapshot: str, path: Optional[str], format: Optional[str]) -> Call[bytes]:
    return Call("GET", _query(_path(snapshot, "archive"), path=path, format=format), _raw, repeatable=True)


def share(snapshot: str, path: Optional[str]) -> Call[Dict[str, Any]]:
    return Call("POST", _query(_path(snapshot, "download"), path=path), _load, repeatable=False)


class SnapshotFiles:
    """The part of Snapshots that is about their files."""

    _session: client._Session

    def files(
        self, snapshot: str, *, path: Optional[str] = None, recursive: Optional[bool] = None, sha256: Optional[bool] = None, limit: Optional[int] = None, cursor: Optional[str] = None,
    ) -> Page[SnapshotFile]:
        """Lists the files in the root of a snapshot, or in ``path``, or with ``recursive`` all below.

        Those of its image are included; a directory comes before what is in it. ``sha256``
        gives hashes, of files of up to 64 MiB.
        """
        return Page(self._session, files(snapshot, path, recursive, sha256), limit, cursor)

    def download(
        self, snapshot: str, *, path: Optional[str] = None, format: Optional[Literal["tar.gz", "tar"]] = None
    ) -> Generator[bytes, None, None]:
        """Packs a directory or file of a snapshot, by default its root, as it is read, as ``tar.gz`` unless told."""
        return self._session.stream(download(snapshot, path, format))

    def share(self, snapshot: str, *, path: Optional[str] = None) -> SnapshotDownload:
        """Makes an address of a directory or file of a snapshot, by default its root.

        It can be downloaded there without a token, for an hour.
        """
        wire = self._session.perform(share(snapshot, path))
        return decode(SnapshotDownload, {**wire, "url": self._session.address(wire["url"])})


class AsyncSnapshotFiles:
    """The part of Snapshots that is about their files."""

    _session: aio._Session

    def files(
        self, snapshot: str, *, path: Optional[str] = None, recursive: Optional[bool] = None, sha256: Optional[bool] = None, limit: Optional[int] = None, cursor: Optional[str] = None,
    ) -> AsyncPages[SnapshotFile]:
        """Lists the files in the root of a snapshot, or in ``path``, or with ``recursive`` all below.

        Those of its image are included; a directory comes before what is in it. ``sha256``
        gives hashes, of files of up to 64 MiB.
        """
        return AsyncPages(self._session, files(snapshot, path, recursive, sha256), limit, cursor)

    def download(
        self, snapshot: str, *, path: Optional[str] = None, format: Optional[Literal["tar.gz", "tar"]] = None
    ) -> AsyncGenerator[bytes, None]:
        """Packs a directory or file of a snapshot, by default its root, as it is read, as ``tar.gz`` unless told."""
        return self._session.stream(download(snapshot, path, format))

    async def share(self, snapshot: str, *, path: Optional[str] = None) -> SnapshotDownload:
        """Makes an address of a directory or file of a snapshot, by default its root.

        It can be downloaded there without a token, for an hour.
        """
        wire = await self._session.perform(share(snapshot, path))
        return decode(SnapshotDownload, {**wire, "url": self._session.address(wire["url"])})
