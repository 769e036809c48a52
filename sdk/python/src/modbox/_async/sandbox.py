"""The object for one sandbox."""

from __future__ import annotations

import time
from types import TracebackType
from typing import TYPE_CHECKING, List, Mapping, Optional, Sequence, Type, Union

from .._default import default_async_client
from .._output import AsyncCallback, tell_async
from .._pages import AsyncPages
from .._schemas import CodeContext, CodeScan, CreateOptions, Event, ExecLimits, PortAccess, SandboxInfo, SandboxState, Snapshot
from .._stateful import Memory
from ..code import CodeCollector, CodeOutput, CodeResult
from ..errors import EndedError, SandboxFailedError, TimeoutError, new_error
from ..models import ExecResult, Program
from .client import AsyncModbox
from .commands import AsyncCommands
from .sandboxfiles import AsyncSandboxFiles
from .sandboxparts import AsyncSandboxCheckpoints, AsyncSandboxContexts, AsyncSandboxPorts

if TYPE_CHECKING:
    from typing_extensions import Unpack

#: The life of a sandbox that is created without ttl_seconds.
_TTL_SECONDS = 900
#: How long create and connect wait for a sandbox to run.
_WAIT_SECONDS = 60
#: How long create waits without wait_seconds if the server has to build or pull the image.
_IMAGE_WAIT_SECONDS = 1800
#: A wait in the request that creates a sandbox; longer waits are requests of their own.
_FIRST_WAIT_SECONDS = 60
#: The time between two looks at what the server does for the image.
_PROGRESS_SECONDS = 5
#: A sandbox that fails is first destroyed, with the cause in its record.
_ENDED = ("destroying", "destroyed", "failed")
#: The states of a sandbox of the same name and request that was there before.
_RESUMABLE = ("pausing", "paused", "resuming")


