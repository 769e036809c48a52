"""A real WebSocket server whose every connection is a script of the test, and one way to use both clients."""

import asyncio
import json
import socket
import threading
from contextlib import suppress

from wsproto import ConnectionType, WSConnection
from wsproto import events as ws

import modbox

_END = object()
#: After which a test hangs.
PATIENCE_SECONDS = 120


class Peer:
    """The server's end of one connection, which ends when the test is over."""

    def __init__(self, connection):
        self.connection = connection
        connection.settimeout(PATIENCE_SECONDS)
        self.request = None
        self._protocol = WSConnection(ConnectionType.SERVER)
        self._events = iter(())

    def receive(self):
        """The next event; None at the end of the connection."""
        while True:
            for event in self._events:
                return event
            try:
                data = self.connection.recv(65536)
            except socket.timeout:
                raise
            except OSError:
                data = b""
            if not data:
                return None
            self._protocol.receive_data(data)
            self._events = self._protocol.events()

    def message(self):
        """The next message, whole: an object or bytes. None for anything else."""
        data = None
        while True:
            event = self.receive()
            if not isinstance(event, (ws.TextMessage, ws.BytesMessage)):
                return None
            data = event.data if data is None else data + event.data
            if event.message_finished:
                return json.loads(data) if isinstance(data, str) else bytes(data)

    def send(self, *events):
        self.connection.sendall(b"".join(self._protocol.send(e) for e in events))

    def accept(self, first=True):
        """Accepts, and takes the message that says what to run."""
        self.request = self.receive()
        self.send(ws.AcceptConnection())
        return self.message() if first else None

    def refuse(self, status, body, **headers):
        """Answers by hand: what is tested may be no proper answer."""
        self.request = self.receive()
        lines = [f"HTTP/1.1 {status} X"] + [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
        self.connection.sendall("\r\n".join([*lines, "", ""]).encode() + body)

    def output(self, text, channel=1):
        self.send(ws.BytesMessage(data=bytes([channel]) + text))

    def tell(self, **message):
        self.send(ws.TextMessage(data=json.dumps(message)))


class SocketServer:
    """Runs ``script(peer)`` for every connection, which is closed at its end. What a script raises fails the test."""

    def __init__(self, test, script, tls=None):
        self.errors = []
        self.peers = []
        self._test = test
        self._script = script
        self._tls = tls
        self._threads = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self.url = f"{'https' if tls else 'http'}://localhost:{self.port}/x/"
        accepting = threading.Thread(target=self._accept)
        accepting.start()
        test.addCleanup(self._finish, accepting)

    async def done(self):
        """Returns when the scripts of all connections so far have ended."""
        for thread in self._threads:
            await asyncio.to_thread(thread.join)

    def _accept(self):
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            thread = threading.Thread(target=self._run, args=(connection,))
            self._threads.append(thread)
            thread.start()

    def _run(self, connection):
        try:
            connection = self._tls.wrap_socket(connection, server_side=True) if self._tls else connection
        except OSError:
            return connection.close()  # a client that does not trust us
        with connection:
            peer = Peer(connection)
            self.peers.append(peer)
            try:
                self._script(peer)
            except Exception as err:
                self.errors.append(err)

    def _finish(self, accepting):
        self._listener.shutdown(socket.SHUT_RDWR)
        accepting.join()
        self._listener.close()
        for peer in self.peers:
            with suppress(OSError):
                peer.connection.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join()
        self._test.assertEqual(self.errors, [])


class Awaited:
    """A ModboxClient, or a part of it, used as an AsyncModboxClient is: its calls run in threads."""

    def __init__(self, thing):
        self.thing = thing

    def __getattr__(self, name):
        value = getattr(self.thing, name)
        if not callable(value):
            return Awaited(value) if type(value).__module__.startswith("modbox") else value

        async def call(*args, **kwargs):
            result = await asyncio.to_thread(value, *args, **kwargs)
            return Awaited(result) if isinstance(result, modbox.Session) else result

        return call

    def __aiter__(self):
        return self

    async def __anext__(self):
        event = await asyncio.to_thread(next, self.thing, _END)
        if event is _END:
            raise StopAsyncIteration
        return event

    async def __aenter__(self):
        await asyncio.to_thread(self.thing.__enter__)
        return self

    async def __aexit__(self, *why):
        await asyncio.to_thread(self.thing.__exit__, *why)


def with_both(scenario):
    """Makes a test of ``scenario(self, client_of)``: ``client_of(url, **options)`` is a client of either kind."""

    def test(self):
        for kind in ("sync", "async"):

            async def run(kind=kind):
                clients = []

                def client_of(url, **options):
                    options = {"token": "mbx_test", "base_url": url, "max_retries": 0, **options}
                    clients.append(Awaited(modbox.ModboxClient(**options)) if kind == "sync" else modbox.AsyncModboxClient(**options))
                    return clients[-1]

                try:
                    await scenario(self, client_of)
                finally:
                    for client in clients:
                        await client.close()

            with self.subTest(kind):
                asyncio.run(run())

    return test
