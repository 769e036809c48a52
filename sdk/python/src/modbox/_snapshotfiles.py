"""The files of snapshots, for both clients."""

from __future__ import annotations

from typing import Any, Dict, Mapping, Optional

from ._calls import Call, Listing, _load, _query, _raw, _segment
from ._decode import decode
from ._schemas import SnapshotFile


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
