"""Saved states, forks and snapshots of sandboxes, for both clients."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Dict, List, Literal, Mapping, Optional, Sequence

from ._calls import Call, Listing, _body, _into, _items, _load, _nothing, _segment, known, listing, sandbox_path, timeouts_body
from ._pages import AsyncPages, Page
from ._snapshotbuilds import AsyncSnapshotBuilds, SnapshotBuilds
from ._snapshotfiles import AsyncSnapshotFiles, SnapshotFiles
from .models import Sandbox, Timeouts
from .options import SnapshotFilter
from .records import Checkpoint, Forked, Snapshot

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from . import aio, client

Memory = Literal["prefer", "require", "discard"]


# What saves or restores memory or files takes as long as it takes: no time limit.


def pause(ref: str) -> Call[Sandbox]:
    return Call("POST", sandbox_path(ref, "/pause"), _into(Sandbox), repeatable=True, timeout=None)


def resume(ref: str, memory: Optional[Memory], wait_for_quota_seconds: Optional[int]) -> Call[Sandbox]:
    body = _body(memory=memory, wait_for_quota_seconds=wait_for_quota_seconds)
    return Call("POST", sandbox_path(ref, "/resume"), _into(Sandbox), repeatable=True, json=body, timeout=None)


def fork(
    ref: str,
    count: Optional[int],
    names: Optional[Sequence[str]],
    env: Optional[Mapping[str, str]],
    labels: Optional[Mapping[str, str]],
    ttl_seconds: Optional[int],
    timeouts: Optional[Timeouts],
    wait_for_quota_seconds: Optional[int],
) -> Call[List[Forked]]:
    body = _body(
        count=count,
        names=None if names is None else list(names),
        env=env,
        labels=labels,
        ttl_seconds=ttl_seconds,
        timeouts=timeouts_body(timeouts),
        wait_for_quota_seconds=wait_for_quota_seconds,
    )
    return Call("POST", sandbox_path(ref, "/fork"), _items(Forked, "forks"), repeatable=False, json=body, timeout=None)


def update_env(ref: str, changes: Mapping[str, Optional[str]]) -> Call[Dict[str, str]]:
    def parse(content: bytes) -> Dict[str, str]:
        return dict(_load(content)["env"])

    return Call("PATCH", sandbox_path(ref, "/env"), parse, repeatable=True, json=dict(changes))


def create_checkpoint(ref: str, name: Optional[str]) -> Call[Checkpoint]:
    path = sandbox_path(ref, "/checkpoints")
    return Call("POST", path, _into(Checkpoint), repeatable=False, json=_body(name=name), timeout=None)


def list_checkpoints(ref: str) -> Listing[Checkpoint]:
    return listing(Checkpoint, sandbox_path(ref, "/checkpoints"))


def _checkpoint_path(ref: str, checkpoint: str) -> str:
    return sandbox_path(ref, f"/checkpoints/{_segment(checkpoint)}")


def restore_checkpoint(ref: str, checkpoint: str) -> Call[Sandbox]:
    path = _checkpoint_path(ref, checkpoint) + "/restore"
    return Call("POST", path, _into(Sandbox), repeatable=False, timeout=None)


def delete_checkpoint(ref: str, checkpoint: str) -> Call[None]:
    return Call("DELETE", _checkpoint_path(ref, checkpoint), _nothing, repeatable=False)


def create_snapshot(ref: str, body: Dict[str, Any]) -> Call[Snapshot]:
    return Call("POST", sandbox_path(ref, "/snapshots"), _into(Snapshot), repeatable=False, json=body, timeout=None)


def _snapshot_path(snapshot: str) -> str:
    return f"/v1/snapshots/{_segment(snapshot)}"


def get_snapshot(snapshot: str) -> Call[Snapshot]:
    return Call("GET", _snapshot_path(snapshot), _into(Snapshot), repeatable=True)


def list_snapshots(filter: SnapshotFilter) -> Listing[Snapshot]:
    known(SnapshotFilter, filter)
    return listing(Snapshot, "/v1/snapshots", **filter)


def tag_snapshot(snapshot: str, tag: Optional[str]) -> Call[Snapshot]:
    return Call("PATCH", _snapshot_path(snapshot), _into(Snapshot), repeatable=False, json={"tag": tag})


def delete_snapshot(snapshot: str) -> Call[None]:
    return Call("DELETE", _snapshot_path(snapshot), _nothing, repeatable=False)


def lineage(snapshot: str) -> Listing[Snapshot]:
    return listing(Snapshot, _snapshot_path(snapshot) + "/lineage")


class States:
    """The part of Sandboxes that is about states of memory."""

    _session: client._Session

    def pause(self, ref: str) -> Sandbox:
        """Saves a sandbox, ends its processes and frees its memory; returns when that is done.

        Calls into a paused sandbox resume it.
        """
        return self._session.perform(pause(ref))

    def resume(self, ref: str, *, memory: Optional[Memory] = None, wait_for_quota_seconds: Optional[int] = None) -> Sandbox:
        """Brings a paused sandbox back and returns when it can be used.

        Where its memory cannot be brought back it is started anew with its files, and
        ``memory_lost`` says why; with memory ``require`` it stays paused and an error of
        code ``unsupported`` is raised, with ``discard`` it is started anew in any case.
        Without room in the quota ``quota_exceeded`` is raised, after ``wait_for_quota_seconds``.
        """
        return self._session.perform(resume(ref, memory, wait_for_quota_seconds))

    def fork(
        self,
        ref: str,
        *,
        count: Optional[int] = None,
        names: Optional[Sequence[str]] = None,
        env: Optional[Mapping[str, str]] = None,
        labels: Optional[Mapping[str, str]] = None,
        ttl_seconds: Optional[int] = None,
        timeouts: Optional[Timeouts] = None,
        wait_for_quota_seconds: Optional[int] = None,
    ) -> List[Forked]:
        """Makes sandboxes (one, or ``count``, at most 100) with the memory, processes and files of a running or paused one.

        Returns when each child runs or has failed, in the order of the names. ``env`` and
        ``labels`` are added to the parent's; ttl and timeouts are the parent's unless given.
        Without room in the quota for all of them ``quota_exceeded`` is raised, after
        ``wait_for_quota_seconds``.
        """
        return self._session.perform(fork(ref, count, names, env, labels, ttl_seconds, timeouts, wait_for_quota_seconds))

    def update_env(self, ref: str, changes: Mapping[str, Optional[str]]) -> Dict[str, str]:
        """Sets environment variables, and deletes those that are None, for the commands that start afterwards.

        Returns all that callers have set.
        """
        return self._session.perform(update_env(ref, changes))


class AsyncStates:
    """The part of AsyncSandboxes that is about states of memory; as States."""

    _session: aio._Session

    async def pause(self, ref: str) -> Sandbox:
        """Saves a sandbox, ends its processes and frees its memory; returns when that is done."""
        return await self._session.perform(pause(ref))

    async def resume(self, ref: str, *, memory: Optional[Memory] = None, wait_for_quota_seconds: Optional[int] = None) -> Sandbox:
        """Brings a paused sandbox back and returns when it can be used; ``memory`` as for ModboxClient."""
        return await self._session.perform(resume(ref, memory, wait_for_quota_seconds))

    async def fork(
        self,
        ref: str,
        *,
        count: Optional[int] = None,
        names: Optional[Sequence[str]] = None,
        env: Optional[Mapping[str, str]] = None,
        labels: Optional[Mapping[str, str]] = None,
        ttl_seconds: Optional[int] = None,
        timeouts: Optional[Timeouts] = None,
        wait_for_quota_seconds: Optional[int] = None,
    ) -> List[Forked]:
        """Makes sandboxes with the memory, processes and files of a running or paused one."""
        return await self._session.perform(fork(ref, count, names, env, labels, ttl_seconds, timeouts, wait_for_quota_seconds))

    async def update_env(self, ref: str, changes: Mapping[str, Optional[str]]) -> Dict[str, str]:
        """Sets environment variables, and deletes those that are None, for the commands that start afterwards."""
        return await self._session.perform(update_env(ref, changes))


class Checkpoints:
    """The saved states of a sandbox; ``checkpoint`` is an id or a name."""

    def __init__(self, session: client._Session) -> None:
        self._session = session

    def create(self, ref: str, *, name: Optional[str] = None) -> Checkpoint:
        """Saves the state of a running or paused sandbox, memory and files; it goes on. Without a name one is made up."""
        return self._session.perform(create_checkpoint(ref, name))

    def list(self, ref: str, *, limit: Optional[int] = None, cursor: Optional[str] = None) -> Page[Checkpoint]:
        """Lists them, oldest first."""
        return Page(self._session, list_checkpoints(ref), limit, cursor)

    def restore(self, ref: str, checkpoint: str) -> Sandbox:
        """Takes the sandbox back and returns when it runs. What it did since then is lost; the checkpoint stays."""
        return self._session.perform(restore_checkpoint(ref, checkpoint))

    def delete(self, ref: str, checkpoint: str) -> None:
        """Deletes a checkpoint."""
        self._session.perform(delete_checkpoint(ref, checkpoint))


class AsyncCheckpoints:
    """The saved states of a sandbox; ``checkpoint`` is an id or a name."""

    def __init__(self, session: aio._Session) -> None:
        self._session = session

    async def create(self, ref: str, *, name: Optional[str] = None) -> Checkpoint:
        """Saves the state of a running or paused sandbox, memory and files; it goes on. Without a name one is made up."""
        return await self._session.perform(create_checkpoint(ref, name))

    def list(self, ref: str, *, limit: Optional[int] = None, cursor: Optional[str] = None) -> AsyncPages[Checkpoint]:
        """Lists them, oldest first."""
        return AsyncPages(self._session, list_checkpoints(ref), limit, cursor)

    async def restore(self, ref: str, checkpoint: str) -> Sandbox:
        """Takes the sandbox back and returns when it runs. What it did since then is lost; the checkpoint stays."""
        return await self._session.perform(restore_checkpoint(ref, checkpoint))

    async def delete(self, ref: str, checkpoint: str) -> None:
        """Deletes a checkpoint."""
        await self._session.perform(delete_checkpoint(ref, checkpoint))


class Snapshots(SnapshotFiles, SnapshotBuilds):
    """Saved filesystems; ``snapshot`` is an id, ``name``, ``name:tag`` or ``@workspace/name:tag``."""

    def __init__(self, session: client._Session) -> None:
        self._session = session

    def create(
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
        return self._session.perform(create_snapshot(ref, body))

    def get(self, snapshot: str) -> Snapshot:
        """Returns a snapshot."""
        return self._session.perform(get_snapshot(snapshot))

    def list(
        self, *, limit: Optional[int] = None, cursor: Optional[str] = None, **filter: Unpack[SnapshotFilter],
    ) -> Page[Snapshot]:
        """Lists the workspace's snapshots, or the public ones of all; newest first unless asked otherwise."""
        return Page(self._session, list_snapshots(filter), limit, cursor)

    def tag(self, snapshot: str, tag: Optional[str]) -> Snapshot:
        """Gives a snapshot a tag, which leaves the one of the same name that had it; None takes its tag away."""
        return self._session.perform(tag_snapshot(snapshot, tag))

    def delete(self, snapshot: str) -> None:
        """Deletes a snapshot; sandboxes made from it go on."""
        self._session.perform(delete_snapshot(snapshot))

    def lineage(self, snapshot: str, *, limit: Optional[int] = None, cursor: Optional[str] = None) -> Page[Snapshot]:
        """Lists a snapshot and those it came from, newest first, deleted ones included."""
        return Page(self._session, lineage(snapshot), limit, cursor)



