"""The types of the API. Made from api/openapi.yaml by tools/schemas.py; run make gen."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, AsyncIterable, Dict, Iterable, List, Literal, Mapping, Optional, Sequence, Tuple, TypedDict, Union

from ._decode import _by, _list, _object, _optional_time, _required, parse_time

#: Where it is in its life.
SandboxState = Literal["provisioning", "running", "pausing", "paused", "resuming", "destroying", "destroyed", "failed"]

#: public: the URL suffices. private: visitors need an API token or a signed link as well.
PortAccess = Literal["public", "private"]

#: The credential for the management routes on its own URL; the workspace and the server may demand more.
URLAccess = Literal["open", "key"]

#: What it may do.
Role = Literal["owner", "admin", "member", "viewer"]

#: Whether code is scanned before it runs: warn adds findings to answers and the audit log; with block code with
#: findings, and code that cannot be scanned, does not run.
CodeScanMode = Literal["off", "warn", "block"]

#: pending: waits for an attempt. delivered: the receiver has accepted it. failed: no attempt follows. cancelled:
#: the webhook was disabled before.
WebhookDeliveryState = Literal["pending", "delivered", "failed", "cancelled"]

#: connected: the server has a connection to it. away: its sandboxes are unavailable until it is back. lost: it
#: was away for longer than worker.lost_after, and its sandboxes were given up; it joins again when it is back.
WorkerState = Literal["connected", "away", "lost"]


@dataclass(frozen=True)
class Cause:
    """The reason of a sandbox's end."""

    #: For programs.
    code: Literal["destroyed", "replaced", "ttl", "idle", "paused_ttl", "completed", "image", "start", "not_ready", "oom", "exited", "disk_full", "host_restart", "worker_lost", "internal"] = _required()
    #: For people.
    message: str = ""


@dataclass(frozen=True)
class Resources:
    """Limits in Kubernetes notation."""

    #: Memory.
    memory: Optional[str] = None
    #: Cores, or thousandths of a core with the suffix m.
    cpu: Optional[str] = None
    #: What may be written to its file system.
    disk: Optional[str] = None


@dataclass(frozen=True)
class ExecLimits:
    """Limits of one command and all its processes. A limit that is omitted or 0 is none. A command that exceeds one
    is killed with its processes.
    """

    #: The sum of the resident memory of its processes: 16Mi to the sandbox's memory.
    memory: Optional[str] = None
    #: The sum of the processor time of its processes.
    cpu_seconds: Optional[int] = None
    #: The size of each file that it writes: at most the sandbox's disk.
    file_size: Optional[str] = None
    #: Its processes at a time, itself included; threads do not count.
    processes: Optional[int] = None


@dataclass(frozen=True)
class Timeouts:
    """The clocks of a sandbox beside its ttl."""

    #: How long it may run without being used: by a call into it, an open connection or a running command. 10 seconds
    #: at least; 0: no limit.
    idle_seconds: Optional[int] = None
    #: What happens then; destroy when omitted. pause_without_memory ends its processes and saves its files alone.
    on_idle: Optional[Literal["destroy", "pause", "pause_without_memory"]] = None
    #: How long it may stay paused before it is destroyed, 10 seconds at least; 0: no limit.
    paused_seconds: Optional[int] = None
    #: The timeout of commands that name none; 0: the server's default.
    execution_seconds: Optional[int] = None


@dataclass(frozen=True)
class PublishedPort:
    """A port of a sandbox and where it is reached."""

    #: The port in the sandbox.
    port: int = 0
    #: The URL of the port. It leads to this port and to nothing else of the sandbox, and is as safe to share as the
    #: server on the port. Empty for callers who may only read.
    url: str = ""
    #: public: the URL suffices. private: visitors need an API token or a signed link as well.
    access: PortAccess = _required()
    #: When the URL was made.
    created_at: datetime = _required(parse_time)


@dataclass(frozen=True)
class PortLink:
    """A signed link to a private port."""

    #: The link, for a browser. It is a secret.
    url: str = field(default="", repr=False)
    #: What is signed of it; programs send it in the header X-Modbox-Token to the port's own URL.
    token: str = field(default="", repr=False)
    #: When it stops working.
    expires_at: datetime = _required(parse_time)


@dataclass(frozen=True)
class NetworkOptions:
    """The requested network of a sandbox."""

    #: Whether it reaches the internet. Closed all the same: the server's host, private, link-local and metadata
    #: addresses.
    enabled: bool = False
    #: Ports it publishes, each 1 to 65535; each gets a public URL of its own, and the sandbox's URL leads to the
    #: first.
    ports: Sequence[int] = ()
    #: Destinations it may reach: IPv4 addresses, ranges, and names such as example.com or *.example.com (all names
    #: beneath it). They win over deny_out. Without deny_out, everything else is denied.
    allow_out: Sequence[str] = ()
    #: IPv4 addresses and ranges it may not reach. Names in allow_out need 0.0.0.0/0 here.
    deny_out: Sequence[str] = ()
    #: The host that its servers see in requests to its ports (the header Host), with a port or without; ${PORT} in
    #: it stands for the port of the request. The host of the URL when omitted.
    request_host: Optional[str] = None
    #: Ports whose servers speak HTTPS, each 1 to 65535: requests to them are sent by TLS, and any certificate is
    #: accepted. The URLs stay the same.
    https_ports: Sequence[int] = ()


@dataclass(frozen=True)
class SandboxNetwork:
    """The network of a sandbox."""

    #: Whether it reaches the internet.
    enabled: bool = False
    #: The ports it publishes, in the order asked for.
    ports: List[PublishedPort] = _by(_list(PublishedPort), default_factory=list)
    #: Destinations it may reach even if deny_out contains them.
    allow_out: List[str] = field(default_factory=list)
    #: Addresses and ranges it may not reach.
    deny_out: List[str] = field(default_factory=list)
    #: The host that its servers see in requests; empty for the host of the URL.
    request_host: str = ""
    #: Ports whose servers speak HTTPS.
    https_ports: List[int] = field(default_factory=list)


