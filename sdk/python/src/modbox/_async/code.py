"""Code that keeps its state."""

from __future__ import annotations

from typing import AsyncGenerator, Mapping, Optional, Sequence, Union

from .. import _code as calls
from .._code import CodeReader
from .._pages import AsyncPages
from .._schemas import CodeContext, CodeScan, ExecLimits
from ..code import CodeEvent, CodeResult
from .requester import AsyncRequester


class AsyncCode:
    """The calls of Sandboxes that run code."""

    _requester: AsyncRequester

    async def run_code(
        self,
        ref: str,
        code: str,
        *,
        language: Optional[str] = None,
        context_id: Optional[str] = None,
        timeout_seconds: Optional[int] = None,
        limits: Optional[ExecLimits] = None,
    ) -> CodeResult:
        """Runs code in an interpreter that keeps its state between calls, and returns its output, values and error.

        Code that fails raises nothing: check ``status`` and ``error`` of the result. ``language`` is ``python`` (the
        default), ``javascript``, ``typescript``, ``bash`` or ``r``, whose default context the code runs in, unless
        ``context_id`` selects another. Code that has not ended after ``timeout_seconds`` (60 when omitted)
        is interrupted. ``limits`` are limits of the context while the code runs, in place of the limits of the context;
        ``limit_exceeded`` of the result names the limit that the code exceeded. The client never sends code twice. For code that prints nothing for minutes use
        ``run_code_stream``: a proxy may close a silent connection.

        Raises NotFoundError for a sandbox or context that does not exist, EndedError for a sandbox that has ended,
        and an error of code ``unsupported`` for a language that the sandbox does not have.
        """
        return await self._requester.perform(calls.run(ref, calls.code_body(code, language, context_id, timeout_seconds, limits)))

    async def run_code_stream(
        self,
        ref: str,
        code: str,
        *,
        language: Optional[str] = None,
        context_id: Optional[str] = None,
        timeout_seconds: Optional[int] = None,
        limits: Optional[ExecLimits] = None,
    ) -> AsyncGenerator[CodeEvent, None]:
        """As run_code, but yields the events of the run as they happen; the last event is ``end``.

        The run begins with the first event that is requested. Closing the generator interrupts the code. Raises
        ConnectionError if the connection breaks before the end.
        """
        chunks = self._requester.stream(calls.stream(ref, calls.code_body(code, language, context_id, timeout_seconds, limits)))
        reader = CodeReader()
        try:
            async for chunk in chunks:
                for event in reader.feed(chunk):
                    yield event
        finally:
            await chunks.aclose()
        reader.end()

    async def scan_code(
        self, ref: str, code: str, *, language: Optional[str] = None, allowed_imports: Optional[Sequence[str]] = None
    ) -> CodeScan:
        """Parses code in the sandbox, without running it, and returns the constructs that deserve a look.

        ``language`` is ``python`` (the default) or ``javascript``; ``allowed_imports`` are the packages that the code may
        import, all when omitted. A scan catches mistakes; code can hide what it does. Raises ProgramNotFoundError if
        the sandbox does not have the language's interpreter.
        """
        return await self._requester.perform(calls.scan(ref, code, language, allowed_imports))


class AsyncContexts:
    """The contexts of a sandbox: interpreters that keep their state. ``context`` is a CodeContext or its id."""

    def __init__(self, requester: AsyncRequester) -> None:
        self._requester = requester

    async def create(
        self,
        ref: str,
        *,
        language: Optional[str] = None,
        cwd: Optional[str] = None,
        env: Optional[Mapping[str, str]] = None,
        limits: Optional[ExecLimits] = None,
    ) -> CodeContext:
        """Starts an interpreter with a state of its own: python when ``language`` is omitted; at most 32 in a sandbox.

        ``cwd`` is its working directory, by default the image's; ``env`` is added to the sandbox's environment;
        ``limits`` are for code that has none of its own. Raises an error of code ``unsupported`` for a language that
        the sandbox does not have.
        """
        return await self._requester.perform(calls.create_context(ref, language, cwd, env, limits))

    def list(self, ref: str, *, limit: Optional[int] = None, cursor: Optional[str] = None) -> AsyncPages[CodeContext]:
        """Lists the contexts, oldest first."""
        return AsyncPages(self._requester, calls.list_contexts(ref), limit, cursor)

    async def interrupt(self, ref: str, context: Union[CodeContext, str]) -> None:
        """Interrupts the code that runs in a context."""
        await self._requester.perform(calls.interrupt_context(ref, context))

    async def restart(self, ref: str, context: Union[CodeContext, str]) -> CodeContext:
        """Starts the interpreter of a context again, without its state."""
        return await self._requester.perform(calls.restart_context(ref, context))

    async def delete(self, ref: str, context: Union[CodeContext, str]) -> None:
        """Ends a context."""
        await self._requester.perform(calls.delete_context(ref, context))