class AsyncSnapshots(AsyncSnapshotFiles, AsyncSnapshotBuilds):
    """Saved filesystems; ``snapshot`` is an id, ``name``, ``name:tag`` or ``@workspace/name:tag``."""

    def __init__(self, session: aio._Session) -> None:
        self._session = session

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
        """Saves the files of a running or paused sandbox, and returns when sandboxes can be made from them."""
        body = _body(name=name, tag=tag, description=description, message=message, metadata=metadata, public=public)
        return await self._session.perform(create_snapshot(ref, body))

    async def get(self, snapshot: str) -> Snapshot:
        """Returns a snapshot."""
        return await self._session.perform(get_snapshot(snapshot))

    def list(
        self, *, limit: Optional[int] = None, cursor: Optional[str] = None, **filter: Unpack[SnapshotFilter],
    ) -> AsyncPages[Snapshot]:
        """Lists the workspace's snapshots, or the public ones of all; newest first unless asked otherwise."""
        return AsyncPages(self._session, list_snapshots(filter), limit, cursor)

    async def tag(self, snapshot: str, tag: Optional[str]) -> Snapshot:
        """Gives a snapshot a tag, which leaves the one of the same name that had it; None takes its tag away."""
        return await self._session.perform(tag_snapshot(snapshot, tag))

    async def delete(self, snapshot: str) -> None:
        """Deletes a snapshot; sandboxes made from it go on."""
        await self._session.perform(delete_snapshot(snapshot))

    def lineage(self, snapshot: str, *, limit: Optional[int] = None, cursor: Optional[str] = None) -> AsyncPages[Snapshot]:
        """Lists a snapshot and those it came from, newest first, deleted ones included."""
        return AsyncPages(self._session, lineage(snapshot), limit, cursor)
