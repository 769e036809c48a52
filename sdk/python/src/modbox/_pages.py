"""Lists, which the server answers in pages."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, AsyncIterator, Callable, Generator, Generic, Iterator, List, Optional, TypeVar

from ._calls import Listing

if TYPE_CHECKING:
    from ._async.requester import AsyncRequester
    from ._sync.requester import Requester

T = TypeVar("T")


class Page(Generic[T]):
    """A part of a list. Iterating over it walks over its ``items`` and the items of all pages that follow, fetched as they are needed."""

    items: List[T]
    #: The ``cursor`` of the next page; None on the last one.
    next_cursor: Optional[str]

    def __init__(self, requester: Requester, listing: Listing[T], limit: Optional[int], cursor: Optional[str]) -> None:
        self.items, self.next_cursor = requester.perform(listing.page(limit, cursor))
        self._again: Callable[[Optional[str]], Page[T]] = lambda cursor: Page(requester, listing, limit, cursor)

    def next_page(self) -> Optional[Page[T]]:
        """Fetches the next page; None on the last one."""
        return self._again(self.next_cursor) if self.next_cursor else None

    def __iter__(self) -> Iterator[T]:
        page: Optional[Page[T]] = self
        while page is not None:
            yield from page.items
            page = page.next_page()


class AsyncPage(Generic[T]):
    """As Page, for ``async for``."""

    items: List[T]
    #: The ``cursor`` of the next page; None on the last one.
    next_cursor: Optional[str]

    def __init__(self, pages: AsyncPages[T], items: List[T], next_cursor: Optional[str]) -> None:
        self.items, self.next_cursor = items, next_cursor
        self._pages = pages

    async def next_page(self) -> Optional[AsyncPage[T]]:
        """Fetches the next page; None on the last one."""
        return await self._pages._page(self.next_cursor) if self.next_cursor else None

    async def __aiter__(self) -> AsyncIterator[T]:
        page: Optional[AsyncPage[T]] = self
        while page is not None:
            for item in page.items:
                yield item
            page = await page.next_page()


class AsyncPages(Generic[T]):
    """The result of a call that lists something.

    ``await`` gives a page; ``async for`` walks over the items of all pages, fetched as they are needed.
    """

    def __init__(self, requester: AsyncRequester, listing: Listing[T], limit: Optional[int], cursor: Optional[str]) -> None:
        self._requester, self._listing, self._limit, self._cursor = requester, listing, limit, cursor

    async def _page(self, cursor: Optional[str]) -> AsyncPage[T]:
        items, next_cursor = await self._requester.perform(self._listing.page(self._limit, cursor))
        return AsyncPage(self, items, next_cursor)

    def __await__(self) -> Generator[Any, None, AsyncPage[T]]:
        return self._page(self._cursor).__await__()

    async def __aiter__(self) -> AsyncIterator[T]:
        async for item in await self:
            yield item
