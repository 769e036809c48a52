"""Uploads whose connection breaks, of both clients."""

import io
import tempfile
import unittest

import modbox
from modbox import AsyncModbox, Modbox
from modbox.transport import UrllibTransport
from server import Server, send_json

CONTENT = bytes(range(256)) * 4096
INFO = {"name": "f", "path": "/f", "type": "file", "size_bytes": 3, "mode": "0644", "uid": 0, "gid": 0, "mod_time": "2026-01-01T00:00:00Z"}


def chunks():
    return (CONTENT[i : i + 65536] for i in range(0, len(CONTENT), 65536))


class UploadsTest(unittest.IsolatedAsyncioTestCase):
    def setUp(self):
        self.file = tempfile.TemporaryFile()
        self.addCleanup(self.file.close)
        self.file.write(b"before" + CONTENT)

    def contents(self):
        """What can be sent again, by name."""
        self.file.seek(len(b"before"))
        return {
            "bytes": CONTENT,
            "bytearray": bytearray(CONTENT),
            "a list": list(chunks()),
            "a file in memory": io.BytesIO(CONTENT),
            "the rest of a file": self.file,
        }

    def serve(self, cuts):
        return Server(self, lambda seen, handler, n: send_json(handler, INFO), cuts)

    def client(self, server, **options):
        client = Modbox("mbx_test", base_url=server.url, **options)
        self.addCleanup(client.close)
        return client.sandboxes.files

    def aio(self, server):
        client = AsyncModbox("mbx_test", base_url=server.url)
        self.addAsyncCleanup(client.close)
        return client.sandboxes.files

    async def test_content_that_can_be_read_again_is_sent_again(self):
        for name, content in self.contents().items():
            for transport in (None, UrllibTransport()):
                for call in ("write", "upload_archive"):
                    with self.subTest(name, transport=transport, call=call):
                        server = self.serve(2)
                        if content is self.file:
                            self.file.seek(len(b"before"))
                        elif hasattr(content, "seek"):
                            content.seek(0)
                        getattr(self.client(server, transport=transport), call)("a", "/f", content)
                        self.assertEqual([seen.body == CONTENT for seen in server.requests], [True])
                        self.assertEqual(server.cuts, 0)
        for name, content in self.contents().items():
            with self.subTest(name, client="asyncio"):
                server = self.serve(2)
                await self.aio(server).write("a", "/f", content)
                self.assertEqual([seen.body == CONTENT for seen in server.requests], [True])

    async def test_streams_are_not_sent_again(self):
        server = self.serve(1)
        with self.assertRaises(modbox.ConnectionError):
            self.client(server).write("a", "/f", chunks())
        with self.assertRaises(modbox.ConnectionError):
            server.cuts = 1
            await self.aio(server).upload_archive("a", "/f", chunks())
        self.assertEqual((server.cuts, server.requests), (0, []))

    async def test_an_upload_that_always_breaks_is_given_up(self):
        server = self.serve(100)
        with self.assertRaises(modbox.ConnectionError):
            self.client(server, max_retries=2).write("a", "/f", CONTENT)
        self.assertEqual(server.cuts, 97)

    async def test_text_is_no_archive_and_no_binary_file(self):
        files = self.client(self.serve(0))
        with self.assertRaisesRegex(TypeError, "the file is open as text; open it with the mode 'rb'"):
            files.write("a", "/f", io.StringIO("x"))
        with self.assertRaisesRegex(TypeError, "an archive is bytes, a binary file, or an iterable of bytes, not 'x.tar'"):
            files.upload_archive("a", "/f", "x.tar")
