"""SSH keys."""

from __future__ import annotations

from typing import Optional

from .. import _calls as calls
from .._pages import AsyncPages
from .._schemas import SSHKey
from .requester import AsyncRequester


class AsyncSSHKeys:
    """The caller's SSH keys, by which ``ssh SANDBOX@SERVER`` logs in."""

    def __init__(self, requester: AsyncRequester) -> None:
        self._requester = requester

    async def add(
        self,
        public_key: str,
        *,
        name: Optional[str] = None,
        expires_in_seconds: Optional[int] = None,
        workspace_only: Optional[bool] = None,
    ) -> SSHKey:
        """Adds a public key, given as the content of its .pub file.

        It is ed25519, ecdsa, or rsa with at least 2048 bits. Its name is its comment unless ``name``
        is given; ``workspace_only`` keeps it out of the user's other workspaces.
        """
        return await self._requester.perform(calls.add_ssh_key(public_key, name, expires_in_seconds, workspace_only))

    def list(self, *, limit: Optional[int] = None, cursor: Optional[str] = None) -> AsyncPages[SSHKey]:
        """Lists the keys that have not expired, newest first."""
        return AsyncPages(self._requester, calls.list_ssh_keys(), limit, cursor)

    async def delete(self, key: str) -> None:
        """Deletes a key, by id or fingerprint; it stops working at once, and its connections end."""
        await self._requester.perform(calls.delete_ssh_key(key))
