"""Sessions of both clients against a real WebSocket server."""

import asyncio
import json
import socket
import ssl
import struct
import subprocess
import sys
import tempfile
import threading
import unittest
from contextlib import suppress
from pathlib import Path
from unittest import mock

from wsproto import events as ws

import modbox
from web_sockets import PATIENCE_SECONDS, SocketServer, with_both

EXIT = {"type": "exit", "exit_code": 3, "duration_ms": 5}


def problem(code, **more):
    return json.dumps({"title": "t", "detail": f"it is {code}", "code": code, **more}).encode()


async def collect(session):
    return [event async for event in session]


class TerminalsTest(unittest.TestCase):
    @with_both
    async def test_a_command_with_everything(self, client_of):
        seen = []

        def script(peer):
            seen.append(peer.accept())
            seen.extend(peer.message() for _ in range(6))
            peer.tell(type="started", pid=7)
            peer.output(b"\x00\xff")
            peer.output(b"bad", channel=2)
            peer.output(b"later", channel=9)
            peer.tell(type="later")
            peer.tell(**EXIT)
            seen.append(type(peer.receive()))

        server = SocketServer(self, script)
        client = client_of(server.url, workspace_id="w")
        session = await client.sandboxes.attach("a b", ["cat"], cwd="/c", env={"A": "1"}, user="u", timeout_seconds=5, tty=(1, 2), stdin=True)
        await session.write("ü")
        await session.write(bytes(40_000))
        await session.resize(3, 4)
        await session.kill(2)
        await session.close_stdin()
        events = await collect(session)
        self.assertEqual([e.type for e in events], ["started", "stdout", "stderr", "exit"])
        self.assertEqual((events[0].pid, events[1].data, events[2].data), (7, b"\x00\xff", b"bad"))
        self.assertEqual((events[3].exit_code, events[3].duration_ms), (3, 5))
        self.assertEqual(session.offset, 2)
        with self.assertRaises(modbox.ConnectionError):
            await session.write("more")
        self.assertEqual(await collect(session), [])
        await server.done()
        want = {"command": ["cat"], "cwd": "/c", "env": {"A": "1"}, "user": "u", "timeout_seconds": 5, "tty": {"rows": 1, "cols": 2}, "stdin": True}
        self.assertEqual(seen[:2], [want, b"\x00" + "ü".encode()])
        self.assertEqual([len(m) - 1 for m in seen[2:4]], [32768, 40_000 - 32768])
        self.assertEqual(
            seen[4:], [{"type": "resize", "rows": 3, "cols": 4}, {"type": "signal", "signal": 2}, {"type": "stdin_eof"}, ws.CloseConnection]
        )
        request = server.peers[0].request
        headers = dict(request.extra_headers)
        self.assertEqual((request.target, request.host), ("/x/v1/sandboxes/a%20b/exec/attach", f"localhost:{server.port}"))
        self.assertEqual((headers[b"authorization"], headers[b"x-workspace-id"]), (b"Bearer mbx_test", b"w"))

    @with_both
    async def test_an_execution_is_attached_to_from_an_offset(self, client_of):
        def script(peer):
            peer.accept(first=False)
            peer.output(b"abc")
            peer.output(b"err", channel=2)
            peer.output(b"de")
            peer.receive()

        server = SocketServer(self, script)
        client = client_of(server.url)
        session = await client.executions.attach("a", "e/1", offset=40)
        got = []
        async for event in session:
            got.append((event.data, session.offset))
            if len(got) == 3:
                break
        await session.close()
        self.assertEqual(got, [(b"abc", 43), (b"err", 43), (b"de", 45)])
        self.assertEqual(server.peers[0].request.target, "/x/v1/sandboxes/a/executions/e%2F1/attach?offset=40")

    @with_both
    async def test_refusals_are_the_servers_errors(self, client_of):
        cases = [
            (401, "unauthenticated", modbox.AuthError),
            (403, "forbidden", modbox.AuthError),
            (404, "not_found", modbox.NotFoundError),
            (409, "not_running", modbox.ConflictError),
            (410, "ended", modbox.EndedError),
            (422, "invalid", modbox.ValidationError),
            (429, "quota_exceeded", modbox.ModboxError),
        ]
        for status, code, kind in cases:
            body = problem(code)

            def script(peer, status=status, body=body):
                length = {} if status == 404 else {"content_length": len(body)}  # without: to the connection's end
                peer.refuse(status, body, x_request_id="r-1", retry_after=7, **length)

            server = SocketServer(self, script)
            client = client_of(server.url)
            for attach in (client.sandboxes.attach("a", shell="x"), client.executions.attach("a", "e")):
                with self.assertRaises(kind) as caught:
                    await attach
                err = caught.exception
                self.assertEqual((err.code, err.message, err.status), (code, f"it is {code}", status))
                self.assertEqual((err.request_id, err.retry_after), ("r-1", 7))

    @with_both
    async def test_other_answers_than_a_web_socket(self, client_of):
        def page(peer):
            with suppress(OSError):  # nobody takes all of it
                peer.refuse(502, b"<html>" + bytes(128 << 10), content_length=1 << 40)
                peer.receive()

        def cut(peer):
            peer.refuse(404, problem("not_found"), content_length=1000)

        def nothing(peer):
            peer.receive()

        def nonsense(peer):
            peer.receive()
            peer.connection.sendall(b"hello\r\n\r\n")

        def other(peer):
            peer.receive()
            peer.connection.sendall(b"HTTP/1.1 101 X\r\nupgrade: websocket\r\nconnection: upgrade\r\nsec-websocket-accept: no\r\n\r\n")

        cases = [(page, "unavailable"), (cut, "not_found"), (nothing, "connection"), (nonsense, "connection"), (other, "connection")]
        for script, code in cases:
            with self.assertRaises(modbox.ModboxError) as caught:
                await client_of(SocketServer(self, script).url).sandboxes.attach("a", shell="x")
            self.assertEqual(caught.exception.code, code, script)

    @with_both
    async def test_only_attaching_again_is_tried_twice(self, client_of):
        body = problem("unavailable")

        def script(peer):
            if len(server.peers) < 3:
                return peer.refuse(503, body, content_length=len(body))
            peer.accept(first=False)
            peer.tell(**EXIT)
            peer.receive()

        server = SocketServer(self, script)
        client = client_of(server.url, max_retries=3)
        with self.assertRaises(modbox.ModboxError) as caught:
            await client.sandboxes.attach("a", shell="x")
        self.assertEqual((caught.exception.code, len(server.peers)), ("unavailable", 1))
        self.assertEqual([e.exit_code for e in await collect(await client.executions.attach("a", "e"))], [3])
        self.assertEqual(len(server.peers), 3)

    @with_both
    async def test_a_server_that_is_silent_or_not_there(self, client_of):
        server = SocketServer(self, lambda peer: (peer.receive(), peer.receive()))
        with self.assertRaises(modbox.TimeoutError):
            await client_of(server.url, timeout=0.05).sandboxes.attach("a", shell="x")
        with socket.socket() as deaf, self.assertRaises(modbox.ConnectionError):
            deaf.bind(("127.0.0.1", 0))
            await client_of(f"http://127.0.0.1:{deaf.getsockname()[1]}").sandboxes.attach("a", shell="x")
        for url in ("ftp://localhost", "http://"):
            with self.assertRaises(modbox.ValidationError):
                await client_of(url).sandboxes.attach("a", shell="x")
        with self.assertRaises(modbox.ValidationError) as caught:
            await client_of(server.url, token="secret\n").sandboxes.attach("a", shell="x")
        self.assertNotIn("secret", str(caught.exception))

    @with_both
    async def test_fragments_and_pings(self, client_of):
        pongs = []

        def script(peer):
            peer.accept()
            peer.send(ws.BytesMessage(data=b"\x01a", message_finished=False), ws.Ping(payload=b"1"))
            peer.send(ws.BytesMessage(data=b"b", message_finished=False), ws.BytesMessage(data=b"", message_finished=True))
            text = json.dumps({"type": "started", "pid": 9})
            for i, letter in enumerate(text):
                for byte in peer._protocol.send(ws.TextMessage(data=letter, message_finished=i == len(text) - 1)):
                    peer.connection.sendall(bytes([byte]))
            pongs.append(peer.receive().payload)
            peer.send(ws.Ping(payload=b"2"))
            pongs.append(peer.receive().payload)  # answered while nothing else is said
            peer.tell(**EXIT)
            peer.receive()

        events = await collect(await client_of(SocketServer(self, script).url).sandboxes.attach("a", shell="x"))
        self.assertEqual([(e.type, e.data, e.pid, e.exit_code) for e in events], [("stdout", b"ab", 0, 0), ("started", b"", 9, 0), ("exit", b"", 0, 3)])
        self.assertEqual(pongs, [b"1", b"2"])

    @with_both
    async def test_an_exit_is_never_made_up(self, client_of):
        ends = {
            "closed": lambda peer: None,
            "reset": lambda peer: peer.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0)),
            "normal end": lambda peer: peer.send(ws.CloseConnection(code=1000)),
            "failed": lambda peer: peer.send(ws.CloseConnection(code=1011, reason="why")),
            "not JSON": lambda peer: (peer.send(ws.TextMessage(data="{")), peer.receive()),
            "no object": lambda peer: (peer.send(ws.TextMessage(data="[]")), peer.receive()),
            "no frame": lambda peer: (peer.connection.sendall(b"\xff\xff\xff\xff"), peer.receive()),
            "half a frame": lambda peer: peer.connection.sendall(b"\x82\x10\x01abc"),
            "too long": lambda peer: (peer.output(bytes(2 << 20)), peer.receive()),
        }
        for name, end in ends.items():

            def script(peer, end=end):
                peer.accept()
                peer.output(b"before")
                peer.message()
                with suppress(OSError):  # it does not take all of what is too long
                    end(peer)

            session = await client_of(SocketServer(self, script).url).sandboxes.attach("a", shell="x")
            got = [(await session.__anext__()).data]
            await session.write("go on")
            with self.assertRaises(modbox.ConnectionError, msg=name):
                async for event in session:
                    got.append(event)
            self.assertEqual(got, [b"before"], name)
            for again in (session.__anext__, lambda: session.write("x"), lambda: session.resize(1, 2)):
                with self.assertRaises(modbox.ConnectionError, msg=name):
                    await again()

    @with_both
    async def test_the_servers_own_errors(self, client_of):
        messages = [
            ({"type": "error", "code": "not_running", "message": "no"}, modbox.ConflictError, "not_running"),
            ({"type": "error"}, modbox.ModboxError, "internal"),
            ({"type": "exit"}, modbox.ModboxError, "bad_response"),
        ]
        for message, kind, code in messages:

            def script(peer, message=message):
                peer.accept()
                peer.output(b"a")
                peer.tell(**message)
                peer.receive()

            session = await client_of(SocketServer(self, script).url).sandboxes.attach("a", shell="x")
            self.assertEqual((await session.__anext__()).data, b"a")
            with self.assertRaises(kind) as caught:
                await session.__anext__()
            self.assertEqual(caught.exception.code, code)

    @with_both
    async def test_closing_ends_the_connection_and_who_waits_for_it(self, client_of):
        ended = []

        def script(peer):
            peer.accept()
            peer.output(b"a")
            while (event := peer.receive()) is not None:
                ended.append(type(event))

        server = SocketServer(self, script)
        async with await client_of(server.url).sandboxes.attach("a", shell="x") as session:
            self.assertEqual((await session.__anext__()).data, b"a")
            waiting = asyncio.ensure_future(session.__anext__())
            await asyncio.sleep(0)
        with self.assertRaises(modbox.ConnectionError):
            await waiting
        await session.close()
        await server.done()
        self.assertEqual(ended, [ws.CloseConnection])

    @with_both
    async def test_what_nobody_reads_waits_at_the_server(self, client_of):
        """It is either stalled, however long that takes to say, or has sent more than a client may hold."""
        stalled, sent_all, done = threading.Event(), threading.Event(), threading.Event()

        def script(peer):
            peer.accept()
            peer.connection.settimeout(2)
            try:
                for _ in range(2048):
                    peer.output(bytes(64 << 10))
                sent_all.set()
            except OSError:
                stalled.set()
            done.set()

        session = await client_of(SocketServer(self, script).url).sandboxes.attach("a", shell="yes")
        await session.__anext__()
        await asyncio.to_thread(done.wait)
        await session.close()
        self.assertEqual((stalled.is_set(), sent_all.is_set()), (True, False))

    @with_both
    async def test_input_that_is_not_taken_keeps_nobody_from_reading(self, client_of):
        """The server takes the input only when its output was read, and pings meanwhile."""
        size = 32 << 20
        read = threading.Event()
        got = []

        def script(peer):
            peer.accept()
            for _ in range(500):
                peer.output(bytes(64 << 10))
                peer.send(ws.Ping(payload=b"x" * 100))
            read.wait(PATIENCE_SECONDS)
            peer.output(b"all")
            received = 0
            while received < size:
                event = peer.receive()
                received += len(event.data) - event.message_finished if isinstance(event, ws.BytesMessage) else 0
            got.append(received)
            peer.tell(**EXIT)
            peer.receive()

        session = await client_of(SocketServer(self, script).url).sandboxes.attach("a", shell="cat", stdin=True)
        writing = asyncio.ensure_future(session.write(bytes(size)))
        total = 0
        async for event in session:
            total += len(event.data)
            if total == 500 * (64 << 10):
                read.set()
        await writing
        self.assertEqual((event.type, event.exit_code, got, total), ("exit", 3, [size], 500 * (64 << 10) + 3))

    def test_cancelling_a_wait_loses_nothing(self):
        go = threading.Event()

        def script(peer):
            peer.accept()
            go.wait(PATIENCE_SECONDS)
            peer.output(b"a")
            peer.tell(**EXIT)
            peer.receive()

        async def run():
            async with modbox.AsyncModboxClient("mbx_test", base_url=server.url) as client:
                session = await client.sandboxes.attach("a", shell="x")
                waiting = asyncio.ensure_future(session.__anext__())
                await asyncio.sleep(0)
                waiting.cancel()
                with self.assertRaises(asyncio.CancelledError):
                    await waiting
                go.set()
                self.assertEqual([e.type for e in await collect(session)], ["stdout", "exit"])

        server = SocketServer(self, script)
        asyncio.run(run())


