"""Dockerfiles and registries.

Needs a server, MODBOX_URL and MODBOX_API_TOKEN, and at MODBOX_TEST_REGISTRY one
of test/registry, which that server takes (images.insecure_registries).
"""

import asyncio
import io
import os
import tarfile
import time
import unittest

import modbox

PASSWORD = "pl4in-passw0rd"
FILES = {
    "Dockerfile": """FROM modbox/base
ARG GREETING=nothing
COPY greeting.txt /srv/greeting.txt
RUN echo "$GREETING $(tr a-z A-Z < /srv/greeting.txt)" | tee /srv/loud.txt
""",
    "greeting.txt": "hello from a file\n",
}
LOUD = "Say HELLO FROM A FILE\n"
ARGS = {"GREETING": "Say"}


def tar_of(files):
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as tar:
        for name, text in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(text)
            tar.addfile(info, io.BytesIO(text.encode()))
    return out.getvalue()


def output(events):
    return b"".join(e.data for e in events if e.type == "output").decode()


def unique(kind):
    host = os.environ["MODBOX_TEST_REGISTRY"]
    return host, f"{host}/team/app:py-{kind}-{os.getpid()}-{time.time_ns()}"


class BuildTest(unittest.TestCase):
    def test_urllib(self):
        with modbox.ModboxClient(transport=modbox.UrllibTransport()) as client:
            self.build_push_pull(client, "urllib")

    def test_httpx(self):
        with modbox.ModboxClient(transport=modbox.HttpxTransport()) as client:
            self.build_push_pull(client, "httpx")

    def build_push_pull(self, client, kind):
        host, tag = unique(kind)
        built = list(client.images.build(tar_of(FILES), tag=tag, build_args=ARGS, no_cache=True))
        self.assertEqual(output(built), LOUD)
        steps = [(e.step, e.steps, e.line, e.instruction.split()[0], e.cached) for e in built if e.type == "step"]
        self.assertEqual(steps, [(1, 4, 1, "FROM", False), (2, 4, 2, "ARG", False), (3, 4, 3, "COPY", False), (4, 4, 4, "RUN", False)])
        image = built[-1].image
        self.assertEqual(image.ref, tag)
        self.assertEqual(self.printed(client, tag), LOUD)
        self.assertIn(image.id, [i.id for i in client.images.list()])
        shown = client.images.get(tag)
        self.assertEqual((shown.id, shown.base, shown.layers[0].base, shown.layers[-1].base), (image.id, "modbox/base:latest", True, False))
        self.assertIn("tr a-z A-Z", shown.layers[-1].created_by)

        # Nothing is sent without the password.
        with self.assertRaisesRegex(modbox.ModboxError, "other credentials"):
            list(client.images.push(tag))
        with self.assertRaises(modbox.ModboxError) as caught:
            client.registries.create(name=tag, server=host, username="ann", password="wrong", verify=True)
        self.assertEqual(caught.exception.field, "password")
        registry = client.registries.create(name=tag, server=host, username="ann", password=PASSWORD, verify=True)
        try:
            self.assertEqual(list(client.images.push(tag))[-1].image.ref, tag)
            list(client.images.push(tag, to=f"{tag}-copy"))
            client.images.delete(image.id)
            self.assertNotIn(image.id, [i.id for i in client.images.list()])
            for ref in (tag, f"{tag}-copy"):
                self.assertEqual(list(client.images.pull(ref))[-1].image.ref, ref)
                self.assertEqual(self.printed(client, ref), LOUD)

            # A build can push by itself, and its files may come in chunks; the layers are there by now.
            again = f"{tag}-again"
            told = list(client.images.build(iter([tar_of(FILES)]), tag=again, build_args=ARGS, push=True))
            self.assertEqual([e.instruction.split()[0] for e in told if e.type == "step" and e.cached], ["COPY", "RUN"])
            client.images.delete(told[-1].image.id)
            self.assertEqual(list(client.images.pull(again))[-1].image.ref, again)
        finally:
            client.registries.delete(registry.id)

    def printed(self, client, image):
        sandbox = client.sandboxes.create(image=image, ttl_seconds=3600, wait_seconds=600)
        try:
            return client.sandboxes.exec(sandbox.id, shell="cat /srv/loud.txt").stdout
        finally:
            client.sandboxes.delete(sandbox.id)

    def test_failure(self):
        said = []
        with modbox.ModboxClient() as client, self.assertRaises(modbox.BuildError) as caught:
            said.extend(client.images.build(tar_of(FILES), dockerfile="FROM modbox/base\nRUN echo before; exit 3\n", no_cache=True))
        self.assertEqual((caught.exception.line, caught.exception.exit_code), (2, 3))
        self.assertTrue(caught.exception.instruction.startswith("RUN"))

    def test_asyncio(self):
        asyncio.run(self.build_push_pull_async())

    async def build_push_pull_async(self):
        host, tag = unique("asyncio")
        async with modbox.AsyncModboxClient() as client:
            built = [e async for e in client.images.build(tar_of(FILES), tag=tag, build_args=ARGS, no_cache=True)]
            self.assertEqual(output(built), LOUD)
            registry = await client.registries.create(name=tag, server=host, username="ann", password=PASSWORD, verify=True)
            try:
                self.assertEqual([e async for e in client.images.push(tag)][-1].image.ref, tag)
                await client.images.delete(built[-1].image.id)
                self.assertEqual([e async for e in client.images.pull(tag)][-1].image.ref, tag)
            finally:
                await client.registries.delete(registry.id)
            with self.assertRaises(modbox.BuildError):
                async for _ in client.images.build(tar_of(FILES), dockerfile="FROM modbox/base\nRUN false\n"):
                    pass


if __name__ == "__main__":
    unittest.main()
