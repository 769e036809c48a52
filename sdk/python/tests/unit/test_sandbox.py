"""The objects Sandbox and AsyncSandbox, against a scripted server: each test does the same with both."""

import asyncio
import base64
import inspect
import os
import sys
import threading
import contextlib
import itertools
import types
import unittest
import unittest.mock
from unittest import mock

import modbox
from modbox import AsyncModbox, AsyncSandbox, Modbox, Sandbox
from server import Server, send, send_json, send_problem, wire_sandbox
from test_client import stream
from test_executions import wire_execution

ID = wire_sandbox()["id"]
BOX = f"/v1/sandboxes/{ID}"


async def done(result):
    """The value of either client's call; iterators become lists."""
    if hasattr(result, "__anext__") or isinstance(result, modbox.AsyncPages):
        return [item async for item in result]
    if inspect.isawaitable(result):
        return await result
    return list(result) if hasattr(result, "__next__") or isinstance(result, modbox.Page) else result


def both(url, test):
    """Runs a test with either class and returns what it returned, which must be equal."""

    async def run():
        with Modbox("mbx_test", base_url=url, transport=modbox.UrllibTransport()) as client:
            one = await test(Sandbox, client)
        async with AsyncModbox("mbx_test", base_url=url) as client:
            two = await test(AsyncSandbox, client)
        assert repr(one) == repr(two), (one, two)
        return one

    return asyncio.run(run())


def with_box(url, use):
    """Runs ``use`` with a sandbox of either class that is there."""

    async def test(cls, client):
        return await use(cls(client, modbox.models.SandboxInfo(**INFO)))

    return both(url, test)


INFO = {"id": ID, "name": "a", "state": "running", "created_at": None, "updated_at": None}


def exec_lines(*output, **end):
    """The lines of a command's stream: pairs of a stream and its bytes, then the exit."""
    lines = [{"type": "started", "pid": 7}]
    lines += [{"type": name, "data": base64.b64encode(data).decode()} for name, data in output]
    return [*lines, {"type": "exit", "exit_code": 0, "duration_ms": 5, **end}]


@contextlib.contextmanager
def clock(step):
    """Makes each look of the clients at the clock these seconds later than the look before."""
    times = itertools.count(0, step)
    fake = types.SimpleNamespace(monotonic=lambda: next(times))
    with contextlib.ExitStack() as stack:
        for name in ("_sync.sandbox", "_async.sandbox", "_sync.sandboxes", "_async.sandboxes"):
            stack.enter_context(unittest.mock.patch(f"modbox.{name}.time", fake))
        yield


