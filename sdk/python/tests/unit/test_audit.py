import asyncio
import unittest
from datetime import datetime, timezone

from modbox import AsyncModboxClient, ModboxClient, Quota
from server import Server, send_json, wire_sandbox

WHEN = "2026-01-01T00:00:00Z"


def entry(seq):
    return {"seq": seq, "prev": "00", "hash": "11", "record": {"time": WHEN, "action": "exec", "outcome": "ok", "command": ["ls"], "duration_ms": 5}}


def pages(seen, handler, n):
    """Five entries on pages of two."""
    seqs = [1, 2, 3, 4, 5] if seen.query.get("order") == ["asc"] else [5, 4, 3, 2, 1]
    at = int(seen.query.get("cursor", ["0"])[0])
    send_json(handler, {"items": [entry(s) for s in seqs[at : at + 2]], "next_cursor": str(at + 2) if at + 2 < len(seqs) else None})


class AuditTest(unittest.TestCase):
    def test_pages(self):
        server = Server(self, pages)
        with ModboxClient(token="mbx_test", base_url=server.url) as client:
            since = datetime(2026, 1, 1, tzinfo=timezone.utc)
            entries = list(client.audit.list(since=since, action="exec", limit=2))
            self.assertEqual([e.seq for e in entries], [5, 4, 3, 2, 1])
            self.assertEqual((entries[0].record.command, entries[0].record.time, entries[0].record.via), (["ls"], since, ""))
            self.assertEqual(server.requests[0].query, {"since": ["2026-01-01T00:00:00+00:00"], "action": ["exec"], "limit": ["2"]})
            self.assertEqual([e.seq for e in client.audit.list_installation(order="asc", workspace="w")], [1, 2, 3, 4, 5])
        self.assertEqual(server.requests[-1].path, "/v1/audit/installation")
        self.assertEqual(server.requests[-1].query, {"order": ["asc"], "workspace": ["w"], "cursor": ["4"]})

    def test_pages_async(self):
        server = Server(self, pages)

        async def run():
            async with AsyncModboxClient(token="mbx_test", base_url=server.url) as client:
                return [e.seq async for e in client.audit.list()]

        self.assertEqual(asyncio.run(run()), [5, 4, 3, 2, 1])

    def test_verify(self):
        server = Server(self, lambda seen, handler, n: send_json(handler, {"ok": False, "problem": "record 3", "records": 2, "head_seq": 5}))
        with ModboxClient(token="mbx_test", base_url=server.url) as client:
            report = client.audit.verify()
        self.assertEqual((report.ok, report.problem, report.records, report.head_seq), (False, "record 3", 2, 5))


class QuotaTest(unittest.TestCase):
    REPORT = {
        "workspace_id": "w", "limits": {"sandboxes": 20, "memory": "16Gi", "sandbox_cpu": "2"}, "set": {"sandboxes": 20},
        "used": {"sandboxes": 1, "memory": "1Gi", "cpu": "1", "disk": "2Gi", "disk_by": {"sandbox_bytes": 5, "paused_bytes": 6, "build_bytes": 9, "image_bytes": 7, "build_cache_bytes": 8}},
    }

    def test_quota(self):
        server = Server(self, lambda seen, handler, n: send_json(handler, self.REPORT))
        with ModboxClient(token="mbx_test", base_url=server.url) as client:
            report = client.workspaces.set_quota("w", Quota(sandboxes=20, creates_per_minute=0))
            self.assertEqual(client.workspaces.quota("w"), report)
        self.assertEqual((report.limits.sandbox_cpu, report.set.memory, report.used.disk_by.paused_bytes), ("2", None, 6))
        self.assertEqual((report.used.disk_by.image_bytes, report.used.disk_by.build_cache_bytes, report.used.disk_by.build_bytes), (7, 8, 9))
        self.assertEqual([(r.method, r.path) for r in server.requests], [("PUT", "/v1/workspaces/w/quota"), ("GET", "/v1/workspaces/w/quota")])
        self.assertEqual(server.requests[0].json(), {"sandboxes": 20, "creates_per_minute": 0})

    def test_waiting_for_room(self):
        server = Server(self, lambda seen, handler, n: send_json(handler, wire_sandbox()))
        with ModboxClient(token="mbx_test", base_url=server.url) as client:
            client.sandboxes.create(wait_for_quota_seconds=60)
        self.assertEqual(server.requests[0].json(), {"wait_for_quota_seconds": 60})


class SnapshotFilesTest(unittest.TestCase):
    def test_files(self):
        def answer(seen, handler, n):
            if seen.path.endswith("/download"):
                return send_json(handler, {"url": "/v1/downloads/k", "expires_at": WHEN})
            name = "/srv/b" if "cursor" in seen.query else "/srv"
            one = {"path": name, "type": "file", "size_bytes": 1, "mode": "0644", "uid": 0, "gid": 0, "mod_time": WHEN, "sha256": "ab"}
            send_json(handler, {"items": [one], **({} if "cursor" in seen.query else {"next_cursor": "c"})})

        server = Server(self, answer)
        with ModboxClient(token="mbx_test", base_url=server.url) as client:
            files = list(client.snapshots.files("n:v1", path="/srv", recursive=True, sha256=True))
            self.assertEqual([(f.path, f.name, f.sha256) for f in files], [("/srv", "srv", "ab"), ("/srv/b", "b", "ab")])
            self.assertEqual(client.snapshots.share("n:v1", path="/srv").url, server.url + "/v1/downloads/k")
        self.assertEqual(server.requests[1].query, {"path": ["/srv"], "recursive": ["true"], "sha256": ["true"], "cursor": ["c"]})
        self.assertEqual((server.requests[2].method, server.requests[2].query), ("POST", {"path": ["/srv"]}))


if __name__ == "__main__":
    unittest.main()
