import asyncio
import json
import threading
import unittest
from concurrent.futures import ThreadPoolExecutor

import modbox
from modbox import AsyncModboxClient, ModboxClient
from server import Server, send_json, send_problem, wire_sandbox

WHEN = "2026-01-01T00:00:00Z"
IMAGE = {"id": "i", "name": "org/app", "tag": "v1", "ref": "org/app:v1", "created_at": WHEN, "updated_at": WHEN}
CATALOGUE = {
    "id": "i", "name": "agent", "image": "org/agent", "tag": "v1", "builtin": False, "enabled": True, "is_default": True,
    "memory_mb": 512, "readiness_port": 8080, "created_at": WHEN, "updated_at": WHEN,
}


def signing(seconds, refresh=None):
    """Answers as a server that signs in with tokens that work so many seconds."""
    refreshed = []

    def answer(seen, handler, n):
        if seen.path in ("/v1/auth/login", "/v1/auth/accept"):
            return send_json(handler, tokens(0, seconds))
        if seen.path == "/v1/auth/refresh":
            refreshed.append(seen)
            return refresh(handler) if refresh else send_json(handler, tokens(len(refreshed), 300))
        return send_json(handler, wire_sandbox())

    return answer


def tokens(n, seconds):
    return {"access_token": f"mba_{n}", "refresh_token": f"mbr_{n}", "expires_in": seconds, "refresh_expires_in": 1800}


def drop(handler):
    handler.close_connection = True