class CreateTest(unittest.TestCase):
    def test_create_waits_and_the_block_deletes(self):
        server = Server(self, lambda seen, handler, n: send_json(handler, wire_sandbox(), 201))

        async def test(cls, client):
            sbx = await done(cls.create(client=client, image="modbox/data", labels={"a": "b"}))
            if cls is Sandbox:
                with sbx as same:
                    pass
            else:
                async with sbx as same:
                    pass
            return same.id, same.name, same.info.state, repr(same).replace("Async", "")

        self.assertEqual(both(server.url, test), (ID, "a", "running", f"<Sandbox a running {ID}>"))
        want = {"image": "modbox/data", "labels": {"a": "b"}, "wait_seconds": 60, "ttl_seconds": 900}
        self.assertEqual(server.requests[0].json(), want)
        self.assertEqual([(r.method, r.path) for r in server.requests[:2]], [("POST", "/v1/sandboxes"), ("DELETE", BOX)])

    def test_a_sandbox_that_fails_is_raised(self):
        failed = wire_sandbox(state="failed", cause={"code": "image", "message": "no image modbox/nothing"})

        async def test(cls, client):
            with self.assertRaises(modbox.SandboxFailedError) as caught:
                await done(cls.create(client=client, image="modbox/nothing"))
            return caught.exception.cause, caught.exception.code, str(caught.exception), caught.exception.info.id

        # It fails within the request that creates it, or later.
        for first in (failed, {**failed, "state": "destroying"}, wire_sandbox(state="provisioning")):

            def answer(seen, handler, n):
                if seen.path.startswith(f"{BOX}/events"):
                    return send_json(handler, {"items": []})
                return send_json(handler, first if seen.method == "POST" else failed)

            server = Server(self, answer)
            cause, code, message, sandbox_id = both(server.url, test)
            self.assertEqual((cause.code, code, sandbox_id), ("image", "ended", ID))
            self.assertIn("failed: no image modbox/nothing", message)

    def test_a_sandbox_that_does_not_run_in_time_is_deleted(self):
        server = Server(self, lambda seen, handler, n: send_json(handler, wire_sandbox(state="provisioning"), 201))

        async def test(cls, client):
            with self.assertRaisesRegex(modbox.TimeoutError, "sandbox a did not run within 1 s and was deleted"):
                await done(cls.create(client=client, wait_seconds=1))

        both(server.url, test)
        self.assertEqual([r.method for r in server.requests].count("DELETE"), 2)

    def test_the_sandbox_of_an_equal_request_is_not_deleted(self):
        server = Server(self, lambda seen, handler, n: send_json(handler, wire_sandbox(state="provisioning"), 200))

        async def test(cls, client):
            with self.assertRaisesRegex(modbox.TimeoutError, "within 1 s and was not deleted, because an equal request may have made it"):
                await done(cls.create(client=client, wait_seconds=1))

        both(server.url, test)
        self.assertEqual([r.method for r in server.requests].count("DELETE"), 0)

    def test_create_waits_for_the_image(self):
        step = {"seq": 7, "sandbox_id": ID, "time": "2026-01-01T00:00:00Z", "type": "image_building", "message": "installing", "data": {}}
        made = {**step, "seq": 6, "type": "created"}

        def answer(seen, handler, n):
            if seen.path.endswith("/events"):
                return send_json(handler, {"items": [] if seen.query.get("after_seq") == ["7"] else [made, step]})
            waits = [r for r in server.requests if r.path.endswith("/wait")]
            running = seen.path.endswith("/wait") and len(waits) % 3 == 0
            return send_json(handler, wire_sandbox(state="running" if running else "provisioning"))

        server = Server(self, answer)

        async def test(cls, client):
            events = []
            sbx = await done(cls.create(client=client, on_progress=events.append))
            return sbx.info.state, [e.message for e in events]

        with clock(step=2):
            self.assertEqual(both(server.url, test), ("running", ["installing"]))
        self.assertEqual(server.requests[0].json()["wait_seconds"], 5)

    def test_the_limit_of_a_wait_for_an_image_names_the_step(self):
        step = {"seq": 7, "sandbox_id": ID, "time": "2026-01-01T00:00:00Z", "type": "image_building", "message": "installing", "data": {}}

        def answer(seen, handler, n):
            events = seen.path.startswith(f"{BOX}/events")
            return send_json(handler, {"items": [step]} if events else wire_sandbox(state="provisioning"), 201 if seen.method == "POST" else 200)

        server = Server(self, answer)

        async def test(cls, client):
            with self.assertRaisesRegex(modbox.TimeoutError, "did not run within 1800 s and was deleted; .*installing"):
                await done(cls.create(client=client))

        with clock(step=100):
            both(server.url, test)

    def test_create_need_not_wait(self):
        server = Server(self, lambda seen, handler, n: send_json(handler, wire_sandbox(state="provisioning")))

        async def test(cls, client):
            return (await done(cls.create(client=client, wait_seconds=0, ttl_seconds=0))).info.state

        self.assertEqual(both(server.url, test), "provisioning")
        self.assertEqual(server.requests[0].json(), {"wait_seconds": 0, "ttl_seconds": 0})

    def test_a_command_that_has_ended_is_no_failure(self):
        ended = wire_sandbox(state="destroyed", cause={"code": "completed", "message": "its command has ended"})
        server = Server(self, lambda seen, handler, n: send_json(handler, ended))

        async def test(cls, client):
            return (await done(cls.create(client=client, mode="oneshot", command={"shell": "true"}))).info.state

        self.assertEqual(both(server.url, test), "destroyed")

    def test_a_paused_sandbox_of_the_same_request_is_resumed(self):
        server = Server(self, lambda seen, handler, n: send_json(handler, wire_sandbox(state="running" if "resume" in seen.path else "paused")))

        async def test(cls, client):
            return (await done(cls.create(client=client, name="a"))).info.state

        self.assertEqual(both(server.url, test), "running")

    def test_a_full_quota(self):
        server = Server(self, lambda seen, handler, n: send_problem(handler, 429, "quota_exceeded"))

        async def test(cls, client):
            with self.assertRaises(modbox.QuotaError):
                await done(cls.create(client=client))

        both(server.url, test)

    def test_options_are_objects_or_dicts(self):
        server = Server(self, lambda seen, handler, n: send_json(handler, wire_sandbox()))
        objects = {"network": modbox.NetworkOptions(True, (80,)), "timeouts": modbox.Timeouts(idle_seconds=60)}
        dicts = {"network": {"enabled": True, "ports": (80,)}, "timeouts": {"idle_seconds": 60, "on_idle": None}}

        async def test(cls, client):
            for options in (objects, dicts):
                await done(cls.create(client=client, **options))

        both(server.url, test)
        for request in server.requests:
            body = request.json()
            network = {name: value for name, value in body["network"].items() if value != []}
            self.assertEqual((network, body["timeouts"]), ({"enabled": True, "ports": [80]}, {"idle_seconds": 60}))

    def test_a_key_that_is_no_option_is_named(self):
        server = Server(self, lambda seen, handler, n: send_json(handler, wire_sandbox()))
        cases = [
            ({"network": {"enable": True}}, "network has no member 'enable'; it has enabled, ports"),
            ({"resources": {"mem": "1Gi"}}, "resources has no member 'mem'; it has "),
            ({"command": {"args": ["ls"]}}, "unexpected keyword arguments: args"),
            ({"imagine": "x"}, "unexpected keyword arguments: imagine"),
            ({"command": {"command": "ls"}}, "pass a script as shell="),
        ]
        for options, message in cases:

            async def test(cls, client):
                with self.assertRaisesRegex(TypeError, message):
                    await done(cls.create(client=client, **options))

            with self.subTest(options):
                both(server.url, test)
        self.assertEqual(server.requests, [])

    def test_connect(self):
        def answer(seen, handler, n):
            send_json(handler, wire_sandbox(state="running" if seen.method == "POST" else "paused"))

        server = Server(self, answer)

        async def test(cls, client):
            return (await done(cls.connect("a", client=client))).info.state

        self.assertEqual(both(server.url, test), "running")
        self.assertEqual([r.path for r in server.requests[:2]], ["/v1/sandboxes/a", f"{BOX}/resume"])

    def test_connect_to_a_sandbox_that_has_ended(self):
        ended = wire_sandbox(state="destroyed", cause={"code": "ttl", "message": "its ttl of 60s was over"})
        server = Server(self, lambda seen, handler, n: send_json(handler, ended))

        async def test(cls, client):
            with self.assertRaisesRegex(modbox.EndedError, "its ttl of 60s was over"):
                await done(cls.connect("a", client=client))

        both(server.url, test)

    def test_list(self):
        server = Server(self, lambda seen, handler, n: send_json(handler, {"items": [wire_sandbox()]}))

        async def test(cls, client):
            return [type(info) for info in await done(cls.list(client=client, labels={"a": "b"}))]

        self.assertEqual(both(server.url, test), [modbox.SandboxInfo])
        self.assertEqual(server.requests[0].query, {"label": ["a=b"]})

    def test_a_create_that_is_cancelled_deletes(self):
        waiting, deleted, over = threading.Event(), threading.Event(), threading.Event()
        self.addCleanup(over.set)

        def answer(seen, handler, n):
            if seen.path.endswith("/wait"):
                waiting.set()
                over.wait(120)
            if seen.method == "DELETE":
                deleted.set()
            events = seen.path.endswith("/events")
            send_json(handler, {"items": []} if events else wire_sandbox(state="provisioning"), 201 if seen.method == "POST" else 200)

        server = Server(self, answer)

        async def run():
            async with AsyncModbox("mbx_test", base_url=server.url) as client:
                create = asyncio.ensure_future(AsyncSandbox.create(client=client))
                await asyncio.to_thread(waiting.wait, 120)
                create.cancel()
                with self.assertRaises(asyncio.CancelledError):
                    await create

        asyncio.run(run())
        self.assertTrue(deleted.is_set())