@dataclass(frozen=True)
class SandboxInfo:
    """One sandbox."""

    #: Its identifier.
    id: str = _required()
    #: The caller's identifier.
    name: str = ""
    #: Where it is in its life.
    state: SandboxState = _required()
    #: The URL of its HTTP server, its management routes and all its ports that are not private. It is a secret;
    #: share the URLs of published ports. Empty for callers who may only read.
    url: str = ""
    #: The image reference it was made from.
    image: str = ""
    #: The content the reference resolved to; empty until resolved.
    image_digest: str = ""
    #: The id of the image, or of the catalogue's entry that was asked for; None when it was made from a snapshot.
    image_id: Optional[str] = None
    #: Debian packages that were installed in it.
    apt_packages: List[str] = field(default_factory=list)
    #: npm packages that were installed in it.
    npm_packages: List[str] = field(default_factory=list)
    #: Python packages that were installed in it.
    pip_packages: List[str] = field(default_factory=list)
    #: Its labels.
    labels: Dict[str, str] = field(default_factory=dict)
    #: Its limits.
    resources: Resources = _by(_object(Resources), default=Resources())
    #: The port that had to answer before it counted as running. Its URL leads to the first published port, else to
    #: this one, else to 8080.
    readiness_port: Optional[int] = None
    #: Its network.
    network: SandboxNetwork = _by(_object(SandboxNetwork), default=SandboxNetwork())
    #: The credential for the management routes on its own URL; the workspace and the server may demand more.
    url_access: URLAccess = "open"
    #: How long it may live, counted from created_at or from the last change of the ttl; 0 means no limit. See
    #: deadline.
    ttl_seconds: int = 0
    #: When its ttl ends it; None without one.
    deadline: Optional[datetime] = _optional_time()
    #: Its clocks beside the ttl.
    timeouts: Timeouts = _by(_object(Timeouts), default=Timeouts())
    #: Time between its automatic checkpoints; 0: it has none.
    checkpoint_interval_seconds: int = 0
    #: Time of its automatic checkpoint; None without one.
    last_checkpoint_at: Optional[datetime] = _optional_time()
    #: When something last used it.
    last_activity_at: Optional[datetime] = _optional_time()
    #: When its idle timeout is over if nothing uses it before; None without one, and unless it runs.
    idle_deadline: Optional[datetime] = _optional_time()
    #: When it was paused; None unless it is paused.
    paused_at: Optional[datetime] = _optional_time()
    #: When its saved state was moved to the object store; None while it is on the disk of the server. A resume
    #: fetches it, which takes longer.
    archived_at: Optional[datetime] = _optional_time()
    #: Its files are saved without its memory, so that a resume starts it anew; None when its memory is saved, and
    #: unless it is paused.
    paused_without_memory: bool = False
    #: When its paused timeout ends it; None without one, and unless it is paused.
    paused_deadline: Optional[datetime] = _optional_time()
    #: Why its last resume started it anew with its files; None when its memory was brought back.
    memory_lost_reason: Optional[str] = None
    #: The sandbox it was forked from; None without one.
    parent_id: Optional[str] = None
    #: The snapshot it was made from; None without one.
    snapshot_id: Optional[str] = None
    #: The caller's own words about it.
    description: str = ""
    #: The caller's own entries about it.
    metadata: Dict[str, str] = field(default_factory=dict)
    #: The name of the worker that it is on; only for administrators of the installation. Absent while it is on none,
    #: and if sandboxes run on the server's machine.
    worker: Optional[str] = None
    #: Why it ended; None while it lives.
    cause: Optional[Cause] = _by(_object(Cause), default=None)
    #: The user who made it.
    created_by: str = ""
    #: The workspace it belongs to.
    workspace_id: str = ""
    #: When it was asked for.
    created_at: datetime = _required(parse_time)
    #: When it last changed.
    updated_at: datetime = _required(parse_time)
    #: When it first ran; None until then.
    started_at: Optional[datetime] = _optional_time()
    #: When it ended; None while it lives.
    ended_at: Optional[datetime] = _optional_time()


@dataclass(frozen=True)
class FileInfo:
    """Describes a path in a sandbox, not following a last symlink."""

    #: Last element of the path.
    name: str = ""
    #: Absolute path.
    path: str = ""
    #: What it is.
    type: Literal["file", "directory", "symlink", "other"] = _required()
    #: Bytes.
    size_bytes: int = 0
    #: Permission bits in octal, as for chmod.
    mode: str = ""
    #: Owner's user id.
    uid: int = 0
    #: Owner's group id.
    gid: int = 0
    #: When its content last changed.
    mod_time: datetime = _required(parse_time)
    #: Where a symlink points, as written.
    target: Optional[str] = None
    #: Of a file or a directory: its extended attributes user.KEY, by KEY, as far as they are text, 64 of them at
    #: most with 4096 bytes.
    metadata: Dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class OriginalFile:
    """A name in the image of a sandbox."""

    #: What it was.
    type: Literal["file", "directory", "symlink", "other"] = _required()
    #: Bytes of a file.
    size_bytes: int = 0
    #: Permission bits in octal.
    mode: str = ""
    #: Owner's user id.
    uid: int = 0
    #: Owner's group id.
    gid: int = 0
    #: When its content last changed.
    mod_time: datetime = _required(parse_time)
    #: Where a symlink pointed, as written.
    target: Optional[str] = None


@dataclass(frozen=True)
class FileChange:
    """A name that differs between a sandbox and the image or snapshot that it was made from."""

    #: Absolute path.
    path: str = ""
    #: What happened to it. Of a removed directory there is only the directory itself.
    change: Literal["added", "changed", "removed"] = _required()
    #: What it is; of a removed name, what it was.
    type: Literal["file", "directory", "symlink", "other"] = _required()
    #: Bytes of a file.
    size_bytes: int = 0
    #: Permission bits in octal, as for chmod.
    mode: str = ""
    #: Owner's user id.
    uid: int = 0
    #: Owner's group id.
    gid: int = 0
    #: When its content last changed.
    mod_time: datetime = _required(parse_time)
    #: Where a symlink points, as written.
    target: Optional[str] = None
    #: What a changed name was in the image.
    before: Optional[OriginalFile] = _by(_object(OriginalFile), default=None)


@dataclass(frozen=True)
class SnapshotFile(FileInfo):
    """A name in a snapshot."""

    #: Of what a file holds, when asked for; None for a file of more than 64 MiB.
    sha256: Optional[str] = None


@dataclass(frozen=True)
class SnapshotDownload:
    """An address of files of a snapshot."""

    #: Address of the download, relative to the server's. It is a secret: it needs no token.
    url: str = ""
    #: Until when a download may begin. It ends earlier when the snapshot is deleted or the server restarted.
    expires_at: datetime = _required(parse_time)


@dataclass(frozen=True)
class Event:
    """An event of a sandbox."""

    #: Grows with time; pass the last one as after_seq to list what happens afterwards.
    seq: int = 0
    #: The sandbox.
    sandbox_id: str = _required()
    #: The sandbox's name.
    sandbox_name: str = ""
    #: When.
    time: datetime = _required(parse_time)
    #: What, for programs: created, running, image_building, pausing, paused, pause_failed, resuming, resumed,
    #: resumed_from_files, resume_failed, checkpoint_created, checkpoint_restored, checkpoint_deleted,
    #: checkpoint_failed, checkpoint_interval, rolled_back, forked, ttl, network, snapshot_created, snapshot_tagged,
    #: snapshot_deleted, destroying, destroyed, failed, recovered, exec.
    type: str = ""
    #: What, for people.
    message: str = ""
    #: The facts.
    data: Dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Stats:
    """A moment's use of a sandbox."""

    #: When it was measured.
    time: datetime = _required(parse_time)
    #: Memory in use.
    memory_bytes: int = 0
    #: Its memory limit.
    memory_limit_bytes: int = 0
    #: CPU time used since it started.
    cpu_nanoseconds: int = 0
    #: Its CPU limit in thousandths of a core.
    cpu_limit_millicores: int = 0
    #: What it has written, as far as can be told.
    disk_bytes: int = 0
    #: Its disk limit.
    disk_limit_bytes: int = 0
    #: Processes inside.
    processes: int = 0
    #: Proportional memory of its host processes; None when unknown.
    host_pss_bytes: Optional[int] = None
    #: What it has sent to the internet since this server began to serve it.
    sent_bytes: int = 0
    #: What it has received from the internet since this server began to serve it.
    received_bytes: int = 0


@dataclass(frozen=True)
class Usage:
    """The use of a sandbox since it was made."""

    #: When it was measured last; None before it first ran.
    at: Optional[datetime] = _optional_time()
    #: How long it ran, pauses excluded.
    running_seconds: float = 0
    #: Processor time of all cores together.
    cpu_seconds: float = 0
    #: Memory in use, added up over the time it ran.
    memory_byte_seconds: int = 0
    #: Bytes it sent over its network interface.
    network_sent_bytes: int = 0
    #: Bytes it received over its network interface.
    network_received_bytes: int = 0


@dataclass(frozen=True)
class Point:
    """A position on a screen."""

    #: Pixels from the left.
    x: int = 0
    #: Pixels from the top.
    y: int = 0


@dataclass(frozen=True)
class DesktopScreen:
    """The screen of a sandbox."""

    #: Width of the screen in pixels.
    width: int = 0
    #: Height of the screen in pixels.
    height: int = 0
    #: The position of the mouse pointer.
    cursor: Point = _by(_object(Point), default=Point())


