"""Saved states, forks and snapshots of sandboxes, for both clients."""

from __future__ import annotations

from typing import Any, Dict, List, Literal, Mapping, Optional, Sequence, Union

from ._calls import Call, Listing, _body, _into, _items, _load, _nothing, _segment, known, listing, sandbox_path, encoded
from ._schemas import Checkpoint, SandboxInfo, Snapshot, SnapshotFilter, Timeouts
from .records import Forked

Memory = Literal["prefer", "require", "discard"]


# A call that saves or restores memory or files has no time limit.


def pause(ref: str, memory: bool) -> Call[SandboxInfo]:
    body = _body(memory=None if memory else False)
    return Call("POST", sandbox_path(ref, "/pause"), _into(SandboxInfo), repeatable=True, json=body, timeout=None)


def archive(ref: str) -> Call[SandboxInfo]:
    return Call("POST", sandbox_path(ref, "/archive"), _into(SandboxInfo), repeatable=True, timeout=None)


def resume(ref: str, memory: Optional[Memory], wait_for_quota_seconds: Optional[int]) -> Call[SandboxInfo]:
    body = _body(memory=memory, wait_for_quota_seconds=wait_for_quota_seconds)
    return Call("POST", sandbox_path(ref, "/resume"), _into(SandboxInfo), repeatable=True, json=body, timeout=None)


def fork(
    ref: str,
    count: Optional[int],
    names: Optional[Sequence[str]],
    env: Optional[Mapping[str, str]],
    labels: Optional[Mapping[str, str]],
    ttl_seconds: Optional[int],
    timeouts: Union[Timeouts, Mapping[str, Any], None],
    wait_for_quota_seconds: Optional[int],
) -> Call[List[Forked]]:
    body = _body(
        count=count,
        names=None if names is None else list(names),
        env=env,
        labels=labels,
        ttl_seconds=ttl_seconds,
        timeouts=encoded(timeouts, "timeouts"),
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


def restore_checkpoint(ref: str, checkpoint: str) -> Call[SandboxInfo]:
    path = _checkpoint_path(ref, checkpoint) + "/restore"
    return Call("POST", path, _into(SandboxInfo), repeatable=False, timeout=None)


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
