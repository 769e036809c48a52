# Made from ../_async/sandboxes.py by tools/unasync.py. Change that file, then run make gen.
"""Sandboxes."""

from __future__ import annotations

import math
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Generator, Iterator, List, Literal, Mapping, Optional, Sequence, Tuple, overload

from .. import _calls as calls, terminals
from .._calls import MAX_WAIT_SECONDS, EventReader
from .._pages import Page
from .._schemas import CreateOptions, Event, ExecLimits, SandboxInfo, SandboxState, Stats, Usage
from ..models import AnyExecResult, ExecEvent, ExecResult, Program
from ..terminals import Session
from .code import Code, Contexts
from .desktop import Desktop
from .files import Files
from .ports import Ports
from .requester import Requester
from .states import Checkpoints, States

if TYPE_CHECKING:
    from typing_extensions import Unpack


class Sandboxes(States, Code):
    """The sandboxes of a workspace; ``ref`` is a sandbox's id or name.

    One that does not exist raises NotFoundError.
    """

    def __init__(self, requester: Requester) -> None:
        self._requester = requester
        #: Files of a sandbox.
        self.files = Files(requester)
        #: Saved states of a sandbox.
        self.checkpoints = Checkpoints(requester)
        #: Interpreters of a sandbox that keep their state.
        self.contexts = Contexts(requester)
        #: Published ports of a sandbox.
        self.ports = Ports(requester)

    def desktop(self, ref: str) -> Desktop:
        """Returns the screen of a sandbox; nothing is sent yet."""
        return Desktop(self._requester, ref)

    def create(self, **options: Unpack[CreateOptions]) -> SandboxInfo:
        """Makes a sandbox, described by the members of CreateOptions, or answers the live one of the same request.

        Without ``wait_seconds`` it is usually still provisioning when this returns, and a command would be refused
        with ConflictError. With ``wait_seconds`` it runs, or it has failed: this call raises nothing then, check
        ``state`` and ``cause``. Sandbox.create waits, and raises the reason. Raises ConflictError when a
        different live sandbox has the name, and QuotaError when the quota has no room.
        """
        return (self._create(options))[0]

    def _create(self, options: CreateOptions) -> Tuple[SandboxInfo, bool]:
        """As create, and whether this call made the sandbox; the live one of an equal request may be another program's."""
        statuses: List[int] = []
        info = self._requester.perform(calls.create(options, statuses.append))
        return info, statuses[-1] == 201

    @contextmanager
    def temporary(self, **options: Unpack[CreateOptions]) -> Iterator[SandboxInfo]:
        """Makes a sandbox for a block of ``with``: it runs when the block begins, and is deleted when it ends.

        Raises as wait does, when it does not run within ``wait_seconds``, by default 60.
        """
        wait_seconds = options.pop("wait_seconds", None)
        sandbox = self.create(**options)
        try:
            yield self.wait(sandbox.id, timeout_seconds=wait_seconds or 60)
        finally:
            self.delete(sandbox.id)

    def get(self, ref: str) -> SandboxInfo:
        """Returns a sandbox; ended ones stay visible."""
        return self._requester.perform(calls.get(ref))

    def list(
        self,
        *,
        states: Sequence[SandboxState] = (),
        name: Optional[str] = None,
        labels: Optional[Mapping[str, str]] = None,
        snapshot_id: Optional[str] = None,
        limit: Optional[int] = None,
        cursor: Optional[str] = None,
    ) -> Page[SandboxInfo]:
        """Lists sandboxes, newest first; without ``states`` those that have not ended."""
        return Page(self._requester, calls.list_sandboxes(states, name, labels, snapshot_id), limit, cursor)

    def delete(self, ref: str) -> SandboxInfo:
        """Deletes a sandbox and returns its last state when nothing of it is left; an ended sandbox as it is."""
        return self._requester.perform(calls.delete(ref))

    def wait(
        self, ref: str, *, state: Literal["running", "paused", "destroyed", "failed"] = "running", timeout_seconds: float = 60
    ) -> SandboxInfo:
        """Returns as soon as the sandbox is in the state.

        Raises EndedError when it ended instead, TimeoutError when it did not get there in time.
        """
        end = time.monotonic() + timeout_seconds
        while True:
            seconds = min(MAX_WAIT_SECONDS, max(1, math.ceil(end - time.monotonic())))
            sandbox = self._requester.perform(calls.wait(ref, state, seconds))
            if calls.waited(sandbox, ref, state, time.monotonic() >= end, timeout_seconds):
                return sandbox

    @overload
    def exec(
        self,
        ref: str,
        command: Optional[Sequence[str]] = None,
        *,
        shell: Optional[str] = None,
        program: Optional[Program] = None,
        cwd: Optional[str] = None,
        env: Optional[Mapping[str, str]] = None,
        user: Optional[str] = None,
        stdin: Optional[str] = None,
        timeout_seconds: Optional[int] = None,
        limits: Optional[ExecLimits] = None,
        max_output_bytes: Optional[int] = None,
        output: Literal["text"] = "text",
    ) -> ExecResult[str]: ...

    @overload
    def exec(
        self,
        ref: str,
        command: Optional[Sequence[str]] = None,
        *,
        shell: Optional[str] = None,
        program: Optional[Program] = None,
        cwd: Optional[str] = None,
        env: Optional[Mapping[str, str]] = None,
        user: Optional[str] = None,
        stdin: Optional[str] = None,
        timeout_seconds: Optional[int] = None,
        limits: Optional[ExecLimits] = None,
        max_output_bytes: Optional[int] = None,
        output: Literal["bytes"],
    ) -> ExecResult[bytes]: ...

    def exec(
        self,
        ref: str,
        command: Optional[Sequence[str]] = None,
        *,
        shell: Optional[str] = None,
        program: Optional[Program] = None,
        cwd: Optional[str] = None,
        env: Optional[Mapping[str, str]] = None,
        user: Optional[str] = None,
        stdin: Optional[str] = None,
        timeout_seconds: Optional[int] = None,
        limits: Optional[ExecLimits] = None,
        max_output_bytes: Optional[int] = None,
        output: Literal["text", "bytes"] = "text",
    ) -> AnyExecResult:
        """Runs a command to its end: exactly one of ``command`` (a program with arguments), ``shell`` (a script) and ``program``.

        A string as ``command`` raises TypeError. A command that fails is no error: look at ``exit_code``. It is ended after
        ``timeout_seconds`` (default 60, at most 3600). Of each of stdout and stderr
        ``max_output_bytes`` are kept (default 1 MiB, at most 16 MiB). If it exceeds one of its ``limits``, it is killed, and
        ``limit_exceeded`` names the limit. It is never sent twice.
        What lies between may give up after minutes of silence: ``exec_stream`` is for long commands.
        """
        body = calls.command_body(command, shell, cwd, env, user, stdin, timeout_seconds, limits, program)
        return self._requester.perform(calls.execute(ref, body, max_output_bytes, output))

    def exec_stream(
        self,
        ref: str,
        command: Optional[Sequence[str]] = None,
        *,
        shell: Optional[str] = None,
        program: Optional[Program] = None,
        cwd: Optional[str] = None,
        env: Optional[Mapping[str, str]] = None,
        user: Optional[str] = None,
        stdin: Optional[str] = None,
        timeout_seconds: Optional[int] = None,
        limits: Optional[ExecLimits] = None,
    ) -> Generator[ExecEvent, None, None]:
        """Runs a command and gives its output as it comes, in bytes; the last event is ``exit``.

        The command starts with the first event asked for. Closing the iterator kills it: use
        ``contextlib.closing`` where a loop may be left early. Raises when the end of the
        command is not known.
        """
        body = calls.command_body(command, shell, cwd, env, user, stdin, timeout_seconds, limits, program)
        chunks = self._requester.stream(calls.execute_stream(ref, body))
        reader = EventReader()
        try:
            for chunk in chunks:
                for event in reader.feed(chunk):
                    yield event
        finally:
            chunks.close()
        reader.end()

    def attach(
        self,
        ref: str,
        command: Optional[Sequence[str]] = None,
        *,
        shell: Optional[str] = None,
        cwd: Optional[str] = None,
        env: Optional[Mapping[str, str]] = None,
        user: Optional[str] = None,
        timeout_seconds: Optional[int] = None,
        limits: Optional[ExecLimits] = None,
        tty: Optional[Tuple[int, int]] = None,
        stdin: Optional[bool] = None,
    ) -> Session:
        """Runs a command and stays connected to it: input, terminal, signals. Needs the extra ``modbox[terminal]``.

        With ``tty``, a terminal of so many rows and columns, everything is on stdout. Without it and
        ``stdin`` the command has no input. Closing the session kills the command. Never sent twice.
        """
        body = calls.command_body(command, shell, cwd, env, user, None, timeout_seconds, limits)
        return self._requester.connect(terminals.attach(ref, body, tty, stdin))

    def events(
        self,
        ref: str,
        *,
        after_seq: Optional[int] = None,
        order: Optional[Literal["asc", "desc"]] = None,
        limit: Optional[int] = None,
        cursor: Optional[str] = None,
    ) -> Page[Event]:
        """Lists what happened to a sandbox, oldest first unless asked otherwise; with ``after_seq`` only what came later."""
        return Page(self._requester, calls.events(ref, after_seq, order), limit, cursor)

    def stats(self, ref: str) -> Stats:
        """Measures a running sandbox now."""
        return self._requester.perform(calls.stats(ref))

    def usage(self, ref: str) -> Usage:
        """What a sandbox has used in all, also after its end."""
        return self._requester.perform(calls.usage(ref))

    def update(
        self, ref: str, *, ttl_seconds: Optional[int] = None, checkpoint_interval_seconds: Optional[int] = None
    ) -> SandboxInfo:
        """Changes settings of a sandbox; None leaves a setting as it is.

        The sandbox ends ``ttl_seconds`` from now; 0 removes the limit.
        ``checkpoint_interval_seconds`` 0 switches automatic checkpoints off and deletes the automatic checkpoint.
        """
        return self._requester.perform(calls.update(ref, ttl_seconds, checkpoint_interval_seconds))

    def set_network(
        self,
        ref: str,
        *,
        enabled: Optional[bool] = None,
        ports: Optional[Sequence[int]] = None,
        allow_out: Optional[Sequence[str]] = None,
        deny_out: Optional[Sequence[str]] = None,
        request_host: Optional[str] = None,
        https_ports: Optional[Sequence[int]] = None,
    ) -> SandboxInfo:
        """Changes the network of a running or paused sandbox; None leaves it as it is.

        Connections that are not allowed any more are cut. ``ports`` replaces the list of published ports,
        and a port that stays in it keeps its URL. ``allow_out`` replaces the destinations that the sandbox
        may reach: IPv4 addresses, ranges, and names such as ``example.com`` and ``*.example.com``;
        ``deny_out`` the addresses and ranges that it may not reach. ``request_host`` is the host that its
        servers see in requests, with ``${PORT}`` for the port and "" for the host of the URL;
        ``https_ports`` replaces the ports whose servers speak HTTPS.
        """
        return self._requester.perform(calls.set_network(ref, enabled, ports, allow_out, deny_out, request_host, https_ports))