class SessionTest(unittest.TestCase):
    def test_login(self):
        server = Server(self, signing(300))
        with ModboxClient.login(username="ada", password="secret", base_url=server.url) as client:
            client.sandboxes.get("a")
            session = client.account.session
        first, second = server.requests
        self.assertEqual(first.json(), {"username": "ada", "password": "secret"})
        self.assertNotIn("authorization", first.headers)
        self.assertEqual(second.headers["authorization"], "Bearer mba_0")
        self.assertEqual((session.access_token, session.refresh_token), ("mba_0", "mbr_0"))
        self.assertNotIn("mb", repr(session))
        ModboxClient.accept_invitation(code="mbi_1", password="secret", name="ada", base_url=server.url).close()
        self.assertEqual(server.requests[2].json(), {"code": "mbi_1", "password": "secret", "name": "ada"})

    def test_renewed_once_for_all_threads(self):
        server, told = Server(self, signing(10)), []  # ends within the margin
        with ModboxClient.login(username="ada", password="x", base_url=server.url, on_session=told.append) as client:
            with ThreadPoolExecutor(4) as pool:
                list(pool.map(client.sandboxes.get, "abcd"))
            again = ModboxClient(session=client.account.session, base_url=server.url)
        self.check_renewed_once(server, told)
        self.assertEqual(again.account.refresh().access_token, "mba_2")
        again.close()

    def test_on_session_makes_calls(self):
        server, told = Server(self, signing(10)), []

        def keep(session):
            told.append(client.sandboxes.get("k"))

        def run():
            client.sandboxes.get("a")

        with ModboxClient.login(username="ada", password="x", base_url=server.url, on_session=keep) as client:
            one = threading.Thread(target=run, daemon=True)
            one.start()
            one.join(60)
            self.assertFalse(one.is_alive(), "the call waits for itself")
        self.assertEqual(len(told), 1)
        self.check_bearers(server, ["mba_1"] * 2)

    def test_on_session_makes_calls_in_tasks(self):
        server, told = Server(self, signing(10)), []

        async def keep(session):
            told.extend(await asyncio.gather(client.sandboxes.get("k"), client.sandboxes.get("l")))

        async def run():
            nonlocal client
            async with await AsyncModboxClient.login(username="ada", password="x", base_url=server.url, on_session=keep) as client:
                await asyncio.wait_for(client.sandboxes.get("a"), 60)

        client = None
        asyncio.run(run())
        self.assertEqual(len(told), 2)
        self.check_bearers(server, ["mba_1"] * 3)

    def test_tokens_are_not_used_before_they_are_kept(self):
        server = Server(self, signing(10))
        begun, kept, told = threading.Event(), threading.Event(), []

        def keep(session):
            told.append(session.refresh_token)
            begun.set()
            kept.wait(60)
            if len(told) == 1:
                raise OSError("the disk is full")

        with ModboxClient.login(username="ada", password="x", base_url=server.url, on_session=keep) as client:
            with ThreadPoolExecutor(1) as pool:
                first = pool.submit(client.sandboxes.get, "a")
                self.assertTrue(begun.wait(60))
                self.assertEqual(client.account.session.refresh_token, "mbr_0")
                kept.set()
                self.assertRaises(OSError, first.result)
            self.assertEqual(client.account.session.refresh_token, "mbr_0")
            client.sandboxes.get("c")
            self.assertEqual(client.account.session.refresh_token, "mbr_1")
        self.check_told_twice(server, told)

    def test_tokens_are_not_used_by_tasks_before_they_are_kept(self):
        server, told = Server(self, signing(10)), []

        async def run():
            begun, kept = asyncio.Event(), asyncio.Event()

            async def keep(session):
                told.append(session.refresh_token)
                begun.set()
                await kept.wait()
                if len(told) == 1:
                    raise OSError("the disk is full")

            async with await AsyncModboxClient.login(username="ada", password="x", base_url=server.url, on_session=keep) as client:
                first = asyncio.ensure_future(client.sandboxes.get("a"))
                await asyncio.wait_for(begun.wait(), 60)
                self.assertEqual(client.account.session.refresh_token, "mbr_0")
                second = asyncio.ensure_future(client.sandboxes.get("b"))
                await asyncio.sleep(0)  # it has asked for the tokens and waits for them
                kept.set()
                for one in (first, second):
                    with self.assertRaises(OSError):
                        await one
                self.assertEqual(client.account.session.refresh_token, "mbr_0")
                await client.sandboxes.get("c")
                self.assertEqual(client.account.session.refresh_token, "mbr_1")

        asyncio.run(run())
        self.check_told_twice(server, told)

    def test_tokens_that_ended_before_they_were_kept(self):
        server, told = Server(self, signing(10, lambda h: send_json(h, tokens(9, 10)))), []

        def keep(session):
            told.append(session.refresh_token)
            if len(told) == 1:
                raise OSError("the disk is full")

        with ModboxClient.login(username="ada", password="x", base_url=server.url, on_session=keep) as client:
            self.assertRaises(OSError, client.sandboxes.get, "a")
            client.sandboxes.get("a")
        refreshes = [r.json()["refresh_token"] for r in server.requests if r.path == "/v1/auth/refresh"]
        self.assertEqual(refreshes, ["mbr_0", "mbr_9"])

    def test_tokens_of_a_refresh_are_told_again(self):
        server, told = Server(self, signing(300)), []

        def keep(session):
            told.append(session.refresh_token)
            if len(told) == 1:
                raise OSError("the disk is full")

        with ModboxClient.login(username="ada", password="x", base_url=server.url, on_session=keep) as client:
            self.assertRaises(OSError, client.account.refresh)
            client.sandboxes.get("a")  # not with the tokens before, which the server takes no more
        self.check_told_twice(server, told)

    def check_told_twice(self, server, told):
        self.assertEqual(told, ["mbr_1"] * 2)
        self.assertEqual(len([r for r in server.requests if r.path == "/v1/auth/refresh"]), 1)
        self.check_bearers(server, ["mba_1"])

    def check_bearers(self, server, tokens):
        calls = [r for r in server.requests if r.path.startswith("/v1/sandboxes")]
        self.assertEqual([r.headers["authorization"] for r in calls], [f"Bearer {token}" for token in tokens])

    def test_renewed_once_for_all_tasks(self):
        server, told = Server(self, signing(10)), []

        async def keep(session):
            told.append(session)

        async def run():
            async with await AsyncModboxClient.login(username="ada", password="x", base_url=server.url, on_session=keep) as client:
                # One that is cancelled does not take the others' tokens with it.
                hasty = asyncio.ensure_future(client.sandboxes.get("z"))
                await asyncio.sleep(0)
                hasty.cancel()
                await asyncio.gather(*[client.sandboxes.get(ref) for ref in "abcd"])
                async with AsyncModboxClient(session=client.account.session, base_url=server.url) as again:
                    return await again.account.refresh()

        self.assertEqual(asyncio.run(run()).access_token, "mba_2")
        self.check_renewed_once(server, told)

    def check_renewed_once(self, server, told):
        refreshes = [r for r in server.requests if r.path == "/v1/auth/refresh"]
        self.assertEqual(refreshes[0].json(), {"refresh_token": "mbr_0"})
        self.assertEqual(len([r for r in refreshes if r.json() == {"refresh_token": "mbr_0"}]), 1)
        self.assertEqual([s.refresh_token for s in told], ["mbr_1"])
        self.check_bearers(server, ["mba_1"] * 4)

    def test_refresh_is_never_sent_twice(self):
        for refresh, error in ((drop, modbox.ConnectionError), (lambda h: send_problem(h, 401, "unauthenticated"), modbox.AuthError)):
            server = Server(self, signing(10, refresh))
            with ModboxClient.login(username="ada", password="x", base_url=server.url) as client:
                with self.assertRaises(error):
                    client.sandboxes.get("a")
            self.assertEqual(len(server.requests), 2)

    def test_token_has_no_session(self):
        with ModboxClient(token="mbx_test") as client:
            self.assertIsNone(client.account.session)
            with self.assertRaises(modbox.ValidationError):
                client.account.refresh()