class DefaultClientTest(unittest.TestCase):
    def setUp(self):
        self.server = Server(self, lambda seen, handler, n: send_json(handler, wire_sandbox()))
        environment = mock.patch.dict(os.environ, {"MODBOX_URL": self.server.url, "MODBOX_API_TOKEN": "mbx_env"})
        environment.start()
        self.addCleanup(environment.stop)

    def test_it_is_shared(self):
        one, two = Sandbox.create(), Sandbox.connect("a")
        self.assertIs(one.client, two.client)
        self.assertEqual(self.server.requests[0].headers["authorization"], "Bearer mbx_env")
        with mock.patch.dict(os.environ, {"MODBOX_API_TOKEN": "mbx_other"}):
            self.assertIsNot(Sandbox.connect("a").client, one.client)

    def test_for_asyncio_it_is_closed_with_the_loop(self):
        async def run():
            one, two = await asyncio.gather(AsyncSandbox.create(), AsyncSandbox.connect("a"))
            self.assertIs(one.client, two.client)
            return one.client

        clients = [asyncio.run(run()), asyncio.run(run())]
        self.assertIsNot(*clients)
        for client in clients:
            self.assertTrue(client._requester._transport._client.is_closed)


class RunTest(unittest.TestCase):
    def test_a_string_goes_to_a_shell_and_a_list_does_not(self):
        server = Server(self, lambda seen, handler, n: stream(handler, exec_lines()))

        async def use(sbx):
            await done(sbx.run("echo $HOME | wc -c", cwd="/tmp", env={"A": "1"}, user="root", stdin="x", timeout_seconds=5))
            await done(sbx.commands.run(("echo", "$HOME")))

        with_box(server.url, use)
        options = {"cwd": "/tmp", "env": {"A": "1"}, "user": "root", "stdin": "x", "timeout_seconds": 5}
        self.assertEqual(server.requests[0].path, f"{BOX}/exec/stream")
        self.assertEqual(server.requests[0].json(), {"shell": "echo $HOME | wc -c", **options})
        self.assertEqual(server.requests[1].json(), {"command": ["echo", "$HOME"]})

    def test_output_is_text_with_whole_characters(self):
        euro = "€".encode()
        lines = exec_lines(("stdout", b"a" + euro[:1]), ("stderr", euro[:2]), ("stdout", euro[1:] + b"\n"), ("stdout", b"\xff"), exit_code=3)
        server = Server(self, lambda seen, handler, n: stream(handler, lines))

        async def use(sbx):
            told = []
            result = await done(sbx.run("x", on_stdout=told.append, on_stderr=lambda text: told.append(("err", text))))
            return told, result

        told, result = with_box(server.url, use)
        self.assertEqual(told, ["a", "€\n", "\ufffd", ("err", "\ufffd")])
        self.assertEqual((result.exit_code, result.stdout, result.stderr, result.timed_out), (3, "a€\n\ufffd", "\ufffd", False))
        self.assertEqual((result.duration_ms, result.stdout_truncated, result.stderr_truncated), (5, False, False))

    def test_check(self):
        def answer(seen, handler, n):
            timed_out = seen.json()["shell"] == "slow"
            stream(handler, exec_lines(("stderr", b"first\nno such target\n"), exit_code=137 if timed_out else 2, timed_out=timed_out))

        async def use(sbx):
            errors = []
            for command in ("make", "slow"):
                with self.assertRaises(modbox.CommandError) as caught:
                    await done(sbx.run(command, check=True))
                errors.append((str(caught.exception), caught.exception.result.exit_code))
            return errors

        errors = with_box(Server(self, answer).url, use)
        self.assertEqual(errors[0], ("command 'make' exited with 2: first\nno such target", 2))
        self.assertEqual(errors[1][0].splitlines()[0], "command 'slow' ran out of time: first")

    def test_the_error_has_the_ends_of_both_outputs(self):
        long = "x" * 600
        cases = {
            "out": ("why\n", "", ": why"),
            "none": (" ", "", ""),
            "long": ("why", long, f": {long[:500]}"),
            "both": (long, "no", f": no\nstdout: {long[:498]}"),
        }

        def answer(seen, handler, n):
            stdout, stderr, _ = cases[seen.json()["shell"]]
            stream(handler, exec_lines(("stdout", stdout.encode()), ("stderr", stderr.encode()), exit_code=1))

        async def use(sbx):
            said = {}
            for command in cases:
                with self.assertRaises(modbox.CommandError) as caught:
                    await done(sbx.run(command, check=True))
                said[command] = str(caught.exception)
            return said

        said = with_box(Server(self, answer).url, use)
        self.assertEqual(said, {command: f"command {command!r} exited with 1{end}" for command, (_, _, end) in cases.items()})

    def test_the_result_has_the_first_bytes(self):
        server = Server(self, lambda seen, handler, n: stream(handler, exec_lines(("stdout", b"abc"), ("stdout", b"def"), ("stderr", b"gh"))))

        async def use(sbx):
            return await done(sbx.run("x", max_output_bytes=4))

        result = with_box(server.url, use)
        self.assertEqual((result.stdout, result.stdout_truncated, result.stderr, result.stderr_truncated), ("abcd", True, "gh", False))

    def test_an_exception_of_a_callback_closes_the_connection(self):
        closed = threading.Semaphore(0)

        def answer(seen, handler, n):
            stream(handler, exec_lines(("stdout", b"x"))[:2], whole=None)
            handler.connection.settimeout(120)
            if handler.connection.recv(1) == b"":
                closed.release()

        def fail(text):
            raise RuntimeError(text)

        async def use(sbx):
            with self.assertRaisesRegex(RuntimeError, "x"):
                await done(sbx.run("x", on_stdout=fail))
            self.assertTrue(await asyncio.to_thread(closed.acquire, timeout=120))

        with_box(Server(self, answer).url, use)

    def test_callbacks_may_be_coroutine_functions(self):
        server = Server(self, lambda seen, handler, n: stream(handler, exec_lines(("stdout", b"x"))))

        async def run():
            told = []

            async def keep(text):
                await asyncio.sleep(0)
                told.append(text)

            async with AsyncModbox("mbx_test", base_url=server.url) as client:
                await AsyncSandbox(client, modbox.models.SandboxInfo(**INFO)).run("x", on_stdout=keep)
            return told

        self.assertEqual(asyncio.run(run()), ["x"])

    def test_the_end_is_never_invented(self):
        server = Server(self, lambda seen, handler, n: stream(handler, exec_lines()[:-1]))

        async def use(sbx):
            with self.assertRaises(modbox.ConnectionError):
                await done(sbx.run("x"))

        with_box(server.url, use)

    def test_a_string_is_no_list_of_letters(self):
        with Modbox("mbx_test", base_url="http://127.0.0.1:9") as client:
            calls = [
                lambda: client.sandboxes.exec("a", "echo hi"),
                lambda: list(client.sandboxes.exec_stream("a", "echo hi")),
                lambda: client.sandboxes.attach("a", "echo hi"),
                lambda: client.executions.start("a", command="echo hi"),
                lambda: client.sandboxes.create(command={"command": "echo hi"}),
            ]
            for i, call in enumerate(calls):
                with self.subTest(i), self.assertRaisesRegex(TypeError, "command is a list .* not 'echo hi': pass a script as shell="):
                    call()


