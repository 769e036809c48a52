"""What calls with many arguments take, by keyword. All members are optional; one that is None counts as left out."""

from __future__ import annotations

import ssl
from typing import AsyncIterable, Awaitable, Callable, Iterable, Literal, Mapping, Optional, Sequence, Tuple, TypedDict, Union

from .models import NetworkOptions, Resources, Timeouts, URLAccess, UserSession


class ExecutionCommand(TypedDict, total=False):
    """A command that is kept: exactly one of ``command`` and ``shell``."""

    #: Program and arguments, run without a shell.
    command: Optional[Sequence[str]]
    #: A script for bash, or sh where there is no bash.
    shell: Optional[str]
    cwd: Optional[str]
    env: Optional[Mapping[str, str]]
    user: Optional[str]
    #: The sandbox's own timeout for commands, or none, when left out.
    timeout_seconds: Optional[int]
    #: A job that exits with another code than 0 is failed.
    kind: Optional[Literal["exec", "job"]]
    #: Written before it starts, by path.
    files: Optional[Mapping[str, Union[str, bytes]]]
    #: Make a stream for its input, ``stdin_stream_id`` of the answer.
    stdin: Optional[bool]
    #: Read a stream made by ``streams.create``.
    stdin_stream_id: Optional[str]
    #: Run it on a terminal of so many rows and columns.
    tty: Optional[Tuple[int, int]]
    #: Make stdout and stderr one stream.
    combined: Optional[bool]
    stdout: Optional[Literal["keep", "ignore"]]
    stderr: Optional[Literal["keep", "ignore"]]


class CreateOptions(TypedDict, total=False):
    """What sandbox to make; nothing is the default image with default limits."""

    #: Your own identifier, unique among the live sandboxes of the workspace.
    name: Optional[str]
    #: A reference such as ``modbox/code-exec``.
    image: Optional[str]
    #: Wins over ``image``.
    image_id: Optional[str]
    #: Instead of an image: an id, ``name``, ``name:tag`` or ``@workspace/name:tag``.
    snapshot: Optional[str]
    env: Optional[Mapping[str, str]]
    labels: Optional[Mapping[str, str]]
    #: Seconds until it is destroyed, 60 to 86400; the image's default or no limit when left out.
    ttl_seconds: Optional[int]
    #: The clocks beside the ttl.
    timeouts: Optional[Timeouts]
    #: Seconds between automatic checkpoints, 60 to 86400; 0 or left out is none. When the host loses the
    #: sandbox's processes, it goes on from its last automatic checkpoint.
    checkpoint_interval_seconds: Optional[int]
    resources: Optional[Resources]
    network: Optional[NetworkOptions]
    #: What the management routes on its own URL ask for; ``key`` when left out.
    url_access: Optional[URLAccess]
    #: Debian packages to have installed before it runs, such as ``curl=8.14*``.
    apt_packages: Optional[Sequence[str]]
    #: npm packages to have installed globally before it runs, such as ``typescript@5``.
    npm_packages: Optional[Sequence[str]]
    #: Your own words about it.
    description: Optional[str]
    metadata: Optional[Mapping[str, str]]
    #: Started as an execution as soon as the sandbox runs.
    command: Optional[ExecutionCommand]
    #: ``oneshot``: the sandbox ends with its command.
    mode: Optional[Literal["interactive", "oneshot"]]
    #: End a live sandbox of the same name, whose place in the quota the new one may have.
    replace: Optional[bool]
    #: Answer only when it runs or has ended, or after this many seconds, at most 600.
    wait_seconds: Optional[int]
    #: Wait for room in the workspace's quota, and on the server, at most this long, instead of raising ``quota_exceeded`` at once.
    wait_for_quota_seconds: Optional[int]
    #: Makes repeated creates one within 24 hours; a new key for this call when left out.
    idempotency_key: Optional[str]


class SandboxImageOptions(TypedDict, total=False):
    """What can be said of an image of the catalogue. What is left out is as the image has it, or stays."""

    #: ``latest`` when left out.
    tag: Optional[str]
    description: Optional[str]
    #: False: no sandbox may be made from it.
    enabled: Optional[bool]
    #: Use it when a request names no image; the one that was is not any more.
    is_default: Optional[bool]
    #: 256 to 8192; 0 is the image's own.
    memory_mb: Optional[int]
    #: 0 is none.
    readiness_port: Optional[int]
    #: 60 to 86400; 0 is no limit.
    ttl_seconds: Optional[int]
    #: Empty: whichever the workspace has for the host.
    registry_id: Optional[str]


class SandboxImageChanges(SandboxImageOptions, total=False):
    """What to change of an image of the catalogue."""

    name: Optional[str]
    #: A reference, which may have the tag, or a digest instead.
    image: Optional[str]


class ConnectOptions(TypedDict, total=False):
    """How a client is made that somebody signs in for; as the arguments of ModboxClient."""

    base_url: Optional[str]
    workspace_id: Optional[str]
    timeout: float
    max_retries: int
    ssl_context: Optional[ssl.SSLContext]
    #: Called with the session's new tokens whenever they were renewed, to keep them.
    on_session: Optional[Callable[[UserSession], None]]


class AsyncConnectOptions(TypedDict, total=False):
    """As ConnectOptions, for AsyncModboxClient."""

    base_url: Optional[str]
    workspace_id: Optional[str]
    timeout: float
    max_retries: int
    ssl_context: Optional[ssl.SSLContext]
    #: May be a coroutine function.
    on_session: Union[Callable[[UserSession], None], Callable[[UserSession], Awaitable[None]], None]


class BuildOptions(TypedDict, total=False):
    """What a snapshot is built of, and called."""

    name: Optional[str]
    #: ``latest`` when left out. It leaves the snapshot of the name that had it.
    tag: Optional[str]
    description: Optional[str]
    message: Optional[str]
    metadata: Optional[Mapping[str, str]]
    public: Optional[bool]
    #: A tar.gz, or chunks of it, with names relative to ``dir``.
    files: Union[bytes, Iterable[bytes], AsyncIterable[bytes], None]
    #: Where the files go; the image's working directory when left out.
    dir: Optional[str]
    #: Debian packages to install.
    apt_packages: Optional[Sequence[str]]
    #: npm packages to install globally.
    npm_packages: Optional[Sequence[str]]
    #: Default environment of sandboxes made from it.
    env: Optional[Mapping[str, str]]
    #: Identifies everything it is made of: a snapshot that has the same is answered without any work, unless ``force``.
    content_hash: Optional[str]
    force: Optional[bool]
    #: How long to wait for room in the workspace's quota for the build's boxes; not at all when left out.
    wait_for_quota_seconds: Optional[int]


class SnapshotFilter(TypedDict, total=False):
    """Which snapshots to list; nothing is all of the workspace, newest first."""

    #: The public ones of all workspaces instead.
    public: Optional[bool]
    sandbox_id: Optional[str]
    name: Optional[str]
    tag: Optional[str]
    sort: Optional[Literal["created", "name", "size", "files"]]
    order: Optional[Literal["asc", "desc"]]