class AsyncSandbox:
    """A sandbox: a Linux machine of its own for code that nobody has reviewed.

    ``create`` makes a sandbox, ``connect`` finds it again. The object is a context manager, whose end deletes the
    sandbox. ``client`` of ``create``, ``connect`` and ``list`` is by default a client for the environment's MODBOX_URL
    and MODBOX_API_TOKEN. ``client.sandboxes`` has the calls that this object does not have.
    """

    def __init__(self, client: AsyncModbox, info: SandboxInfo) -> None:
        #: The client that makes the calls.
        self.client = client
        #: The last known record; ``refresh`` gets it as it is now.
        self.info = info
        #: Files: read, write, list, watch, archives.
        self.files = AsyncSandboxFiles(client.sandboxes.files, info.id)
        #: Commands in the foreground and in the background.
        self.commands = AsyncCommands(client, info.id)
        #: Interpreters that keep their state, for ``run_code``.
        self.contexts = AsyncSandboxContexts(client.sandboxes.contexts, info.id)
        #: Ports with URLs of their own.
        self.ports = AsyncSandboxPorts(client.sandboxes.ports, info.id)
        #: The screen, if the sandbox has one, as the image ``modbox/sandbox`` does.
        self.desktop = client.sandboxes.desktop(info.id)
        #: Saved states, memory included.
        self.checkpoints = AsyncSandboxCheckpoints(client.sandboxes.checkpoints, info.id)

    @classmethod
    async def create(
        cls,
        *,
        client: Optional[AsyncModbox] = None,
        on_progress: Optional[AsyncCallback[Event]] = None,
        **options: Unpack[CreateOptions],
    ) -> AsyncSandbox:
        """Creates a sandbox, described by the members of CreateOptions, and returns it when it runs.

        Without ``image`` it has the workspace's default image. It ends by itself ``ttl_seconds`` after the request,
        900 (15 minutes) when omitted, unless ``set_timeout`` gives it another time; 0 is no limit. When a sandbox of
        the ``name`` was made by the same request, ``create`` returns it, resumed if it is paused.

        ``on_progress`` gets each event of the type ``image_building``: the server builds or pulls the sandbox's image,
        or installs packages. Its ``message`` is for people; its ``data`` has ``image``, ``phase`` and ``detail``.

        Raises SandboxFailedError, with the cause, when it fails; TimeoutError when it does not run
        after ``wait_seconds``, and deletes it, unless an equal request may have made it. When omitted, these are 60, and 1,800 (30 minutes) if the server has to build or pull
        the image; with 0 ``create`` returns at once, before the sandbox runs. Raises QuotaError when the quota has no
        room; ConflictError when a different live sandbox has the ``name``; ValidationError for a wrong option.
        """
        client = client or default_async_client()
        wait_seconds = options.get("wait_seconds")
        limit = _WAIT_SECONDS if wait_seconds is None else wait_seconds
        first = min(limit, _PROGRESS_SECONDS if on_progress else _FIRST_WAIT_SECONDS)
        options["wait_seconds"] = first
        if options.get("ttl_seconds") is None:
            options["ttl_seconds"] = _TTL_SECONDS
        info, made = await client.sandboxes._create(options)
        if info.state == "provisioning" and limit > 0:
            info = await cls._started(client, info, made, wait_seconds, limit - first, on_progress)
        if info.state in _ENDED and (info.cause is None or info.cause.code != "completed"):
            raise SandboxFailedError(info)
        if info.state in _RESUMABLE:
            info = await cls._resumed(client, info)
        return cls(client, info)

    @classmethod
    async def _started(
        cls,
        client: AsyncModbox,
        info: SandboxInfo,
        made: bool,
        wait_seconds: Optional[int],
        left: float,
        on_progress: Optional[AsyncCallback[Event]],
    ) -> SandboxInfo:
        """Waits for a new sandbox to run or to fail; deletes it when that takes too long, if this call made it."""
        limit = _WAIT_SECONDS if wait_seconds is None else wait_seconds
        end = time.monotonic() + left
        looking = wait_seconds is None or on_progress is not None
        steps: List[Event] = []
        try:
            while True:
                if looking:
                    new = await cls._image_events(client, info.id, steps[-1].seq if steps else 0)
                    if new and not steps and wait_seconds is None:
                        end += _IMAGE_WAIT_SECONDS - limit
                        limit = _IMAGE_WAIT_SECONDS
                    steps += new
                    for event in new:
                        await tell_async(on_progress, event)
                left = end - time.monotonic()
                try:
                    seconds = min(max(left, 0), _PROGRESS_SECONDS if looking else _FIRST_WAIT_SECONDS)
                    return await client.sandboxes.wait(info.id, timeout_seconds=seconds)
                except EndedError:
                    return await client.sandboxes.get(info.id)
                except TimeoutError as err:
                    if left <= 0:
                        doing = f"; {steps[-1].message}" if steps else ""
                        kept = "was deleted" if made else "was not deleted, because an equal request may have made it"
                        message = f"sandbox {info.name} did not run within {limit} s and {kept}; wait_seconds sets the limit{doing}"
                        raise new_error("timeout", message) from err
        except BaseException:
            if made:
                await client.sandboxes.delete(info.id)
            raise

    @classmethod
    async def _image_events(cls, client: AsyncModbox, sandbox_id: str, after_seq: int) -> List[Event]:
        """Returns the later events about the making of a sandbox's image."""
        return [e async for e in client.sandboxes.events(sandbox_id, after_seq=after_seq) if e.type == "image_building"]

    @classmethod
    async def connect(cls, id_or_name: str, *, client: Optional[AsyncModbox] = None) -> AsyncSandbox:
        """Returns the sandbox with an id or name when it runs; a paused sandbox is resumed.

        Raises NotFoundError when there is none, EndedError when it has ended, TimeoutError when it does not run
        within 60 seconds.
        """
        client = client or default_async_client()
        info = await client.sandboxes.get(id_or_name)
        if info.state == "destroying":
            raise new_error("ended", f"sandbox {id_or_name} is being deleted")
        return cls(client, await cls._resumed(client, info))

    @classmethod
    async def _resumed(cls, client: AsyncModbox, info: SandboxInfo) -> SandboxInfo:
        """Returns the record of the sandbox when it runs."""
        if info.state == "pausing":
            info = await client.sandboxes.wait(info.id, state="paused", timeout_seconds=_WAIT_SECONDS)
        if info.state == "paused":
            info = await client.sandboxes.resume(info.id)
        if info.state != "running":
            info = await client.sandboxes.wait(info.id, timeout_seconds=_WAIT_SECONDS)
        return info

    @classmethod
    def list(
        cls,
        *,
        client: Optional[AsyncModbox] = None,
        states: Sequence[SandboxState] = (),
        name: Optional[str] = None,
        labels: Optional[Mapping[str, str]] = None,
        snapshot_id: Optional[str] = None,
        limit: Optional[int] = None,
        cursor: Optional[str] = None,
    ) -> AsyncPages[SandboxInfo]:
        """Lists the records of sandboxes, newest first; without ``states`` the sandboxes that have not ended."""
        client = client or default_async_client()
        return client.sandboxes.list(
            states=states, name=name, labels=labels, snapshot_id=snapshot_id, limit=limit, cursor=cursor
        )

    @property
    def id(self) -> str:
        """Its identifier."""
        return self.info.id

    @property
    def name(self) -> str:
        """Its name: the caller's, or one that the server chose."""
        return self.info.name

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name} {self.info.state} {self.id}>"

    async def __aenter__(self) -> AsyncSandbox:
        return self

    async def __aexit__(
        self, kind: Optional[Type[BaseException]], err: Optional[BaseException], trace: Optional[TracebackType]
    ) -> None:
        await self.delete()

    async def refresh(self) -> SandboxInfo:
        """Gets the record as it is now; the record of an ended sandbox has its ``cause``."""
        self.info = await self.client.sandboxes.get(self.id)
        return self.info

    async def run(
        self,
        command: Union[str, Sequence[str], Program],
        *,
        cwd: Optional[str] = None,
        env: Optional[Mapping[str, str]] = None,
        user: Optional[str] = None,
        stdin: Optional[str] = None,
        timeout_seconds: Optional[int] = None,
        limits: Optional[ExecLimits] = None,
        on_stdout: Optional[AsyncCallback[str]] = None,
        on_stderr: Optional[AsyncCallback[str]] = None,
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
        return await self.commands.run(
            command,
            cwd=cwd,
            env=env,
            user=user,
            stdin=stdin,
            timeout_seconds=timeout_seconds,
            limits=limits,
            on_stdout=on_stdout,
            on_stderr=on_stderr,
            check=check,
            max_output_bytes=max_output_bytes,
        )

    async def run_code(
        self,
        code: str,
        *,
        language: Optional[str] = None,
        context: Union[CodeContext, str, None] = None,
        timeout_seconds: Optional[int] = None,
        limits: Optional[ExecLimits] = None,
        on_stdout: Optional[AsyncCallback[str]] = None,
        on_stderr: Optional[AsyncCallback[str]] = None,
        on_result: Optional[AsyncCallback[CodeOutput]] = None,
    ) -> CodeResult:
        """Runs code in an interpreter that keeps its variables between calls, and returns its output, values and error.

        ``language`` is ``python`` (the default), ``javascript``, ``typescript``, ``bash`` or ``r``; ``context``, of
        ``contexts.create``, selects another interpreter than the default one of the language. Code that has not ended
        after ``timeout_seconds`` (60 when omitted) is interrupted. ``limits`` are limits of the
        context while the code runs, in place of the limits of the context; ``limit_exceeded`` of the result names the
        limit that the code exceeded. ``on_stdout`` and ``on_stderr`` get text, and ``on_result`` gets values, such as
        plots, as they come.

        Code that fails raises nothing: check ``status`` and ``error`` of the result. Raises an error of code
        ``unsupported`` for a language that the image does not have, NotFoundError for a context that does not exist,
        EndedError for a sandbox that has ended, ConnectionError if the connection breaks before the end. An exception,
        also one of a callback, interrupts the code. The client never sends code twice.
        """
        events = self.client.sandboxes.run_code_stream(
            self.id,
            code,
            language=language,
            context_id=context.id if isinstance(context, CodeContext) else context,
            timeout_seconds=timeout_seconds,
            limits=limits,
        )
        collector = CodeCollector()
        try:
            async for event in events:
                collector.add(event)
                if event.type == "stdout":
                    await tell_async(on_stdout, event.text)
                elif event.type == "stderr":
                    await tell_async(on_stderr, event.text)
                elif event.result is not None:
                    await tell_async(on_result, event.result)
        finally:
            await events.aclose()
        return collector.result()

    async def scan_code(
        self, code: str, *, language: Optional[str] = None, allowed_imports: Optional[Sequence[str]] = None
    ) -> CodeScan:
        """Parses code in the sandbox, without running it, and returns the constructs that deserve a look.

        ``language`` is ``python`` (the default) or ``javascript``; ``allowed_imports`` are the packages that the code may
        import, all when omitted. A scan catches mistakes; code can hide what it does. Raises ProgramNotFoundError if
        the sandbox does not have the language's interpreter.
        """
        return await self.client.sandboxes.scan_code(self.id, code, language=language, allowed_imports=allowed_imports)

    async def url(self, port: int, *, access: Optional[PortAccess] = None) -> str:
        """Publishes a port, unless it is published, and returns its URL, which leads to this port and to nothing else.

        A new port is ``public``: the URL suffices. For ``private`` visitors also need an API token or a signed link,
        as of ``ports.create_link``. ``access`` changes the access of a port that is published; when omitted it stays.
        """
        if access is None:
            async for published in self.ports.list():
                if published.port == port:
                    return published.url
        return (await self.ports.publish(port, access=access)).url

    async def set_timeout(self, seconds: int) -> SandboxInfo:
        """Sets when the sandbox ends: so many seconds from now, 60 to 86400; 0 is never. Returns the new record."""
        self.info = await self.client.sandboxes.update(self.id, ttl_seconds=seconds)
        return self.info

    async def pause(self, *, memory: bool = True) -> SandboxInfo:
        """Saves memory and files and frees the memory; returns when that is done. The next call into it resumes it.

        Without ``memory`` only its files are saved, and a resume starts it anew with them.
        """
        self.info = await self.client.sandboxes.pause(self.id, memory=memory)
        return self.info

    async def archive(self) -> SandboxInfo:
        """Moves the state of the paused sandbox to the server's object store; returns when that is done.

        The next call into it fetches the state and takes longer.
        """
        self.info = await self.client.sandboxes.archive(self.id)
        return self.info

    async def resume(self, *, memory: Optional[Memory] = None, wait_for_quota_seconds: Optional[int] = None) -> SandboxInfo:
        """Resumes a paused sandbox and returns when it runs.

        When its memory cannot be restored it starts again with its files, and ``memory_lost_reason`` says why; with
        memory ``require`` it stays paused instead, and an error of code ``unsupported`` is raised; with ``discard`` it
        starts again in any case. Raises QuotaError when the quota has no room, after ``wait_for_quota_seconds``.
        """
        self.info = await self.client.sandboxes.resume(self.id, memory=memory, wait_for_quota_seconds=wait_for_quota_seconds)
        return self.info

    async def fork(
        self,
        *,
        count: int = 1,
        names: Optional[Sequence[str]] = None,
        env: Optional[Mapping[str, str]] = None,
        labels: Optional[Mapping[str, str]] = None,
        ttl_seconds: Optional[int] = None,
        wait_for_quota_seconds: Optional[int] = None,
    ) -> List[AsyncSandbox]:
        """Makes ``count`` sandboxes (at most 100) with the memory, processes and files of this one; returns when they run.

        ``env`` and ``labels`` are added to this sandbox's; the ttl is this sandbox's unless ``ttl_seconds`` is given.
        Raises the error of the first sandbox that could not be made, and deletes the others.
        """
        forks = await self.client.sandboxes.fork(
            self.id,
            count=count,
            names=names,
            env=env,
            labels=labels,
            ttl_seconds=ttl_seconds,
            wait_for_quota_seconds=wait_for_quota_seconds,
        )
        error = next((fork.error for fork in forks if fork.error is not None), None)
        made = [fork.sandbox for fork in forks if fork.sandbox is not None]
        if error is not None:
            for info in made:
                await self.client.sandboxes.delete(info.id)
            raise error
        return [AsyncSandbox(self.client, info) for info in made]

    async def snapshot(
        self,
        *,
        name: Optional[str] = None,
        tag: Optional[str] = None,
        description: Optional[str] = None,
        message: Optional[str] = None,
        metadata: Optional[Mapping[str, str]] = None,
        public: Optional[bool] = None,
    ) -> Snapshot:
        """Saves the files, without memory; AsyncSandbox.create with ``snapshot`` makes sandboxes from them.

        The server chooses a ``name`` when there is none. ``tag``, by default ``latest``, is taken from the snapshot of
        the name that had it. With ``public`` every workspace may read it.
        """
        return await self.client.snapshots.create(
            self.id, name=name, tag=tag, description=description, message=message, metadata=metadata, public=public
        )

    async def delete(self) -> SandboxInfo:
        """Deletes the sandbox with its processes and files, and returns its last record when nothing of it is left.

        A sandbox that has ended stays as it is.
        """
        self.info = await self.client.sandboxes.delete(self.id)
        return self.info
