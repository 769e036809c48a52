"""Many files at once, archives and watches, of both clients, against a scripted server."""

import base64
import unittest

import modbox
from modbox import AsyncModboxClient, FileEvent, ModboxClient
from server import Server, send, send_json, send_problem

LINES = b'{"type":"ready"}\n{"type":"created","path":"/w/d","directory":true}\n{"type":"ping"}\n{"type":"new"}\n{"type":"overflow"}\n'
EVENTS = [FileEvent("created", "/w/d", True), FileEvent("overflow")]


class TreesTest(unittest.IsolatedAsyncioTestCase):
    def serve(self, answer):
        server = Server(self, answer)
        client = ModboxClient("mbx_test", base_url=server.url)
        self.addCleanup(client.close)
        aio = AsyncModboxClient("mbx_test", base_url=server.url)
        self.addAsyncCleanup(aio.close)
        return server, client.sandboxes.files, aio.sandboxes.files

    async def test_write_many(self):
        server, files, aio = self.serve(lambda seen, handler, n: send_json(handler, {"count": 2}))
        files.write_many("a", {"/t": "grün", "/b": b"\0"}, mode="0755")
        await aio.write_many("a", {"/t": "grün", "/b": b"\0"}, mode="0755")
        for seen in server.requests:
            self.assertEqual((seen.method, seen.path), ("POST", "/v1/sandboxes/a/files/batch"))
            sent = [(f["path"], base64.b64decode(f["content"]), f["mode"]) for f in seen.json()["files"]]
            self.assertEqual(sent, [("/t", "grün".encode(), "0755"), ("/b", b"\0", "0755")])

    async def test_archives(self):
        server, files, aio = self.serve(lambda seen, handler, n: send(handler, b"archive"))
        files.upload_archive("a", "/w", iter([b"in", b"to"]), format="zip", keep_links=True)
        await aio.upload_archive("a", "/w", b"into")
        self.assertEqual([seen.body for seen in server.requests], [b"into", b"into"])
        self.assertEqual(server.requests[0].query, {"path": ["/w"], "format": ["zip"], "keep_links": ["true"]})
        self.assertEqual(b"".join(files.download_archive("a", "/w")), b"archive")
        self.assertEqual(b"".join([c async for c in aio.download_archive("a", "/w", format="tar")]), b"archive")

    async def test_hostile_archive(self):
        _, files, _ = self.serve(lambda seen, handler, n: send_problem(handler, 422, "invalid"))
        with self.assertRaises(modbox.ValidationError):
            files.upload_archive("a", "/w", b"x")

    async def test_watch(self):
        server, files, aio = self.serve(lambda seen, handler, n: send(handler, LINES + b'{"type":"ended"}\n'))
        self.assertEqual(list(files.watch("a", "/w", recursive=True)), EVENTS)
        self.assertEqual([e async for e in await aio.watch("a", "/w")], EVENTS)
        self.assertEqual(server.requests[0].query, {"path": ["/w"], "recursive": ["true"]})

    async def test_watch_that_breaks_off(self):
        tails = {"/cut": b"", "/error": b'{"type":"error","code":"ended","message":"m"}\n'}
        _, files, aio = self.serve(lambda seen, handler, n: send(handler, LINES + tails[seen.query["path"][0]]))
        for path, code in (("/cut", "connection"), ("/error", "ended")):
            with self.assertRaises(modbox.ModboxError) as raised:
                list(files.watch("a", path))
            self.assertEqual(raised.exception.code, code)
            with self.assertRaises(modbox.ModboxError) as raised:
                _ = [e async for e in await aio.watch("a", path)]
            self.assertEqual(raised.exception.code, code)
