"""Every call of the API as a value: what to send, and how to read the answer.

Nothing here does I/O, so that the two clients share it.
"""

from __future__ import annotations

import base64
import json
import uuid
from dataclasses import dataclass, field, fields, is_dataclass
from typing import Any, Callable, Dict, Generic, Iterable, List, Literal, Mapping, Optional, Sequence, Tuple, TypeVar, Union
from urllib.parse import quote, urlencode

from ._decode import decode
from ._uploads import upload
from ._schemas import (
    CreateOptions,
    Event,
    ExecLimits,
    ExecutionCommand,
    FileChange,
    FileInfo,
    Host,
    Identity,
    NetworkOptions,
    NewToken,
    Quota,
    Resources,
    SandboxInfo,
    ServerVersion,
    Stats,
    Timeouts,
    SSHKey,
    Token,
    Usage,
)
from .errors import ModboxError, SandboxFailedError, new_error
from .models import AnyExecResult, ExecEvent, ExecResult, Program

T = TypeVar("T")

#: The longest wait asked for in one request. The server allows 600, but what is
#: in between may give up on silence much earlier; longer waits are several requests.
MAX_WAIT_SECONDS = 240
#: How much longer than a wait the client waits for its answer.
WAIT_SLACK_SECONDS = 15.0
#: The server's own default.
DEFAULT_EXEC_SECONDS = 60

#: The client's own time limit.
DEFAULT = object()


@dataclass
class Call(Generic[T]):
    """One request, and how its answer is read."""

    method: str
    path: str
    parse: Callable[[bytes], T]
    #: Sending it twice has the effect of sending it once; only then it is tried again.
    repeatable: bool
    json: Any = None
    #: Sent as it is, instead of json.
    content: Any = None
    headers: Dict[str, str] = field(default_factory=dict)
    #: Seconds without an answer; None is for ever.
    timeout: Any = DEFAULT
    #: Made in nobody's name.
    anonymous: bool = False
    #: Called with the HTTP status of the answer.
    on_status: Optional[Callable[[int], None]] = None


def _into(cls: Any) -> Callable[[bytes], Any]:
    return lambda content: decode(cls, _load(content))


def _items(cls: Any, key: str = "items") -> Callable[[bytes], Any]:
    return lambda content: [decode(cls, item) for item in _load(content)[key]]


def _nothing(_: bytes) -> None:
    return None


def _raw(content: bytes) -> bytes:
    return content


def _load(content: Union[str, bytes]) -> Any:
    value = json.loads(content)
    if not isinstance(value, dict):
        raise ValueError("the answer is not an object")
    return value


def _body(**members: Any) -> Dict[str, Any]:
    return {name: value for name, value in members.items() if value is not None}


def _query(base: str, pairs: Iterable[Tuple[str, Any]] = (), /, **members: Any) -> str:
    sent = [(k, v) for k, v in [*pairs, *members.items()] if v is not None]
    text = urlencode([(k, ("true" if v else "false") if isinstance(v, bool) else v) for k, v in sent])
    return f"{base}?{text}" if text else base


def _segment(value: str) -> str:
    # URLs have no way to say these: "." and ".." are resolved even when they are encoded.
    if value in ("", ".", ".."):
        raise new_error("invalid", f'"{value}" is not the id or name of anything')
    return quote(value, safe="")


def sandbox_path(ref: str, call: str = "") -> str:
    return f"/v1/sandboxes/{_segment(ref)}{call}"


# Lists.


@dataclass(frozen=True)
class Listing(Generic[T]):
    """A list: where it is, what selects its items, and how one of them is read."""

    path: str
    read: Callable[[Any], T]
    pairs: Tuple[Tuple[str, Any], ...] = ()
    #: Asked for in nobody's name.
    anonymous: bool = False

    def page(self, limit: Optional[int], cursor: Optional[str]) -> Call[Tuple[List[T], Optional[str]]]:
        """The call that answers the items of a page, and the cursor of the next one."""

        def parse(content: bytes) -> Tuple[List[T], Optional[str]]:
            wire = _load(content)
            return [self.read(item) for item in wire["items"]], wire.get("next_cursor") or None

        path = _query(self.path, self.pairs, limit=limit, cursor=cursor)
        return Call("GET", path, parse, repeatable=True, anonymous=self.anonymous)


def listing(cls: Any, path: str, pairs: Iterable[Tuple[str, Any]] = (), /, **members: Any) -> Listing[Any]:
    """A list of objects of a class."""
    return Listing(path, lambda wire: decode(cls, wire), (*pairs, *members.items()))


# Sandboxes.


