# Made from ../_async/tokens.py by tools/unasync.py. Change that file, then run make gen.
"""API tokens."""

from __future__ import annotations

from typing import Optional, Sequence

from .. import _calls as calls
from .._pages import Page
from .._schemas import NewToken, Token
from .requester import Requester


class Tokens:
    """The caller's API tokens."""

    def __init__(self, requester: Requester) -> None:
        self._requester = requester

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
        return self._requester.perform(calls.create_token(description, expires_in_seconds, scopes, workspace_only))

    def list(self, *, limit: Optional[int] = None, cursor: Optional[str] = None) -> Page[Token]:
        """Lists the tokens, newest first, without their texts."""
        return Page(self._requester, calls.list_tokens(), limit, cursor)

    def revoke(self, token_id: str) -> None:
        """Ends a token; it stops working within seconds."""
        self._requester.perform(calls.revoke_token(token_id))
