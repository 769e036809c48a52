"""Terminals and attached commands, with both clients. Needs a server: MODBOX_URL and MODBOX_API_TOKEN."""

import asyncio
import os
import signal
import socket
import sys
import threading
import unittest
from pathlib import Path
from urllib.parse import urlsplit

import modbox

sys.path.append(str(Path(__file__).parents[1] / "unit"))
from web_sockets import with_both  # noqa: E402


class Relay:
    """Lies between a client and the server, until it is cut."""

    def __init__(self, test):
        url = urlsplit(os.environ["MODBOX_URL"])
        self._target = (url.hostname, url.port)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}{url.path}"
        self._sockets = []
        self._threads = [threading.Thread(target=self._accept)]
        self._threads[0].start()
        test.addCleanup(self._close)

    def cut(self):
        for s in self._sockets:
            try:
                s.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass  # it is already

    def _accept(self):
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            server = socket.create_connection(self._target)
            self._sockets += [client, server]
            for pair in ((client, server), (server, client)):
                self._threads.append(threading.Thread(target=self._copy, args=pair))
                self._threads[-1].start()

    def _copy(self, source, target):
        try:
            while data := source.recv(65536):
                target.sendall(data)
            target.shutdown(socket.SHUT_WR)
        except OSError:
            pass  # cut

    def _close(self):
        self._listener.shutdown(socket.SHUT_RDWR)
        self._threads[0].join()
        self.cut()
        for thread in self._threads:
            thread.join()
        for s in [self._listener, *self._sockets]:
            s.close()


async def read(session, until=None):
    """Reads up to ``until`` in the output, or to the exit; returns the output and the exit's event."""
    output = b""
    async for event in session:
        output += event.data
        if event.type == "exit":
            return output, event
        if until and until in output:
            return output, None
    raise AssertionError("no exit")


class TerminalsTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.client = modbox.ModboxClient()
        cls.addClassCleanup(cls.client.close)
        cls.sandbox = cls.client.sandboxes.create(image="modbox/code-exec", ttl_seconds=3600, wait_seconds=600).id
        cls.addClassCleanup(cls.client.sandboxes.delete, cls.sandbox)

    def of(self, client_of, url=None):
        return client_of(url, token=None, max_retries=3)

    @with_both
    async def test_a_shell_on_a_terminal(self, client_of):
        """What is asked for is spelled in another way than it is answered, as the terminal echoes the questions."""
        client = self.of(client_of)
        async with await client.sandboxes.attach(self.sandbox, ["bash", "--norc"], env={"PS1": "ready> "}, tty=(20, 70)) as session:
            self.assertEqual((await session.__anext__()).type, "started")
            await read(session, b"ready> ")
            await session.write("tty; stty size; echo si''ze\n")
            output, _ = await read(session, b"size\r\n")
            self.assertRegex(output, rb"/dev/(pts/)?[a-z0-9]+\r\n20 70\r\nsize")
            await session.resize(30, 90)
            await session.write(b"stty size; echo a''gain\n")
            output, _ = await read(session, b"again\r\n")
            self.assertIn(b"30 90\r\nagain", output)
            # Ctrl-C, as it is typed: it ends the command and not the shell.
            await session.write("(trap 'echo cau''ght; exit 3' INT; echo wai''ting; while :; do sleep 0.05; done); echo code $?.\n")
            await read(session, b"waiting\r\n")
            await session.write(b"\x03")
            output, _ = await read(session, b"caught\r\n")
            await session.write("\nexit 7\n")
            _, end = await read(session)
            self.assertEqual((end.exit_code, end.timed_out), (7, False))

    @with_both
    async def test_a_signal_reaches_the_command(self, client_of):
        client = self.of(client_of)
        script = "trap 'echo caught; exit 5' INT; echo ready; while :; do sleep 0.05; done"
        for tty in ((24, 80), None):
            session = await client.sandboxes.attach(self.sandbox, shell=script, tty=tty)
            await read(session, b"ready")
            await session.kill(signal.SIGINT)
            output, end = await read(session)
            self.assertEqual((output.strip(), end.exit_code), (b"caught", 5))
        session = await client.sandboxes.attach(self.sandbox, ["sleep", "3000"])
        await session.kill(signal.SIGTERM)
        _, end = await read(session)
        self.assertEqual((end.exit_code, end.signal), (143, 15))

    @with_both
    async def test_input_of_any_size_that_ends(self, client_of):
        session = await self.of(client_of).sandboxes.attach(self.sandbox, shell="cat; echo end >&2; exit 4", stdin=True)
        content = bytes(range(256)) * (8 << 10)

        async def write():
            await session.write(content)
            await session.close_stdin()

        writing = asyncio.ensure_future(write())
        events = [event async for event in session]
        await writing
        self.assertTrue(b"".join(e.data for e in events if e.type == "stdout") == content)
        self.assertEqual(b"".join(e.data for e in events if e.type == "stderr"), b"end\n")
        self.assertEqual((events[0].type, events[-1].type, events[-1].exit_code), ("started", "exit", 4))

    @with_both
    async def test_an_execution_is_attached_to_again_after_its_connection_broke(self, client_of):
        relay = Relay(self)
        client = self.of(client_of, relay.url)
        script = "tty >/dev/null && echo terminal; read a; echo one $a; read b; echo two $b; read c; echo three $c; exit 6"
        execution = await client.executions.start(self.sandbox, shell=script, tty=(24, 80))
        session = await client.executions.attach(self.sandbox, execution.id)
        output, _ = await read(session, b"terminal\r\n")
        await session.write("x\n")
        more, _ = await read(session, b"one x\r\n")
        output += more
        self.assertEqual(session.offset, len(output))

        # Somebody else goes on meanwhile, whose output is not missed.
        other = await self.of(client_of).executions.attach(self.sandbox, execution.id, offset=session.offset)
        relay.cut()
        with self.assertRaises(modbox.ConnectionError):
            await read(session)
        await other.write("y\n")
        await read(other, b"two y\r\n")
        await other.close()

        session = await client.executions.attach(self.sandbox, execution.id, offset=session.offset)
        more, _ = await read(session, b"two y\r\n")
        output += more
        await session.write("z\n")
        more, end = await read(session)
        output += more
        self.assertEqual(end.exit_code, 6)
        self.assertEqual(output, b"".join(self.client.executions.logs(execution.id)))
        self.assertEqual(session.offset, len(output))
        self.assertEqual((await client.executions.get(execution.id)).exit_code, 6)
        # Also after the end, from any byte.
        late = await client.executions.attach(self.sandbox, execution.id, offset=len(output) - 3)
        output, end = await read(late)
        self.assertEqual((output, end.exit_code), (b"z\r\n", 6))

    @with_both
    async def test_closing_kills_an_attached_command_and_no_execution(self, client_of):
        client = self.of(client_of)
        begun = {}
        for name in ("attached", "execution"):
            script = f"echo $$; exec sleep {9000 if name == 'attached' else 9001}"
            if name == "attached":
                session = await client.sandboxes.attach(self.sandbox, shell=script)
            else:
                execution = await client.executions.start(self.sandbox, shell=script)
                session = await client.executions.attach(self.sandbox, execution.id)
            output, _ = await read(session, b"\n")
            begun[name] = output.decode().strip()
            await session.close()
        # Returns when the first is gone; that takes as long as it takes.
        gone = f"while kill -0 {begun['attached']}; do sleep 0.1; done; kill -0 {begun['execution']}"
        result = await client.sandboxes.exec(self.sandbox, shell=gone, timeout_seconds=600)
        self.assertEqual(result.exit_code, 0)
        await client.executions.cancel(execution.id, force=True)

    @with_both
    async def test_what_cannot_be_attached_to_says_why(self, client_of):
        client = self.of(client_of)
        with self.assertRaises(modbox.NotFoundError):
            await client.sandboxes.attach("no-such-sandbox", ["true"])
        with self.assertRaises(modbox.NotFoundError):
            await client.executions.attach(self.sandbox, "no-such-execution")
        with self.assertRaises(modbox.AuthError) as caught:
            await client_of(None, token="mbx_wrong").sandboxes.attach(self.sandbox, ["true"])
        self.assertEqual(caught.exception.status, 401)
        execution = await client.executions.start(self.sandbox, shell="echo hi", wait_seconds=240)
        with self.assertRaises(modbox.ValidationError) as caught:
            await client.executions.attach(self.sandbox, execution.id, offset=100)
        self.assertEqual(caught.exception.field, "offset")
        session = await client.sandboxes.attach(self.sandbox, ["/no/such/program"])
        with self.assertRaisesRegex(modbox.ModboxError, "no/such"):
            await read(session)


if __name__ == "__main__":
    unittest.main()