@dataclass(frozen=True)
class DesktopWindow:
    """A window on the screen of a sandbox."""

    #: The window's id.
    id: str = ""
    #: Its title.
    title: str = ""
    #: Its class, by which window managers know the program.
    wm_class: str = ""
    #: The process that it says it belongs to; 0 if it does not say.
    pid: int = 0
    #: Left edge in pixels.
    x: int = 0
    #: Top edge in pixels.
    y: int = 0
    #: Width in pixels.
    width: int = 0
    #: Height in pixels.
    height: int = 0
    #: It has the keyboard.
    active: bool = False


@dataclass(frozen=True)
class Recording:
    """A recording of a screen."""

    #: Its id, which is also the id of an execution.
    id: str = _required()
    #: The file in the sandbox, an MP4.
    path: str = ""
    #: done: the file is complete. failed: its program ended with an error, or with the sandbox.
    state: Literal["recording", "done", "failed"] = _required()
    #: failed: what the program said.
    error: Optional[str] = None
    #: When it was requested.
    created_at: datetime = _required(parse_time)
    #: When it ended.
    ended_at: Optional[datetime] = _optional_time()
    #: The size of the file in bytes, in lists of a sandbox that runs. Absent without a file.
    size_bytes: Optional[int] = None


@dataclass(frozen=True)
class ImageLayer:
    """A step in the making of an image."""

    #: Of the compressed layer; None for a step that changed no file.
    digest: Optional[str] = None
    #: Size of the compressed layer.
    size_bytes: int = 0
    #: The instruction that made it, at most 1000 characters of it; None when the image does not say.
    created_by: Optional[str] = None
    #: When, as the image says.
    created_at: Optional[datetime] = _optional_time()
    #: It belongs to base.
    base: bool = False


@dataclass(frozen=True)
class Image:
    """An image that sandboxes can be made from."""

    #: Its identifier.
    id: str = ""
    #: Its name.
    name: str = ""
    #: Its tag.
    tag: str = ""
    #: Name and tag, as passed to create.
    ref: str = ""
    #: Content address of its root file system; empty when it is not built yet.
    digest: str = ""
    #: What is in it.
    description: str = ""
    #: Comes with Modbox; in every workspace.
    builtin: bool = False
    #: Used when a request names no image.
    is_default: bool = False
    #: Size of its root file system.
    size_bytes: int = 0
    #: Default memory limit.
    memory: str = ""
    #: Default readiness port; None without one.
    readiness_port: Optional[int] = None
    #: Default ttl; 0 means no limit.
    ttl_seconds: int = 0
    #: When it was registered.
    created_at: datetime = _required(parse_time)
    #: When it last changed.
    updated_at: datetime = _required(parse_time)
    #: The image of the workspace whose layers are the first of its layers; None in lists, and if there is none.
    base: Optional[str] = None
    #: What it was made of, the lowest first; None in lists, and until it is built. Its root file system is a single
    #: file: its size is not the sum of theirs.
    layers: List[ImageLayer] = _by(_list(ImageLayer), default_factory=list)


@dataclass(frozen=True)
class SandboxImage:
    """An image of a workspace's catalogue."""

    #: Its identifier, for image_id.
    id: str = ""
    #: What it is called.
    name: str = ""
    #: The image reference without its tag, or with its digest.
    image: str = ""
    #: The tag; empty for an image by digest.
    tag: str = ""
    #: Words about it.
    description: Optional[str] = None
    #: Comes with Modbox: it is in every workspace and cannot be deleted.
    builtin: bool = False
    #: Whether sandboxes may be made from it.
    enabled: bool = False
    #: Used when a request names no image.
    is_default: bool = False
    #: Memory limit of its sandboxes in MiB.
    memory_mb: int = 0
    #: The port that must answer; None without one: then a sandbox is ready when its agent is.
    readiness_port: Optional[int] = None
    #: How long its sandboxes live unless they say; None: no limit.
    ttl_seconds: Optional[int] = None
    #: The registry it is pulled with; None: whichever the workspace has for the host.
    registry_id: Optional[str] = None
    #: That registry's name; None when it was deleted.
    registry_name: Optional[str] = None
    #: The workspace it belongs to; None for a built-in one.
    workspace_id: Optional[str] = None
    #: When it was made.
    created_at: datetime = _required(parse_time)
    #: When it last changed.
    updated_at: datetime = _required(parse_time)


@dataclass(frozen=True)
class PrunedImage:
    """An image that was removed."""

    #: The name that it had; None without one, and for one of another workspace.
    ref: Optional[str] = None
    #: Content address of its root file system.
    digest: str = ""
    #: Size of its root file system. If another image shares the file system, it stays.
    size_bytes: int = 0
    #: The workspace that built it; None for a pulled or built-in image.
    workspace_id: Optional[str] = None


@dataclass(frozen=True)
class PrunedImages:
    """Images that were removed, or would be."""

    #: What was removed.
    images: List[PrunedImage] = _by(_list(PrunedImage), default_factory=list)
    #: How much less is on the disk. With all, remains of interrupted pulls and builds count, which a dry run does
    #: not see.
    freed_bytes: int = 0
    #: Whether it only would be.
    dry_run: bool = False


@dataclass(frozen=True)
class Requirements:
    """The least resources for a useful sandbox of a runtime."""

    #: Memory.
    memory: Optional[str] = None
    #: CPU.
    cpu: Optional[str] = None
    #: What it may write.
    disk: Optional[str] = None
    #: It is of little use without a network.
    network: bool = False


@dataclass(frozen=True)
class Runtime:
    """A built-in image with a description for people."""

    #: Identifier of its image.
    id: str = ""
    #: Passed to create as image.
    name: str = ""
    #: Whole reference of its image.
    image: str = ""
    #: What is in it.
    description: str = ""
    #: Address of the project's icon.
    icon_url: str = ""
    #: The project's colour.
    color: str = ""
    #: Address of the project.
    url: str = ""
    #: What it is good for.
    tags: List[str] = field(default_factory=list)
    #: What a sandbox needs to be of use.
    requirements: Requirements = _by(_object(Requirements), default=Requirements())
    #: More about it, in Markdown.
    readme: str = ""
    #: It is here. Otherwise its first use builds it, which takes a minute or so, or pulls it.
    built: bool = False
    #: The reference in a registry from which its first use pulls it; None for a runtime that is built here.
    source: str = ""
    #: What keeps the server from having it; None when nothing is known before its first use.
    missing: str = ""
    #: Content address of its root file system; None when it is not built.
    digest: str = ""
    #: Size of its root file system; 0 when it is not built.
    size_bytes: int = 0
    #: When it was first built; None when it is not.
    created_at: Optional[datetime] = _optional_time()


@dataclass(frozen=True)
class InvalidAptPackage:
    """A Debian package that cannot be installed."""

    #: The package as it was asked for.
    name: str = ""
    #: Why not.
    reason: str = ""
    #: The versions there are, when only the version is wrong.
    versions: List[str] = field(default_factory=list)


@dataclass(frozen=True)
class AptPackageChecks:
    """Says which can be installed."""

    #: Those that can.
    valid: List[str] = field(default_factory=list)
    #: Those that cannot.
    invalid: List[InvalidAptPackage] = _by(_list(InvalidAptPackage), default_factory=list)


@dataclass(frozen=True)
class Finding:
    """A construct in code that deserves a look."""

    #: Its line, from 1.
    line: int = 0
    #: Its column, from 1.
    column: int = 0
    #: What it does. import: it imports a package that is not allowed. syntax: the code cannot be parsed, and was not
    #: scanned.
    rule: Literal["process", "network", "file_delete", "eval", "native", "environment", "import", "syntax"] = _required()
    #: How much harm the rule's constructs can do.
    severity: Literal["high", "medium", "low"] = _required()
    #: What was found, for people.
    reason: str = ""


