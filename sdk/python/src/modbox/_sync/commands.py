# Made from ../_async/commands.py by tools/unasync.py. Change that file, then run make gen.
"""Commands of a sandbox."""

from __future__ import annotations

from signal import Signals
from typing import TYPE_CHECKING, Generator, Dict, List, Mapping, Optional, Sequence, Tuple, Union

from .. import _calls as calls
from .._output import Callback, Collector, OutputChunk, StreamName, TextDecoder, checked, merged, tell
from .._pages import Page
from .._executions import list_executions
from .._schemas import ExecLimits, Execution
from ..errors import CommandError, new_error
from ..models import ExecResult, Program

if TYPE_CHECKING:
    from .client import Modbox


class Commands:
    """The commands of a sandbox. A string is a script for a shell; a list is a program and its arguments."""

    def __init__(self, client: Modbox, sandbox_id: str) -> None:
        self._client = client
        self._sandbox_id = sandbox_id

    def run(
        self,
        command: Union[str, Sequence[str], Program],
        *,
        cwd: Optional[str] = None,
        env: Optional[Mapping[str, str]] = None,
        user: Optional[str] = None,
        stdin: Optional[str] = None,
        timeout_seconds: Optional[int] = None,
        limits: Optional[ExecLimits] = None,
        on_stdout: Optional[Callback[str]] = None,
        on_stderr: Optional[Callback[str]] = None,
        check: bool = False,
        max_output_bytes: Optional[int] = None,
    ) -> ExecResult[str]:
        """Runs a command to its end and returns its exit code and output.

        A string goes to a shell (bash, or sh in an image without bash), a list does not, and a Program is run from its
        file. ``cwd`` is by default the image's working directory; ``env`` is added to the sandbox's environment;
        ``user`` is a name or a uid; ``stdin`` is the command's input. The command is killed after ``timeout_seconds`` (60 when omitted), and ``timed_out``
        of the result is set. ``on_stdout`` and ``on_stderr`` get the output as text as it comes. The result has the
        first ``max_output_bytes`` of each of stdout and stderr (1 MiB when omitted). A command that exceeds one of its
        ``limits`` is killed, and ``limit_exceeded`` of the result names the limit.

        A command that fails raises nothing, unless ``check`` is set: then CommandError, with the result in it. Raises
        ProgramNotFoundError for a program, and FileNotFoundError for a ``cwd``, that does not exist; EndedError for a
        sandbox that has ended; ConnectionError if the connection breaks before the end. An exception, also one of a
        callback, kills the command. The client never sends a command twice.
        """
        in_file = command if isinstance(command, Program) else None
        arguments, script = (None, None) if isinstance(command, Program) else _command(command)
        events = self._client.sandboxes.exec_stream(
            self._sandbox_id,
            arguments,
            shell=script,
            program=in_file,
            cwd=cwd,
            env=env,
            user=user,
            stdin=stdin,
            timeout_seconds=timeout_seconds,
            limits=limits,
        )
        decoder, collector, end, scan = TextDecoder(), Collector(max_output_bytes), None, None
        callbacks = {"stdout": on_stdout, "stderr": on_stderr}
        try:
            for event in events:
                if event.type == "stdout" or event.type == "stderr":
                    collector.add(event.type, event.data)
                    for chunk in decoder.feed(event.type, event.data):
                        tell(callbacks[chunk.stream], chunk.text)
                elif event.type == "started":
                    scan = event.scan
                elif event.type == "exit":
                    end = event
        finally:
            events.close()
        for chunk in decoder.end():
            tell(callbacks[chunk.stream], chunk.text)
        assert end is not None  # the stream raises instead
        result = collector.result(end.exit_code, end.signal, end.timed_out, end.duration_ms, end.limit_exceeded, scan)
        return checked(script or arguments or [in_file.path if in_file else ""], result, check)

    def start(
        self,
        command: Union[str, Sequence[str]],
        *,
        cwd: Optional[str] = None,
        env: Optional[Mapping[str, str]] = None,
        user: Optional[str] = None,
        stdin: bool = False,
        timeout_seconds: Optional[int] = None,
        limits: Optional[ExecLimits] = None,
    ) -> Command:
        """Starts a command in the background and returns as soon as it runs.

        It survives this program: ``get`` finds it again by its id. The arguments are as for ``run``, but with
        ``stdin`` the command reads what ``Command.write`` sends, and it has no time limit when
        ``timeout_seconds`` is omitted, unless the sandbox has ``timeouts.execution_seconds``. Raises CommandError
        for a command that could not be started.
        """
        arguments, script = _command(command)
        execution = self._client.executions.start(
            self._sandbox_id,
            kind="job",
            command=arguments,
            shell=script,
            cwd=cwd,
            env=env,
            user=user,
            stdin=stdin or None,
            timeout_seconds=timeout_seconds,
            limits=limits,
        )
        if execution.state == "failed" and execution.exit_code is None:
            raise CommandError(f"command {execution.id} did not start: {execution.error or 'no reason is known'}")
        return Command(self._client, execution)

    def list(self, *, limit: Optional[int] = None, cursor: Optional[str] = None) -> Page[Execution]:
        """Lists the records of the commands that were started in the background, newest first, ended commands included."""
        return Page(self._client._requester, list_executions(self._sandbox_id, "job"), limit, cursor)

    def get(self, command_id: str) -> Command:
        """Returns a command by its id, also after its end. Raises NotFoundError when the sandbox does not have it."""
        execution = self._client.executions.get(command_id)
        if execution.sandbox_id != self._sandbox_id:
            raise new_error("not_found", f"sandbox {self._sandbox_id} has no command {command_id}")
        return Command(self._client, execution)

    def main(self) -> Command:
        """Returns the image's own command, which started with the sandbox. Raises NotFoundError when there is none, and in a fork."""
        for execution in Page(self._client._requester, list_executions(self._sandbox_id, "main"), 1, None):
            return Command(self._client, execution)
        raise new_error("not_found", f"sandbox {self._sandbox_id} has no record of a main command")


