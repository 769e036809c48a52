"""The objects Sandbox and AsyncSandbox against the server at MODBOX_URL with MODBOX_API_TOKEN."""

import asyncio
import threading
import time
import unittest
from urllib.request import urlopen

import modbox
from modbox import AsyncSandbox, Sandbox

SERVE = "echo hello > /tmp/index.html; exec python3 -m http.server 5173 -d /tmp"
LISTENING = "until (: < /dev/tcp/127.0.0.1/5173) 2> /dev/null; do sleep 0.1; done"


class SandboxTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.sbx = Sandbox.create(image="modbox/code-exec", ttl_seconds=1800)
        cls.addClassCleanup(cls.sbx.delete)

    def test_it_has_a_ttl_and_is_listed(self):
        with Sandbox.create(image="modbox/code-exec", labels={"test": self.id()}) as sbx:
            self.assertEqual((sbx.info.state, sbx.info.ttl_seconds), ("running", 900))
            self.assertEqual([info.id for info in Sandbox.list(labels={"test": self.id()})], [sbx.id])
            self.assertEqual(Sandbox.connect(sbx.name).id, sbx.id)
        self.assertEqual(sbx.info.state, "destroyed")
        with self.assertRaises(modbox.EndedError):
            Sandbox.connect(sbx.id)
        with self.assertRaises(modbox.EndedError):
            sbx.run("true")

    def test_set_timeout(self):
        with Sandbox.create(image="modbox/code-exec", ttl_seconds=600) as sbx:
            first = sbx.info.deadline
            info = sbx.set_timeout(3600)
            self.assertEqual((info.ttl_seconds, info.deadline > first), (3600, True))
            self.assertIsNone(sbx.set_timeout(0).deadline)

    def test_an_image_that_does_not_exist(self):
        with self.assertRaises(modbox.SandboxFailedError) as caught:
            Sandbox.create(image="127.0.0.1:1/there-is-no-such-image")
        self.assertEqual(caught.exception.cause.code, "image")

    def test_run(self):
        result = self.sbx.run("echo $A | tr a-z A-Z; cat; exit 3", env={"A": "grüße"}, stdin="in", cwd="/tmp")
        self.assertEqual((result.exit_code, result.stdout), (3, "GRüßE\nin"))
        self.assertEqual(self.sbx.run(["echo", "$A"]).stdout, "$A\n")
        with self.assertRaisesRegex(modbox.CommandError, "exited with 2: .*nothing"):
            self.sbx.run("ls /nothing", check=True)
        self.assertTrue(self.sbx.run("sleep 600", timeout_seconds=1).timed_out)

    def test_output_comes_while_the_command_runs(self):
        # The command ends only when the callback has answered its output.
        def on_stdout(text):
            told.append(text)
            self.sbx.files.write("/tmp/seen", text)

        told = []
        result = self.sbx.run("printf '\\xe2\\x82'; sleep 0.3; printf '\\xac'; until [ -e /tmp/seen ]; do sleep 0.1; done", on_stdout=on_stdout)
        self.assertEqual((told, result.stdout), (["€"], "€"))

    def test_what_is_missing_has_errors_of_its_own(self):
        cases = [
            (modbox.ProgramNotFoundError, lambda: self.sbx.run(["there-is-no-such-program"])),
            (modbox.FileNotFoundError, lambda: self.sbx.files.read("/nothing")),
            (modbox.FileNotFoundError, lambda: self.sbx.run("true", cwd="/nothing")),
            (modbox.NotFoundError, lambda: Sandbox.connect("there-is-no-such-sandbox")),
        ]
        for want, call in cases:
            with self.assertRaises(want) as caught:
                call()
            self.assertIs(type(caught.exception), want)

    def test_commands(self):
        command = self.sbx.commands.start("while read line; do echo got $line; echo err >&2; done; exit 4", stdin=True)
        command.write("one\n")
        again = Sandbox.connect(self.sbx.id).commands.get(command.id)
        again.write("two\n")
        again.close_stdin()
        texts = {"stdout": "", "stderr": ""}
        for chunk in again.output():
            texts[chunk.stream] += chunk.text
        self.assertEqual(texts, {"stdout": "got one\ngot two\n", "stderr": "err\nerr\n"})
        result = command.wait(timeout_seconds=120)
        self.assertEqual((result.exit_code, result.stdout, result.stderr), (4, texts["stdout"], texts["stderr"]))
        self.assertIn(command.id, [info.id for info in self.sbx.commands.list()])
        with self.assertRaisesRegex(modbox.ModboxError, "did not start"):
            self.sbx.commands.start(["there-is-no-such-program"])

    def test_kill(self):
        for signal, want in ((None, 15), ("SIGKILL", 9), ("SIGINT", 2)):
            with self.subTest(signal):
                command = self.sbx.commands.start(["sleep", "600"])
                with self.assertRaises(modbox.TimeoutError):
                    command.wait(timeout_seconds=0)
                command.kill(signal)
                self.assertEqual(command.wait(timeout_seconds=120).signal, want)

    def test_files(self):
        files = self.sbx.files
        files.write("/tmp/d/e/a.txt", "grüße")
        self.assertEqual((files.read("/tmp/d/e/a.txt"), files.read_bytes("/tmp/d/e/a.txt")), ("grüße", "grüße".encode()))
        files.move("/tmp/d/e/a.txt", "/tmp/d/b.txt")
        self.assertEqual([f.name for f in files.list("/tmp/d")], ["b.txt", "e"])
        self.assertEqual((files.exists("/tmp/d/e/a.txt"), files.exists("/tmp/d/b.txt")), (False, True))
        events = files.watch("/tmp/d")
        files.remove("/tmp/d/b.txt")
        self.assertEqual(next(e.path for e in events if e.type == "removed"), "/tmp/d/b.txt")
        events.close()
        files.upload_archive("/tmp/copy", b"".join(files.download_archive("/tmp/d")))
        files.mkdir("/tmp/d/e")
        files.remove("/tmp/d", recursive=True)
        self.assertFalse(files.exists("/tmp/d"))

    def test_diff(self):
        with Sandbox.create(image="modbox/base", ttl_seconds=1800) as sbx:
            files = sbx.files
            sbx.run("echo more >> /etc/profile; rm /etc/issue; mkdir /srv/d; ln -s /etc /srv/d/to", check=True)
            changes = {c.path: c for c in files.diff(limit=2)}
            self.assertEqual((changes["/etc/issue"].change, changes["/etc/issue"].before), ("removed", None))
            self.assertEqual((changes["/srv/d"].type, changes["/srv/d/to"].target), ("directory", "/etc"))
            profile = changes["/etc/profile"]
            self.assertEqual((profile.change, profile.before.type, profile.size_bytes - profile.before.size_bytes), ("changed", "file", 5))
            self.assertEqual(files.original("/etc/profile") + b"more\n", files.read_bytes("/etc/profile"))
            self.assertEqual([c.path for c in files.diff(path="/srv/d")], ["/srv/d", "/srv/d/to"])
            with self.assertRaises(modbox.FileNotFoundError):
                files.original("/srv/d/to")

    def test_code_keeps_its_state(self):
        self.sbx.run_code("let x = 20", language="javascript")
        told = []
        result = self.sbx.run_code("console.log('grüße'); display({'text/html': '<b>x</b>'}, {raw: true}); x + 1", language="javascript", on_stdout=told.append)
        self.assertEqual((result.status, result.text, result.html, "".join(told)), ("ok", "21", "<b>x</b>", "grüße\n"))
        context = self.sbx.contexts.create(language="javascript", cwd="/tmp")
        self.assertEqual(self.sbx.run_code("x", context=context).error.name, "ReferenceError")
        self.assertEqual(self.sbx.run_code("process.cwd()", context=context.id).text, "'/tmp'")
        self.assertEqual({c.id for c in self.sbx.contexts.list()}, {"javascript", context.id})
        self.sbx.contexts.restart("javascript")
        self.assertEqual(self.sbx.run_code("typeof x", language="javascript").text, "'undefined'")
        self.sbx.contexts.delete(context)
        with self.assertRaises(modbox.NotFoundError):
            self.sbx.run_code("1", context=context)

    def test_code_can_be_interrupted(self):
        results = []
        run = threading.Thread(target=lambda: results.append(self.sbx.run_code("for (;;) {}", language="javascript", timeout_seconds=600)))
        run.start()
        while "busy" not in [c.state for c in self.sbx.contexts.list()]:
            time.sleep(0.05)
        self.sbx.contexts.interrupt("javascript")
        run.join()
        self.assertEqual(results[0].status, "interrupted")

    def test_url(self):
        server = self.sbx.commands.start(SERVE)
        self.sbx.run(LISTENING, check=True)
        url = self.sbx.url(5173)
        self.assertEqual(urlopen(f"{url}/").read(), b"hello\n")
        self.assertEqual(self.sbx.url(5173), url)
        server.kill()

    def test_states(self):
        with Sandbox.create(image="modbox/code-exec", ttl_seconds=600) as sbx:
            sbx.files.write("a", "first")
            sbx.checkpoints.create(name="before")
            sbx.files.write("a", "second")
            sbx.checkpoints.restore("before")
            self.assertEqual(sbx.files.read("a"), "first")
            self.assertEqual(sbx.pause().state, "paused")
            self.assertEqual(Sandbox.connect(sbx.id).info.state, "running")
            sbx.pause()
            self.assertEqual(sbx.resume().state, "running")
            (child,) = sbx.fork(env={"ROLE": "worker"})
            with child:
                self.assertEqual(child.run("cat a; echo $ROLE").stdout, "firstworker\n")
            snapshot = sbx.snapshot(name=f"py-{sbx.name}")
        with Sandbox.create(snapshot=snapshot.id) as copy:
            self.assertEqual(copy.files.read("a"), "first")
        copy.client.snapshots.delete(snapshot.id)