@dataclass(frozen=True)
class CodeScan:
    """The result of a scan of code."""

    #: The constructs that deserve a look, by their places in the code; 200 at most.
    findings: List[Finding] = _by(_list(Finding), default_factory=list)
    #: There are more findings.
    truncated: bool = False
    #: Why the code was not scanned, in the answer of a call that ran it all the same; None when it was scanned.
    not_scanned: Optional[str] = None


@dataclass(frozen=True)
class OutputStream:
    """The stream of an execution's output."""

    #: GET /v1/streams/{stream} reads it. The id is a secret: it permits reading. Empty for an ignored output.
    stream_id: str = ""
    #: The number of bytes stored so far.
    size_bytes: int = 0
    #: Further bytes were dropped.
    truncated: bool = False


@dataclass(frozen=True)
class Execution:
    """A command in a sandbox, kept after its end with its output."""

    #: Its identifier.
    id: str = _required()
    #: The sandbox it runs in.
    sandbox_id: str = _required()
    #: How its end is judged. main: the image's own command, which starts with the sandbox; it is completed with any
    #: exit code.
    kind: Literal["exec", "job", "main"] = _required()
    #: Program and arguments, up to 4096 bytes; the last argument kept of a longer command ends with an ellipsis
    #: (U+2026).
    command: List[str] = field(default_factory=list)
    #: Where it is in its life; the last four are for good.
    state: Literal["queued", "running", "completed", "failed", "timeout", "cancelled"] = _required()
    #: Its exit code, 128 + signal when a signal ended it; None as long as it is not known, for good when it cannot
    #: be known.
    exit_code: Optional[int] = None
    #: The limit of the request that it exceeded; it has failed then, unless its exit code is 0. Absent when there
    #: was none.
    limit_exceeded: Optional[Literal["memory", "cpu", "file_size", "processes"]] = None
    #: Why it failed, when not by its exit code.
    error: Optional[str] = None
    #: It runs on a terminal.
    tty: bool = False
    #: Its sandbox ends with it.
    one_shot: bool = False
    #: It was asked to end.
    cancelling: bool = False
    #: The stream it reads. The id is a secret: it permits writing.
    stdin_stream_id: Optional[str] = None
    #: Its standard output.
    stdout: OutputStream = _by(_object(OutputStream), default=OutputStream())
    #: Its standard error; the same stream as stdout with a terminal, or when combined.
    stderr: OutputStream = _by(_object(OutputStream), default=OutputStream())
    #: The user who started it.
    created_by: str = ""
    #: When it was asked for.
    created_at: datetime = _required(parse_time)
    #: When it started; None until then.
    started_at: Optional[datetime] = _optional_time()
    #: When it ended; None until then.
    ended_at: Optional[datetime] = _optional_time()
    #: Milliseconds from its start to its end, as measured in the sandbox.
    duration_ms: int = 0
    #: In the answer to its start: what the scan found that the policy of the workspace (code_scan) demands; None
    #: without such a policy, and for a request without code.
    scan: Optional[CodeScan] = _by(_object(CodeScan), default=None)


@dataclass(frozen=True)
class CodeError:
    """An error of code."""

    #: The error's type, such as ZeroDivisionError. In Bash ExitStatus.
    name: str = ""
    #: The error's message. In Bash the exit status.
    value: str = ""
    #: The traceback; lines may have escape sequences for colours.
    traceback: List[str] = field(default_factory=list)


@dataclass(frozen=True)
class CodeContext:
    """An interpreter that keeps its state between runs of code."""

    #: The context's id, unique in its sandbox. A fork of the sandbox has contexts with the same ids.
    id: str = ""
    #: The language.
    language: str = ""
    #: The directory in which the interpreter was started.
    cwd: str = ""
    #: busy while code runs; ended if the interpreter ended by itself: the next run starts it again, without its
    #: state.
    state: Literal["idle", "busy", "ended"] = _required()
    #: When it was made.
    created_at: datetime = _required(parse_time)
    #: How often its interpreter was started again.
    restarts: int = 0
    #: The limits for code that has none of its own; None when there are none.
    limits: Optional[ExecLimits] = _by(_object(ExecLimits), default=None)


@dataclass(frozen=True)
class Checkpoint:
    """A saved state of a sandbox."""

    #: Its identifier.
    id: str = _required()
    #: Its name, unique within the sandbox.
    name: str = ""
    #: The sandbox it is a state of.
    sandbox_id: str = _required()
    #: The checkpoint of the sandbox that was made or restored last before it; None without one.
    parent_id: Optional[str] = None
    #: What it takes on the server's disk.
    size_bytes: int = 0
    #: The user who made it.
    created_by: str = ""
    #: When it was made.
    created_at: datetime = _required(parse_time)
    #: When it was copied to the object store of the server; None while it is on the server's disk alone.
    copied_at: Optional[datetime] = _optional_time()


@dataclass(frozen=True)
class Snapshot:
    """The saved filesystem of a sandbox or of a build."""

    #: Its identifier.
    id: str = _required()
    #: Its name.
    name: str = ""
    #: Its tag; None when another snapshot of the name has taken it.
    tag: Optional[str] = None
    #: How other workspaces name it when it is public.
    full_name: str = ""
    #: The caller's own words about it.
    description: str = ""
    #: The caller's own words about this version.
    message: str = ""
    #: The caller's own entries about it.
    metadata: Dict[str, str] = field(default_factory=dict)
    #: The snapshot that came before it; None without one.
    parent_id: Optional[str] = None
    #: The sandbox it was taken of; None for a build.
    sandbox_id: Optional[str] = None
    #: Reference of the image at the bottom.
    image: str = ""
    #: The root file system it was laid on.
    base_digest: Optional[str] = None
    #: Its root file system.
    digest: Optional[str] = None
    #: What its root file system takes on disk.
    size_bytes: int = 0
    #: What was written beyond its base, compressed.
    layer_bytes: int = 0
    #: Names in its root file system.
    file_count: int = 0
    #: Every workspace may read it and make sandboxes from it.
    public: bool = False
    #: What a build was made of; None for others.
    content_hash: Optional[str] = None
    #: The user who made it; None for a snapshot of another workspace.
    created_by: Optional[str] = None
    #: When it was made.
    created_at: datetime = _required(parse_time)
    #: When it was deleted; only lineages include deleted snapshots.
    deleted_at: Optional[datetime] = _optional_time()


@dataclass(frozen=True)
class Registry:
    """How a workspace signs in to a registry, without the password."""

    #: Its identifier.
    id: str = _required()
    #: Its name.
    name: str = ""
    #: The registry, as it was written.
    server: str = ""
    #: Who signs in.
    username: str = ""
    #: As it was given.
    email: Optional[str] = None
    #: Whether it is used.
    enabled: bool = False
    #: When it was made.
    created_at: datetime = _required(parse_time)
    #: When it last changed.
    updated_at: datetime = _required(parse_time)


@dataclass(frozen=True)
class Token:
    """An API token, without its text."""

    #: Its identifier.
    id: str = _required()
    #: What it is for.
    description: str = ""
    #: The workspace its requests act in.
    workspace_id: str = ""
    #: It keeps out of its user's other workspaces.
    workspace_only: bool = False
    #: What it may do; all that its user may when empty.
    scopes: List[str] = field(default_factory=list)
    #: When it was made.
    created_at: datetime = _required(parse_time)
    #: When it was last used, within a few minutes; None when never.
    last_used_at: Optional[datetime] = _optional_time()
    #: When it stops working; None for never.
    expires_at: Optional[datetime] = _optional_time()


@dataclass(frozen=True)
class NewToken(Token):
    """A new token with its secret."""

    #: The token's text. It is shown only now.
    token: str = field(default="", repr=False)