class Command:
    """A command in the background. It goes on whatever happens to this object and to this program."""

    def __init__(self, client: Modbox, execution: Execution) -> None:
        self._client = client
        #: The last known record, which ``refresh`` and ``wait`` renew: ``state``, ``exit_code``, times.
        self.info = execution

    @property
    def id(self) -> str:
        """The id by which ``commands.get`` finds it again."""
        return self.info.id

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.id} {self.info.state}>"

    def refresh(self) -> Execution:
        """Gets the record as it is now."""
        self.info = self._client.executions.get(self.id)
        return self.info

    def output(self) -> Generator[OutputChunk, None, None]:
        """Yields the output from its beginning, until the command ends, in chunks of text with the name of the stream.

        The order between stdout and stderr is about the order in which they came. Leaving the loop has no effect on
        the command. After a broken connection it goes on where it was; raises ConnectionError if that does not help.
        """
        decoder = TextDecoder()
        chunks = merged(self._streams())
        try:
            for stream, data in chunks:
                for chunk in decoder.feed(stream, data):
                    yield chunk
        finally:
            chunks.close()
        for chunk in decoder.end():
            yield chunk

    def wait(
        self, *, timeout_seconds: Optional[float] = None, check: bool = False, max_output_bytes: Optional[int] = None
    ) -> ExecResult[str]:
        """Waits for the end of the command and returns its exit code and output.

        The result has the first ``max_output_bytes`` of each of stdout and stderr (1 MiB when omitted). Raises
        TimeoutError after ``timeout_seconds`` (never when omitted), and the command goes on; CommandError
        if the exit code is not known, as after the end of the sandbox, and with ``check`` for a command that failed.
        """
        self.info = self._client.executions.wait(self.id, timeout_seconds=_FOREVER if timeout_seconds is None else timeout_seconds)
        if self.info.exit_code is None:
            why = self.info.error or "no reason is known"
            raise CommandError(f"command {self.id} is {self.info.state}, and its exit code is not known: {why}")
        collector = Collector(max_output_bytes)
        for name, chunks in self._streams().items():
            try:
                for chunk in chunks:
                    collector.add(name, chunk)
                    if collector.full(name):
                        break
            finally:
                chunks.close()
        if self.info.stdout.truncated:
            collector.truncate("stdout")
        if self.info.stderr.truncated:
            collector.truncate("stderr")
        signal = self.info.exit_code - 128 if 128 < self.info.exit_code <= 128 + 64 else 0
        timed_out = self.info.state == "timeout"
        result = collector.result(self.info.exit_code, signal, timed_out, self.info.duration_ms, self.info.limit_exceeded)
        return checked(self.info.command, result, check)

    def kill(self, signal: Union[int, str, None] = None) -> None:
        """Ends the command, and does not wait for the end: SIGTERM, and SIGKILL 5 seconds later.

        ``signal``, a number or a name such as ``SIGINT``, is sent instead: SIGKILL at once ends it with its children;
        signals other than SIGTERM and SIGKILL need the extra ``modbox[terminal]``, and may leave it running.
        """
        number = Signals.SIGTERM if signal is None else Signals[signal] if isinstance(signal, str) else Signals(signal)
        if number in (Signals.SIGTERM, Signals.SIGKILL):
            self.info = self._client.executions.cancel(self.id, force=number == Signals.SIGKILL or None)
            return
        session = self._client.executions.attach(self.info.sandbox_id, self.id)
        try:
            session.kill(number)
        finally:
            session.close()

    def write(self, text: Union[str, bytes]) -> None:
        """Sends to the stdin of a command that was started with ``stdin``; text as UTF-8. Never sent twice."""
        self._client.streams.write(self._stdin(), text, end=False)

    def close_stdin(self) -> None:
        """Ends the input of the command."""
        self._client.streams.write(self._stdin(), b"", end=True)

    def _stdin(self) -> str:
        if not self.info.stdin_stream_id:
            raise new_error("conflict", f"command {self.id} has no input: start it with stdin=True")
        return self.info.stdin_stream_id

    def _streams(self) -> Dict[StreamName, Generator[bytes, None, None]]:
        """The readers of its output, of which there is one if both streams are the same."""
        ids: Dict[StreamName, str] = {"stdout": self.info.stdout.stream_id}
        if self.info.stderr.stream_id != self.info.stdout.stream_id:
            ids["stderr"] = self.info.stderr.stream_id
        return {name: self._client.streams.read(stream_id, follow=True) for name, stream_id in ids.items() if stream_id}


#: Seconds that are never over.
_FOREVER = 10.0**9


def _command(command: Union[str, Sequence[str]]) -> Tuple[Optional[List[str]], Optional[str]]:
    """The program with its arguments, or the script."""
    if isinstance(command, str):
        return None, command
    return calls.program(command), None
