"""What the server answers. Times are aware datetimes; a value does not change when the object does."""

from __future__ import annotations

import base64
import re
from dataclasses import MISSING, dataclass, field, fields
from datetime import datetime
from typing import Any, Callable, Dict, Generic, List, Literal, Mapping, Optional, Sequence, Type, TypeVar, Union

T = TypeVar("T")
Output = TypeVar("Output", str, bytes)

#: Where a sandbox is in its life; ``failed`` instead of ``destroyed`` when an error ended it.
SandboxState = Literal["provisioning", "running", "pausing", "paused", "resuming", "destroying", "destroyed", "failed"]


def parse_time(text: str) -> datetime:
    """Reads RFC 3339. Before Python 3.11 fromisoformat knows neither Z nor other than 3 or 6 digits."""
    text = re.sub(r"\.(\d+)", lambda m: "." + m.group(1)[:6].ljust(6, "0"), text)
    return datetime.fromisoformat(re.sub(r"[zZ]$", "+00:00", text))


def _by(convert: Callable[[Any], Any], **more: Any) -> Any:
    """A field whose value on the wire, unless null, goes through convert."""
    return field(metadata={"convert": convert}, **more)


def _time() -> Any:
    return _by(parse_time)


def _optional_time() -> Any:
    return _by(parse_time, default=None)


def decode(cls: Type[T], wire: Mapping[str, Any]) -> T:
    """Makes a model from the wire. Members that are not known are left out: a newer server may send more."""
    values: Dict[str, Any] = {}
    for f in fields(cls):
        value = wire.get(f.name)
        if value is None:
            if f.default is MISSING and f.default_factory is MISSING:
                raise KeyError(f"{cls.__name__}.{f.name}")
            continue
        convert = f.metadata.get("convert")
        values[f.name] = convert(value) if convert else value
    return cls(**values)


@dataclass(frozen=True)
class Cause:
    """Why a sandbox ended.

    ``code`` is ``destroyed``, ``replaced``, ``ttl``, ``idle``, ``paused_ttl``,
    ``completed``, ``image``, ``start``,
    ``not_ready``, ``oom``, ``exited``, ``disk_full``, ``host_restart`` or ``internal``.
    """

    code: str
    message: str


@dataclass(frozen=True)
class Resources:
    """Limits in Kubernetes notation: memory ``512Mi``, cpu ``500m`` or ``2``, disk ``2Gi``."""

    memory: Optional[str] = None
    cpu: Optional[str] = None
    disk: Optional[str] = None


@dataclass(frozen=True)
class Timeouts:
    """The clocks of a sandbox beside its ttl; None and 0 mean none."""

    #: How long it may run without being used.
    idle_seconds: Optional[int] = None
    #: What happens then, ``destroy`` unless told.
    on_idle: Optional[Literal["destroy", "pause"]] = None
    #: How long it may stay paused before it is destroyed.
    paused_seconds: Optional[int] = None
    #: The timeout of commands that name none.
    execution_seconds: Optional[int] = None


@dataclass(frozen=True)
class NetworkOptions:
    """What network to ask for: access to the internet, and ports to publish, at most 32.

    The sandbox's URL leads to the first port.
    """

    enabled: bool = False
    ports: Sequence[int] = ()


#: What a visitor needs to use a published port: its URL alone, or an API token or a signed link as well (``private``).
PortAccess = Literal["public", "private"]

#: What the management routes on a sandbox's own URL (``/modbox/api/…``, ``/execute``) ask a caller for: the sandbox's
#: ``SANDBOX_API_KEY`` or an API token (``key``), or the ``SANDBOX_API_KEY`` of a sandbox that has one and nothing of
#: others (``open``).
URLAccess = Literal["open", "key"]


@dataclass(frozen=True)
class PublishedPort:
    """A port of a sandbox with a URL of its own, which leads to this port and to nothing else of the sandbox."""

    #: 1 to 65535.
    port: int
    #: Stays the same until the port is removed or rotated. Empty for a caller who may only read.
    url: str
    access: PortAccess
    #: The time of the URL's making.
    created_at: datetime = _time()


@dataclass(frozen=True)
class PortLink:
    """A signed link to a private port. The URL and the token are secrets, and are shown only now."""

    #: For a browser.
    url: str = field(repr=False)
    #: For programs, which send it in the header ``X-Modbox-Token`` to the port's own URL.
    token: str = field(repr=False)
    #: The time at which the link stops to work.
    expires_at: datetime = _time()