class AsyncSandboxTest(unittest.IsolatedAsyncioTestCase):
    async def test_many_things_at_once(self):
        async with await AsyncSandbox.create(image="modbox/code-exec", ttl_seconds=600) as sbx:
            told = []

            async def keep(text):
                told.append(text)

            command = await sbx.commands.start("echo a; echo b >&2")
            results = await asyncio.gather(
                sbx.run("cat", stdin="grüße", on_stdout=keep),
                sbx.run_code("1 + 1", language="javascript"),
                sbx.files.write("/tmp/x", "x"),
                command.wait(timeout_seconds=120),
            )
            self.assertEqual((results[0].stdout, "".join(told), results[1].text), ("grüße", "grüße", "2"))
            self.assertEqual((results[3].stdout, results[3].stderr), ("a\n", "b\n"))
            self.assertEqual({c.stream: c.text async for c in command.output()}, {"stdout": "a\n", "stderr": "b\n"})
            run = asyncio.ensure_future(sbx.run("touch /tmp/begun; sleep 600"))
            while not await sbx.files.exists("/tmp/begun"):
                await asyncio.sleep(0.05)
            run.cancel()
            with self.assertRaises(asyncio.CancelledError):
                await run
            gone = "until ! pgrep -f '[s]leep 600' > /dev/null; do sleep 0.1; done"
            await sbx.run(gone, check=True)


if __name__ == "__main__":
    unittest.main()