@dataclass(frozen=True)
class SSHKey:
    """A public key by which its user logs in over SSH."""

    #: Its identifier.
    id: str = _required()
    #: Its name; empty for none.
    name: str = ""
    #: Its type.
    type: str = ""
    #: The fingerprint that ssh-keygen -l shows.
    fingerprint: str = ""
    #: Type and key, as in authorized_keys.
    public_key: str = ""
    #: The only workspace in which it works; None for all workspaces of the user.
    workspace_id: Optional[str] = None
    #: When it was added.
    created_at: datetime = _required(parse_time)
    #: When it was last used, within a few minutes; None when never.
    last_used_at: Optional[datetime] = _optional_time()
    #: When it stops working; None for never.
    expires_at: Optional[datetime] = _optional_time()


@dataclass(frozen=True)
class SignInSession:
    """An active sign-in, without its tokens."""

    #: Its identifier.
    id: str = _required()
    #: How the user signed in: password, invitation, or the name of another service.
    method: str = ""
    #: The IP address from which the user signed in.
    address: str = ""
    #: The request was made with its access token.
    current: bool = False
    #: When the user signed in.
    created_at: datetime = _required(parse_time)
    #: When it last got tokens; one in use gets them every 5 minutes.
    refreshed_at: datetime = _required(parse_time)
    #: When it ends unless it is refreshed before.
    expires_at: datetime = _required(parse_time)


@dataclass(frozen=True)
class Identity:
    """Says who the caller is."""

    #: The user.
    user_id: str = ""
    #: What it signs in as.
    name: str = ""
    #: Its e-mail address; empty without one.
    email: str = ""
    #: The workspace requests act in.
    workspace_id: str = ""
    #: The API token presented; empty for a session.
    token_id: str = ""
    #: The user's role in the workspace.
    role: str = ""
    #: The user looks after the installation.
    administrator: bool = False
    #: What the caller may do in the workspace.
    permissions: List[str] = field(default_factory=list)


@dataclass(frozen=True)
class ServerVersion:
    """Says what the server is."""

    #: Version of the server.
    version: str = ""
    #: What runs its sandboxes.
    driver: str = ""


@dataclass(frozen=True)
class User:
    """A person who signs in."""

    #: Its identifier.
    id: str = ""
    #: What it signs in as.
    name: str = ""
    #: Its e-mail address; empty when not known.
    email: str = ""
    #: It looks after the installation.
    administrator: bool = False
    #: Its own workspace.
    workspace_id: str = ""
    #: When it was made.
    created_at: datetime = _required(parse_time)
    #: When it was disabled; None when it is not.
    disabled_at: Optional[datetime] = _optional_time()


@dataclass(frozen=True)
class NewUser(User):
    """A new user."""

    #: By which the user chooses its password, once. It is shown only now.
    code: Optional[str] = field(default=None, repr=False)


@dataclass(frozen=True)
class Member:
    """A user of a workspace."""

    #: The user.
    user_id: str = ""
    #: What it signs in as.
    name: str = ""
    #: Its e-mail address, when known.
    email: str = ""
    #: What it may do.
    role: Role = _required()
    #: When it became a member.
    created_at: datetime = _required(parse_time)


@dataclass(frozen=True)
class Workspace:
    """A tenant. It owns sandboxes, snapshots and what else there is."""

    #: Its identifier.
    id: str = _required()
    #: What people call it.
    name: str = ""
    #: Names it in references.
    slug: str = ""
    #: What it is for.
    description: str = ""
    #: The caller's role.
    role: Role = _required()
    #: The user who made it.
    created_by: str = ""
    #: When it was made.
    created_at: datetime = _required(parse_time)
    #: When it was last changed.
    updated_at: datetime = _required(parse_time)
    #: The least credential for the management routes on the URLs of its sandboxes (/modbox/api/…, /execute): with
    #: open, each sandbox decides; with key, callers need the sandbox's SANDBOX_API_KEY or an API token. The server
    #: may demand more.
    url_access: URLAccess = "open"
    #: Whether code is scanned before it runs: warn adds findings to answers and the audit log; with block code with
    #: findings, and code that cannot be scanned, does not run.
    code_scan: CodeScanMode = "off"
    #: The rules that count; all when empty.
    code_scan_rules: List[Literal["process", "network", "file_delete", "eval", "native", "environment", "import", "syntax"]] = field(default_factory=list)
    #: Whether the audit log has the beginning of the output of commands and code.
    audit_output: bool = False


@dataclass(frozen=True)
class WorkspaceDetail(Workspace):
    """A workspace with its members."""

    #: Its members, in the order they came.
    members: List[Member] = _by(_list(Member), default_factory=list)


@dataclass(frozen=True)
class Invitation:
    """An open invitation to a workspace, without its code."""

    #: Its identifier.
    id: str = _required()
    #: Whom it is for.
    email: str = ""
    #: What the member will be allowed to do.
    role: str = ""
    #: The user who made it.
    created_by: str = ""
    #: When it was made.
    created_at: datetime = _required(parse_time)
    #: Until when it can be accepted.
    expires_at: datetime = _required(parse_time)


@dataclass(frozen=True)
class NewInvitation(Invitation):
    """A new invitation."""

    #: What the invited accepts it with, once. It is shown only now.
    code: str = field(default="", repr=False)


@dataclass(frozen=True)
class AddedMember:
    """The result for an added member: one of the two is there."""

    #: The member, when it was a user.
    member: Optional[Member] = _by(_object(Member), default=None)
    #: The invitation, when it was not.
    invitation: Optional[NewInvitation] = _by(_object(NewInvitation), default=None)


@dataclass(frozen=True)
class Quota:
    """The limits of a workspace. A limit of 0 is none, except for the limits of a single sandbox, which the server
    limits in any case.
    """

    #: Sandboxes that may run at the same time; paused sandboxes do not count.
    sandboxes: Optional[int] = None
    #: Sum of the memory limits of running sandboxes.
    memory: Optional[str] = None
    #: Sum of the CPU limits of running sandboxes.
    cpu: Optional[str] = None
    #: Disk: the disk limits of running sandboxes, and the disk use of paused sandboxes, checkpoints, snapshots,
    #: output of executions and files of builds.
    disk: Optional[str] = None
    #: Size of the states of archived sandboxes in the object store. The state of a sandbox that was resumed or has
    #: ended counts until it is removed.
    archive: Optional[str] = None
    #: Sandboxes that may be made in a minute, forks included.
    creates_per_minute: Optional[int] = None
    #: The most memory that one sandbox may ask for.
    sandbox_memory: Optional[str] = None
    #: The most CPU that one sandbox may ask for.
    sandbox_cpu: Optional[str] = None
    #: The most disk that one sandbox may ask for.
    sandbox_disk: Optional[str] = None


@dataclass(frozen=True)
class DiskUse:
    """The bytes of a workspace on the server's disk."""

    #: What sandboxes that are not paused may write: their limits.
    sandbox_bytes: int = 0
    #: What paused sandboxes take, with their memory.
    paused_bytes: int = 0
    #: What checkpoints take.
    checkpoint_bytes: int = 0
    #: What snapshots take: the sum of what each adds to its base. Pulled and imported images, deleted snapshots and
    #: snapshots of others that lie below them count too, each once.
    snapshot_bytes: int = 0
    #: What output and input of executions took when it was last measured, which is every minute.
    stream_bytes: int = 0
    #: What the boxes of builds and installs that are under way may write: their limits.
    build_bytes: int = 0
    #: What the files of builds take that are not finished.
    upload_bytes: int = 0
    #: What the images take that the workspace has built: their root filesystems, and their layers as a registry gets
    #: them.
    image_bytes: int = 0
    #: Build cache: cached layers, images that lost their names, and installed packages that the workspace has used.
    #: It is removed when the space is needed, the oldest first, except images in use or used within ten minutes.
    build_cache_bytes: int = 0