@dataclass(frozen=True)
class SandboxNetwork:
    """A sandbox's access to the internet, and the ports it publishes."""

    enabled: bool = False
    ports: List[PublishedPort] = _by(lambda w: [decode(PublishedPort, item) for item in w], default_factory=list)


@dataclass(frozen=True)
class Sandbox:
    """A sandbox as the server saw it when it answered."""

    id: str
    name: str
    state: SandboxState
    #: The URL of its HTTP server, and of its management routes and all its ports: keep it to yourself, and
    #: share the URLs of published ports. Empty for a caller who may only read.
    url: str
    image: str
    created_by: str
    workspace_id: str
    created_at: datetime = _time()
    updated_at: datetime = _time()
    resources: Resources = _by(lambda w: decode(Resources, w))
    #: Debian and npm packages that were installed in it.
    apt_packages: List[str] = field(default_factory=list)
    npm_packages: List[str] = field(default_factory=list)
    labels: Dict[str, str] = field(default_factory=dict)
    #: Empty until the reference is resolved.
    image_digest: str = ""
    #: What had to answer before it counted as running. Its URL leads to the first published port, this one, or 8080.
    readiness_port: Optional[int] = None
    network: SandboxNetwork = _by(lambda w: decode(SandboxNetwork, w), default=SandboxNetwork())
    #: What the management routes on ``url`` ask for; its workspace and the server may ask for more.
    url_access: URLAccess = "open"
    #: Seconds it may live from created_at; 0 is no limit.
    ttl_seconds: int = 0
    #: When its ttl ends it; None without one.
    deadline: Optional[datetime] = _optional_time()
    timeouts: Timeouts = _by(lambda w: decode(Timeouts, w), default=Timeouts())
    #: Seconds between its automatic checkpoints; 0 is none.
    checkpoint_interval_seconds: int = 0
    #: When its automatic checkpoint was made; None without one.
    last_checkpoint_at: Optional[datetime] = _optional_time()
    last_activity_at: Optional[datetime] = _optional_time()
    #: When its idle timeout ends it; None without one, or when it does not run.
    idle_deadline: Optional[datetime] = _optional_time()
    #: None unless it is paused.
    paused_at: Optional[datetime] = _optional_time()
    #: When its paused timeout ends it; None without one, or when it is not paused.
    paused_deadline: Optional[datetime] = _optional_time()
    #: Why its last resume started it anew with its files; None when its memory came back.
    memory_lost_reason: Optional[str] = None
    #: What it was forked from.
    parent_id: Optional[str] = None
    #: What it was made from; None for an image.
    snapshot_id: Optional[str] = None
    description: str = ""
    metadata: Dict[str, str] = field(default_factory=dict)
    #: Why it ended; None while it lives.
    cause: Optional[Cause] = _by(lambda w: decode(Cause, w), default=None)
    started_at: Optional[datetime] = _optional_time()
    ended_at: Optional[datetime] = _optional_time()


@dataclass(frozen=True)
class ExecResult(Generic[Output]):
    """How a command ended, and its output."""

    #: 128 + signal when a signal ended it.
    exit_code: int
    stdout: Output
    stderr: Output
    timed_out: bool
    #: There was more than max_output_bytes, or than the server had memory for.
    stdout_truncated: bool
    stderr_truncated: bool
    duration_ms: int
    #: The signal's number; 0 when it exited by itself.
    signal: int = 0


@dataclass(frozen=True)
class ExecEvent:
    """What a command under way reports: ``started`` first, ``exit`` last.

    ``data`` is set for ``stdout`` and ``stderr``; ``pid`` for ``started``; the
    others for ``exit``.
    """

    type: Literal["started", "stdout", "stderr", "exit"]
    data: bytes = _by(base64.b64decode, default=b"")
    pid: int = 0
    exit_code: int = 0
    signal: int = 0
    timed_out: bool = False
    duration_ms: int = 0


@dataclass(frozen=True)
class FileInfo:
    """A path in a sandbox, not following a last symlink."""

    name: str
    path: str
    type: Literal["file", "directory", "symlink", "other"]
    size: int
    #: Permission bits in octal, e.g. ``0644``.
    mode: str
    uid: int
    gid: int
    mod_time: datetime = _time()
    #: Where a symlink points, as written.
    target: Optional[str] = None


@dataclass(frozen=True)
class FileEvent:
    """What happened to a file; a rename is ``moved_from`` and ``moved_to``.

    ``overflow`` says that events were lost; ``limit`` that the directory, and maybe
    others, is not watched because there are too many.
    """

    type: Literal["created", "modified", "attributes", "removed", "moved_from", "moved_to", "overflow", "limit"]
    path: str = ""
    directory: bool = False


