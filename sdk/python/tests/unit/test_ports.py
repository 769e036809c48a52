import asyncio
import json
import unittest
from datetime import datetime, timezone

import modbox
from modbox import AsyncModboxClient, ModboxClient
from server import Server, send_json, send_problem, wire_sandbox

WHEN = "2026-01-01T00:00:00Z"
WIRE = {"port": 3000, "url": "https://p3000-x.example.com", "access": "private", "created_at": WHEN}
LINK = {"url": "https://p3000-x.example.com/?t", "token": "mbl_x", "expires_at": WHEN}
TIME = datetime(2026, 1, 1, tzinfo=timezone.utc)
PORT = modbox.PublishedPort(3000, "https://p3000-x.example.com", "private", TIME)

REQUESTS = [
    ("GET", "/v1/sandboxes/a%20b/ports", None),
    ("PUT", "/v1/sandboxes/a/ports/3000", {"access": "private"}),
    ("PUT", "/v1/sandboxes/a/ports/3000", {}),
    ("POST", "/v1/sandboxes/a/ports/3000/rotate", None),
    ("POST", "/v1/sandboxes/a/ports/3000/links", {"expires_in_seconds": 60}),
    ("POST", "/v1/sandboxes/a/ports/3000/links", {}),
    ("DELETE", "/v1/sandboxes/a/ports/3000", None),
]


def answer(seen, handler, n):
    if seen.method == "DELETE":
        handler.send_response(204)
        return handler.end_headers()
    if seen.path.endswith("/links"):
        return send_json(handler, LINK, 201)
    return send_json(handler, {"items": [WIRE]} if seen.method == "GET" else WIRE)


class Ports(unittest.TestCase):
    def check(self, server, listed, published, rotated, link):
        self.assertEqual((listed, published, rotated), ([PORT], PORT, PORT))
        self.assertEqual((link.url, link.token, link.expires_at), (LINK["url"], "mbl_x", TIME))
        self.assertNotIn("mbl_x", repr(link))
        self.assertEqual([(r.method, r.path, json.loads(r.body or b"null")) for r in server.requests], REQUESTS)

    def test_every_call(self):
        server = Server(self, answer)
        with ModboxClient(token="mbx_test", base_url=server.url) as client:
            ports = client.sandboxes.ports
            listed = list(ports.list("a b"))
            published = ports.publish("a", 3000, access="private")
            ports.publish("a", 3000)
            rotated = ports.rotate("a", 3000)
            link = ports.create_link("a", 3000, expires_in_seconds=60)
            ports.create_link("a", 3000)
            ports.unpublish("a", 3000)
        self.check(server, listed, published, rotated, link)

    def test_every_call_async(self):
        server = Server(self, answer)

        async def run():
            async with AsyncModboxClient(token="mbx_test", base_url=server.url) as client:
                ports = client.sandboxes.ports
                listed = [port async for port in ports.list("a b")]
                published = await ports.publish("a", 3000, access="private")
                await ports.publish("a", 3000)
                rotated = await ports.rotate("a", 3000)
                link = await ports.create_link("a", 3000, expires_in_seconds=60)
                await ports.create_link("a", 3000)
                await ports.unpublish("a", 3000)
                return listed, published, rotated, link

        self.check(server, *asyncio.run(run()))

    def test_publish_is_tried_again_and_what_makes_or_ends_something_is_not(self):
        def once_unavailable(seen, handler, n):
            return send_json(handler, WIRE) if n == 1 else send_problem(handler, 503, "unavailable")

        server = Server(self, once_unavailable)
        with ModboxClient(token="mbx_test", base_url=server.url) as client:
            ports = client.sandboxes.ports
            ports.publish("a", 3000)
            self.assertEqual(len(server.requests), 2)
            for call in (ports.rotate, ports.create_link, ports.unpublish):
                before = len(server.requests)
                with self.assertRaises(modbox.ModboxError) as caught:
                    call("a", 3000)
                self.assertEqual((caught.exception.code, len(server.requests)), ("unavailable", before + 1))

    def test_a_link_to_a_public_port_is_a_conflict(self):
        server = Server(self, lambda seen, handler, n: send_problem(handler, 409, "conflict"))
        with ModboxClient(token="mbx_test", base_url=server.url) as client:
            with self.assertRaises(modbox.ConflictError):
                client.sandboxes.ports.create_link("a", 3000)

    def test_a_sandbox_says_what_it_publishes_and_what_its_url_asks_for(self):
        wire = wire_sandbox(url_access="open", network={"enabled": False, "ports": [WIRE]})
        server = Server(self, lambda seen, handler, n: send_json(handler, wire, 201))
        with ModboxClient(token="mbx_test", base_url=server.url) as client:
            sandbox = client.sandboxes.create(url_access="open", network=modbox.NetworkOptions(ports=[3000]))
        self.assertEqual(server.requests[0].json(), {"url_access": "open", "network": {"enabled": False, "ports": [3000], "allow_out": [], "deny_out": [], "https_ports": []}})
        self.assertEqual((sandbox.url_access, sandbox.network.ports), ("open", [PORT]))

    def test_a_workspace_can_ask_for_a_key_on_all_urls(self):
        wire = {"id": "w", "name": "n", "slug": "s", "role": "owner", "url_access": "key", "created_at": WHEN, "updated_at": WHEN}
        server = Server(self, lambda seen, handler, n: send_json(handler, wire))
        with ModboxClient(token="mbx_test", base_url=server.url) as client:
            self.assertEqual(client.workspaces.update("w", url_access="key").url_access, "key")

        async def run():
            async with AsyncModboxClient(token="mbx_test", base_url=server.url) as client:
                return await client.workspaces.update("w", url_access="key")

        self.assertEqual(asyncio.run(run()).url_access, "key")
        self.assertEqual([r.json() for r in server.requests], [{"url_access": "key"}] * 2)

    def test_a_workspace_has_a_policy_for_code(self):
        old = {"id": "w", "name": "n", "slug": "s", "role": "owner", "created_at": WHEN, "updated_at": WHEN}
        answers = [{**old, "code_scan": "block", "code_scan_rules": ["eval"]}, old]
        server = Server(self, lambda seen, handler, n: send_json(handler, answers[n % 2]))
        with ModboxClient(token="mbx_test", base_url=server.url) as client:
            changed = client.workspaces.update("w", code_scan="block", code_scan_rules=("eval",))
            self.assertEqual((changed.code_scan, changed.code_scan_rules), ("block", ["eval"]))
            older = client.workspaces.update("w", code_scan_rules=[])
            self.assertEqual((older.code_scan, older.code_scan_rules), ("off", []))
        self.assertEqual([r.json() for r in server.requests], [{"code_scan": "block", "code_scan_rules": ["eval"]}, {"code_scan_rules": []}])


if __name__ == "__main__":
    unittest.main()

    def test_a_workspace_can_have_outputs_in_its_audit_log(self):
        old = {"id": "w", "name": "n", "slug": "s", "role": "owner", "created_at": WHEN, "updated_at": WHEN}
        answers = [{**old, "audit_output": True}, old]
        server = Server(self, lambda seen, handler, n: send_json(handler, answers[n % 2]))
        with ModboxClient(token="mbx_test", base_url=server.url) as client:
            self.assertTrue(client.workspaces.update("w", audit_output=True).audit_output)
            self.assertFalse(client.workspaces.update("w", audit_output=False).audit_output)
        self.assertEqual([r.json() for r in server.requests], [{"audit_output": True}, {"audit_output": False}])