@dataclass(frozen=True)
class QuotaUsed:
    """The part of a quota that a workspace uses."""

    #: Sandboxes that are being made, run, or are being paused or resumed.
    sandboxes: int = 0
    #: Memory of sandboxes and builds.
    memory: str = ""
    #: CPU of sandboxes and builds.
    cpu: str = ""
    #: The sum of disk_by.
    disk: str = ""
    #: States of archived sandboxes in the object store.
    archive: str = ""
    #: What the disk is used for, in bytes.
    disk_by: DiskUse = _by(_object(DiskUse), default=DiskUse())


@dataclass(frozen=True)
class QuotaReport:
    """The quota of a workspace and its use."""

    #: The workspace.
    workspace_id: str = _required()
    #: The limits that count, all of them; 0 is none.
    limits: Quota = _by(_object(Quota), default=Quota())
    #: Those of them that an administrator has set for this workspace; the others are the server's defaults.
    set: Quota = _by(_object(Quota), default=Quota())
    #: What is used.
    used: QuotaUsed = _by(_object(QuotaUsed), default=QuotaUsed())


@dataclass(frozen=True)
class AuditRecord:
    """The content of a record of the audit log."""

    #: Its number, without gaps in the whole log.
    seq: int = 0
    #: When it was made.
    time: datetime = _required(parse_time)
    #: What was asked for: the operation of this document, or the name of an action of the server.
    action: str = ""
    #: ok, started, cancelled, interrupted, failed, or the code of the error.
    outcome: str = ""
    #: The HTTP status; None when there was no request.
    status: Optional[int] = None
    #: Milliseconds that it took.
    duration_ms: int = 0
    #: The id of the request, as in the header X-Request-Id.
    request_id: str = ""
    #: The route of the request.
    route: str = ""
    #: The permission that the route needs.
    permission: str = ""
    #: The user who asked.
    user_id: str = ""
    #: The API token that was presented.
    token_id: str = ""
    #: The session that was presented.
    session_id: str = ""
    #: The user's role in the workspace.
    role: str = ""
    #: The user acted as an administrator of the installation.
    administrator: bool = False
    #: How a request without a user came, such as through a sandbox's own URL.
    via: str = ""
    #: The IP address of the client.
    address: str = ""
    #: The program of the client, as it calls itself.
    user_agent: str = ""
    #: The workspace of the object.
    workspace_id: str = ""
    #: The kind of the object.
    object_kind: str = ""
    #: The id of the object.
    object_id: str = ""
    #: The name of the object.
    object_name: str = ""
    #: The program and its arguments, without secrets.
    command: List[str] = field(default_factory=list)
    #: The command had more arguments or bytes.
    command_truncated: bool = False
    #: The beginning of the command's standard output, without secrets, if the workspace has audit_output.
    stdout: str = ""
    #: The beginning of its standard error, likewise.
    stderr: str = ""
    #: There was more output.
    output_truncated: bool = False
    #: Other facts, by name.
    details: Dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class AuditEntry:
    """A record of the audit log with its place in the chain."""

    #: Its number, without gaps in the whole log.
    seq: int = 0
    #: The hash of the record before, in hexadecimal; zeros before the first.
    prev: str = ""
    #: SHA-256, in hexadecimal, over the 32 bytes of prev and the bytes of record as they are here.
    hash: str = ""
    record: AuditRecord = _required(_object(AuditRecord))


@dataclass(frozen=True)
class AuditReport:
    """The answer to GET /v1/audit/verify."""

    #: Whether every stored record is unchanged.
    ok: bool = False
    #: What is wrong first; empty when nothing is.
    problem: str = ""
    #: Records that were checked.
    records: int = 0
    #: The newest record that retention removed; 0 when none was.
    anchor_seq: int = 0
    #: The hash of the newest record that retention removed, in hexadecimal; zeros when none was.
    anchor_hash: str = ""
    #: The newest record. A copy of its hash elsewhere proves later that the log was not rewritten.
    head_seq: int = 0
    #: The hash of the newest record, in hexadecimal.
    head_hash: str = ""


@dataclass(frozen=True)
class Webhook:
    """An address that gets events."""

    #: Its id.
    id: str = ""
    #: Where events are sent.
    url: str = ""
    #: What it is for.
    description: str = ""
    #: The types of the events; empty for all.
    types: List[str] = field(default_factory=list)
    #: Whether events are sent.
    enabled: bool = False
    #: Why the server disabled it.
    disabled_reason: Optional[str] = None
    #: Deliveries that wait for an attempt.
    pending: int = 0
    #: Events that were not sent because too many deliveries waited.
    dropped: int = 0
    #: Since when every attempt has failed.
    failing_since: Optional[datetime] = _optional_time()
    #: The user who made it.
    created_by: str = ""
    #: When it was made.
    created_at: datetime = _required(parse_time)
    #: When it was last changed.
    updated_at: datetime = _required(parse_time)


@dataclass(frozen=True)
class NewWebhook(Webhook):
    """A webhook with its secret, which no other answer has."""

    #: The key of its signatures, whsec_…; it cannot be read again.
    secret: str = field(default="", repr=False)


@dataclass(frozen=True)
class WebhookDelivery:
    """An event on its way to a webhook."""

    #: The id of the message, the same in all attempts: the header webhook-id.
    id: str = ""
    #: The webhook.
    webhook_id: str = ""
    #: The type of the event; ping for a test.
    type: str = ""
    #: The number of the event.
    event_seq: Optional[int] = None
    #: The sandbox of the event.
    sandbox_id: Optional[str] = None
    #: pending: waits for an attempt. delivered: the receiver has accepted it. failed: no attempt follows. cancelled:
    #: the webhook was disabled before.
    state: WebhookDeliveryState = _required()
    #: Attempts so far.
    attempts: int = 0
    #: When the event happened.
    created_at: datetime = _required(parse_time)
    #: When the last attempt began.
    attempted_at: Optional[datetime] = _optional_time()
    #: When the next attempt is due.
    next_attempt_at: Optional[datetime] = _optional_time()
    #: When it was delivered, failed or was cancelled.
    ended_at: Optional[datetime] = _optional_time()
    #: The HTTP status of the last answer; None without an answer.
    status: Optional[int] = None
    #: Milliseconds of the last attempt.
    duration_ms: Optional[int] = None
    #: Why the last attempt failed.
    error: Optional[str] = None
    #: The first KiB of the last answer.
    response: Optional[str] = None


@dataclass(frozen=True)
class Worker:
    """A machine on which sandboxes of the server run."""

    #: Its id.
    id: str = ""
    #: Its name, which no other worker has.
    name: str = ""
    #: connected: the server has a connection to it. away: its sandboxes are unavailable until it is back. lost: it
    #: was away for longer than worker.lost_after, and its sandboxes were given up; it joins again when it is back.
    state: WorkerState = _required()
    #: It gets no new sandboxes.
    draining: bool = False
    #: Sandboxes on it that run or are being started, boxes of builds, and boxes of the pool.
    sandboxes: int = 0
    #: Memory of the machine; 0 if it is not known.
    memory_bytes: int = 0
    #: Sum of the memory limits of its sandboxes.
    memory_promised_bytes: int = 0
    #: How much memory may be promised; 0 for no limit.
    memory_promised_max_bytes: int = 0
    #: Processor cores of the machine; 0 if they are not known.
    cores: int = 0
    #: With several active servers, the ranges of the sandboxes of its server, as digits of their ids; its sandboxes
    #: are resumed on workers with the same ranges. Absent if a single server is active.
    shard_ranges: Optional[str] = None
    #: Version of its program.
    version: str = ""
    #: Where its last connection came from.
    address: str = ""
    #: When the connection began; None while it is away.
    connected_at: Optional[datetime] = _optional_time()
    #: When the server had a connection to it last: now if it has one.
    seen_at: datetime = _required(parse_time)
    #: When it joined.
    created_at: datetime = _required(parse_time)


