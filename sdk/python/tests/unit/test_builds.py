import asyncio
import base64
import json
import unittest
from email.parser import BytesParser

import modbox
from modbox import AsyncModboxClient, ModboxClient
from server import Server

WHEN = "2026-01-01T00:00:00Z"
STEP = {"type": "step", "step": 1, "steps": 2, "stage": "0", "line": 1, "instruction": "FROM base"}
OUTPUT = {"type": "output", "data": base64.b64encode(b"hi\xff").decode()}
DONE = {"type": "done", "image": {"id": "i", "name": "app", "tag": "v1", "ref": "app:v1", "created_at": WHEN, "updated_at": WHEN}}


def serve(test, *lines):
    def answer(seen, handler, n):
        body = b"".join(json.dumps(line).encode() + b"\n" for line in lines)
        handler.send_response(200)
        handler.send_header("content-length", str(len(body)))
        handler.end_headers()
        handler.wfile.write(body)

    return Server(test, answer)


def parts(request):
    """The parts of a form by their names."""
    text = b"content-type: " + request.headers["content-type"].encode() + b"\r\n\r\n" + request.body
    message = BytesParser().parsebytes(text)
    return {p.get_param("name", header="content-disposition"): p.get_payload(decode=True) for p in message.get_payload()}


class BuildTest(unittest.TestCase):
    def test_files_as_bytes_and_chunks(self):
        for files in (b"tar\r\nfile", [b"tar\r\n", b"file"], iter([b"tar\r\nfile"])):
            server = serve(self, STEP, {"type": "ping"}, OUTPUT, DONE)
            with ModboxClient(token="mbx_test", base_url=server.url) as client:
                events = list(
                    client.images.build(
                        files, tag="app:v1", dockerfile="FROM base\n", path="x/Dockerfile", build_args={"A": "1"}, no_cache=True,
                        resources=modbox.Resources(memory="1Gi"), timeout_seconds=60, wait_for_quota_seconds=30,
                    )
                )
            self.check(server, events)

    def test_files_of_an_async_program(self):
        async def chunks():
            yield b"tar\r\n"
            yield b"file"

        async def run(files):
            async with AsyncModboxClient(token="mbx_test", base_url=server.url) as client:
                build = client.images.build(
                    files, tag="app:v1", dockerfile="FROM base\n", path="x/Dockerfile", build_args={"A": "1"}, no_cache=True,
                    resources=modbox.Resources(memory="1Gi"), timeout_seconds=60, wait_for_quota_seconds=30,
                )
                return [event async for event in build]

        for files in (chunks(), b"tar\r\nfile"):
            server = serve(self, STEP, OUTPUT, DONE)
            self.check(server, asyncio.run(run(files)))

    def check(self, server, events):
        self.assertEqual([e.type for e in events], ["step", "output", "done"])
        self.assertEqual((events[0].line, events[0].instruction, events[0].cached), (1, "FROM base", False))
        self.assertEqual((events[1].data, events[2].image.ref), (b"hi\xff", "app:v1"))
        got = parts(server.requests[0])
        self.assertEqual(
            json.loads(got["options"]),
            {
                "tag": "app:v1", "dockerfile": "x/Dockerfile", "build_args": {"A": "1"}, "no_cache": True,
                "resources": {"memory": "1Gi"}, "timeout_seconds": 60, "wait_for_quota_seconds": 30,
            },
        )
        self.assertEqual((got["dockerfile"].strip(), got["context"]), (b"FROM base", b"tar\r\nfile"))

    def test_instruction_that_fails(self):
        error = {"type": "error", "code": "invalid", "message": "RUN false ended with 1", "line": 3, "instruction": "RUN false", "exit_code": 1}
        server = serve(self, STEP, error)
        with ModboxClient(token="mbx_test", base_url=server.url) as client:
            with self.assertRaises(modbox.BuildError) as caught:
                list(client.images.build(b"tar"))
        err = caught.exception
        self.assertEqual((err.code, err.line, err.instruction, err.exit_code), ("invalid", 3, "RUN false", 1))

    def test_build_that_breaks_off(self):
        server = serve(self, STEP)
        with ModboxClient(token="mbx_test", base_url=server.url) as client:
            with self.assertRaises(modbox.ConnectionError):
                list(client.images.build(b"tar"))
        self.assertEqual(len(server.requests), 1)

    def test_delete(self):
        def answer(seen, handler, n):
            handler.send_response(204)
            handler.end_headers()

        server = Server(self, answer)
        with ModboxClient(token="mbx_test", base_url=server.url) as client:
            client.images.delete("i")
        self.assertEqual((server.requests[0].method, server.requests[0].path), ("DELETE", "/v1/images/i"))

    def test_prune(self):
        def answer(seen, handler, n):
            body = {"images": [{"ref": "app:v1", "digest": "sha256:1", "size_bytes": 5, "workspace_id": "w"}, {"digest": "sha256:2"}], "freed_bytes": 7, "dry_run": True}
            data = json.dumps(body).encode()
            handler.send_response(200)
            handler.send_header("Content-Length", str(len(data)))
            handler.end_headers()
            handler.wfile.write(data)

        server = Server(self, answer)
        with ModboxClient(token="mbx_test", base_url=server.url) as client:
            got = client.images.prune(all=True, dry_run=True)
            client.images.prune()

        async def asynchronous():
            async with modbox.AsyncModboxClient(token="mbx_test", base_url=server.url) as client:
                return await client.images.prune(all=True, dry_run=True)

        self.assertEqual(asyncio.run(asynchronous()), got)
        self.assertEqual([(i.ref, i.digest, i.workspace_id) for i in got.images], [("app:v1", "sha256:1", "w"), (None, "sha256:2", None)])
        self.assertEqual((got.freed_bytes, got.dry_run), (7, True))
        self.assertEqual([r.json() for r in server.requests], [{"all": True, "dry_run": True}, {}, {"all": True, "dry_run": True}])


if __name__ == "__main__":
    unittest.main()