class CommandsTest(unittest.TestCase):
    def test_start(self):
        server = Server(self, lambda seen, handler, n: send_json(handler, wire_execution(kind="job", sandbox_id=ID), 201))

        async def use(sbx):
            command = await done(sbx.commands.start("serve", cwd="/w", stdin=True))
            await done(sbx.commands.start(["serve", "-p"]))
            return command.id, command.info.state, repr(command).replace("Async", "")

        self.assertEqual(with_box(server.url, use), ("e", "running", "<Command e running>"))
        self.assertEqual(server.requests[0].json(), {"kind": "job", "shell": "serve", "cwd": "/w", "stdin": True})
        self.assertEqual(server.requests[1].json(), {"kind": "job", "command": ["serve", "-p"]})

    def test_a_command_that_does_not_start(self):
        failed = wire_execution(state="failed", error="there is no program nothing")
        server = Server(self, lambda seen, handler, n: send_json(handler, failed, 201))

        async def use(sbx):
            with self.assertRaisesRegex(modbox.ModboxError, "there is no program nothing") as caught:
                await done(sbx.commands.start(["nothing"]))
            return caught.exception.code

        self.assertEqual(with_box(server.url, use), "command_failed")

    def command(self, *, state="completed", exit_code=0, **more):
        """A server that has a command, whose streams are at once whole."""
        streams = {"/v1/streams/o": "a€b".encode(), "/v1/streams/e": b"oh"}
        execution = wire_execution(
            sandbox_id=ID, kind="job", state=state, exit_code=exit_code, stdout={"stream_id": "o"}, stderr={"stream_id": "e"}, **more
        )

        def answer(seen, handler, n):
            if seen.path in streams and seen.method == "GET":
                return send(handler, streams[seen.path])
            return send_json(handler, execution)

        return Server(self, answer)

    def test_output(self):
        async def use(sbx):
            chunks = await done((await done(sbx.commands.get("e"))).output())
            return sorted((chunk.stream, chunk.text) for chunk in chunks)

        server = self.command()
        self.assertEqual(with_box(server.url, use), [("stderr", "oh"), ("stdout", "a€b")])
        self.assertEqual({r.path: r.query for r in server.requests if "streams" in r.path}["/v1/streams/o"], {"follow": ["true"]})

    def test_wait(self):
        async def use(sbx):
            return await done((await done(sbx.commands.get("e"))).wait(max_output_bytes=1))

        result = with_box(self.command(exit_code=143, duration_ms=8).url, use)
        self.assertEqual((result.exit_code, result.signal, result.stdout, result.stdout_truncated, result.duration_ms), (143, 15, "a", True, 8))
        self.assertTrue(with_box(self.command(state="timeout", exit_code=137).url, use).timed_out)

    def test_an_exit_code_that_is_not_known(self):
        async def use(sbx):
            with self.assertRaisesRegex(modbox.ModboxError, "is failed, and its exit code is not known: the sandbox ended"):
                await done((await done(sbx.commands.get("e"))).wait())

        with_box(self.command(state="failed", exit_code=None, error="the sandbox ended").url, use)

    def test_kill(self):
        server = self.command(state="running", exit_code=None)

        async def use(sbx):
            command = await done(sbx.commands.get("e"))
            for signal in (None, "SIGTERM", 9):
                await done(command.kill(signal))

        with_box(server.url, use)
        kills = [r for r in server.requests if r.path == "/v1/executions/e/cancel"]
        self.assertEqual([r.json() for r in kills], [{}, {}, {"force": True}] * 2)

    def test_input(self):
        server = self.command(state="running", exit_code=None, stdin_stream_id="i")

        async def use(sbx):
            command = await done(sbx.commands.get("e"))
            await done(command.write("€"))
            await done(command.close_stdin())

        with_box(server.url, use)
        writes = [(r.body, r.query) for r in server.requests if r.method == "PUT"]
        self.assertEqual(writes, [("€".encode(), {"eof": ["false"]}), (b"", {"eof": ["true"]})] * 2)

    def test_main(self):
        items = [wire_execution(id="m", sandbox_id=ID, kind="main")]
        server = Server(self, lambda seen, handler, n: send_json(handler, {"items": items}))

        async def use(sbx):
            return (await done(sbx.commands.main())).info.id

        self.assertEqual(with_box(server.url, use), "m")
        self.assertEqual([r.query["kind"] for r in server.requests if "kind" in r.query], [["main"]] * 2)
        items.clear()
        with self.assertRaises(modbox.NotFoundError):
            with_box(server.url, use)

    def test_a_command_of_another_sandbox(self):
        server = Server(self, lambda seen, handler, n: send_json(handler, wire_execution(sandbox_id="other")))

        async def use(sbx):
            with self.assertRaises(modbox.NotFoundError):
                await done(sbx.commands.get("e"))

        with_box(server.url, use)

    def test_a_stream_that_fails_is_raised(self):
        def answer(seen, handler, n):
            if seen.path == "/v1/streams/e":
                return send_problem(handler, 404, "not_found")
            if seen.path == "/v1/streams/o":
                return stream(handler, [{"x": 1}], whole=None)  # it goes on for ever
            execution = wire_execution(sandbox_id=ID, stdout={"stream_id": "o"}, stderr={"stream_id": "e"})
            return send_json(handler, execution)

        async def use(sbx):
            with self.assertRaises(modbox.NotFoundError):
                await done((await done(sbx.commands.get("e"))).output())

        with_box(Server(self, answer).url, use)


