import assert from "node:assert/strict";
import { test } from "node:test";
import { Modbox, Sandbox, ValidationError } from "modbox-sdk";
import { json, serve, wireSandbox } from "../server.mjs";

// The calls with a member that they do not know, and the name of the member.
const calls = {
  "Modbox": [(c) => new Modbox({ baseUrl: c.baseUrl, token: "t", apiKey: "x" }), "apiKey"],
  "Sandbox.create": [(c) => Sandbox.create({ client: c, imge: "modbox/data" }), "imge"],
  "Sandbox.create: a nested member": [(c) => Sandbox.create({ client: c, resources: { ram: "1Gi" } }), "ram"],
  "Sandbox.create: network": [(c) => Sandbox.create({ client: c, network: { enable: true } }), "enable"],
  "Sandbox.create: command": [(c) => Sandbox.create({ client: c, command: { shell: "ls", workdir: "/" } }), "workdir"],
  "Sandbox.connect": [(c) => Sandbox.connect("a", { client: c, timeout: 1 }), "timeout"],
  "Sandbox.list": [(c) => Sandbox.list({ client: c, state: "running" }), "state"],
  "run": [(c, sbx) => sbx.run("ls", { timeout: 5 }), "timeout"],
  "run: a program": [(c, sbx) => sbx.run({ code: "1", path: "/a.py", lang: "python" }), "lang"],
  "runCode": [(c, sbx) => sbx.runCode("1", { lang: "r" }), "lang"],
  "scanCode": [(c, sbx) => sbx.scanCode("1", { allowed: [] }), "allowed"],
  "url": [(c, sbx) => sbx.url(80, { private: true }), "private"],
  "fork": [(c, sbx) => sbx.fork({ n: 2 }), "n"],
  "resume": [(c, sbx) => sbx.resume({ wait: 1 }), "wait"],
  "snapshot": [(c, sbx) => sbx.snapshot({ title: "a" }), "title"],
  "commands.start": [(c, sbx) => sbx.commands.start("ls", { check: true }), "check"],
  "files.write": [(c, sbx) => sbx.files.write("/a", "b", { permissions: "0600" }), "permissions"],
  "files.writeMany": [(c, sbx) => sbx.files.writeMany([{ path: "/a", data: "b" }]), "data"],
  "files.read": [(c, sbx) => sbx.files.read("/a", { format: "bytes" }), "format"],
  "pause": [(c, sbx) => sbx.pause({ wait: true }), "wait"],
  "delete": [(c, sbx) => sbx.delete({ force: true }), "force"],
  "files.list": [(c, sbx) => sbx.files.list("/", { depth: 2 }), "depth"],
  "files.mkdir": [(c, sbx) => sbx.files.mkdir("/a", { recursive: true }), "recursive"],
  "files.remove": [(c, sbx) => sbx.files.remove("/a", { force: true }), "force"],
  "files.uploadArchive": [(c, sbx) => sbx.files.uploadArchive("/a", "b", { strip: 1 }), "strip"],
  "files.watch": [(c, sbx) => sbx.files.watch("/a", { depth: 1 }), "depth"],
  "contexts.create": [(c, sbx) => sbx.contexts.create({ workdir: "/" }), "workdir"],
  "ports.createLink": [(c, sbx) => sbx.ports.createLink(80, { ttl: 1 }), "ttl"],
  "desktop.click": [(c, sbx) => sbx.desktop.click(1, 2, { double: true }), "double"],
  "sandboxes.exec": [(c) => c.sandboxes.exec("a", { shell: "ls", dir: "/" }), "dir"],
  "sandboxes.setNetwork": [(c) => c.sandboxes.setNetwork("a", { open: true }), "open"],
  "sandboxes.wait": [(c) => c.sandboxes.wait("a", { seconds: 1 }), "seconds"],
  "executions.start": [(c) => c.executions.start("a", { shell: "ls", input: "x" }), "input"],
  "snapshots.build": [(c) => c.snapshots.build("base", { packages: [] }), "packages"],
  "snapshots.list": [(c) => c.snapshots.list({ mine: true }), "mine"],
  "images.build": [(c) => c.images.build("", { file: "Dockerfile" }).next(), "file"],
  "tokens.create": [(c) => c.tokens.create({ expires: 1 }), "expires"],
  "webhooks.update": [(c) => c.webhooks.update("w", { events: [] }), "events"],
  "workspaces.setQuota": [(c) => c.workspaces.setQuota("w", { boxes: 1 }), "boxes"],
  "audit.list": [(c) => c.audit.list({ from: "x" }), "from"],
  "events.follow": [(c) => c.events.follow({ box: "a" }).next(), "box"],
};

for (const [name, [call, member]] of Object.entries(calls)) {
  test(`an unknown member is an error and sends nothing: ${name}`, async (t) => {
    const s = await serve(t, (_, res) => json(res, wireSandbox(), 201));
    const client = s.client();
    const sbx = await Sandbox.create({ client });
    await assert.rejects(async () => call(client, sbx), (err) => {
      assert(err instanceof ValidationError, String(err));
      assert.deepEqual([err.code, err.field], ["invalid", member]);
      return err.message.includes(`has no member "${member}"`);
    });
    assert.equal(s.requests.length, 1);
  });
}

test("an error for an unknown member says what it may have been", async () => {
  const said = async (options) => {
    try {
      await Sandbox.create({ client: {}, ...options });
      return "nothing";
    } catch (err) {
      return err.message;
    }
  };
  assert.equal(await said({ imge: "a" }), 'SandboxOptions has no member "imge"; did you mean "image"?');
  assert.equal(await said({ ttl_seconds: 1 }), 'SandboxOptions has no member "ttl_seconds"; did you mean "ttlSeconds"?');
  assert.equal(await said({ onprogress: () => {} }), 'SandboxOptions has no member "onprogress"; did you mean "onProgress"?');
  assert.match(await said({ gpu: 1 }), /^SandboxOptions has no member "gpu"; it has name, image, .*client, onProgress$/);
  assert.match(await said({ ["x".repeat(100_000)]: 1 }), /^SandboxOptions has no member "x+"; it has /);
});

test("options that are no object are an error; undefined members and options are none", async (t) => {
  const s = await serve(t, (_, res) => json(res, wireSandbox(), 201));
  const client = s.client();
  await assert.rejects(client.sandboxes.exec("a", ["ls"]), /ExecOptions must be an object with named members, not a list/);
  await assert.rejects(client.sandboxes.exec("a", "ls"), /ExecOptions must be an object with named members, not a string/);
  assert.equal(s.requests.length, 0);
  const sbx = await Sandbox.create({ client, imge: undefined });
  await sbx.files.stat("/a", undefined);
});