@dataclass(frozen=True)
class HostResource:
    """Says how much of a resource there is, and how much of it is promised and used."""

    #: What the machine has.
    total_bytes: int = 0
    #: What is free; None for memory.
    free_bytes: Optional[int] = None
    #: Sum of the limits of all running sandboxes and builds.
    promised_bytes: int = 0
    #: How much may be promised; 0 for no limit.
    promised_max_bytes: int = 0
    #: What boxes use of it: memory as last measured.
    used_bytes: int = 0


@dataclass(frozen=True)
class HostSandboxes:
    """The number of sandboxes in a state."""

    #: The state.
    state: str = ""
    #: How many there are.
    count: int = 0


@dataclass(frozen=True)
class HostImages:
    """The number and size of the root filesystems of a kind."""

    #: built_in, pulled, built, or cache without a name.
    kind: str = ""
    #: How many there are.
    count: int = 0
    #: Their size.
    size_bytes: int = 0


@dataclass(frozen=True)
class HostPool:
    """Says how the pool of started boxes does."""

    #: Started boxes that wait for a sandbox.
    boxes: int = 0
    #: How many of them fit any image; the others are each of one image.
    blank_boxes: int = 0
    #: New sandboxes that got one of them.
    hits: int = 0
    #: New sandboxes for which none was there.
    misses: int = 0


@dataclass(frozen=True)
class HostTemplates:
    """Says how the memory templates do."""

    #: Memory templates that are ready.
    count: int = 0
    #: Their size.
    size_bytes: int = 0
    #: Sandboxes, and boxes of the pool, that were restored from one.
    hits: int = 0
    #: Those of such images that none was there for.
    misses: int = 0
    #: Restores that failed; the box was made without.
    failed: int = 0


@dataclass(frozen=True)
class HostWaiting:
    """Counts what is under way or waits."""

    #: Requests that wait for a quota or for capacity.
    requests: int = 0
    #: Builds of Dockerfiles and pushes.
    builds: int = 0
    #: Pulls of images and installs of packages.
    image_tasks: int = 0
    #: Commands that outlive their request.
    executions: int = 0


@dataclass(frozen=True)
class HostOperation:
    """Says how long an operation took since the start of the server."""

    #: What it is, such as create, pause or exec.
    operation: str = ""
    #: The part of it; None for the whole.
    phase: Optional[str] = None
    #: How often it ended.
    count: int = 0
    #: How often an error of the server ended it.
    failed: int = 0
    #: Mean time.
    mean_seconds: float = 0
    #: Half of them took no longer; estimated from the buckets of the metric.
    p50_seconds: float = 0
    #: 19 of 20 took no longer; estimated likewise.
    p95_seconds: float = 0


@dataclass(frozen=True)
class Host:
    """The answer to GET /v1/host."""

    #: Version of the server.
    version: str = ""
    #: What runs its sandboxes.
    driver: str = ""
    #: What runs the programs of new sandboxes: gVisor's platform, systrap or kvm.
    platform: Optional[str] = None
    #: Why this platform was chosen.
    platform_reason: Optional[str] = None
    #: When the server was started; operations are counted since then.
    started_at: datetime = _required(parse_time)
    #: Processor cores of the machine.
    cores: int = 0
    #: Its memory.
    memory: HostResource = _by(_object(HostResource), default=HostResource())
    #: The disk of the state directory.
    disk: HostResource = _by(_object(HostResource), default=HostResource())
    #: The server frees disk, because less than disk.evict_below is free.
    disk_pressure: bool = False
    #: Sandboxes of all workspaces that have not ended, by state.
    sandboxes: List[HostSandboxes] = _by(_list(HostSandboxes), default_factory=list)
    #: Root filesystems on the disk, by kind.
    images: List[HostImages] = _by(_list(HostImages), default_factory=list)
    #: Boxes that are started before they are asked for; None when pool.size is 0.
    pool: Optional[HostPool] = _by(_object(HostPool), default=None)
    #: Memory templates, from which new sandboxes are restored; None when template.max_bytes is 0.
    templates: Optional[HostTemplates] = _by(_object(HostTemplates), default=None)
    #: What is under way or waits.
    waiting: HostWaiting = _by(_object(HostWaiting), default=HostWaiting())
    #: Size of the database with its log.
    database_bytes: int = 0
    #: How long operations took, the slowest first.
    operations: List[HostOperation] = _by(_list(HostOperation), default_factory=list)


class ExecutionCommand(TypedDict, total=False):
    """A command that is kept: exactly one of ``command`` and ``shell``."""

    #: exec (when omitted): its exit code is your matter, it is completed with any. job: it failed when its exit code
    #: is not 0.
    kind: Optional[Literal["exec", "job"]]
    #: Program and arguments, run without a shell.
    command: Optional[Sequence[str]]
    #: A script, run by /bin/bash -c, or by /bin/sh -c in an image without bash.
    shell: Optional[str]
    #: Written before it starts, by path.
    files: Optional[Mapping[str, Union[str, bytes]]]
    #: Working directory; the image's when omitted.
    cwd: Optional[str]
    #: Environment variables in addition to the sandbox's.
    env: Optional[Mapping[str, str]]
    #: User to run as: name, uid, name:group or uid:gid; the image's when omitted.
    user: Optional[str]
    #: It and its children are ended after this. 0 or omitted: the sandbox's execution timeout, or none.
    timeout_seconds: Optional[int]
    #: Limits of this command and its processes, tighter than the sandbox's.
    limits: Optional[Union[ExecLimits, Mapping[str, Any]]]
    #: Make a stream for its standard input; otherwise the input is empty.
    stdin: Optional[bool]
    #: A stream made before by POST /v1/streams that it reads as its standard input.
    stdin_stream_id: Optional[str]
    #: Run it on a terminal of so many rows and columns.
    tty: Optional[Tuple[int, int]]
    #: One stream for stdout and stderr.
    combined: Optional[bool]
    #: ignore keeps nothing of it; keep when omitted.
    stdout: Optional[Literal["keep", "ignore"]]
    #: ignore keeps nothing of it; keep when omitted.
    stderr: Optional[Literal["keep", "ignore"]]


