"""Executions, streams, forks and snapshots of both clients, against a scripted server."""

import asyncio
import inspect
import json
import unittest

import modbox
from modbox import AsyncModboxClient, ModboxClient
from server import Server, send, send_json, wire_sandbox


def wire_execution(**more):
    return {
        "id": "e",
        "sandbox_id": "s",
        "kind": "exec",
        "command": ["true"],
        "state": "running",
        "exit_code": None,
        "stdout": {"stream_id": "str_1", "size_bytes": 0, "truncated": False},
        "stderr": {"stream_id": "", "size_bytes": 0, "truncated": False},
        "created_by": "u",
        "created_at": "2026-01-01T00:00:00Z",
        "started_at": None,
        "ended_at": None,
        **more,
    }


def send_stream(seen, handler, text, limit=None):
    """Answers a stream's bytes from the offset on, but breaks off after ``limit`` of them."""
    rest = text[int(seen.query.get("offset", ["0"])[0]) :]
    if limit is None:
        return send(handler, rest)
    handler.send_response(200)
    handler.send_header("content-length", str(len(rest) + 1))
    handler.end_headers()
    handler.wfile.write(rest[:limit])
    handler.close_connection = True


def perform(url, call):
    """Does the same with each client and returns what they answered, which must be equal. Iterators become lists."""

    async def value(client):
        result = call(client)
        if hasattr(result, "__aiter__"):
            return [item async for item in result]
        if inspect.isawaitable(result):
            return await result
        return list(result) if hasattr(result, "__iter__") and not isinstance(result, (dict, str, bytes)) else result

    async def run():
        with ModboxClient("mbx_test", base_url=url, transport=modbox.UrllibTransport()) as client:
            one = await value(client)
        with ModboxClient("mbx_test", base_url=url, transport=modbox.HttpxTransport()) as client:
            two = await value(client)
        async with AsyncModboxClient("mbx_test", base_url=url) as client:
            three = await value(client)
        assert repr(one) == repr(two) == repr(three), (one, two, three)
        return one

    return asyncio.run(run())


class ExecutionsTest(unittest.TestCase):
    def test_start(self):
        server = Server(self, lambda seen, handler, n: send_json(handler, wire_execution(), 201))
        got = perform(
            server.url,
            lambda c: c.executions.start(
                "a", command=("cat",), kind="job", files={"/a": "hi"}, timeout_seconds=5, stdin=True, tty=(24, 80), wait_seconds=9
            ),
        )
        want = {
            "command": ["cat"],
            "kind": "job",
            "files": [{"path": "/a", "content": "aGk="}],
            "timeout_seconds": 5,
            "stdin": True,
            "tty": {"rows": 24, "cols": 80},
            "wait_seconds": 9,
        }
        self.assertEqual([seen.json() for seen in server.requests], [want] * 3)
        self.assertEqual((got.stdin_stream_id, got.error, got.exit_code, got.stdout.stream_id), (None, None, None, "str_1"))

    def test_an_argument_that_does_not_exist(self):
        with ModboxClient("mbx_test", base_url="http://127.0.0.1:9") as client:
            for call in (
                lambda: client.executions.start("a", shell="x", tiemout_seconds=5),
                lambda: client.sandboxes.create(labls={}),
                lambda: client.snapshots.list(nmae="x"),
            ):
                with self.assertRaisesRegex(TypeError, "tiemout_seconds|labls|nmae"):
                    call()

    def test_wait(self):
        server = Server(self, lambda seen, handler, n: send_json(handler, wire_execution(state=("running", "cancelled")[n % 2])))
        self.assertEqual(perform(server.url, lambda c: c.executions.wait("e", timeout_seconds=400)).state, "cancelled")
        self.assertEqual([seen.query["wait_seconds"] for seen in server.requests], [["240"]] * 6)

    def test_a_wait_that_takes_too_long(self):
        server = Server(self, lambda seen, handler, n: send_json(handler, wire_execution()))
        with self.assertRaises(modbox.TimeoutError):
            perform(server.url, lambda c: c.executions.wait("e", timeout_seconds=0))

    def test_logs_go_on_where_the_connection_broke(self):
        def answer(seen, handler, n):
            if seen.path == "/v1/executions/e":
                return send_json(handler, wire_execution())
            send_stream(seen, handler, b"0123456789", None if seen.query.get("offset") == ["7"] else 3)

        server = Server(self, answer)
        got = perform(server.url, lambda c: c.executions.logs("e", offset=1, follow=True))
        self.assertEqual(b"".join(got), b"123456789")
        self.assertEqual([seen.query["offset"] for seen in server.requests if seen.query], [["1"], ["4"], ["7"]] * 3)

    def test_a_stream_that_breaks_at_once_is_given_up(self):
        server = Server(self, lambda seen, handler, n: send_stream(seen, handler, b"0123456789", 0))
        with ModboxClient("mbx_test", base_url=server.url) as client:
            with self.assertRaises(modbox.ConnectionError):
                list(client.streams.read("x", follow=True))
            self.assertEqual(len(server.requests), 4)

    def test_a_stream_with_times_is_given_up_at_the_first_break(self):
        server = Server(self, lambda seen, handler, n: send_stream(seen, handler, b"0123456789", 3))
        with ModboxClient("mbx_test", base_url=server.url) as client:
            with self.assertRaises(modbox.ConnectionError):
                list(client.streams.read("x", timestamps=True))
            self.assertEqual(len(server.requests), 1)

    def test_an_output_that_is_not_kept(self):
        server = Server(self, lambda seen, handler, n: send_json(handler, wire_execution()))
        with self.assertRaises(modbox.NotFoundError):
            perform(server.url, lambda c: c.executions.logs("e", output="stderr"))

    def test_writing_to_a_stream(self):
        server = Server(self, lambda seen, handler, n: send(handler, b""))
        perform(server.url, lambda c: c.streams.write("x", "ä", end=False))
        perform(server.url, lambda c: c.streams.write("x", [b"b", b"c"]))
        self.assertEqual([seen.query.get("eof") for seen in server.requests], [["false"]] * 3 + [None] * 3)
        self.assertEqual([seen.body for seen in server.requests], ["ä".encode()] * 3 + [b"bc"] * 3)


