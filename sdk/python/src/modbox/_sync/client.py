# Made from ../_async/client.py by tools/unasync.py. Change that file, then run make gen.
"""The client."""

from __future__ import annotations

import ssl
from types import TracebackType
from typing import TYPE_CHECKING, Optional, Type

from .. import _calls as calls, _signin
from .._calls import Call
from .._schemas import Host, Identity, ServerVersion
from .._session import DEFAULTS, Settings
from .._signin import OnSession, Renewing, Credentials
from ..models import UserSession
from ..options import ConnectOptions
from ..transport import Transport, default_transport
from .account import Account
from .audit import Audit
from .events import Events
from .executions import Executions, Streams
from .images import Images, SandboxImages
from .registries import Registries
from .requester import Requester
from .sandboxes import Sandboxes
from .snapshots import Snapshots
from .ssh_keys import SSHKeys
from .tokens import Tokens
from .users import Users
from .webhooks import Webhooks
from .workers import Workers
from .workspaces import Workspaces

if TYPE_CHECKING:
    from typing_extensions import Self, Unpack


class Modbox:
    """Calls one Modbox server in the name of one token, or of somebody who has signed in.

    The calls of the API are under ``sandboxes``, ``executions``, ``streams``, ``snapshots``, ``images``,
    ``sandbox_images``, ``registries``, ``account``, ``tokens``, ``ssh_keys``, ``workspaces``, ``users``, ``workers``, ``audit``,
    ``events`` and ``webhooks``; Sandbox is the object for one sandbox. All calls raise ModboxError. Threads may
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
        on_session: Optional[OnSession] = None,
        base_url: Optional[str] = None,
        workspace_id: Optional[str] = None,
        timeout: float = 60.0,
        max_retries: int = 3,
        ssl_context: Optional[ssl.SSLContext] = None,
        transport: Optional[Transport] = None,
    ) -> None:
        settings = Settings.of(base_url, workspace_id, timeout, max_retries, ssl_context)
        renewing = Renewing(Credentials.of(token, session), on_session)
        self._requester = Requester(settings, transport or default_transport(ssl_context), renewing)
        self.sandboxes = Sandboxes(self._requester)
        self.streams = Streams(self._requester)
        self.executions = Executions(self._requester, self.streams)
        self.snapshots = Snapshots(self._requester)
        self.images = Images(self._requester)
        self.sandbox_images = SandboxImages(self._requester)
        self.registries = Registries(self._requester)
        self.account = Account(self._requester)
        self.tokens = Tokens(self._requester)
        self.ssh_keys = SSHKeys(self._requester)
        self.workspaces = Workspaces(self._requester)
        self.users = Users(self._requester)
        self.workers = Workers(self._requester)
        self.audit = Audit(self._requester)
        self.events = Events(self._requester)
        self.webhooks = Webhooks(self._requester)

    @classmethod
    def login(
        cls, *, username: str, password: str, transport: Optional[Transport] = None, **options: Unpack[ConnectOptions]
    ) -> Self:
        """Signs in by name, or e-mail address, and password, and returns a client for the session.

        Raises AuthError when either is wrong.
        """
        return cls._signed_in(_signin.login(username, password), transport, options)

    @classmethod
    def accept_invitation(
        cls,
        *,
        code: str,
        password: str,
        name: Optional[str] = None,
        transport: Optional[Transport] = None,
        **options: Unpack[ConnectOptions],
    ) -> Self:
        """Uses a code up, chooses a password by it, and returns a client for the session.

        The code is that of an invitation, a new user, or a password that is to be chosen; ``name``
        is what a new user signs in as.
        """
        return cls._signed_in(_signin.accept_invitation(code, password, name), transport, options)

    @classmethod
    def _signed_in(
        cls, call: Call[UserSession], transport: Optional[Transport], options: ConnectOptions
    ) -> Self:
        connect = {name: value for name, value in options.items() if name != "on_session"}
        settings = Settings.of(**{**DEFAULTS, **connect})
        transport = transport or default_transport(settings.ssl_context)
        try:
            session = Requester(settings, transport, Renewing(Credentials(None, None), None)).perform(call)
        except BaseException:
            transport.close()
            raise
        return cls(session=session, transport=transport, **options)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: Optional[Type[BaseException]], err: Optional[BaseException], trace: Optional[TracebackType]
    ) -> None:
        self.close()

    def close(self) -> None:
        """Closes the connections that are kept."""
        self._requester.close()

    def whoami(self) -> Identity:
        """Says who the token speaks for."""
        return self._requester.perform(calls.whoami())

    def host(self) -> Host:
        """Returns the machine of the server: its capacity, pool, images, and how long operations take. For administrators."""
        return self._requester.perform(calls.host())

    def version(self) -> ServerVersion:
        """Says what the server is."""
        return self._requester.perform(calls.version())
