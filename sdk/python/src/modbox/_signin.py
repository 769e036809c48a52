"""In whose name requests are made, and how people sign in."""

from __future__ import annotations

import asyncio
import os
import threading
from contextvars import ContextVar
from datetime import datetime, timedelta, timezone
from typing import Any, Awaitable, Callable, Optional, Union

from ._calls import Call, Listing, _body, _load, _nothing, _segment, listing
from ._schemas import SignInSession
from .errors import new_error
from .models import UserSession

#: Is called with new tokens.
OnSession = Callable[[UserSession], None]
AsyncOnSession = Union[OnSession, Callable[[UserSession], Awaitable[None]]]

#: How long before its end an access token is not used any more.
_MARGIN = timedelta(seconds=30)


def _session(content: bytes) -> UserSession:
    wire, now = _load(content), datetime.now(timezone.utc)
    return UserSession(
        wire["access_token"],
        wire["refresh_token"],
        now + timedelta(seconds=wire["expires_in"]),
        now + timedelta(seconds=wire["refresh_expires_in"]),
    )


def _begin(path: str, body: Any) -> Call[UserSession]:
    return Call("POST", f"/v1/auth/{path}", _session, repeatable=False, json=body, anonymous=True)


def login(username: str, password: str) -> Call[UserSession]:
    return _begin("login", {"username": username, "password": password})


def accept_invitation(code: str, password: str, name: Optional[str]) -> Call[UserSession]:
    return _begin("accept", _body(code=code, password=password, name=name))


#: The session with which on_session is being called in this thread or task: its own calls use that.
_telling: ContextVar[Optional[UserSession]] = ContextVar("modbox_telling", default=None)


class Credentials:
    """An API token, or a session with its tokens."""

    def __init__(self, token: Optional[str], session: Optional[UserSession]) -> None:
        self.token = token
        self.session = session
        #: The session that the server gave and on_session has not taken yet.
        self.untold: Optional[UserSession] = None

    @staticmethod
    def of(token: Optional[str], session: Optional[UserSession]) -> "Credentials":
        token = None if session else token or os.environ.get("MODBOX_API_TOKEN")
        if not token and not session:
            raise new_error("unauthenticated", "no token: pass token= or set MODBOX_API_TOKEN")
        return Credentials(token, session)

    def stale(self) -> bool:
        """Whether the session's tokens must be renewed before a call."""
        if self.session is None or self._telling():
            return False
        # After it has given new tokens the server takes the old tokens no more, also if the new tokens are not kept yet.
        return self.untold is not None or _ends(self.session)

    @property
    def bearer(self) -> Optional[str]:
        session = self.untold if self._telling() else self.session
        return session.access_token if session else self.token

    def _telling(self) -> bool:
        return self.untold is not None and _telling.get() is self.untold

    def to_tell(self) -> Optional[UserSession]:
        """Tokens that on_session failed to take, when they can still be used."""
        return self.untold if self.untold is not None and not _ends(self.untold) else None

    def renewal(self) -> Call[UserSession]:
        """The call that renews the tokens, which is never sent twice."""
        session = self.untold or self.session
        if session is None:
            raise new_error("invalid", "an API token has no session to refresh")
        return _begin("refresh", {"refresh_token": session.refresh_token})

    def told(self, session: UserSession) -> UserSession:
        """Has calls use the tokens from now on."""
        self.session, self.untold = session, None
        return session


def _ends(session: UserSession) -> bool:
    return session.expires_at - datetime.now(timezone.utc) < _MARGIN


class Renewing:
    """Credentials whose tokens are renewed once for all threads that need them at the same time.

    Nothing but on_session itself uses new tokens before it has ended.
    """

    def __init__(self, credentials: Credentials, on_session: Optional[OnSession]) -> None:
        self.credentials = credentials
        self._on_session = on_session
        self._lock = threading.RLock()  # on_session may make calls, too

    def bearer(self, perform: Callable[[Call[UserSession]], UserSession]) -> Optional[str]:
        """The token of a request that is made now."""
        if self.credentials.session is None:
            return self.credentials.bearer
        with self._lock:
            if self.credentials.stale():
                self._renew(perform)
            return self.credentials.bearer

    def renew(self, perform: Callable[[Call[UserSession]], UserSession]) -> UserSession:
        with self._lock:
            return self._renew(perform)

    def _renew(self, perform: Callable[[Call[UserSession]], UserSession]) -> UserSession:
        credentials = self.credentials
        session = credentials.untold = credentials.to_tell() or perform(credentials.renewal())
        if self._on_session:
            before = _telling.set(session)
            try:
                self._on_session(session)
            finally:
                _telling.reset(before)
        return credentials.told(session)


class AsyncRenewing:
    """Credentials whose tokens are renewed once for all tasks that need them at the same time.

    Nothing but on_session itself uses new tokens before it has ended.
    """

    def __init__(self, credentials: Credentials, on_session: Optional[AsyncOnSession]) -> None:
        self.credentials = credentials
        self._on_session = on_session
        self._renewal: Optional[asyncio.Task[UserSession]] = None

    async def bearer(self, perform: Callable[[Call[UserSession]], Awaitable[UserSession]]) -> Optional[str]:
        """The token of a request that is made now."""
        if self.credentials.stale():
            await self.renew(perform)
        return self.credentials.bearer

    async def renew(self, perform: Callable[[Call[UserSession]], Awaitable[UserSession]]) -> UserSession:
        # A task of its own: the end of a task that waits is not the end of what others wait for.
        if self._renewal is None or self._renewal.done():
            self._renewal = asyncio.ensure_future(self._renew(perform))
        return await asyncio.shield(self._renewal)

    async def _renew(self, perform: Callable[[Call[UserSession]], Awaitable[UserSession]]) -> UserSession:
        credentials = self.credentials
        session = credentials.untold = credentials.to_tell() or await perform(credentials.renewal())
        if self._on_session:
            _telling.set(session)  # here and in the tasks that on_session begins, in no others
            told = self._on_session(session)
            if told is not None:
                await told
        return credentials.told(session)


def logout(everywhere: bool) -> Call[None]:
    if everywhere:
        return Call("DELETE", "/v1/account/sessions", _nothing, repeatable=False)
    return Call("POST", "/v1/auth/logout", _nothing, repeatable=False)


def sessions() -> Listing[SignInSession]:
    return listing(SignInSession, "/v1/account/sessions")


def delete_session(session_id: str) -> Call[None]:
    return Call("DELETE", f"/v1/account/sessions/{_segment(session_id)}", _nothing, repeatable=False)


def set_password(password: str, current_password: Optional[str]) -> Call[None]:
    body = _body(password=password, current_password=current_password)
    return Call("PUT", "/v1/account/password", _nothing, repeatable=False, json=body)


def providers() -> Listing[str]:
    return Listing("/v1/auth/providers", str, anonymous=True)