class PartsTest(unittest.TestCase):
    def test_url(self):
        port = {"port": 3000, "url": "http://p3000", "access": "private", "created_at": "2026-01-01T00:00:00Z"}

        def answer(seen, handler, n):
            send_json(handler, {"items": [port]} if seen.method == "GET" else {**port, "port": 1, "url": "http://new"})

        server = Server(self, answer)

        async def use(sbx):
            return await done(sbx.url(3000)), await done(sbx.url(80)), await done(sbx.url(3000, access="public"))

        self.assertEqual(with_box(server.url, use), ("http://p3000", "http://new", "http://new"))
        calls = [(r.method, r.path, r.body) for r in server.requests[: len(server.requests) // 2]]
        ports = f"{BOX}/ports"
        self.assertEqual(calls, [("GET", ports, b""), ("GET", ports, b""), ("PUT", f"{ports}/80", b"{}"), ("PUT", f"{ports}/3000", b'{"access": "public"}')])

    def test_set_timeout(self):
        server = Server(self, lambda seen, handler, n: send_json(handler, wire_sandbox(ttl_seconds=99)))

        async def use(sbx):
            await done(sbx.set_timeout(3600))
            return sbx.info.ttl_seconds

        self.assertEqual(with_box(server.url, use), 99)
        seen = server.requests[0]
        self.assertEqual((seen.method, seen.path, seen.json()), ("PATCH", BOX, {"ttl_seconds": 3600}))

    def test_fork(self):
        two = {"forks": [{"sandbox": wire_sandbox(name="b")}, {"sandbox": wire_sandbox(name="c")}]}
        server = Server(self, lambda seen, handler, n: send_json(handler, two))

        async def use(sbx):
            return [child.name for child in await done(sbx.fork(count=2, env={"A": "1"}))]

        self.assertEqual(with_box(server.url, use), ["b", "c"])
        self.assertEqual(server.requests[0].json(), {"count": 2, "env": {"A": "1"}})

    def test_a_fork_that_fails_leaves_none(self):
        forks = {"forks": [{"sandbox": wire_sandbox(id="good")}, {"error": {"code": "quota_exceeded", "detail": "no room"}}]}
        server = Server(self, lambda seen, handler, n: send_json(handler, forks if seen.method == "POST" else wire_sandbox()))

        async def use(sbx):
            with self.assertRaisesRegex(modbox.QuotaError, "no room"):
                await done(sbx.fork(count=2))

        with_box(server.url, use)
        self.assertEqual([r.path for r in server.requests if r.method == "DELETE"], ["/v1/sandboxes/good"] * 2)

    def test_files(self):
        def answer(seen, handler, n):
            if seen.path.endswith("/stat"):
                return send_problem(handler, 404, "file_not_found" if seen.query["path"] == ["/none"] else "not_found")
            if seen.method == "PUT":
                info = {"name": "f", "path": "/f", "type": "file", "mod_time": "2026-01-01T00:00:00Z"}
                return send_json(handler, info)
            return send(handler, "€".encode())

        server = Server(self, answer)

        async def use(sbx):
            await done(sbx.files.write("/d/f", "€"))
            with self.assertRaises(modbox.NotFoundError):  # a sandbox that does not exist is no missing file
                await done(sbx.files.exists("/f"))
            return await done(sbx.files.read("/f")), await done(sbx.files.read_bytes("/f")), await done(sbx.files.exists("/none"))

        self.assertEqual(with_box(server.url, use), ("€", "€".encode(), False))
        self.assertEqual((server.requests[0].query, server.requests[0].body), ({"path": ["/d/f"], "parents": ["true"]}, "€".encode()))


class ImportTest(unittest.TestCase):
    def test_asyncio_without_httpx_says_how_to_get_it(self):
        with mock.patch.dict(sys.modules, {"httpx": None}), self.assertRaisesRegex(ImportError, r"pip install 'modbox\[httpx\]'"):
            AsyncModbox("mbx_test")

    def test_terminals_without_wsproto_say_how_to_get_it(self):
        hidden = {"wsproto": None, "modbox._websocket": None}
        with mock.patch.dict(sys.modules, hidden), self.assertRaisesRegex(ImportError, r"pip install 'modbox\[terminal\]'"):
            Modbox("mbx_test").sandboxes.attach("a", shell="true")


if __name__ == "__main__":
    unittest.main()