def answer_all(seen, handler, n):
    if seen.method == "DELETE" or seen.path in ("/v1/account/password", "/v1/auth/logout"):
        handler.send_response(204)
        return handler.end_headers()
    if seen.path == "/v1/auth/providers":
        return send_json(handler, {"items": ["acme"]})
    if seen.path == "/v1/account/sessions" and seen.method == "GET":
        session = {"id": "s", "method": "password", "address": "192.0.2.1", "current": True, "later": 1}
        return send_json(handler, {"items": [{**session, "created_at": WHEN, "refreshed_at": WHEN, "expires_at": WHEN}]})
    if seen.path == "/v1/users" and seen.method == "GET":
        names, following = (["c"], None) if "cursor" in seen.query else (["a", "b"], "n")
        return send_json(handler, {"items": [{"id": n, "name": n, "created_at": WHEN} for n in names], "next_cursor": following})
    if seen.path.endswith("/reset"):
        return send_json(handler, {"code": "mbi_1"})
    if seen.path.startswith("/v1/users"):
        return send_json(handler, {"id": "u", "name": "ada", "created_at": WHEN, "code": "mbi_2"})
    if seen.path.startswith("/v1/workers"):
        one = {"id": "w", "name": "two", "state": "connected", "draining": True, "memory_promised_bytes": 5, "seen_at": WHEN, "created_at": WHEN}
        return send_json(handler, {"items": [one]} if seen.path == "/v1/workers" else one)
    one = CATALOGUE if "images" in seen.path else {
        "id": "r", "name": "hub", "server": "ghcr.io", "username": "u", "enabled": True, "created_at": WHEN, "updated_at": WHEN
    }
    many = seen.method == "GET" and seen.path.count("/") == 2
    return send_json(handler, {"items": [one]} if many else one)


REQUESTS = [
    ("GET", "/v1/auth/providers", {}, None),
    ("PUT", "/v1/account/password", {}, {"password": "new", "current_password": "old"}),
    ("POST", "/v1/auth/logout", {}, None),
    ("GET", "/v1/account/sessions", {}, None),
    ("DELETE", "/v1/account/sessions/s", {}, None),
    ("DELETE", "/v1/account/sessions", {}, None),
    ("POST", "/v1/users", {}, {"name": "ada", "email": "a@b.example"}),
    ("GET", "/v1/users", {}, None),
    ("GET", "/v1/users", {"cursor": ["n"]}, None),
    ("PATCH", "/v1/users/ada", {}, {"disabled": True}),
    ("POST", "/v1/users/a%40b.example/reset", {}, None),
    ("DELETE", "/v1/users/ada", {}, None),
    ("GET", "/v1/workers", {}, None),
    ("GET", "/v1/workers/two", {}, None),
    ("PATCH", "/v1/workers/two", {}, {"draining": True}),
    ("DELETE", "/v1/workers/w", {}, None),
    ("DELETE", "/v1/workers/w", {"force": ["true"]}, None),
    ("POST", "/v1/registries", {}, {"name": "hub", "server": "ghcr.io", "username": "u", "password": "p"}),
    ("GET", "/v1/registries", {}, None),
    ("GET", "/v1/registries/r", {}, None),
    ("PATCH", "/v1/registries/r", {}, {"enabled": False}),
    ("DELETE", "/v1/registries/r", {}, None),
    ("POST", "/v1/sandbox-images", {}, {"name": "agent", "image": "org/agent", "tag": "v1", "readiness_port": 8080}),
    ("GET", "/v1/sandbox-images", {"enabled_only": ["true"]}, None),
    ("GET", "/v1/sandbox-images/i", {}, None),
    ("PATCH", "/v1/sandbox-images/i", {}, {"ttl_seconds": 0}),
    ("DELETE", "/v1/sandbox-images/i", {}, None),
]


