"""Work that goes on while its client does something else."""

from __future__ import annotations

import asyncio
import concurrent.futures
import threading
from types import TracebackType
from typing import Awaitable, Callable, Generic, Optional, Type, TypeVar

T = TypeVar("T")


class Background(Generic[T]):
    """Work in a thread, which goes on after the block of ``with``, and keeps no program from its end."""

    def __init__(self, work: Callable[[], T]) -> None:
        self._work = work
        self._future: concurrent.futures.Future[T] = concurrent.futures.Future()
        threading.Thread(target=self._run, daemon=True).start()

    def _run(self) -> None:
        try:
            self._future.set_result(self._work())
        except BaseException as err:
            self._future.set_exception(err)

    def wait(self, seconds: float) -> None:
        """Returns when the work is done, at the latest after so many seconds."""
        concurrent.futures.wait([self._future], seconds)

    def done(self) -> bool:
        return self._future.done()

    def exception(self) -> Optional[BaseException]:
        """The error of work that is done; None when it succeeded."""
        return self._future.exception()

    def result(self) -> T:
        """The result of work that is done; raises its error."""
        return self._future.result()

    def __enter__(self) -> Background[T]:
        return self

    def __exit__(
        self, kind: Optional[Type[BaseException]], err: Optional[BaseException], trace: Optional[TracebackType]
    ) -> None:
        pass


class AsyncBackground(Generic[T]):
    """Work in a task, which is cancelled at the end of the block of ``async with``."""

    def __init__(self, work: Callable[[], Awaitable[T]]) -> None:
        self._future: asyncio.Future[T] = asyncio.ensure_future(work())

    async def wait(self, seconds: float) -> None:
        """Returns when the work is done, at the latest after so many seconds."""
        await asyncio.wait([self._future], timeout=seconds)

    def done(self) -> bool:
        return self._future.done()

    def exception(self) -> Optional[BaseException]:
        """The error of work that is done; None when it succeeded."""
        return self._future.exception()

    def result(self) -> T:
        """The result of work that is done; raises its error."""
        return self._future.result()

    async def __aenter__(self) -> AsyncBackground[T]:
        return self

    async def __aexit__(
        self, kind: Optional[Type[BaseException]], err: Optional[BaseException], trace: Optional[TracebackType]
    ) -> None:
        self._future.cancel()
        await asyncio.gather(self._future, return_exceptions=True)