class CreateOptions(TypedDict, total=False):
    """What sandbox to make; nothing is the default image with default limits."""

    #: Your own identifier, unique among the live sandboxes of the workspace; made up when omitted. It has the
    #: characters A-Z, a-z, 0-9, dot, underscore and dash, and begins with a letter or digit. While a sandbox of that
    #: name lives, the same request answers it again and a different one is refused with code exists.
    name: Optional[str]
    #: Image reference. When neither image nor image_id is given: the default image of the workspace, or of the
    #: server.
    image: Optional[str]
    #: ID of an image, or of one of the workspace's catalogue (/v1/sandbox-images), whose defaults count then; wins
    #: over image.
    image_id: Optional[str]
    #: Make it from a snapshot instead of an image: its id, name, name:tag or @workspace/name:tag.
    snapshot: Optional[str]
    #: Environment variables of every process in the sandbox. They are never shown again.
    env: Optional[Mapping[str, str]]
    #: Up to 64 labels to find it by.
    labels: Optional[Mapping[str, str]]
    #: It is destroyed this long after the request: 60 to 86400 seconds. 0 or omitted: the image's default, or no
    #: limit.
    ttl_seconds: Optional[int]
    #: Limits; the image's or the server's defaults for what is omitted.
    resources: Optional[Union[Resources, Mapping[str, Any]]]
    #: Clocks beside the ttl; none when omitted.
    timeouts: Optional[Union[Timeouts, Mapping[str, Any]]]
    #: Access to the internet, and ports to publish; neither when omitted.
    network: Optional[Union[NetworkOptions, Mapping[str, Any]]]
    #: Time between automatic checkpoints, from which it goes on when its processes are lost with the host: 60 to
    #: 86400. 0 or omitted: none.
    checkpoint_interval_seconds: Optional[int]
    #: Your own words about it.
    description: Optional[str]
    #: Your own entries about it, up to 64; they mean nothing to the server.
    metadata: Optional[Mapping[str, str]]
    #: The credential for the management routes on its own URL (/modbox/api/…, /execute): with key, callers need its
    #: SANDBOX_API_KEY or an API token; with open, its SANDBOX_API_KEY if it has one, else the URL is enough. key
    #: when omitted.
    url_access: Optional[URLAccess]
    #: A command that starts as an execution as soon as it runs.
    command: Optional[ExecutionCommand]
    #: oneshot: it ends with its command, with cause completed. interactive when omitted.
    mode: Optional[Literal["interactive", "oneshot"]]
    #: End a live sandbox of the same name, whose place in the quota the new one may have.
    replace: Optional[bool]
    #: Answer when it is running or has ended, but after this many seconds at the latest. 0: answer at once.
    wait_seconds: Optional[int]
    #: If the quota of the workspace, or the server, is full, wait up to this long, in the workspace's queue. The
    #: sandbox is recorded only when it is admitted; after the time the answer is 429. 0: answer 429 at once.
    wait_for_quota_seconds: Optional[int]
    #: Debian packages to have installed in it, as name, name=version or name=version*, up to 64. They are installed
    #: before it runs and cached for the next sandbox with the same packages.
    apt_packages: Optional[Sequence[str]]
    #: Python packages to have installed in it by pip, for every user, as name, name==version, name==1.2.* or with
    #: extras name[extra]; up to 64.
    pip_packages: Optional[Sequence[str]]
    #: npm packages to have installed globally in it, by npm or, in an image without it, by bun; up to 64.
    npm_packages: Optional[Sequence[str]]
    #: Makes repeated creates one within 24 hours; a new key for this call when left out.
    idempotency_key: Optional[str]


class SandboxImageOptions(TypedDict, total=False):
    """What can be said of an image of the catalogue. What is left out is as the image has it, or stays."""

    #: latest when omitted.
    tag: Optional[str]
    #: Your own words about it.
    description: Optional[str]
    #: false: no sandbox may be made from it; true when omitted.
    enabled: Optional[bool]
    #: Use it when a request names no image. Only one is: another one is not any more.
    is_default: Optional[bool]
    #: Memory limit of its sandboxes in MiB, 256 to 8192; no request may ask for more. 0 or omitted: the image's own,
    #: or the server's default.
    memory_mb: Optional[int]
    #: GET / on this port must answer with a 2xx before a sandbox counts as running, and its URL leads there. 0:
    #: none. Omitted: the image's own, if any.
    readiness_port: Optional[int]
    #: How long its sandboxes live unless they say, 60 to 86400. 0: no limit. Omitted: the image's own, if any.
    ttl_seconds: Optional[int]
    #: The registry to pull it with; whichever the workspace has for the host when omitted or empty.
    registry_id: Optional[str]


class SandboxImageChanges(SandboxImageOptions, total=False):
    """What to change of an image of the catalogue."""

    #: Unique in the workspace.
    name: Optional[str]
    #: Image reference; it may have the tag, or a digest instead.
    image: Optional[str]


class BuildOptions(TypedDict, total=False):
    """What a snapshot is built of, and called."""

    #: Debian packages to install.
    apt_packages: Optional[Sequence[str]]
    #: npm packages to install globally.
    npm_packages: Optional[Sequence[str]]
    #: Python packages to install with pip, as for a create.
    pip_packages: Optional[Sequence[str]]
    #: Default environment variables of sandboxes made from it. They are never shown again.
    env: Optional[Mapping[str, str]]
    #: If the quota of the workspace, or the server, is full, wait up to this long, in the workspace's queue. 0:
    #: refuse the build at once, with 429. The build reserves the resources of its boxes before it waits for a slot.
    #: While it waits, and if it is refused, it can be finished again.
    wait_for_quota_seconds: Optional[int]
    #: As for a snapshot of a sandbox.
    name: Optional[str]
    #: As for a snapshot of a sandbox.
    tag: Optional[str]
    #: Your own words about it.
    description: Optional[str]
    #: Your own words about this version.
    message: Optional[str]
    #: Your own entries about it, up to 64.
    metadata: Optional[Mapping[str, str]]
    #: Every workspace may read it and make sandboxes from it.
    public: Optional[bool]
    #: Identifies everything it is made of. A snapshot of the workspace that has the same is answered instead of a
    #: build.
    content_hash: Optional[str]
    #: Build although there is a snapshot of the same content.
    force: Optional[bool]
    #: Where the files go; the image's working directory when omitted.
    dir: Optional[str]
    #: A tar.gz, or chunks of it, with names relative to ``dir``.
    files: Union[bytes, Iterable[bytes], AsyncIterable[bytes], None]


class BuildImageOptions(TypedDict, total=False):
    """What image to build from a Dockerfile."""

    #: The image's name, as in app, app:v1 or registry.example.com/team/app:v1. Without one it is known by its
    #: digest, and kept for an hour unless something uses it.
    tag: Optional[str]
    #: The Dockerfile's text, instead of the file at ``path``.
    dockerfile: Optional[str]
    #: Values of ARGs; they are no secrets.
    build_args: Optional[Mapping[str, str]]
    #: The stage to build, by name or number; the last when omitted.
    target: Optional[str]
    #: Make every layer anew.
    no_cache: Optional[bool]
    #: Let RUN reach the network.
    network: Optional[bool]
    #: Push the image to the registry that tag names.
    push: Optional[bool]
    #: Limits of each RUN; the server's for builds where omitted.
    resources: Optional[Union[Resources, Mapping[str, Any]]]
    #: How long the build may take, the waiting included; the server's limit when omitted.
    timeout_seconds: Optional[int]
    #: If the quota of the workspace, or the server, is full, wait up to this long, in the workspace's queue. 0:
    #: refuse the build at once, with 429.
    wait_for_quota_seconds: Optional[int]
    #: Where the Dockerfile is among the files; ``Dockerfile`` when left out.
    path: Optional[str]


class SnapshotFilter(TypedDict, total=False):
    """Which snapshots to list; nothing is all of the workspace, newest first."""

    #: Public snapshots of all workspaces instead of the workspace's own.
    public: Optional[bool]
    #: Only those taken of this sandbox.
    sandbox_id: Optional[str]
    #: Only snapshots with this name.
    name: Optional[str]
    #: Only snapshots with this tag.
    tag: Optional[str]
    #: What they are sorted by.
    sort: Optional[Literal["created", "name", "size", "files"]]
    #: The direction.
    order: Optional[Literal["asc", "desc"]]


class AuditFilter(TypedDict, total=False):
    """What to list of the audit log; nothing is all of the workspace."""

    #: Records made from then on (RFC 3339).
    since: Optional[datetime]
    #: Records made before then (RFC 3339).
    until: Optional[datetime]
    #: What that user did: its id.
    user: Optional[str]
    #: What was done to the object with that id or name.
    object: Optional[str]
    #: What was done, such as exec or create-sandbox: the id of the operation.
    action: Optional[str]
    #: How it ended: ok, started, cancelled, interrupted, failed, or the code of an error.
    outcome: Optional[str]
    #: Records that have all of these words, at most 8, in their action, outcome, address, object, command, details
    #: or outputs, among the first 100 different words of a record. Words of three and more letters or digits also
    #: find longer words.
    search: Optional[str]
    #: The newest first, or the oldest.
    order: Optional[Literal["asc", "desc"]]
    #: Only records with a greater number.
    after_seq: Optional[int]
