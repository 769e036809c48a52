"""What is kept beside sandboxes: executions, checkpoints, snapshots."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from typing import Dict, List, Literal, Optional

from .errors import ModboxError, new_error
from .models import Sandbox, _by, _optional_time, _time, decode


@dataclass(frozen=True)
class OutputStream:
    """Where an execution's output is kept. Who has the id may read it; it is empty when the output was not wanted."""

    stream_id: str = ""
    bytes: int = 0
    #: There was more than the server keeps.
    truncated: bool = False


@dataclass(frozen=True)
class Execution:
    """A command in a sandbox that is kept after its end, with its output.

    A ``job`` that exits with another code than 0 is ``failed``, an ``exec`` is ``completed``.
    """

    id: str
    sandbox_id: str
    kind: Literal["exec", "job"]
    command: List[str]
    state: Literal["queued", "running", "completed", "failed", "timeout", "cancelled"]
    created_by: str
    created_at: datetime = _time()
    #: 128 + signal when a signal ended it; None as long as it is not known, for good when it cannot be known.
    exit_code: Optional[int] = None
    #: Why it failed, when not by its exit code; else None.
    error: Optional[str] = _by(lambda w: w or None, default=None)
    tty: bool = False
    #: The sandbox ends with it.
    one_shot: bool = False
    #: Somebody asked for its end.
    cancelling: bool = False
    #: Where its input is written to; None when it reads nothing.
    stdin_stream_id: Optional[str] = _by(lambda w: w or None, default=None)
    stdout: OutputStream = _by(lambda w: decode(OutputStream, w), default=OutputStream())
    stderr: OutputStream = _by(lambda w: decode(OutputStream, w), default=OutputStream())
    started_at: Optional[datetime] = _optional_time()
    ended_at: Optional[datetime] = _optional_time()
    duration_ms: int = 0


@dataclass(frozen=True)
class Checkpoint:
    """A saved state of a sandbox, memory and files; its name is unique in its sandbox."""

    id: str
    name: str
    sandbox_id: str
    size_bytes: int
    created_by: str
    created_at: datetime = _time()


@dataclass(frozen=True)
class Forked:
    """What became of one child of a fork: it runs when ``error`` is None.

    A child that was recorded and then failed has both.
    """

    sandbox: Optional[Sandbox] = _by(lambda w: decode(Sandbox, w), default=None)
    error: Optional[ModboxError] = _by(lambda w: new_error(w["code"], w["detail"]), default=None)


@dataclass(frozen=True)
class Snapshot:
    """The saved filesystem of a sandbox, or of a build, from which sandboxes are made."""

    id: str
    #: Shared by the versions of something.
    name: str
    #: ``@workspace/name:tag``.
    full_name: str
    image: str
    created_at: datetime = _time()
    #: None once another snapshot of the name took it.
    tag: Optional[str] = None
    description: str = ""
    message: str = ""
    metadata: Dict[str, str] = field(default_factory=dict)
    parent_id: Optional[str] = None
    #: None for a build.
    sandbox_id: Optional[str] = None
    base_digest: Optional[str] = None
    digest: Optional[str] = None
    #: Of its root filesystem on disk.
    size_bytes: int = 0
    #: Of what was written beyond its base, compressed.
    layer_bytes: int = 0
    file_count: int = 0
    public: bool = False
    content_hash: Optional[str] = None
    created_by: Optional[str] = None
    #: Set only in lineages.
    deleted_at: Optional[datetime] = _optional_time()


@dataclass(frozen=True)
class BuiltSnapshot:
    """What came of a build; ``unchanged`` says that it was there already."""

    snapshot: Snapshot
    unchanged: bool


@dataclass(frozen=True)
class InvalidAptPackage:
    """A Debian package that cannot be installed; ``versions`` are those there are when only the version is wrong."""

    name: str
    reason: str
    versions: List[str] = field(default_factory=list)


@dataclass(frozen=True)
class AptPackageChecks:
    """Which Debian packages can be installed."""

    valid: List[str]
    invalid: List[InvalidAptPackage] = _by(lambda w: [decode(InvalidAptPackage, item) for item in w])


@dataclass(frozen=True)
class PrunedImage:
    """An image that was removed. Its files may be another image's, too, and then stay."""

    digest: str
    size_bytes: int = 0
    #: The name that it had; None without one, and for one of another workspace.
    ref: Optional[str] = None
    #: The workspace that built it, if any did.
    workspace_id: Optional[str] = None


@dataclass(frozen=True)
class PrunedImages:
    """The images that were removed, or would be after a ``dry_run``."""

    images: List[PrunedImage] = _by(lambda w: [decode(PrunedImage, item) for item in w])
    freed_bytes: int = 0
    dry_run: bool = False
