"""The users of an installation."""

from __future__ import annotations

from typing import Optional

from .. import _users as calls
from .._calls import _body
from .._pages import AsyncPages
from .._schemas import NewUser, User
from .requester import AsyncRequester


class AsyncUsers:
    """The users of the installation, for administrators; ``user`` is an id, a name or an e-mail address."""

    def __init__(self, requester: AsyncRequester) -> None:
        self._requester = requester

    async def create(
        self,
        name: str,
        *,
        email: Optional[str] = None,
        password: Optional[str] = None,
        administrator: Optional[bool] = None,
    ) -> NewUser:
        """Makes a user, with a workspace of its own. Without a password it chooses one by the code of the answer.

        Never sent twice.
        """
        return await self._requester.perform(calls.create(_body(name=name, email=email, password=password, administrator=administrator)))

    def list(self, *, limit: Optional[int] = None, cursor: Optional[str] = None) -> AsyncPages[User]:
        """Lists the users, by name."""
        return AsyncPages(self._requester, calls.list_all(), limit, cursor)

    async def update(self, user: str, *, administrator: Optional[bool] = None, disabled: Optional[bool] = None) -> User:
        """Makes it an administrator or not, or disables it, which ends its sessions and stops its tokens."""
        return await self._requester.perform(calls.update(user, _body(administrator=administrator, disabled=disabled)))

    async def delete(self, user: str) -> None:
        """Deletes a user with its tokens, and the workspaces that it alone is in."""
        await self._requester.perform(calls.delete(user))

    async def reset_password(self, user: str) -> str:
        """Returns a code by which a user chooses a new password; the old one works until then."""
        return await self._requester.perform(calls.reset_password(user))
