"""The client over each of its transports, against a scripted server."""

import base64
import io
import json
import os
import threading
import unittest
from datetime import datetime, timezone
from unittest import mock

import modbox
from modbox import ModboxClient
from server import WIRE_DETAIL, WIRE_IMAGE, Server, send, send_json, send_problem, wire_sandbox

PROVISIONED = {"success": True, "error": None, "sandbox_id": "id-1", "sandbox_url": None, "status": "provisioning"}


class ClientTests:
    """Runs whole over every transport."""

    transport = None

    def client(self, server, **options):
        client = ModboxClient("mbx_test", base_url=server.url, transport=self.transport(), **options)
        self.addCleanup(client.close)
        return client

    # The platform's calls.

    def test_provision_sends_what_was_given_and_nothing_else(self):
        server = Server(self, lambda seen, handler, n: send_json(handler, PROVISIONED))
        got = self.client(server, workspace_id="w-1").provision_sandbox(
            task_id="a", image_id=None, ttl_seconds=60, env_vars={"SESSION_ID": "1"}
        )
        self.assertEqual(got, modbox.ProvisionResult("id-1", "provisioning", ""))
        seen = server.requests[0]
        self.assertEqual((seen.method, seen.path), ("POST", "/sandboxes/provision"))
        self.assertEqual(seen.json(), {"task_id": "a", "ttl_seconds": 60, "env_vars": {"SESSION_ID": "1"}})
        self.assertEqual(seen.headers["authorization"], "Bearer mbx_test")
        self.assertEqual(seen.headers["x-workspace-id"], "w-1")
        self.assertEqual(seen.headers["content-type"], "application/json")

    def test_a_no_in_a_successful_answer_is_an_error(self):
        server = Server(self, lambda seen, handler, n: send_json(handler, {"success": False, "error": "no room"}))
        with self.assertRaisesRegex(modbox.ModboxError, "provision a: no room"):
            self.client(server).provision_sandbox(task_id="a")

    def test_wait_outlasts_the_clients_time_limit(self):
        hold = threading.Event()

        def answer(seen, handler, n):
            hold.wait(0.2)
            send_json(handler, {"ready": True, "elapsed_seconds": 0.2})

        server = Server(self, answer)
        self.assertTrue(self.client(server, timeout=0.02).wait_for_sandbox(task_id="a", timeout=30).ready)
        self.assertEqual(server.requests[0].json(), {"task_id": "a", "timeout": 30})

    def test_a_long_wait_is_several_requests(self):
        server = Server(self, lambda seen, handler, n: send_json(handler, {"ready": n == 1}))
        self.assertTrue(self.client(server).wait_for_sandbox(task_id="a", timeout=600).ready)
        self.assertEqual([r.json()["timeout"] for r in server.requests], [240, 240])

    def test_wait_returns_when_the_sandbox_has_ended(self):
        server = Server(self, lambda seen, handler, n: send_json(handler, {"ready": False, "status": "destroyed"}))
        self.assertFalse(self.client(server).wait_for_sandbox(task_id="a", timeout=600).ready)

    def test_get_sandbox(self):
        server = Server(self, lambda seen, handler, n: send_json(handler, WIRE_DETAIL))
        got = self.client(server).get_sandbox("a b/c")
        self.assertEqual(server.requests[0].path, "/sandboxes/detail/a%20b%2Fc")
        self.assertEqual(got.sandbox_url, "")
        self.assertEqual(got.created_at, datetime(2026, 1, 1, tzinfo=timezone.utc))
        self.assertIsNone(got.destroyed_at)

    def test_destroy_and_lists(self):
        answers = {
            "/sandboxes/destroy": {"success": False, "error": "there is none"},
            "/sandboxes": {"sandboxes": [WIRE_DETAIL], "total": 1},
            "/sandbox-images": {"images": [WIRE_IMAGE], "total": 1},
        }
        server = Server(self, lambda seen, handler, n: send_json(handler, answers[seen.path]))
        client = self.client(server)
        self.assertEqual(client.destroy_sandbox(task_id="a"), modbox.DestroyResult(False, "there is none"))
        self.assertEqual(client.list_sandboxes(status="running").sandboxes[0].name, "a b")
        self.assertEqual(server.requests[1].query, {"status": ["running"]})
        self.assertTrue(client.list_sandbox_images()[0].is_default)

    def test_platform_errors(self):
        def answer(seen, handler, n):
            if n == 0:
                return send_json(handler, {"detail": [{"loc": ["body", "ttl_seconds"], "msg": "too small", "type": "x"}]}, 422)
            return send_json(handler, {"detail": "task a is taken", "code": "exists"}, 409)

        client = self.client(Server(self, answer))
        with self.assertRaises(modbox.ValidationError) as caught:
            client.provision_sandbox(task_id="a", ttl_seconds=1)
        self.assertEqual((caught.exception.field, str(caught.exception)), ("ttl_seconds", "ttl_seconds: too small"))
        with self.assertRaises(modbox.ConflictError) as caught:
            client.provision_sandbox(task_id="a")
        self.assertEqual((caught.exception.code, str(caught.exception)), ("exists", "task a is taken"))

    # The complete API.

    def test_create(self):
        server = Server(self, lambda seen, handler, n: send_json(handler, wire_sandbox(readiness_port=3000), 201))
        got = self.client(server).sandboxes.create(
            name="a",
            image="modbox/code-exec",
            env={"A": "1"},
            labels={"k": "v"},
            ttl_seconds=60,
            resources=modbox.Resources(memory="512Mi"),
            replace=True,
            wait_seconds=30,
        )
        self.assertEqual(
            server.requests[0].json(),
            {
                "name": "a",
                "image": "modbox/code-exec",
                "env": {"A": "1"},
                "labels": {"k": "v"},
                "ttl_seconds": 60,
                "resources": {"memory": "512Mi"},
                "replace": True,
                "wait_seconds": 30,
            },
        )
        self.assertEqual(got.readiness_port, 3000)
        self.assertEqual(got.resources.cpu, "1")
        self.assertEqual(got.created_at.microsecond, 123456)
        self.assertIsNone(got.cause)

    def test_create_repeats_itself_with_one_key(self):
        def answer(seen, handler, n):
            if n < 2:
                return send_problem(handler, 503, "unavailable")
            return send_json(handler, wire_sandbox())

        server = Server(self, answer)
        client = self.client(server)
        client.sandboxes.create()
        client.sandboxes.create()
        keys = [r.headers["idempotency-key"] for r in server.requests]
        self.assertEqual(keys[:3], [keys[0]] * 3)
        self.assertNotEqual(keys[3], keys[0])

    def test_list_walks_over_the_pages(self):
        def answer(seen, handler, n):
            last = seen.query.get("cursor") == ["c2"]
            send_json(handler, {"items": [wire_sandbox(name="b" if last else "a")], **({} if last else {"next_cursor": "c2"})})

        server = Server(self, answer)
        found = self.client(server).sandboxes.list(states=["running", "failed"], labels={"k": "v"}, limit=1)
        self.assertEqual([s.name for s in found], ["a", "b"])
        self.assertEqual(server.requests[0].query, {"state": ["running", "failed"], "label": ["k=v"], "limit": ["1"]})

    def test_wait(self):
        states = ["provisioning", "running", "failed", "provisioning"]

        def answer(seen, handler, n):
            send_json(handler, wire_sandbox(state=states[n], cause={"code": "image", "message": "no such image"}))

        server = Server(self, answer)
        sandboxes = self.client(server).sandboxes
        self.assertEqual(sandboxes.wait("a", timeout_seconds=400).state, "running")
        self.assertEqual(server.requests[0].query, {"state": ["running"], "timeout_seconds": ["240"]})
        with self.assertRaisesRegex(modbox.EndedError, "failed: no such image"):
            sandboxes.wait("a")
        with self.assertRaises(TimeoutError):  # the built-in one, too
            sandboxes.wait("a", timeout_seconds=0)

    def test_exec(self):
        def answer(seen, handler, n):
            stdout = "AP8=" if seen.json().get("encoding") == "base64" else "hi"
            result = {"exit_code": 3, "timed_out": False, "stdout": stdout, "stderr": "", "stdout_truncated": True}
            send_json(handler, {**result, "stderr_truncated": False, "duration_ms": 4})

        server = Server(self, answer)
        sandboxes = self.client(server).sandboxes
        got = sandboxes.exec(
            "a", shell="x", cwd="/tmp", env={"A": "1"}, user="root", stdin="in", timeout_seconds=5, max_output_bytes=10
        )
        self.assertEqual((got.exit_code, got.signal, got.stdout, got.stdout_truncated), (3, 0, "hi", True))
        self.assertEqual(
            server.requests[0].json(),
            {
                "shell": "x",
                "cwd": "/tmp",
                "env": {"A": "1"},
                "user": "root",
                "stdin": "in",
                "timeout_seconds": 5,
                "max_output_bytes": 10,
            },
        )
        self.assertEqual(sandboxes.exec("a", ["true"], output="bytes").stdout, b"\x00\xff")

    def test_exec_is_never_sent_twice(self):
        server = Server(self, lambda seen, handler, n: send_problem(handler, 503, "unavailable"))
        with self.assertRaises(modbox.ModboxError):
            self.client(server).sandboxes.exec("a", shell="x")
        self.assertEqual(len(server.requests), 1)

    def test_exec_stream(self):
        lines = [
            {"type": "started", "pid": 7},
            {"type": "news"},
            {"type": "ping"},
            {"type": "stdout", "data": base64.b64encode(b"\x00\xff").decode()},
            {"type": "stderr", "data": base64.b64encode(b"hi").decode()},
            {"type": "exit", "exit_code": 143, "signal": 15, "duration_ms": 1},
        ]
        server = Server(self, lambda seen, handler, n: stream(handler, lines))
        events = list(self.client(server).sandboxes.exec_stream("a", ["x"]))
        self.assertEqual([e.type for e in events], ["started", "stdout", "stderr", "exit"])
        self.assertEqual((events[0].pid, events[1].data, events[2].data), (7, b"\x00\xff", b"hi"))
        self.assertEqual((events[3].exit_code, events[3].signal), (143, 15))

    def test_exec_stream_failures(self):
        def answer(seen, handler, n):
            if n == 0:
                return stream(handler, [{"type": "started"}, {"type": "error", "code": "agent_unreachable", "message": "gone"}])
            return stream(handler, [{"type": "started"}], whole=n == 1)

        sandboxes = self.client(Server(self, answer)).sandboxes
        with self.assertRaisesRegex(modbox.ModboxError, "gone") as caught:
            list(sandboxes.exec_stream("a", shell="x"))
        self.assertEqual(caught.exception.code, "agent_unreachable")
        for how in ("ended", "broken"):
            with self.subTest(how), self.assertRaises(modbox.ConnectionError):
                list(sandboxes.exec_stream("a", shell="x"))

    def test_leaving_exec_stream_closes_the_connection(self):
        closed = threading.Event()

        def answer(seen, handler, n):
            stream(handler, [{"type": "started"}], whole=None)
            handler.connection.settimeout(120)
            if handler.connection.recv(1) == b"":
                closed.set()

        server = Server(self, answer)
        for event in self.client(server).sandboxes.exec_stream("a", shell="x"):
            self.assertEqual(event.type, "started")
            break
        self.assertTrue(closed.wait(120))

    def test_file_contents_pass_unchanged(self):
        content = bytes(range(256)) * 400
        info = {"name": "f", "path": "/f", "type": "file", "size_bytes": 3, "mode": "0600", "uid": 0, "gid": 0}
        info["mod_time"] = "2026-01-01T00:00:00Z"

        def answer(seen, handler, n):
            send_json(handler, info) if seen.method == "PUT" else send(handler, content)

        server = Server(self, answer)
        files = self.client(server).sandboxes.files
        self.assertEqual(files.write("a", "/d/ü", content, mode="0600", parents=True, metadata={"k": "ü"}).mode, "0600")
        put = server.requests[0]
        self.assertEqual(put.query, {"path": ["/d/ü"], "mode": ["0600"], "parents": ["true"], "metadata": ['{"k": "\\u00fc"}']})
        self.assertEqual(put.headers["content-type"], "application/octet-stream")
        self.assertEqual(put.body, content)
        files.write("a", "/f", io.BytesIO(content))
        self.assertEqual(server.requests[1].body, content)
        files.write("a", "/f", (content[i : i + 1000] for i in range(0, len(content), 1000)))
        self.assertEqual(server.requests[2].body, content)
        with self.assertRaisesRegex(TypeError, "the content is text, bytes, a binary file, or an iterable of bytes, not 5"):
            files.write("a", "/f", 5)
        files.write("a", "/f", "ü")
        self.assertEqual(server.requests[3].body, "ü".encode())
        self.assertEqual(files.read("a", "/f"), content)
        self.assertEqual(b"".join(files.read_stream("a", "/f")), content)

    def test_a_file_that_breaks_off_is_an_error(self):
        def answer(seen, handler, n):
            handler.send_response(200)
            handler.send_header("content-length", "10")
            handler.end_headers()
            handler.wfile.write(b"half")
            handler.close_connection = True

        with self.assertRaises(modbox.ConnectionError):
            self.client(Server(self, answer), max_retries=0).sandboxes.files.read("a", "/f")

    def test_the_other_file_calls(self):
        entry = {"name": "f", "path": "/f", "type": "symlink", "size_bytes": 3, "mode": "0777", "uid": 0, "gid": 0}
        entry.update(mod_time="2026-01-01T00:00:00Z", target="x")

        def answer(seen, handler, n):
            if seen.path.endswith("/list"):
                return send_json(handler, {"items": [entry], "next_cursor": "n"})
            if seen.path.endswith(("/stat", "/mkdir", "/move")):
                return send_json(handler, entry)
            handler.send_response(204)
            handler.end_headers()

        server = Server(self, answer)
        files = self.client(server).sandboxes.files
        listed = files.list("a", "/", limit=1)
        self.assertEqual((listed.next_cursor, listed.items[0].target), ("n", "x"))
        self.assertEqual(files.stat("a", "/f").type, "symlink")
        self.assertEqual(files.mkdir("a", "/d", parents=True).path, "/f")
        self.assertEqual(files.move("a", "/f", "/g", overwrite=True).path, "/f")
        files.delete("a", "/d", recursive=True)
        base = "/v1/sandboxes/a/files"
        self.assertEqual(
            [(r.method, r.path, r.query, json.loads(r.body or b"null")) for r in server.requests],
            [
                ("GET", base + "/list", {"path": ["/"], "limit": ["1"]}, None),
                ("GET", base + "/stat", {"path": ["/f"]}, None),
                ("POST", base + "/mkdir", {}, {"path": "/d", "parents": True}),
                ("POST", base + "/move", {}, {"from": "/f", "to": "/g", "overwrite": True}),
                ("DELETE", base, {"path": ["/d"], "recursive": ["true"]}, None),
            ],
        )

    def test_events_stats_images_tokens_whoami_version(self):
        when = "2026-01-01T00:00:00Z"
        token = {"id": "t-1", "description": "ci", "workspace_id": "w", "created_at": when, "token": "mbx_new"}
        image = {"id": "i", "name": "n", "tag": "t", "ref": "n:t", "created_at": when, "updated_at": when}
        event = {"seq": 2, "sandbox_id": "i", "time": when, "type": "exec", "message": "m", "data": {"exit_code": "0"}}
        host = {"version": "1", "driver": "fake", "started_at": when, "pool": {"boxes": 2, "blank_boxes": 1, "hits": 7, "misses": 3}}
        answers = {
            "/v1/sandboxes/a/events": {"items": [event]},
            "/v1/sandboxes/a/usage": {"at": None, "cpu_seconds": 1.5, "network_sent_bytes": 7},
            "/v1/sandboxes/a/stats": {"time": when, "memory_bytes": 5},
            "/v1/images": {"items": [image]},
            "/v1/runtimes": {"items": [{"id": "i", "name": "node:lts", "image": "n:t", "requirements": {"memory": "1Gi"}}]},
            "/v1/tokens": {"items": [], **token},
            "/v1/whoami": {"user_id": "u", "workspace_id": "w", "token_id": "t"},
            "/v1/version": {"version": "1", "driver": "fake"},
            "/v1/host": host,
            "/v1/ssh-keys": {"items": [], "id": "k-1", "fingerprint": "SHA256:a/b", "type": "ssh-ed25519", "created_at": when},
        }

        def answer(seen, handler, n):
            if seen.method == "DELETE":
                handler.send_response(204)
                return handler.end_headers()
            return send_json(handler, answers[seen.path])

        server = Server(self, answer)
        client = self.client(server)
        self.assertEqual(client.sandboxes.events("a", after_seq=1, order="desc").items[0].data, {"exit_code": "0"})
        self.assertEqual(server.requests[0].query, {"after_seq": ["1"], "order": ["desc"]})
        usage = client.sandboxes.usage("a")
        self.assertEqual((usage.at, usage.cpu_seconds, usage.network_sent_bytes), (None, 1.5, 7))
        stats = client.sandboxes.stats("a")
        self.assertEqual((stats.memory_bytes, stats.host_pss_bytes), (5, None))
        self.assertEqual(client.images.list().items[0].ref, "n:t")
        made = client.tokens.create(description="ci", expires_in_seconds=60)
        self.assertEqual(made.token, "mbx_new")
        self.assertNotIn("mbx_new", repr(made))
        self.assertEqual(server.requests[4].json(), {"description": "ci", "expires_in_seconds": 60})
        self.assertEqual(client.tokens.list().items, [])
        client.tokens.revoke("t-1")
        runtime = client.images.runtimes().items[0]
        self.assertEqual((runtime.name, runtime.requirements.memory), ("node:lts", "1Gi"))
        self.assertEqual(server.requests[6].path, "/v1/tokens/t-1")
        self.assertEqual(client.whoami().workspace_id, "w")
        self.assertEqual(client.version().driver, "fake")
        pool = client.host().pool
        self.assertEqual((pool.boxes, pool.blank_boxes, pool.hits, pool.misses), (2, 1, 7, 3))
        key = client.ssh_keys.add("ssh-ed25519 AAAA", name="laptop", workspace_only=True)
        self.assertEqual((key.id, key.fingerprint, key.workspace_id, key.expires_at), ("k-1", "SHA256:a/b", None, None))
        sent = {"public_key": "ssh-ed25519 AAAA", "name": "laptop", "workspace_only": True}
        self.assertEqual(server.requests[-1].json(), sent)
        self.assertEqual(client.ssh_keys.list().items, [])
        client.ssh_keys.delete(key.fingerprint)
        self.assertEqual((server.requests[-1].method, server.requests[-1].path), ("DELETE", "/v1/ssh-keys/SHA256%3Aa%2Fb"))

    def test_references(self):
        server = Server(self, lambda seen, handler, n: send_problem(handler, 404, "not_found"))
        sandboxes = self.client(server).sandboxes
        with self.assertRaises(modbox.NotFoundError):
            sandboxes.get("a/../b?c#d")
        self.assertEqual(server.requests[0].path, "/v1/sandboxes/a%2F..%2Fb%3Fc%23d")
        for ref in ("", ".", ".."):
            with self.subTest(ref), self.assertRaises(modbox.ValidationError):
                sandboxes.delete(ref)
        self.assertEqual(len(server.requests), 1)

    # Errors and retries.

    def test_a_problem_becomes_an_error_of_its_class(self):
        def answer(seen, handler, n):
            if n == 0:
                errors = [{"location": "resources.memory", "message": "too small"}]
                return send_problem(handler, 422, "invalid", errors=errors)
            if n == 1:
                return send_problem(handler, 401, "unauthenticated")
            if n == 2:
                return send_problem(handler, 410, "ended")
            if n == 3:
                return send_problem(handler, 404, "file_not_found")
            if n == 4:
                return send_problem(handler, 404, "program_not_found")
            return send(handler, b"<h1>no</h1>", 413)

        sandboxes = self.client(Server(self, answer)).sandboxes
        with self.assertRaises(modbox.ValidationError) as caught:
            sandboxes.get("a")
        err = caught.exception
        self.assertEqual(
            (err.code, err.status, err.field, err.request_id, str(err)),
            ("invalid", 422, "resources.memory", "r-1", "it is invalid"),
        )
        with self.assertRaises(modbox.AuthError):
            sandboxes.get("a")
        with self.assertRaises(modbox.EndedError):
            sandboxes.get("a")
        with self.assertRaises(FileNotFoundError) as missing:  # Python's own
            sandboxes.get("a")
        self.assertIsInstance(missing.exception, modbox.FileNotFoundError)
        self.assertIsInstance(missing.exception, modbox.NotFoundError)
        self.assertEqual(str(missing.exception), "it is file_not_found")
        with self.assertRaises(modbox.ProgramNotFoundError):
            sandboxes.get("a")
        with self.assertRaises(modbox.ModboxError) as caught:
            sandboxes.get("a")
        self.assertEqual((caught.exception.code, caught.exception.status), ("too_large", 413))

    def test_an_answer_without_sense(self):
        answers = [b"hello", b"[]", b"{}"]
        sandboxes = self.client(Server(self, lambda seen, handler, n: send(handler, answers[n]))).sandboxes
        for answer in answers:
            with self.subTest(answer), self.assertRaises(modbox.ModboxError) as caught:
                sandboxes.get("a")
            self.assertEqual(caught.exception.code, "bad_response")

    def test_retries(self):
        def flaky(seen, handler, n):
            if n == 0:
                handler.close_connection = True  # no answer at all
            elif n == 1:
                send_problem(handler, 503, "unavailable")
            else:
                send_json(handler, wire_sandbox())

        server = Server(self, flaky)
        self.assertEqual(self.client(server).sandboxes.get("a").name, "a")
        self.assertEqual(len(server.requests), 3)

        down = Server(self, lambda seen, handler, n: send_problem(handler, 503, "unavailable"))
        with self.assertRaises(modbox.ModboxError):
            self.client(down, max_retries=1).sandboxes.get("a")
        self.assertEqual(len(down.requests), 2)

        full = Server(self, lambda seen, handler, n: send_problem(handler, 429, "quota_exceeded"))
        with self.assertRaises(modbox.ModboxError):
            self.client(full).sandboxes.get("a")
        self.assertEqual(len(full.requests), 1)

    def test_no_answer_in_time(self):
        arrived, release = threading.Event(), threading.Event()
        self.addCleanup(release.set)

        def answer(seen, handler, n):
            arrived.set()
            release.wait(120)

        server = Server(self, answer)
        with self.assertRaises(modbox.TimeoutError):
            self.client(server, timeout=0.5).sandboxes.get("a")
        self.assertTrue(arrived.wait(120))
        self.assertEqual(len(server.requests), 1)

    def test_no_server(self):
        client = ModboxClient("mbx_x", base_url="http://127.0.0.1:1", max_retries=0, transport=self.transport())
        self.addCleanup(client.close)
        with self.assertRaisesRegex(modbox.ConnectionError, "http://127.0.0.1:1/v1/whoami"):
            client.whoami()

    def test_the_address_needs_a_scheme(self):
        hint = "is not an http or https URL; write http://127.0.0.1:7070 or https://127.0.0.1:7070$"
        with self.assertRaisesRegex(modbox.ValidationError, hint):
            ModboxClient("mbx_x", base_url="127.0.0.1:7070")
        for url in ("ftp://host", "http://", "https:host"):
            with self.assertRaisesRegex(modbox.ValidationError, "URL"):
                ModboxClient("mbx_x", base_url=url)

    def test_redirects_are_not_followed(self):
        server = Server(self, lambda seen, handler, n: send(handler, b"", 307, location="http://127.0.0.1:1/"))
        with self.assertRaises(modbox.ModboxError) as caught:
            self.client(server).sandboxes.get("a")
        self.assertEqual((caught.exception.code, caught.exception.status), ("bad_response", 307))

    def test_the_environment(self):
        identity = {"user_id": "u", "workspace_id": "w", "token_id": "t"}
        server = Server(self, lambda seen, handler, n: send_json(handler, identity))
        with mock.patch.dict(os.environ, clear=True):
            with self.assertRaises(modbox.AuthError):
                ModboxClient()
        with mock.patch.dict(os.environ, {"MODBOX_API_TOKEN": "mbx_env", "MODBOX_URL": server.url + "/"}):
            with ModboxClient(transport=self.transport()) as client:
                client.whoami()
        self.assertEqual(server.requests[0].path, "/v1/whoami")
        self.assertEqual(server.requests[0].headers["authorization"], "Bearer mbx_env")


def stream(handler, lines, whole=True):
    """Sends lines in pieces that do not respect the lines; then ends the body, unless whole is None, or breaks it."""
    handler.send_response(200)
    handler.send_header("transfer-encoding", "chunked")
    handler.end_headers()
    content = "".join(json.dumps(line) + "\n" for line in lines).encode()
    for i in range(0, len(content), 7):
        piece = content[i : i + 7]
        handler.wfile.write(b"%x\r\n%s\r\n" % (len(piece), piece))
    if whole:
        handler.wfile.write(b"0\r\n\r\n")
    elif whole is False:
        handler.close_connection = True
    handler.wfile.flush()


class UrllibClientTest(ClientTests, unittest.TestCase):
    transport = modbox.UrllibTransport


class HttpxClientTest(ClientTests, unittest.TestCase):
    transport = modbox.HttpxTransport


if __name__ == "__main__":
    unittest.main()