@dataclass(frozen=True)
class Event:
    """Something that happened to a sandbox; ``seq`` grows with time."""

    seq: int
    sandbox_id: str
    type: str
    message: str
    time: datetime = _time()
    data: Dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Stats:
    """A moment's use of a sandbox."""

    time: datetime = _time()
    memory_bytes: int = 0
    memory_limit_bytes: int = 0
    cpu_nanoseconds: int = 0
    cpu_limit_millicores: int = 0
    disk_bytes: int = 0
    disk_limit_bytes: int = 0
    processes: int = 0
    #: Proportional memory of its host processes; None when unknown.
    host_pss_bytes: Optional[int] = None


@dataclass(frozen=True)
class Usage:
    """What a sandbox has used since it was made, over pauses and restarts of the server."""

    #: When it was measured last; None before it first ran.
    at: Optional[datetime] = _optional_time()
    #: Pauses excluded.
    running_seconds: float = 0
    #: Of all cores together.
    cpu_seconds: float = 0
    memory_byte_seconds: int = 0
    network_sent_bytes: int = 0
    network_received_bytes: int = 0


@dataclass(frozen=True)
class Image:
    """An image that sandboxes can be made from; ``ref`` is what create takes."""

    id: str
    name: str
    tag: str
    ref: str
    created_at: datetime = _time()
    updated_at: datetime = _time()
    #: Empty while it is not built.
    digest: str = ""
    description: str = ""
    builtin: bool = False
    is_default: bool = False
    size_bytes: int = 0
    memory: str = ""
    readiness_port: Optional[int] = None
    ttl_seconds: int = 0


@dataclass(frozen=True)
class Requirements:
    """What a sandbox of a runtime needs at least."""

    memory: Optional[str] = None
    cpu: Optional[str] = None
    disk: Optional[str] = None
    network: bool = False


@dataclass(frozen=True)
class Runtime:
    """A built-in image with what people want to know before they choose it; ``name`` is what create takes."""

    id: str
    name: str
    image: str
    description: str = ""
    icon_url: str = ""
    color: str = ""
    url: str = ""
    tags: List[str] = field(default_factory=list)
    requirements: Requirements = _by(lambda w: decode(Requirements, w), default=Requirements())
    readme: str = ""
    #: Otherwise its first use builds it.
    built: bool = False
    digest: str = ""
    size_bytes: int = 0
    created_at: Optional[datetime] = _optional_time()


@dataclass(frozen=True)
class Token:
    """An API token, without its text."""

    id: str
    description: str
    workspace_id: str
    created_at: datetime = _time()
    last_used_at: Optional[datetime] = _optional_time()
    expires_at: Optional[datetime] = _optional_time()
    #: Keeps out of its user's other workspaces.
    workspace_only: bool = False
    #: What it may do; none means all that its user may.
    scopes: List[str] = field(default_factory=list)


@dataclass(frozen=True)
class NewToken(Token):
    """A token just made; its text, ``mbx_…``, is shown only now."""

    token: str = field(default="", repr=False)


@dataclass(frozen=True)
class UserSession:
    """The tokens of somebody who has signed in."""

    access_token: str = field(repr=False)
    #: Gets the next tokens, once: using one twice ends the session.
    refresh_token: str = field(repr=False)
    #: When the access token ends.
    expires_at: datetime
    refresh_expires_at: datetime


@dataclass(frozen=True)
class SignInSession:
    """A sign-in that has not ended, without its tokens."""

    id: str
    #: How the user signed in: ``password``, ``invitation``, or the name of another service.
    method: str
    #: The IP address from which the user signed in.
    address: str
    #: Whether it is the client's own.
    current: bool
    created_at: datetime = _time()
    #: When it last got tokens.
    refreshed_at: datetime = _time()
    #: When it ends unless it is refreshed before.
    expires_at: datetime = _time()


@dataclass(frozen=True)
class Identity:
    """Who the client's token speaks for."""

    user_id: str
    workspace_id: str
    #: What the user signs in as.
    name: str = ""
    email: str = ""
    #: Empty for a session.
    token_id: str = ""
    #: In the workspace.
    role: str = ""
    #: Looks after the installation.
    administrator: bool = False
    #: What the caller may do in the workspace.
    permissions: List[str] = field(default_factory=list)


@dataclass(frozen=True)
class ServerVersion:
    """What the server is."""

    version: str
    driver: str = ""


AnyExecResult = Union["ExecResult[str]", "ExecResult[bytes]"]