class StatefulTest(unittest.TestCase):
    def test_fork(self):
        items = [{"sandbox": wire_sandbox(parent_id="p")}, {"error": {"code": "quota_exceeded", "detail": "too many"}}]
        server = Server(self, lambda seen, handler, n: send_json(handler, {"forks": items}))
        one, two = perform(
            server.url,
            lambda c: c.sandboxes.fork(
                "a", count=2, names=("x",), timeouts=modbox.Timeouts(idle_seconds=5, on_idle="pause"), wait_for_quota_seconds=30
            ),
        )
        self.assertEqual(
            server.requests[0].json(),
            {"count": 2, "names": ["x"], "timeouts": {"idle_seconds": 5, "on_idle": "pause"}, "wait_for_quota_seconds": 30},
        )
        self.assertEqual((one.sandbox.parent_id, one.error, two.sandbox), ("p", None, None))
        self.assertEqual((two.error.code, str(two.error)), ("quota_exceeded", "too many"))

    def test_a_resume_may_wait_for_room(self):
        server = Server(self, lambda seen, handler, n: send_json(handler, wire_sandbox()))
        perform(server.url, lambda c: c.sandboxes.resume("a", memory="require", wait_for_quota_seconds=30))
        self.assertEqual(server.requests[0].json(), {"memory": "require", "wait_for_quota_seconds": 30})

    def test_a_list_is_a_page_and_walks_over_all(self):
        events = [{"seq": n, "sandbox_id": "s", "time": "2026-01-01T00:00:00Z", "type": "exec", "message": ""} for n in (1, 2, 3)]

        def answer(seen, handler, n):
            first, size = (int(seen.query.get(name, ["0"])[0]) for name in ("cursor", "limit"))
            following = str(first + size) if first + size < len(events) else None
            send_json(handler, {"items": events[first : first + size], "next_cursor": following})

        server = Server(self, answer)
        self.assertEqual([e.seq for e in perform(server.url, lambda c: c.sandboxes.events("a", after_seq=7, limit=2))], [1, 2, 3])
        self.assertEqual([r.query for r in server.requests[:2]], [{"after_seq": ["7"], "limit": ["2"]}, {"after_seq": ["7"], "limit": ["2"], "cursor": ["2"]}])

        with ModboxClient("mbx_test", base_url=server.url) as client:
            page = client.sandboxes.events("a", limit=2)
            self.assertEqual(([e.seq for e in page.items], page.next_cursor), ([1, 2], "2"))
            last = page.next_page()
            self.assertEqual(([e.seq for e in last.items], last.next_cursor, last.next_page()), ([3], None, None))
            self.assertEqual([e.seq for e in client.sandboxes.events("a", limit=2, cursor="2")], [3])

        async def run():
            async with AsyncModboxClient("mbx_test", base_url=server.url) as client:
                page = await client.sandboxes.events("a", limit=2)
                self.assertEqual(([e.seq for e in page.items], page.next_cursor), ([1, 2], "2"))
                last = await page.next_page()
                self.assertEqual(([e.seq for e in last.items], await last.next_page()), ([3], None))
                self.assertEqual([e.seq async for e in page], [1, 2, 3])

        asyncio.run(run())

    def test_a_null_takes_something_away(self):
        answers = {"/v1/sandboxes/a/env": {"env": {"B": "1"}}}
        snapshot = {"id": "i", "name": "a", "full_name": "@w/a", "image": "i", "created_at": "2026-01-01T00:00:00Z"}
        server = Server(self, lambda seen, handler, n: send_json(handler, answers.get(seen.path, snapshot)))
        self.assertEqual(perform(server.url, lambda c: c.sandboxes.update_env("a", {"A": None, "B": "1"})), {"B": "1"})
        self.assertIsNone(perform(server.url, lambda c: c.snapshots.tag("i", None)).tag)
        self.assertEqual([seen.method for seen in server.requests], ["PATCH"] * 6)
        self.assertEqual(json.loads(server.requests[0].body), {"A": None, "B": "1"})
        self.assertEqual(json.loads(server.requests[3].body), {"tag": None})

    def test_a_temporary_sandbox_that_does_not_run_is_destroyed(self):
        server = Server(
            self, lambda seen, handler, n: send_json(handler, wire_sandbox(state="failed" if "/wait" in seen.path else "provisioning"))
        )

        async def enter(client):
            scope = client.sandboxes.temporary(image="i", wait_seconds=5)
            with self.assertRaises(modbox.EndedError):
                if hasattr(scope, "__aenter__"):
                    await scope.__aenter__()
                else:
                    scope.__enter__()

        perform(server.url, enter)
        self.assertEqual([seen.method for seen in server.requests], ["POST", "GET", "DELETE"] * 3)
        self.assertEqual(server.requests[0].json(), {"image": "i"})

    def test_builds(self):
        snapshot = {"id": "p", "name": "n", "full_name": "@w/n", "image": "i", "created_at": "2026-01-01T00:00:00Z"}

        def answer(seen, handler, n):
            if seen.method == "PUT":
                return send(handler, b"")
            if seen.path.endswith("/finish"):
                return send_json(handler, snapshot, 201)
            unchanged = seen.json()["runtime"] == "there"
            send_json(handler, {"unchanged": True, "snapshot": snapshot} if unchanged else {"id": "b", "unchanged": False})

        server = Server(self, answer)
        got = perform(server.url, lambda c: c.snapshots.build("base", name="n", files=b"\x01", npm_packages=("p",), pip_packages=("q",), content_hash="h"))
        self.assertEqual((got.snapshot.id, got.unchanged), ("p", False))
        self.assertTrue(perform(server.url, lambda c: c.snapshots.build("there")).unchanged)
        self.assertEqual(
            [(seen.method, seen.path, seen.body) for seen in server.requests[:3]],
            [
                ("POST", "/v1/snapshot-builds", b'{"runtime": "base", "name": "n", "content_hash": "h"}'),
                ("PUT", "/v1/snapshot-builds/b/files", b"\x01"),
                ("POST", "/v1/snapshot-builds/b/finish", b'{"npm_packages": ["p"], "pip_packages": ["q"]}'),
            ],
        )
        self.assertEqual(len(server.requests), 12)

    def test_apt_packages(self):
        answer = {"valid": ["a"], "invalid": [{"name": "b", "reason": "none"}]}
        server = Server(self, lambda seen, handler, n: send_json(handler, answer))
        got = perform(server.url, lambda c: c.images.validate_apt_packages(["a", "b"], image="i"))
        self.assertEqual(got, modbox.AptPackageChecks(["a"], [modbox.InvalidAptPackage("b", "none")]))
        self.assertEqual(server.requests[0].json(), {"apt_packages": ["a", "b"], "image": "i"})
