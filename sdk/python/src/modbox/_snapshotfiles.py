"""The files of snapshots, for both clients."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any, Dict, Mapping, Optional

from ._calls import Call, Listing, _load, _query, _raw, _segment
from .models import FileInfo, _time, decode


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