class TLSTest(unittest.TestCase):
    def setUp(self):
        directory = tempfile.TemporaryDirectory()
        self.addCleanup(directory.cleanup)
        self.cert, key = (str(Path(directory.name, name)) for name in ("cert.pem", "key.pem"))
        subprocess.run(
            ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-keyout", key, "-out", self.cert]
            + ["-days", "2", "-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost"],
            check=True,
            capture_output=True,
        )
        self.context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        self.context.load_cert_chain(self.cert, key)

    @with_both
    async def test_tls(self, client_of):
        def script(peer):
            peer.accept()
            while (message := peer.message()) != {"type": "stdin_eof"}:
                peer.output(message[1:])
            peer.tell(**EXIT)
            peer.receive()

        server = SocketServer(self, script, self.context)
        trusting = client_of(server.url, ssl_context=ssl.create_default_context(cafile=self.cert))
        session = await trusting.sandboxes.attach("a", shell="cat", stdin=True)
        text = bytes(range(256)) * (16 << 10)

        async def write():
            await session.write(text)
            await session.close_stdin()

        writing = asyncio.ensure_future(write())
        events = await collect(session)
        await writing
        self.assertEqual((b"".join(e.data for e in events), events[-1].exit_code), (text, 3))
        with self.assertRaises(modbox.ConnectionError) as caught:
            await client_of(server.url).sandboxes.attach("a", shell="x")
        self.assertIn("certificate", str(caught.exception))


    @with_both
    async def test_other_calls_trust_the_same(self, client_of):
        context = ssl.create_default_context(cafile=self.cert)
        url = SocketServer(self, answer_version, self.context).url
        self.assertEqual((await client_of(url, ssl_context=context).version()).version, "1.2")
        with self.assertRaises(modbox.ConnectionError):
            await client_of(url).version()

    def test_the_standard_librarys_transport_trusts_it_too(self):
        transport = modbox.UrllibTransport(ssl.create_default_context(cafile=self.cert))
        url = SocketServer(self, answer_version, self.context).url
        with modbox.ModboxClient("mbx_test", base_url=url, transport=transport) as client:
            self.assertEqual(client.version().version, "1.2")


def answer_version(peer):
    request = b""
    while not request.endswith(b"\r\n\r\n"):
        request += peer.connection.recv(1)
    peer.connection.sendall(b"HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 17\r\n\r\n" + b'{"version":"1.2"}')


class ExtraTest(unittest.TestCase):
    @with_both
    async def test_without_wsproto_the_extra_is_named(self, client_of):
        loaded = {name: None for name in sys.modules if name.split(".")[0] == "wsproto"}
        with mock.patch.dict(sys.modules, {**loaded, "wsproto": None}):
            sys.modules.pop("modbox._websocket", None)
            with self.assertRaisesRegex(ImportError, r"modbox\[terminal\].*wsproto"):
                await client_of("http://localhost").sandboxes.attach("a", shell="x")

    def test_it_is_not_imported_before(self):
        code = "import modbox, sys; modbox.ModboxClient('t').close(); print('wsproto' in sys.modules)"
        out = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
        self.assertEqual(out.stdout, "False\n")


if __name__ == "__main__":
    unittest.main()
