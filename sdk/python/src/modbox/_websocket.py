"""The protocol of a terminal's WebSocket, without any I/O: both kinds of session share it.

Needs wsproto, so it is imported when the first terminal is opened.
"""

from __future__ import annotations

import json
from collections import deque
from typing import Any, Deque, Mapping, Optional, Union
from urllib.parse import urlsplit

import h11
from wsproto import ConnectionType, WSConnection
from wsproto import events as ws
from wsproto.connection import ConnectionState
from wsproto.utilities import ProtocolError

from ._calls import broken, exec_event
from .errors import ModboxError, error_from_response, new_error
from .models import ExecEvent
from .transport import Request

#: Bounds one message from the server.
_MAX_MESSAGE_BYTES = 1 << 20
#: Bounds the bytes kept of the answer that refuses a connection.
_MAX_REFUSAL_BYTES = 64 << 10
#: With so much waiting to be sent pings are not answered: the server takes nothing anyway.
_MAX_PENDING_BYTES = 256 << 10

# The first byte of a binary message.
_STDIN, _STDOUT, _STDERR = 0, 1, 2


class WebSocket:
    """One connection to a command: received bytes go into ``receive``, bytes to send are in ``out``.

    Not safe for use by several threads.
    """

    def __init__(self, request: Request) -> None:
        url = urlsplit(request.url)
        #: Remove the sent bytes from its beginning.
        self.out = bytearray()
        self._request = request
        self._connection = WSConnection(ConnectionType.CLIENT)
        self._accepted = False
        self._refusal: Optional[ws.RejectConnection] = None
        self._refusal_body = bytearray()
        self._message = bytearray()
        self._events: Deque[ExecEvent] = deque()
        #: Nothing follows the events that are there.
        self._ended = False
        #: The error raised after them.
        self._failure: Optional[ModboxError] = None
        headers = [(name.encode("ascii"), value.encode("latin-1")) for name, value in request.headers.items()]
        target = url.path + (f"?{url.query}" if url.query else "")
        try:
            self._send(ws.Request(host=url.netloc.rpartition("@")[2], target=target, extra_headers=headers))
        except (h11.LocalProtocolError, UnicodeError):
            # Its message could have the token.
            raise new_error("invalid", f"{request.url}: the address, or a header, has characters that cannot be sent") from None

    def taken(self) -> bytes:
        """Takes all that is to be sent out of ``out``."""
        out = bytes(self.out)
        self.out.clear()
        return out

    def opened(self) -> bool:
        """Whether the server has accepted; raises when it has not, and never will."""
        if not self._accepted and self._failure is not None:
            raise self._failure
        return self._accepted

    def next(self) -> Optional[ExecEvent]:
        """Returns what came first; None when there is nothing yet. Raises what ended the connection."""
        if self._events:
            return self._events.popleft()
        if self._failure is not None:
            raise self._failure
        return None

    def receive(self, data: bytes) -> None:
        """Takes what came; nothing is the end of the connection."""
        if self._ended:
            return
        if not data and self._accepted:
            return self.fail(broken())
        try:
            self._connection.receive_data(data or None)
            for event in self._connection.events():
                self._handle(event)
                if self._ended:
                    return
        except ModboxError as err:
            self.fail(err)
        except ProtocolError as err:
            self.fail(self._broke(err) if self._refusal is None else self._refused())
        if not data:
            self.fail(self._broke("the connection was closed without an answer"))

    def fail(self, err: ModboxError) -> None:
        """Ends the connection with an error, unless it has ended."""
        if not self._ended:
            self._ended, self._failure = True, err

    def write(self, data: bytes) -> None:
        """Sends to the command's stdin, in one message."""
        self._say(ws.BytesMessage(data=bytes([_STDIN]) + data))

    def control(self, message: Mapping[str, Any]) -> None:
        self._say(ws.TextMessage(data=json.dumps(message)))

    def close(self) -> None:
        """Says goodbye to the server."""
        self.fail(broken("the session was closed"))
        if self._connection.state is ConnectionState.OPEN:
            self._send(ws.CloseConnection(code=1000))

    def _say(self, event: ws.Event) -> None:
        if self._failure is not None:
            raise self._failure
        self._send(event)

    def _send(self, event: ws.Event) -> None:
        self.out += self._connection.send(event)

    def _handle(self, event: ws.Event) -> None:
        if isinstance(event, ws.AcceptConnection):
            self._accepted = True
        elif isinstance(event, ws.RejectConnection):
            self._refusal = event
            if not event.has_body:
                raise self._refused()
        elif isinstance(event, ws.RejectData):
            self._refusal_body += event.data
            if event.body_finished or len(self._refusal_body) > _MAX_REFUSAL_BYTES:
                raise self._refused()
        elif isinstance(event, ws.Ping):
            if len(self.out) < _MAX_PENDING_BYTES:
                self._send(event.response())
        elif isinstance(event, ws.CloseConnection):
            self._send(event.response())
            raise broken(event.reason)
        elif isinstance(event, (ws.TextMessage, ws.BytesMessage)):
            self._collect(event)

    def _collect(self, part: Union[ws.TextMessage, ws.BytesMessage]) -> None:
        """Adds a part to the message that it belongs to."""
        self._message += part.data.encode() if isinstance(part, ws.TextMessage) else part.data
        if len(self._message) > _MAX_MESSAGE_BYTES:
            raise broken(f"a message of more than {_MAX_MESSAGE_BYTES} bytes")
        if not part.message_finished:
            return
        message, self._message = bytes(self._message), bytearray()
        event = _text(message) if isinstance(part, ws.TextMessage) else _output(message)
        if event is not None:
            self._events.append(event)
            if event.type == "exit":
                self.fail(new_error("connection", "the command has ended"))

    def _refused(self) -> ModboxError:
        assert self._refusal is not None
        headers = {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in self._refusal.headers}
        return error_from_response(self._refusal.status_code, headers, bytes(self._refusal_body))

    def _broke(self, why: object) -> ModboxError:
        if self._accepted:
            return broken(why)
        return new_error("connection", f"{self._request.method} {self._request.url.split('?')[0]}: {why}")


def _text(message: bytes) -> Optional[ExecEvent]:
    try:
        return exec_event(message)
    except (ValueError, KeyError, TypeError) as err:
        if isinstance(err, ModboxError):
            raise
        raise broken(f"a message makes no sense: {err!r}") from err


def _output(message: bytes) -> Optional[ExecEvent]:
    if message[:1] == bytes([_STDOUT]):
        return ExecEvent("stdout", data=message[1:])
    if message[:1] == bytes([_STDERR]):
        return ExecEvent("stderr", data=message[1:])
    return None  # A newer server may send more.
