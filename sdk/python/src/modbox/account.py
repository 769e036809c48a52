"""Images and tokens, for both clients."""

from __future__ import annotations

from typing import TYPE_CHECKING, List, Optional, Sequence

from . import _calls as calls
from .models import Image, NewToken, Runtime, Token
from .records import DependencyChecks

if TYPE_CHECKING:
    from . import aio, client


class Images:
    """The images that sandboxes can be made from."""

    def __init__(self, session: client._Session) -> None:
        self._session = session

    def list(self) -> List[Image]:
        """Lists them all."""
        return self._session.perform(calls.images())

    def runtimes(self) -> List[Runtime]:
        """Lists the built-in images by their short names. One that is not built is built by its first use."""
        return self._session.perform(calls.runtimes())

    def validate_dependencies(self, dependencies: Sequence[str], *, image: Optional[str] = None) -> DependencyChecks:
        """Checks whether Debian packages, written as for a create, can be installed in an image, by default modbox/base.

        May take some seconds.
        """
        return self._session.perform(calls.validate_dependencies(dependencies, image))


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

    def list(self) -> List[Token]:
        """Lists the tokens, newest first, without their texts."""
        return self._session.perform(calls.list_tokens())

    def revoke(self, token_id: str) -> None:
        """Ends a token; it stops working within seconds."""
        self._session.perform(calls.revoke_token(token_id))


class AsyncImages:
    """The images that sandboxes can be made from."""

    def __init__(self, session: aio._Session) -> None:
        self._session = session

    async def list(self) -> List[Image]:
        """Lists them all."""
        return await self._session.perform(calls.images())

    async def runtimes(self) -> List[Runtime]:
        """Lists the built-in images by their short names. One that is not built is built by its first use."""
        return await self._session.perform(calls.runtimes())

    async def validate_dependencies(self, dependencies: Sequence[str], *, image: Optional[str] = None) -> DependencyChecks:
        """Checks whether Debian packages, written as for a create, can be installed in an image, by default modbox/base.

        May take some seconds.
        """
        return await self._session.perform(calls.validate_dependencies(dependencies, image))


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

    async def list(self) -> List[Token]:
        """Lists the tokens, newest first, without their texts."""
        return await self._session.perform(calls.list_tokens())

    async def revoke(self, token_id: str) -> None:
        """Ends a token; it stops working within seconds."""
        await self._session.perform(calls.revoke_token(token_id))
