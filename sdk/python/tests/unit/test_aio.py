"""The asyncio client against a scripted server. What is sent and read is shared code, tested at the other client."""

import asyncio
import base64
import threading
import unittest
from contextlib import aclosing

import modbox
from modbox import AsyncModboxClient
from server import WIRE_DETAIL, Server, send, send_json, send_problem, wire_sandbox
from test_client import PROVISIONED, stream


class AsyncClientTest(unittest.IsolatedAsyncioTestCase):
    def client(self, server, **options):
        client = AsyncModboxClient("mbx_test", base_url=server.url, **options)
        self.addAsyncCleanup(client.close)
        return client

    async def test_a_sandbox_by_its_task(self):
        answers = {
            "/sandboxes/provision": PROVISIONED,
            "/sandboxes/wait": {"ready": True},
            "/sandboxes/detail/a": WIRE_DETAIL,
            "/sandboxes/destroy": {"success": True, "error": None},
        }
        client = self.client(Server(self, lambda seen, handler, n: send_json(handler, answers[seen.path])))
        self.assertEqual((await client.provision_sandbox(task_id="a")).sandbox_id, "id-1")
        self.assertTrue((await client.wait_for_sandbox(task_id="a", timeout=30)).ready)
        self.assertEqual((await client.get_sandbox("a")).id, "id-1")
        self.assertTrue((await client.destroy_sandbox(task_id="a")).success)

    async def test_list_walks_over_the_pages(self):
        def answer(seen, handler, n):
            last = seen.query.get("cursor") == ["c2"]
            send_json(handler, {"items": [wire_sandbox(name="b" if last else "a")], **({} if last else {"next_cursor": "c2"})})

        client = self.client(Server(self, answer))
        self.assertEqual([s.name async for s in client.sandboxes.list()], ["a", "b"])

    async def test_retries(self):
        def answer(seen, handler, n):
            if n < 2:
                return send_problem(handler, 503, "unavailable")
            return send_json(handler, wire_sandbox())

        server = Server(self, answer)
        self.assertEqual((await self.client(server).sandboxes.get("a")).name, "a")
        with self.assertRaises(modbox.NotFoundError):
            await self.client(Server(self, lambda s, h, n: send_problem(h, 404, "not_found"))).sandboxes.get("a")

    async def test_files(self):
        content = bytes(range(256)) * 400
        info = {"name": "f", "path": "/f", "type": "file", "size_bytes": 3, "mode": "0644", "uid": 0, "gid": 0}
        info["mod_time"] = "2026-01-01T00:00:00Z"

        def answer(seen, handler, n):
            send_json(handler, info) if seen.method == "PUT" else send(handler, content)

        async def chunks():
            yield content[:1000]
            yield content[1000:]

        server = Server(self, answer)
        files = self.client(server).sandboxes.files
        for given in (content, [content[:5], content[5:]], chunks()):
            await files.write("a", "/f", given)
            self.assertEqual(server.requests[-1].body, content)
        self.assertEqual(await files.read("a", "/f"), content)
        self.assertEqual(b"".join([c async for c in files.read_stream("a", "/f")]), content)

    async def test_exec_stream(self):
        lines = [
            {"type": "started", "pid": 7},
            {"type": "ping"},
            {"type": "stdout", "data": base64.b64encode(b"\x00\xff").decode()},
            {"type": "exit", "exit_code": 3},
        ]

        def answer(seen, handler, n):
            stream(handler, lines if n == 0 else lines[:1])

        client = self.client(Server(self, answer))
        events = [e async for e in client.sandboxes.exec_stream("a", ["x"])]
        self.assertEqual([(e.type, e.data, e.exit_code) for e in events][1:], [("stdout", b"\x00\xff", 0), ("exit", b"", 3)])
        with self.assertRaises(modbox.ConnectionError):
            [e async for e in client.sandboxes.exec_stream("a", ["x"])]

    async def test_leaving_exec_stream_closes_the_connection(self):
        closed = threading.Event()

        def answer(seen, handler, n):
            stream(handler, [{"type": "started"}], whole=None)
            handler.connection.settimeout(120)
            if handler.connection.recv(1) == b"":
                closed.set()

        client = self.client(Server(self, answer))
        async with aclosing(client.sandboxes.exec_stream("a", shell="x")) as events:
            async for _ in events:
                break
        self.assertTrue(await asyncio.to_thread(closed.wait, 120))

    async def test_calls_run_side_by_side(self):
        both = threading.Barrier(2, timeout=120)

        def answer(seen, handler, n):
            both.wait()  # passes only when two requests are here at once
            send_json(handler, wire_sandbox())

        client = self.client(Server(self, answer), max_retries=0)
        await asyncio.gather(client.sandboxes.get("a"), client.sandboxes.get("b"))


if __name__ == "__main__":
    unittest.main()