def known(options: Any, given: Mapping[str, Any]) -> None:
    """Raises TypeError, as Python does, when an argument is none of the options."""
    unknown = set(given) - set(options.__annotations__)
    if unknown:
        raise TypeError(f"unexpected keyword arguments: {', '.join(sorted(unknown))}")


#: The options that are objects: a dict must have members of the class.
_OBJECTS: Dict[str, Any] = {"resources": Resources, "timeouts": Timeouts, "network": NetworkOptions, "quota": Quota, "limits": ExecLimits, "program": Program}


def encoded(value: Any, name: str = "") -> Any:
    """A value that a caller gave, as the wire has it; ``name`` is the option's name.

    Raises TypeError for a dict with a key that the option does not have.
    """
    if isinstance(value, Mapping) and name in _OBJECTS:
        members = _OBJECTS[name].__annotations__
        for key in value:
            if key not in members:
                raise TypeError(f"{name} has no member {key!r}; it has {', '.join(members)}")
        return _body(**{key: encoded(member) for key, member in value.items()})
    if is_dataclass(value):
        return _body(**{f.name: encoded(getattr(value, f.name)) for f in fields(value)})
    if isinstance(value, (str, bytes, Mapping)):
        return value
    return list(value) if isinstance(value, Sequence) else value


def options_body(options: Any, given: Mapping[str, Any], without: Sequence[str] = ()) -> Dict[str, Any]:
    """Options as the body of a request, without the options that are None and the names in ``without``."""
    known(options, given)
    return _body(**{name: encoded(value, name) for name, value in given.items() if name not in without})


def program(command: Optional[Sequence[str]]) -> Optional[List[str]]:
    """A program and its arguments; refuses a string, which would be one program for each of its letters."""
    if isinstance(command, (str, bytes)):
        raise TypeError(f"command is a list of a program and its arguments, not {command!r}: pass a script as shell=…")
    return None if command is None else list(command)


def listed(values: Optional[Sequence[str]]) -> Optional[List[str]]:
    return None if values is None else list(values)


def _execution_file(path: str, content: Union[str, bytes]) -> Dict[str, str]:
    data = content.encode() if isinstance(content, str) else content
    return {"path": path, "content": base64.b64encode(data).decode()}


def execution_body(c: ExecutionCommand) -> Dict[str, Any]:
    """An ExecutionCommand as the wire has it."""
    program(c.get("command"))
    body = options_body(ExecutionCommand, c, without=("files", "tty"))
    files, tty = c.get("files"), c.get("tty")
    return _body(
        **body,
        files=None if files is None else [_execution_file(path, content) for path, content in files.items()],
        tty=None if tty is None else {"rows": tty[0], "cols": tty[1]},
    )


def create(o: CreateOptions, on_status: Optional[Callable[[int], None]] = None) -> Call[SandboxInfo]:
    command = o.get("command")
    waits = (o.get("wait_seconds") or 0) + (o.get("wait_for_quota_seconds") or 0)
    return Call(
        "POST",
        "/v1/sandboxes",
        _into(SandboxInfo),
        repeatable=True,
        json=_body(
            **options_body(CreateOptions, o, without=("command", "idempotency_key")),
            command=command and execution_body(command),
        ),
        headers={"idempotency-key": o.get("idempotency_key") or str(uuid.uuid4())},
        timeout=waits + WAIT_SLACK_SECONDS if waits else DEFAULT,
        on_status=on_status,
    )


def get(ref: str) -> Call[SandboxInfo]:
    return Call("GET", sandbox_path(ref), _into(SandboxInfo), repeatable=True)


def list_sandboxes(
    states: Sequence[str], name: Optional[str], labels: Optional[Mapping[str, str]], snapshot_id: Optional[str]
) -> Listing[SandboxInfo]:
    pairs = [("state", s) for s in states] + [("label", f"{k}={v}") for k, v in (labels or {}).items()]
    return listing(SandboxInfo, "/v1/sandboxes", pairs, name=name, snapshot_id=snapshot_id)


def delete(ref: str) -> Call[SandboxInfo]:
    return Call("DELETE", sandbox_path(ref), _into(SandboxInfo), repeatable=True)


def wait(ref: str, state: str, seconds: int) -> Call[SandboxInfo]:
    path = _query(sandbox_path(ref, "/wait"), state=state, timeout_seconds=seconds)
    return Call("GET", path, _into(SandboxInfo), repeatable=True, timeout=seconds + WAIT_SLACK_SECONDS)


