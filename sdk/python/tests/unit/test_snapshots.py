import asyncio
import json
import unittest

from modbox import AsyncModboxClient, ModboxClient
from server import Server, send_json

WIRE = {
    "id": "p", "name": "n", "tag": "v1", "full_name": "@default/n:v1", "image": "i", "size_bytes": 5,
    "layer_bytes": 3, "file_count": 2, "public": False, "created_at": "2026-01-01T00:00:00Z", "sandbox_id": "s",
}

REQUESTS = [
    ("POST", "/v1/sandboxes/a%20b/snapshots", {}, {"name": "n", "metadata": {"k": "v"}}),
    ("GET", "/v1/snapshots/%40default%2Fn%3Av1", {}, None),
    ("GET", "/v1/snapshots", {"public": ["true"], "limit": ["2"]}, None),
    ("PATCH", "/v1/snapshots/n", {}, {"tag": None}),
    ("DELETE", "/v1/snapshots/p", {}, None),
    ("GET", "/v1/snapshots/p/lineage", {}, None),
]


def answer(seen, handler, n):
    if seen.method == "DELETE":
        handler.send_response(204)
        return handler.end_headers()
    many = seen.path.endswith("/lineage") or seen.method == "GET" and seen.path.endswith("/snapshots")
    return send_json(handler, {"items": [WIRE], "total": 1} if many else WIRE)


class Snapshots(unittest.TestCase):
    def check(self, server, made, listed, lineage):
        self.assertEqual((made.full_name, made.size_bytes, made.sandbox_id, made.deleted_at), ("@default/n:v1", 5, "s", None))
        self.assertEqual((listed.items[0].tag, len(lineage)), ("v1", 1))
        self.assertEqual([(r.method, r.path, r.query, json.loads(r.body or b"null")) for r in server.requests], REQUESTS)

    def test_every_call(self):
        server = Server(self, answer)
        with ModboxClient(token="mbx_test", base_url=server.url) as client:
            snapshots = client.snapshots
            made = snapshots.create("a b", name="n", metadata={"k": "v"})
            snapshots.get("@default/n:v1")
            listed = snapshots.list(public=True, limit=2)
            snapshots.tag("n", None)
            snapshots.delete("p")
            self.check(server, made, listed, list(snapshots.lineage("p")))

    def test_every_call_async(self):
        server = Server(self, answer)

        async def run():
            async with AsyncModboxClient(token="mbx_test", base_url=server.url) as client:
                snapshots = client.snapshots
                made = await snapshots.create("a b", name="n", metadata={"k": "v"})
                await snapshots.get("@default/n:v1")
                listed = await snapshots.list(public=True, limit=2)
                await snapshots.tag("n", None)
                await snapshots.delete("p")
                return made, listed, (await snapshots.lineage("p")).items

        self.check(server, *asyncio.run(run()))


if __name__ == "__main__":
    unittest.main()
