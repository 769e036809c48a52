"""The account of the client's user."""

from __future__ import annotations

from typing import Optional

from .. import _signin as calls
from .._pages import AsyncPages
from .._schemas import SignInSession
from ..models import UserSession
from .requester import AsyncRequester


class AsyncAccount:
    """The account of the client's user, and its session."""

    def __init__(self, requester: AsyncRequester) -> None:
        self._requester = requester

    @property
    def session(self) -> Optional[UserSession]:
        """The tokens of the client's session, to be kept for another client; None for one that has an API token."""
        return self._requester.credentials.session

    async def refresh(self) -> UserSession:
        """Renews the session's tokens now; calls do so by themselves. Raises AuthError when the session has ended."""
        return await self._requester.renew()

    async def logout(self, *, everywhere: bool = False) -> None:
        """Ends the session with all its tokens; for an API token there is ``tokens.revoke``.

        With ``everywhere`` all sessions of the user end, whatever the client has; API tokens go on.
        """
        await self._requester.perform(calls.logout(everywhere))

    def sessions(self, *, limit: Optional[int] = None, cursor: Optional[str] = None) -> AsyncPages[SignInSession]:
        """Lists the user's sign-ins that have not ended, the newest first."""
        return AsyncPages(self._requester, calls.sessions(), limit, cursor)

    async def delete_session(self, session_id: str) -> None:
        """Deletes one of the user's sessions; its tokens stop working at once."""
        await self._requester.perform(calls.delete_session(session_id))

    async def set_password(self, password: str, *, current_password: Optional[str] = None) -> None:
        """Changes the user's password, of at least 8 characters.

        All its sessions end but this one; its API tokens go on.
        """
        await self._requester.perform(calls.set_password(password, current_password))

    def providers(self, *, limit: Optional[int] = None, cursor: Optional[str] = None) -> AsyncPages[str]:
        """Lists the services that people may sign in with, in a browser: docs/auth.md says how."""
        return AsyncPages(self._requester, calls.providers(), limit, cursor)