def waited(sandbox: SandboxInfo, ref: str, state: str, over: bool, timeout_seconds: float) -> bool:
    """Whether a wait is done; raises when it never will be."""
    if sandbox.state == state:
        return True
    if sandbox.state == "failed":
        raise SandboxFailedError(sandbox)
    if sandbox.state == "destroyed":
        why = sandbox.cause.message if sandbox.cause else "no reason is known"
        raise new_error("ended", f"sandbox {ref} is {sandbox.state}: {why}")
    if over:
        raise new_error("timeout", f"sandbox {ref} is still {sandbox.state} after {timeout_seconds:g} s")
    return False


def command_body(
    command: Optional[Sequence[str]],
    shell: Optional[str],
    cwd: Optional[str],
    env: Optional[Mapping[str, str]],
    user: Optional[str],
    stdin: Optional[str],
    timeout_seconds: Optional[int],
    limits: Optional[ExecLimits],
    in_file: Optional[Program] = None,
) -> Dict[str, Any]:
    return _body(
        command=program(command),
        shell=shell,
        program=encoded(in_file, "program"),
        cwd=cwd,
        env=env,
        user=user,
        stdin=stdin,
        timeout_seconds=timeout_seconds,
        limits=encoded(limits, "limits"),
    )


def execute(
    ref: str, body: Dict[str, Any], max_output_bytes: Optional[int], output: Literal["text", "bytes"]
) -> Call[AnyExecResult]:
    def parse(content: bytes) -> AnyExecResult:
        wire = _load(content)
        if output == "bytes":
            wire["stdout"], wire["stderr"] = base64.b64decode(wire["stdout"]), base64.b64decode(wire["stderr"])
        result: AnyExecResult = decode(ExecResult, wire)
        return result

    return Call(
        "POST",
        sandbox_path(ref, "/exec"),
        parse,
        repeatable=False,
        json={**body, **_body(max_output_bytes=max_output_bytes, encoding="base64" if output == "bytes" else None)},
        timeout=(body.get("timeout_seconds") or DEFAULT_EXEC_SECONDS) + WAIT_SLACK_SECONDS,
    )


def execute_stream(ref: str, body: Dict[str, Any]) -> Call[bytes]:
    # A command may be silent for as long as it likes.
    return Call("POST", sandbox_path(ref, "/exec/stream"), _raw, repeatable=False, json=body, timeout=None)


def exec_event(message: Union[str, bytes]) -> Optional[ExecEvent]:
    """Reads a message about a command under way; None for one of a newer server. Raises the server's error."""
    wire = _load(message)
    kind = wire.get("type")
    if kind == "error":
        raise new_error(wire.get("code") or "internal", wire.get("message") or "the server gave no reason")
    if kind == "exit" and wire.get("exit_code") is None:
        raise new_error("bad_response", "the server reported an exit without its code")  # it is never made up
    return decode(ExecEvent, wire) if kind in ("started", "stdout", "stderr", "exit") else None


def broken(why: object = "") -> ModboxError:
    """That a connection ended before the command's end was known."""
    return new_error("connection", f"the connection broke before the command's end was known{f': {why}' if why else ''}")


class EventReader:
    """Reads the lines of an exec stream from chunks that do not respect the lines."""

    def __init__(self) -> None:
        self.exited = False
        self._rest = b""

    def feed(self, chunk: bytes) -> List[ExecEvent]:
        """Returns the events that are complete; raises the server's error."""
        *lines, self._rest = (self._rest + chunk).split(b"\n")
        events = []
        for line in lines:
            event = exec_event(line)
            if event is not None:
                self.exited = self.exited or event.type == "exit"
                events.append(event)
        return events

    def end(self) -> None:
        """Says that the stream is over; raises unless the exit was seen. An exit is never made up."""
        if not self.exited:
            raise broken()


def events(ref: str, after_seq: Optional[int], order: Optional[str]) -> Listing[Event]:
    return listing(Event, sandbox_path(ref, "/events"), after_seq=after_seq, order=order)


def stats(ref: str) -> Call[Stats]:
    return Call("GET", sandbox_path(ref, "/stats"), _into(Stats), repeatable=True)


def usage(ref: str) -> Call[Usage]:
    return Call("GET", sandbox_path(ref, "/usage"), _into(Usage), repeatable=True)


def update(ref: str, ttl_seconds: Optional[int], checkpoint_interval_seconds: Optional[int]) -> Call[SandboxInfo]:
    body = _body(ttl_seconds=ttl_seconds, checkpoint_interval_seconds=checkpoint_interval_seconds)
    return Call("PATCH", sandbox_path(ref), _into(SandboxInfo), repeatable=True, json=body)


