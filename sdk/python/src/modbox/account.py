"""API tokens, for both clients."""

from __future__ import annotations

from typing import TYPE_CHECKING, Optional, Sequence

from . import _calls as calls
from ._pages import AsyncPages, Page
from .models import NewToken, Token

if TYPE_CHECKING:
    from . import aio, client


class Tokens:
    """The caller's API tokens."""

    def __init__(self, session: client._Session) -> None:
        self._session = session

    def create(
        self,
        *,
        description: Optional[str] = None,
        expires_in_seconds: Optional[int] = None,
        scopes: Optional[Sequence[str]] = None,
        workspace_only: Optional[bool] = None,
    ) -> NewToken:
        """Makes a token that may do what its maker may, for ever, or less.

        ``scopes`` are such as ``sandboxes:write``, docs/auth.md lists them; ``workspace_only``
        keeps it out of the user's other workspaces.
        """
        return self._session.perform(calls.create_token(description, expires_in_seconds, scopes, workspace_only))

    def list(self, *, limit: Optional[int] = None, cursor: Optional[str] = None) -> Page[Token]:
        """Lists the tokens, newest first, without their texts."""
        return Page(self._session, calls.list_tokens(), limit, cursor)

    def revoke(self, token_id: str) -> None:
        """Ends a token; it stops working within seconds."""
        self._session.perform(calls.revoke_token(token_id))


class AsyncTokens:
    """The caller's API tokens."""

    def __init__(self, session: aio._Session) -> None:
        self._session = session

    async def create(
        self,
        *,
        description: Optional[str] = None,
        expires_in_seconds: Optional[int] = None,
        scopes: Optional[Sequence[str]] = None,
        workspace_only: Optional[bool] = None,
    ) -> NewToken:
        """Makes a token that may do what its maker may, for ever, or less.

        ``scopes`` are such as ``sandboxes:write``, docs/auth.md lists them; ``workspace_only``
        keeps it out of the user's other workspaces.
        """
        return await self._session.perform(calls.create_token(description, expires_in_seconds, scopes, workspace_only))

    def list(self, *, limit: Optional[int] = None, cursor: Optional[str] = None) -> AsyncPages[Token]:
        """Lists the tokens, newest first, without their texts."""
        return AsyncPages(self._session, calls.list_tokens(), limit, cursor)

    async def revoke(self, token_id: str) -> None:
        """Ends a token; it stops working within seconds."""
        await self._session.perform(calls.revoke_token(token_id))