class CallsTest(unittest.TestCase):
    async def perform(self, c, server):
        async def done(value):
            if hasattr(value, "__aiter__"):
                return [item async for item in value]
            if hasattr(value, "__await__"):
                return await value
            return list(value) if isinstance(value, modbox.Page) else value

        self.assertEqual(await done(c.account.providers()), ["acme"])
        await done(c.account.set_password("new", current_password="old"))
        await done(c.account.logout())
        [session] = await done(c.account.sessions())
        self.assertEqual((session.address, session.current, session.expires_at.year), ("192.0.2.1", True, 2026))
        await done(c.account.delete_session(session.id))
        await done(c.account.logout(everywhere=True))
        made = await done(c.users.create("ada", email="a@b.example"))
        self.assertEqual((made.code, made.disabled_at), ("mbi_2", None))
        self.assertNotIn("mbi", repr(made))
        self.assertEqual([u.name for u in await done(c.users.list())], ["a", "b", "c"])
        await done(c.users.update("ada", disabled=True))
        self.assertEqual(await done(c.users.reset_password("a@b.example")), "mbi_1")
        await done(c.users.delete("ada"))
        [worker] = await done(c.workers.list())
        self.assertEqual((worker.state, worker.memory_promised_bytes, worker.connected_at, worker.seen_at.year), ("connected", 5, None, 2026))
        self.assertEqual((await done(c.workers.get("two"))).id, "w")
        self.assertTrue((await done(c.workers.update("two", draining=True))).draining)
        await done(c.workers.delete("w"))
        await done(c.workers.delete("w", force=True))
        await done(c.registries.create(name="hub", server="ghcr.io", username="u", password="p"))
        self.assertEqual((await done(c.registries.list()))[0].server, "ghcr.io")
        self.assertEqual((await done(c.registries.get("r"))).email, None)
        await done(c.registries.update("r", enabled=False))
        await done(c.registries.delete("r"))
        image = await done(c.sandbox_images.create("agent", "org/agent", tag="v1", readiness_port=8080))
        self.assertEqual((image.is_default, image.memory_mb, image.ttl_seconds), (True, 512, None))
        await done(c.sandbox_images.list(enabled_only=True))
        await done(c.sandbox_images.get("i"))
        await done(c.sandbox_images.update("i", ttl_seconds=0))
        await done(c.sandbox_images.delete("i"))
        got = [(r.method, r.path, r.query, json.loads(r.body or b"null")) for r in server.requests]
        self.assertEqual(got, REQUESTS)

    def test_every_call(self):
        server = Server(self, answer_all)
        with ModboxClient(token="mbx_test", base_url=server.url) as client:
            asyncio.run(self.perform(client, server))

    def test_every_call_async(self):
        server = Server(self, answer_all)

        async def run():
            async with AsyncModboxClient(token="mbx_test", base_url=server.url) as client:
                await self.perform(client, server)

        asyncio.run(run())

    def test_unknown_option(self):
        with ModboxClient(token="mbx_test") as client:
            with self.assertRaises(TypeError):
                client.sandbox_images.create("agent", "org/agent", memory="1Gi")


class PullTest(unittest.TestCase):
    PROGRESS = {"type": "progress", "phase": "pulling", "done": 1, "total": 2, "message": "layer"}

    def serve(self, *lines):
        def answer(seen, handler, n):
            body = b"".join(json.dumps(line).encode() + b"\n" for line in lines)
            handler.send_response(200)
            handler.send_header("content-length", str(len(body)))
            handler.end_headers()
            handler.wfile.write(body)

        return Server(self, answer)

    def both(self, server):
        """The events, or the error, of each client."""

        async def run():
            async with AsyncModboxClient(token="mbx_test", base_url=server.url) as client:
                return [event async for event in client.images.pull("org/app:v1")]

        def sync():
            with ModboxClient(token="mbx_test", base_url=server.url) as client:
                return list(client.images.pull("org/app:v1"))

        for get in (sync, lambda: asyncio.run(run())):
            try:
                yield get()
            except modbox.ModboxError as err:
                yield err

    def test_progress_and_image(self):
        for events in self.both(self.serve(self.PROGRESS, {"type": "ping"}, {"type": "later"}, {"type": "done", "image": IMAGE})):
            self.assertEqual([e.type for e in events], ["progress", "done"])
            self.assertEqual((events[0].phase, events[0].done, events[0].total), ("pulling", 1, 2))
            self.assertEqual(events[1].image.ref, "org/app:v1")

    def test_error_within(self):
        for err in self.both(self.serve(self.PROGRESS, {"type": "error", "code": "unavailable", "message": "the registry is down"})):
            self.assertEqual((err.code, err.message), ("unavailable", "the registry is down"))

    def test_push(self):
        server = self.serve(self.PROGRESS, {"type": "done", "image": IMAGE})
        with ModboxClient(token="mbx_test", base_url=server.url) as client:
            self.assertEqual([e.type for e in client.images.push("app:v1", to="r.example/app:v1")], ["progress", "done"])
        self.assertEqual(server.requests[0].json(), {"image": "app:v1", "to": "r.example/app:v1"})

    def test_end_that_was_not_told(self):
        for err in self.both(self.serve(self.PROGRESS)):
            self.assertIsInstance(err, modbox.ConnectionError)


if __name__ == "__main__":
    unittest.main()