def set_network(
    ref: str,
    enabled: Optional[bool],
    ports: Optional[Sequence[int]],
    allow_out: Optional[Sequence[str]] = None,
    deny_out: Optional[Sequence[str]] = None,
    request_host: Optional[str] = None,
    https_ports: Optional[Sequence[int]] = None,
) -> Call[SandboxInfo]:
    lists = {"ports": ports, "allow_out": allow_out, "deny_out": deny_out, "https_ports": https_ports}
    body = _body(enabled=enabled, request_host=request_host, **{name: None if values is None else list(values) for name, values in lists.items()})
    return Call("PATCH", sandbox_path(ref, "/network"), _into(SandboxInfo), repeatable=True, json=body)


# Files.


def read_file(ref: str, path: str) -> Call[bytes]:
    return Call("GET", _query(sandbox_path(ref, "/files"), path=path), _raw, repeatable=True)


def write_file(
    ref: str,
    path: str,
    content: Any,
    mode: Optional[str],
    parents: Optional[bool],
    user: Optional[str],
    metadata: Optional[Mapping[str, str]],
) -> Call[FileInfo]:
    data, again = upload(content)
    attributes = json.dumps(dict(metadata)) if metadata else None
    return Call(
        "PUT",
        _query(sandbox_path(ref, "/files"), path=path, mode=mode, parents=parents, user=user, metadata=attributes),
        _into(FileInfo),
        repeatable=again,
        content=data,
        headers={"content-type": "application/octet-stream"},
        timeout=None,
    )


def list_files(ref: str, path: str) -> Listing[FileInfo]:
    return listing(FileInfo, sandbox_path(ref, "/files/list"), path=path)


def stat_file(ref: str, path: str) -> Call[FileInfo]:
    return Call("GET", _query(sandbox_path(ref, "/files/stat"), path=path), _into(FileInfo), repeatable=True)


def diff(ref: str, path: Optional[str]) -> Listing[FileChange]:
    return listing(FileChange, sandbox_path(ref, "/diff"), path=path)


def original_file(ref: str, path: str) -> Call[bytes]:
    return Call("GET", _query(sandbox_path(ref, "/diff/original"), path=path), _raw, repeatable=True)


# A second try of the following could find its own work and fail.


def mkdir(ref: str, path: str, mode: Optional[str], parents: Optional[bool], user: Optional[str]) -> Call[FileInfo]:
    body = _body(path=path, mode=mode, parents=parents, user=user)
    return Call("POST", sandbox_path(ref, "/files/mkdir"), _into(FileInfo), repeatable=False, json=body)


def move(ref: str, source: str, to: str, overwrite: Optional[bool]) -> Call[FileInfo]:
    body = {"from": source, "to": to, **_body(overwrite=overwrite)}
    return Call("POST", sandbox_path(ref, "/files/move"), _into(FileInfo), repeatable=False, json=body)


def delete_file(ref: str, path: str, recursive: Optional[bool]) -> Call[None]:
    return Call("DELETE", _query(sandbox_path(ref, "/files"), path=path, recursive=recursive), _nothing, repeatable=False)


# Tokens, and who we are.


def create_token(
    description: Optional[str], expires_in_seconds: Optional[int], scopes: Optional[Sequence[str]], workspace_only: Optional[bool]
) -> Call[NewToken]:
    body = _body(
        description=description, expires_in_seconds=expires_in_seconds, scopes=listed(scopes), workspace_only=workspace_only
    )
    # Not repeatable: a second try would leave a token that nobody knows.
    return Call("POST", "/v1/tokens", _into(NewToken), repeatable=False, json=body)


def list_tokens() -> Listing[Token]:
    return listing(Token, "/v1/tokens")


def revoke_token(token_id: str) -> Call[None]:
    return Call("DELETE", f"/v1/tokens/{_segment(token_id)}", _nothing, repeatable=False)


def add_ssh_key(
    public_key: str, name: Optional[str], expires_in_seconds: Optional[int], workspace_only: Optional[bool]
) -> Call[SSHKey]:
    body = _body(public_key=public_key, name=name, expires_in_seconds=expires_in_seconds, workspace_only=workspace_only)
    return Call("POST", "/v1/ssh-keys", _into(SSHKey), repeatable=False, json=body)


def list_ssh_keys() -> Listing[SSHKey]:
    return listing(SSHKey, "/v1/ssh-keys")


def delete_ssh_key(key: str) -> Call[None]:
    return Call("DELETE", f"/v1/ssh-keys/{_segment(key)}", _nothing, repeatable=False)


def whoami() -> Call[Identity]:
    return Call("GET", "/v1/whoami", _into(Identity), repeatable=True)


def host() -> Call[Host]:
    return Call("GET", "/v1/host", _into(Host), repeatable=True)


def version() -> Call[ServerVersion]:
    return Call("GET", "/v1/version", _into(ServerVersion), repeatable=True)
