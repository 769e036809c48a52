"""The client."""

from __future__ import annotations

import ssl
from types import TracebackType
from typing import TYPE_CHECKING, Optional, Type

from .. import _calls as calls, _signin
from .._calls import Call
from .._schemas import Host, Identity, ServerVersion
from .._session import DEFAULTS, Settings
from .._signin import AsyncOnSession, AsyncRenewing, Credentials
from ..models import UserSession
from ..options import AsyncConnectOptions
from ..transport import AsyncTransport, default_async_transport
from .account import AsyncAccount
from .audit import AsyncAudit
from .events import AsyncEvents
from .executions import AsyncExecutions, AsyncStreams
from .images import AsyncImages, AsyncSandboxImages
from .registries import AsyncRegistries
from .requester import AsyncRequester
from .sandboxes import AsyncSandboxes
from .snapshots import AsyncSnapshots
from .ssh_keys import AsyncSSHKeys
from .tokens import AsyncTokens
from .users import AsyncUsers
from .webhooks import AsyncWebhooks
from .workers import AsyncWorkers
from .workspaces import AsyncWorkspaces

if TYPE_CHECKING:
    from typing_extensions import Self, Unpack


class AsyncModbox:
    """Calls one Modbox server in the name of one token, or of somebody who has signed in.

    The calls of the API are under ``sandboxes``, ``executions``, ``streams``, ``snapshots``, ``images``,
    ``sandbox_images``, ``registries``, ``account``, ``tokens``, ``ssh_keys``, ``workspaces``, ``users``, ``workers``, ``audit``,
    ``events`` and ``webhooks``; AsyncSandbox is the object for one sandbox. All calls raise ModboxError. Threads may
    share a client. Tasks of one event loop may share a client for asyncio, which needs httpx or a ``transport``, and
    raises ImportError without.

    ``token`` defaults to the environment's MODBOX_API_TOKEN. Instead, ``session`` is the tokens of
    somebody who has signed in, such as ``account.session`` of another client; they are renewed when they
    must, and ``on_session`` is then called with the new ones, which nothing else uses before it has returned.
    When it raises, so does the call that needs the tokens, and it is called with them again at the next one.
    It may make calls, but ``account.refresh``.

    ``base_url`` defaults to MODBOX_URL, else http://127.0.0.1:7070. ``timeout`` is the seconds of silence
    after which a request is given up, waits and commands excepted. A request
    that may be repeated is tried again ``max_retries`` times. ``ssl_context`` says what TLS trusts,
    in place of the library's default; a ``transport`` has its own, and then it counts for terminals only.
    """

    def __init__(
        self,
        token: Optional[str] = None,
        *,
        session: Optional[UserSession] = None,
        on_session: Optional[AsyncOnSession] = None,
        base_url: Optional[str] = None,
        workspace_id: Optional[str] = None,
        timeout: float = 60.0,
        max_retries: int = 3,
        ssl_context: Optional[ssl.SSLContext] = None,
        transport: Optional[AsyncTransport] = None,
    ) -> None:
        settings = Settings.of(base_url, workspace_id, timeout, max_retries, ssl_context)
        renewing = AsyncRenewing(Credentials.of(token, session), on_session)
        self._requester = AsyncRequester(settings, transport or default_async_transport(ssl_context), renewing)
        self.sandboxes = AsyncSandboxes(self._requester)
        self.streams = AsyncStreams(self._requester)
        self.executions = AsyncExecutions(self._requester, self.streams)
        self.snapshots = AsyncSnapshots(self._requester)
        self.images = AsyncImages(self._requester)
        self.sandbox_images = AsyncSandboxImages(self._requester)
        self.registries = AsyncRegistries(self._requester)
        self.account = AsyncAccount(self._requester)
        self.tokens = AsyncTokens(self._requester)
        self.ssh_keys = AsyncSSHKeys(self._requester)
        self.workspaces = AsyncWorkspaces(self._requester)
        self.users = AsyncUsers(self._requester)
        self.workers = AsyncWorkers(self._requester)
        self.audit = AsyncAudit(self._requester)
        self.events = AsyncEvents(self._requester)
        self.webhooks = AsyncWebhooks(self._requester)

    @classmethod
    async def login(
        cls, *, username: str, password: str, transport: Optional[AsyncTransport] = None, **options: Unpack[AsyncConnectOptions]
    ) -> Self:
        """Signs in by name, or e-mail address, and password, and returns a client for the session.

        Raises AuthError when either is wrong.
        """
        return await cls._signed_in(_signin.login(username, password), transport, options)

    @classmethod
    async def accept_invitation(
        cls,
        *,
        code: str,
        password: str,
        name: Optional[str] = None,
        transport: Optional[AsyncTransport] = None,
        **options: Unpack[AsyncConnectOptions],
    ) -> Self:
        """Uses a code up, chooses a password by it, and returns a client for the session.

        The code is that of an invitation, a new user, or a password that is to be chosen; ``name``
        is what a new user signs in as.
        """
        return await cls._signed_in(_signin.accept_invitation(code, password, name), transport, options)

    @classmethod
    async def _signed_in(
        cls, call: Call[UserSession], transport: Optional[AsyncTransport], options: AsyncConnectOptions
    ) -> Self:
        connect = {name: value for name, value in options.items() if name != "on_session"}
        settings = Settings.of(**{**DEFAULTS, **connect})
        transport = transport or default_async_transport(settings.ssl_context)
        try:
            session = await AsyncRequester(settings, transport, AsyncRenewing(Credentials(None, None), None)).perform(call)
        except BaseException:
            await transport.close()
            raise
        return cls(session=session, transport=transport, **options)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: Optional[Type[BaseException]], err: Optional[BaseException], trace: Optional[TracebackType]
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Closes the connections that are kept."""
        await self._requester.close()

    async def whoami(self) -> Identity:
        """Says who the token speaks for."""
        return await self._requester.perform(calls.whoami())

    async def host(self) -> Host:
        """Returns the machine of the server: its capacity, pool, images, and how long operations take. For administrators."""
        return await self._requester.perform(calls.host())

    async def version(self) -> ServerVersion:
        """Says what the server is."""
        return await self._requester.perform(calls.version())
