"""Runs sdk/conformance/scenario.json; its README says what the steps mean.

Needs a server: MODBOX_URL and MODBOX_API_TOKEN.
"""

import asyncio
import base64
import dataclasses
import inspect
import json
import os
import re
import time
import unittest
from datetime import datetime
from pathlib import Path

import modbox

WITHOUT = os.environ.get("MODBOX_TEST_WITHOUT", "").split(",")
STEPS = json.loads((Path(__file__).parents[3] / "conformance" / "scenario.json").read_text())["steps"]
STEPS = [step for step in STEPS if step["call"] not in WITHOUT]


class ConformanceTest(unittest.TestCase):
    def setUp(self):
        if not (os.environ.get("MODBOX_URL") and os.environ.get("MODBOX_API_TOKEN")):
            self.fail("set MODBOX_URL and MODBOX_API_TOKEN")

    def test_urllib(self):
        with modbox.ModboxClient(transport=modbox.UrllibTransport()) as client:
            asyncio.run(self.run_all(client, "urllib"))

    def test_httpx(self):
        with modbox.ModboxClient(transport=modbox.HttpxTransport()) as client:
            asyncio.run(self.run_all(client, "httpx"))

    def test_asyncio(self):
        async def run():
            async with modbox.AsyncModboxClient() as client:
                await self.run_all(client, "asyncio")

        asyncio.run(run())

    async def run_all(self, client, kind):
        clients = {}
        saved = {"run": f"py-{kind}-{os.getpid()}-{time.time_ns()}"}
        try:
            for step in STEPS:
                with self.subTest(step["name"]):
                    await self.run_step(clients.get(step.get("as"), client), step, saved, clients)
        finally:
            await finish(client.destroy_sandbox(task_id=f"conformance-{saved['run']}"))
            for other in clients.values():
                await finish(other.close())

    async def run_step(self, client, step, saved, clients):
        args = fill(step.get("args", {}), saved)
        if "error" in step:
            with self.assertRaises(modbox.ModboxError) as caught:
                await perform(client, step["call"], args)
            err = caught.exception
            got = {"code": err.code, "status": err.status, "field": err.field, "message": err.message}
            return match(got, fill(step["error"], saved), "error")
        value = await perform(client, step["call"], args)
        if "become" in step:
            clients[step["become"]] = value
            return
        got = plain(value)
        if "expect" in step:
            match(got, fill(step["expect"], saved), "answer")
        for name, member in step.get("save", {}).items():
            saved[name] = inside(got, member)


#: Arguments that are given by position.
FIRST = ("ref", "port", "path", "from", "to", "content", "id", "text", "code", "context", "snapshot", "workspace", "checkpoint", "tag", "changes", "files", "who")

#: Calls that take all but ref by name.
BY_NAME = ("login", "accept_invitation", "registries.create", "executions.start", "sandboxes.create", "snapshots.create", "snapshots.build")


async def perform(client, call, args):
    if call == "sandboxes.files.page":
        page = client.sandboxes.files.list(args.pop("ref"), args.pop("path"), **args)
        page = await page if inspect.isawaitable(page) else page
        return {"items": page.items, "next_cursor": page.next_cursor}
    target = client
    for name in call.split("."):
        target = getattr(target, name)
    args = dict(args)
    if "content" in args:
        args["content"] = base64.b64decode(args["content"]["base64"])
    if call in ("users.create", "sandbox_images.create", "images.pull", "account.set_password"):
        names = ("name", "image", "password")
    else:
        names = ("ref",) if call in BY_NAME else FIRST
    first = [args.pop(name) for name in names if name in args]
    result = await finish(target(*first, **args))
    if call == "executions.logs":
        return b"".join(result).decode()
    if call.endswith("run_code_stream"):
        return ran(result)
    return joined(result) if call.endswith("exec_stream") else result


def inside(value, path):
    for key in path.split("."):
        value = value[int(key)] if isinstance(value, list) else value[key]
    return value


async def finish(result):
    """The value of either client's call; lists become all of their items, and iterators lists."""
    if isinstance(result, modbox.AsyncPages) or hasattr(result, "__anext__"):
        return [item async for item in result]
    if inspect.isawaitable(result):
        return await result
    return list(result) if isinstance(result, modbox.Page) or hasattr(result, "__next__") else result


def joined(events):
    out = {"types": [], "stdout": "", "stderr": ""}
    for event in events:
        if event.type not in out["types"]:
            out["types"].append(event.type)
        if event.data:
            out[event.type] += event.data.decode()
        if event.type == "exit":
            out["exit_code"] = event.exit_code
    return out


def ran(events):
    out = {"types": [], "stdout": "", "stderr": "", "data": []}
    for event in events:
        if event.type not in out["types"]:
            out["types"].append(event.type)
        if event.type in ("stdout", "stderr"):
            out[event.type] += event.text
        if event.type == "result":
            out["data"].append(event.result.json)
        if event.type == "end":
            out["status"] = event.status
    return out


def match(got, want, where):
    def check(ok):
        if not ok:
            raise AssertionError(f"{where}: got {got!r}, want {want!r}")

    if isinstance(want, list):
        check(isinstance(got, list) and len(got) == len(want))
        for i, item in enumerate(want):
            match(got[i], item, f"{where}[{i}]")
    elif not isinstance(want, dict):
        check(got == want and isinstance(got, bool) == isinstance(want, bool))
    elif "$one_of" in want:
        check(got in want["$one_of"])
    elif "$match" in want:
        check(re.search(want["$match"], str(got)))
    elif "$length" in want:
        check(len(got) == want["$length"])
    elif "$at_least" in want:
        check(got >= want["$at_least"])
    elif "$includes" in want:
        check(any(matches(item, want["$includes"]) for item in got))
    else:
        check(isinstance(got, dict))
        for key, value in want.items():
            match(got.get(key), value, f"{where}.{key}")


def matches(got, want):
    try:
        match(got, want, "")
    except AssertionError:
        return False
    return True


def fill(value, saved):
    text = re.sub(r"\$\{(\w+)\}", lambda m: saved[m.group(1)], json.dumps(value, ensure_ascii=False))
    return json.loads(text)


def plain(value):
    """The answer with the wire's names."""
    if dataclasses.is_dataclass(value):
        return {f.name: plain(getattr(value, f.name)) for f in dataclasses.fields(value)}
    if isinstance(value, bytes):
        return {"base64": base64.b64encode(value).decode()}
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items()}
    if isinstance(value, modbox.ModboxError):
        return {"code": value.code, "message": value.message}
    return value


if __name__ == "__main__":
    unittest.main()
