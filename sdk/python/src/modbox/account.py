"""Images, snapshots and tokens, for both clients."""

from __future__ import annotations

from typing import TYPE_CHECKING, List, Mapping, Optional

from . import _calls as calls
from .models import Image, NewToken, Runtime, Snapshot, Token

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


class Snapshots:
    """The snapshots of a workspace.

    ``ref`` is an id, a name, which is its latest, ``name:tag``, or
    ``@workspace/name:tag``; what does not exist raises NotFoundError.
    """

    def __init__(self, session: client._Session) -> None:
        self._session = session

    def create(
        self,
        sandbox: str,
        *,
        name: Optional[str] = None,
        tag: Optional[str] = None,
        description: Optional[str] = None,
        message: Optional[str] = None,
        metadata: Optional[Mapping[str, str]] = None,
        public: Optional[bool] = None,
    ) -> Snapshot:
        """Saves the files of a running or paused sandbox, and returns when sandboxes can be made from them."""
        return self._session.perform(
            calls.create_snapshot(
                sandbox, name=name, tag=tag, description=description, message=message, metadata=metadata, public=public
            )
        )

    def get(self, ref: str) -> Snapshot:
        """Returns one."""
        return self._session.perform(calls.get_snapshot(ref))

    def list(
        self,
        *,
        public: Optional[bool] = None,
        sandbox_id: Optional[str] = None,
        name: Optional[str] = None,
        tag: Optional[str] = None,
        limit: Optional[int] = None,
        offset: Optional[int] = None,
    ) -> List[Snapshot]:
        """Lists them, the newest first; with ``public`` those of all workspaces that are public."""
        return self._session.perform(
            calls.list_snapshots(public=public, sandbox_id=sandbox_id, name=name, tag=tag, limit=limit, offset=offset)
        )

    def tag(self, ref: str, tag: Optional[str]) -> Snapshot:
        """Gives it a tag, which leaves the snapshot of the same name that has it; None takes its tag away."""
        return self._session.perform(calls.tag_snapshot(ref, tag))

    def delete(self, ref: str) -> None:
        """Deletes it; sandboxes made from it go on."""
        self._session.perform(calls.delete_snapshot(ref))

    def lineage(self, ref: str) -> List[Snapshot]:
        """Returns a snapshot and those it came from, the newest first, deleted ones included."""
        return self._session.perform(calls.lineage(ref))


class Tokens:
    """The caller's API tokens."""

    def __init__(self, session: client._Session) -> None:
        self._session = session

    def create(self, *, description: Optional[str] = None, expires_in_seconds: Optional[int] = None) -> NewToken:
        """Makes a token that speaks for the caller in the same workspace."""
        return self._session.perform(calls.create_token(description, expires_in_seconds))

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


class AsyncSnapshots:
    """The snapshots of a workspace.

    ``ref`` is an id, a name, which is its latest, ``name:tag``, or
    ``@workspace/name:tag``; what does not exist raises NotFoundError.
    """

    def __init__(self, session: aio._Session) -> None:
        self._session = session

    async def create(
        self,
        sandbox: str,
        *,
        name: Optional[str] = None,
        tag: Optional[str] = None,
        description: Optional[str] = None,
        message: Optional[str] = None,
        metadata: Optional[Mapping[str, str]] = None,
        public: Optional[bool] = None,
    ) -> Snapshot:
        """Saves the files of a running or paused sandbox, and returns when sandboxes can be made from them."""
        return await self._session.perform(
            calls.create_snapshot(
                sandbox, name=name, tag=tag, description=description, message=message, metadata=metadata, public=public
            )
        )

    async def get(self, ref: str) -> Snapshot:
        """Returns one."""
        return await self._session.perform(calls.get_snapshot(ref))

    async def list(
        self,
        *,
        public: Optional[bool] = None,
        sandbox_id: Optional[str] = None,
        name: Optional[str] = None,
        tag: Optional[str] = None,
        limit: Optional[int] = None,
        offset: Optional[int] = None,
    ) -> List[Snapshot]:
        """Lists them, the newest first; with ``public`` those of all workspaces that are public."""
        return await self._session.perform(
            calls.list_snapshots(public=public, sandbox_id=sandbox_id, name=name, tag=tag, limit=limit, offset=offset)
        )

    async def tag(self, ref: str, tag: Optional[str]) -> Snapshot:
        """Gives it a tag, which leaves the snapshot of the same name that has it; None takes its tag away."""
        return await self._session.perform(calls.tag_snapshot(ref, tag))

    async def delete(self, ref: str) -> None:
        """Deletes it; sandboxes made from it go on."""
        await self._session.perform(calls.delete_snapshot(ref))

    async def lineage(self, ref: str) -> List[Snapshot]:
        """Returns a snapshot and those it came from, the newest first, deleted ones included."""
        return await self._session.perform(calls.lineage(ref))


class AsyncTokens:
    """The caller's API tokens."""

    def __init__(self, session: aio._Session) -> None:
        self._session = session

    async def create(self, *, description: Optional[str] = None, expires_in_seconds: Optional[int] = None) -> NewToken:
        """Makes a token that speaks for the caller in the same workspace."""
        return await self._session.perform(calls.create_token(description, expires_in_seconds))

    async def list(self) -> List[Token]:
        """Lists the tokens, newest first, without their texts."""
        return await self._session.perform(calls.list_tokens())

    async def revoke(self, token_id: str) -> None:
        """Ends a token; it stops working within seconds."""
        await self._session.perform(calls.revoke_token(token_id))
