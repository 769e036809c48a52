"""Snapshots."""

from __future__ import annotations

from typing import TYPE_CHECKING, Mapping, Optional

from .. import _stateful as calls
from .._calls import _body
from .._pages import AsyncPages
from .._schemas import Snapshot, SnapshotFilter
from .requester import AsyncRequester
from .snapshotbuilds import AsyncSnapshotBuilds
from .snapshotfiles import AsyncSnapshotFiles

if TYPE_CHECKING:
    from typing_extensions import Unpack


class AsyncSnapshots(AsyncSnapshotFiles, AsyncSnapshotBuilds):
    """Saved filesystems; ``snapshot`` is an id, ``name``, ``name:tag`` or ``@workspace/name:tag``."""

    def __init__(self, requester: AsyncRequester) -> None:
        self._requester = requester

    async def create(
        self,
        ref: str,
        *,
        name: Optional[str] = None,
        tag: Optional[str] = None,
        description: Optional[str] = None,
        message: Optional[str] = None,
        metadata: Optional[Mapping[str, str]] = None,
        public: Optional[bool] = None,
    ) -> Snapshot:
        """Saves the files of a running or paused sandbox, and returns when sandboxes can be made from them.

        A ``name`` is made up when there is none. ``tag``, by default ``latest``, leaves the snapshot of
        the name that had it. With ``public`` every workspace may read it and make sandboxes from it.
        """
        body = _body(name=name, tag=tag, description=description, message=message, metadata=metadata, public=public)
        return await self._requester.perform(calls.create_snapshot(ref, body))

    async def get(self, snapshot: str) -> Snapshot:
        """Returns a snapshot."""
        return await self._requester.perform(calls.get_snapshot(snapshot))

    def list(
        self, *, limit: Optional[int] = None, cursor: Optional[str] = None, **filter: Unpack[SnapshotFilter],
    ) -> AsyncPages[Snapshot]:
        """Lists the workspace's snapshots, or the public ones of all; newest first unless asked otherwise."""
        return AsyncPages(self._requester, calls.list_snapshots(filter), limit, cursor)

    async def tag(self, snapshot: str, tag: Optional[str]) -> Snapshot:
        """Gives a snapshot a tag, which leaves the one of the same name that had it; None takes its tag away."""
        return await self._requester.perform(calls.tag_snapshot(snapshot, tag))

    async def delete(self, snapshot: str) -> None:
        """Deletes a snapshot; sandboxes made from it go on."""
        await self._requester.perform(calls.delete_snapshot(snapshot))

    def lineage(self, snapshot: str, *, limit: Optional[int] = None, cursor: Optional[str] = None) -> AsyncPages[Snapshot]:
        """Lists a snapshot and those it came from, newest first, deleted ones included."""
        return AsyncPages(self._requester, calls.lineage(snapshot), limit, cursor)
