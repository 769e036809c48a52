// The Sandbox object, on a real sandbox. Needs a server: MODBOX_URL and MODBOX_API_TOKEN.
import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { CommandError, EndedError, FileNotFoundError, Modbox, NotFoundError, ProgramNotFoundError, Sandbox, TimeoutError, ValidationError } from "modbox-sdk";

const image = "modbox/code-exec";
let sbx;

before(async () => {
  sbx = await Sandbox.create({ image, labels: { test: "object" } });
});
after(() => sbx?.delete());

test("it runs, with a deadline in 15 minutes, and is found", async () => {
  assert.equal(sbx.info.state, "running");
  const lifetime = Date.parse(sbx.info.deadline) - Date.parse(sbx.info.createdAt);
  assert.equal(Math.round(lifetime / 1000), 900);
  assert.deepEqual((await Sandbox.list({ labels: { test: "object" } }).all()).map((info) => info.id), [sbx.id]);
  assert.equal((await Sandbox.connect(sbx.name)).id, sbx.id);
  await assert.rejects(Sandbox.connect("nobody"), NotFoundError);
});

test("run: shell and list, input, environment, output as it comes", async () => {
  const r = await sbx.run("cd /; echo $A; cat; ls | wc -l >&2; exit 3", { env: { A: "é" }, stdin: "in", cwd: "/tmp" });
  assert.deepEqual([r.exitCode, r.stdout, r.timedOut], [3, "é\nin", false]);
  assert.match(r.stderr, /^\d+\n$/);
  assert.equal((await sbx.run(["echo", "$A  b"])).stdout, "$A  b\n");
  const seen = [];
  const streamed = await sbx.run("for i in 1 2 3; do echo €$i; done; echo e >&2", { onStdout: (t) => seen.push(t), onStderr: (t) => assert.equal(t, "e\n") });
  assert.deepEqual([seen.join(""), streamed.stdout, streamed.stderr], ["€1\n€2\n€3\n", "€1\n€2\n€3\n", "e\n"]);
});

test("run: errors have types", async () => {
  await assert.rejects(sbx.run("echo no >&2; exit 4", { check: true }), (err) => err instanceof CommandError && err.result.exitCode === 4 && err.result.stderr === "no\n");
  await assert.rejects(sbx.run(["nope"]), ProgramNotFoundError);
  await assert.rejects(sbx.run("true", { cwd: "/nowhere" }), FileNotFoundError);
  const r = await sbx.run("sleep 100", { timeoutSeconds: 1 });
  assert.equal(r.timedOut, true);
  const abort = new AbortController();
  await assert.rejects(sbx.run("echo $$ > /tmp/pid; echo go; sleep 1000", { signal: abort.signal, onStdout: () => abort.abort(new Error("enough")) }), /enough/);
  assert.equal((await sbx.run("until ! kill -0 $(cat /tmp/pid); do sleep 0.1; done 2>/dev/null; echo dead")).stdout, "dead\n");
});

test("commands: input, output, end, and another client", async () => {
  const command = await sbx.commands.start("while read l; do echo got $l; echo err >&2; done; exit 5", { stdin: true });
  await command.write("a\n");
  let text = "";
  for await (const chunk of command.output()) {
    if (chunk.stream === "stdout") text += chunk.text;
    if (text === "got a\n") break;
  }
  const again = await (await Sandbox.connect(sbx.id, { client: new Modbox() })).commands.get(command.id);
  await again.write("€\n");
  await again.closeStdin();
  const end = await again.wait();
  assert.deepEqual([end.exitCode, end.stdout, end.stderr, end.timedOut], [5, "got a\ngot €\n", "err\nerr\n", false]);
  await assert.rejects(again.wait({ check: true }), CommandError);
  const out = { stdout: "", stderr: "" };
  for await (const { stream, text } of again.output()) out[stream] += text;
  assert.deepEqual(out, { stdout: "got a\ngot €\n", stderr: "err\nerr\n" });
  assert.deepEqual((await sbx.commands.list().all()).map((c) => c.id), [command.id]);
});

test("commands: kill, by every signal, and a program that is missing", async () => {
  const script = "trap 'echo int; exit 7' INT; echo ready; while :; do sleep 0.1; done";
  for (const [signal, code] of [["SIGINT", 7], ["SIGKILL", 137], [undefined, 143]]) {
    const command = await sbx.commands.start(script);
    for await (const { text } of command.output()) if (text.includes("ready")) break;
    await command.kill(signal);
    assert.equal((await command.wait({ timeoutSeconds: 60 })).exitCode, code, signal);
  }
  await assert.rejects(sbx.commands.start(["nope"]), (err) => err instanceof CommandError && err.result === undefined);
  const sleeper = await sbx.commands.start("sleep 100");
  await assert.rejects(sleeper.wait({ timeoutSeconds: 1 }), TimeoutError);
  await sleeper.kill("SIGKILL");
});

test("files", async () => {
  const { files } = sbx;
  await files.write("/tmp/d/e/a.txt", "é");
  await files.write("/tmp/d/b.bin", Uint8Array.of(0, 255));
  assert.equal(await files.read("/tmp/d/e/a.txt"), "é");
  assert.deepEqual(await files.readBytes("/tmp/d/b.bin"), Uint8Array.of(0, 255));
  assert.deepEqual((await files.list("/tmp/d").all()).map((f) => [f.name, f.type]), [["b.bin", "file"], ["e", "directory"]]);
  await files.mkdir("/tmp/d/x/y");
  await files.mkdir("/tmp/d/x/y");
  await files.move("/tmp/d/b.bin", "/tmp/d/c.bin");
  assert.deepEqual([await files.exists("/tmp/d/b.bin"), await files.exists("/tmp/d/c.bin")], [false, true]);
  assert.equal((await files.stat("/tmp/d/c.bin")).name, "c.bin");
  await assert.rejects(files.read("/tmp/d/b.bin"), FileNotFoundError);
  const watch = await files.watch("/tmp/d");
  await files.writeMany([{ path: "/tmp/d/new", content: "n" }]);
  for await (const event of watch) if (event.path?.endsWith("new")) break;
  const archive = await files.downloadArchive("/tmp/d");
  await files.uploadArchive("/tmp/copy", archive);
  assert.equal(await files.read("/tmp/copy/new"), "n");
  await files.remove("/tmp/d", { recursive: true });
  assert.equal(await files.exists("/tmp/d"), false);
});

test("files that differ from the image", async (t) => {
  const box = await Sandbox.create({ image: "modbox/base" });
  t.after(() => box.delete());
  const { files } = box;
  await box.run("echo more >> /etc/profile; rm /etc/issue; mkdir /srv/d; ln -s /etc /srv/d/to", { check: true });
  const changes = Object.fromEntries((await files.diff({ limit: 2 }).all()).map((c) => [c.path, c]));
  assert.deepEqual([changes["/etc/issue"].change, changes["/etc/issue"].before], ["removed", undefined]);
  assert.deepEqual([changes["/srv/d"].type, changes["/srv/d/to"].target], ["directory", "/etc"]);
  const profile = changes["/etc/profile"];
  assert.deepEqual([profile.change, profile.before.type, profile.sizeBytes - profile.before.sizeBytes], ["changed", "file", 5]);
  assert.equal(Buffer.from(await files.original("/etc/profile")).toString() + "more\n", await files.read("/etc/profile"));
  assert.deepEqual((await files.diff({ path: "/srv/d" }).all()).map((c) => c.path), ["/srv/d", "/srv/d/to"]);
  await assert.rejects(files.original("/srv/d/to"), FileNotFoundError);
});

test("runCode keeps its state, in contexts of its own", async () => {
  const js = { language: "javascript" };
  await sbx.runCode("let x = 20; const f = () => x + 1", js);
  const r = await sbx.runCode("console.log('hi'); f()", js);
  assert.deepEqual([r.status, r.text, r.stdout, r.error], ["ok", "21", "hi\n", undefined]);
  const shown = [];
  const shows = await sbx.runCode("display({'text/html': '<b>x</b>', 'image/png': 'AP8='}, {raw: true}); null", { ...js, onResult: (v) => shown.push(v.html) });
  assert.deepEqual([shows.html, shows.png, shown[0]], ["<b>x</b>", Uint8Array.of(0, 255), "<b>x</b>"]);
  const failed = await sbx.runCode("throw new RangeError('no')", js);
  assert.deepEqual([failed.status, failed.error.name, failed.error.value], ["error", "RangeError", "no"]);
  const context = await sbx.contexts.create({ language: "bash", cwd: "/tmp", env: { V: "w" } });
  const seen = [];
  const bash = await sbx.runCode("echo $V $PWD; y=1", { context, onStdout: (t) => seen.push(t) });
  assert.deepEqual([bash.stdout, seen.join(""), bash.contextId], ["w /tmp\n", "w /tmp\n", context.id]);
  await sbx.contexts.restart(context);
  assert.equal((await sbx.runCode("echo ${y-none}", { context })).stdout, "none\n");
  const interrupted = await sbx.runCode("echo go; sleep 1000", { context, onStdout: () => sbx.contexts.interrupt(context) });
  assert.equal(interrupted.status, "interrupted");
  assert.equal((await sbx.runCode("sleep 1000", { context, timeoutSeconds: 1 })).status, "timed_out");
  assert.deepEqual((await sbx.contexts.list().all()).map((c) => c.language), ["javascript", "bash"]);
  await sbx.contexts.delete(context);
  await assert.rejects(sbx.runCode("echo", { context }), NotFoundError);
});

test("url: a server's pages", async () => {
  await sbx.files.write("/tmp/www/index.html", "page");
  const server = await sbx.commands.start("python3 -u -m http.server 3000 -d /tmp/www");
  for await (const { text } of server.output()) if (text.includes("Serving")) break;
  const url = await sbx.url(3000);
  assert.equal(await (await fetch(url)).text(), "page");
  assert.equal(await sbx.url(3000), url);
  assert.equal(await sbx.url(3000, { access: "private" }), url);
  assert.equal((await fetch(url)).status, 401);
  const { token } = await sbx.ports.createLink(3000);
  assert.equal(await (await fetch(url, { headers: { "X-Modbox-Token": token } })).text(), "page");
  await server.kill();
});

test("checkpoint, fork, snapshot, pause: files, memory and commands", async () => {
  const js = { language: "javascript" };
  await sbx.runCode("var kept = 1", js);
  await sbx.checkpoints.create({ name: "c" });
  await sbx.runCode("kept = 2", js);
  assert.equal((await sbx.checkpoints.restore("c")).state, "running");
  assert.equal((await sbx.runCode("kept", js)).text, "1");
  const [child] = await sbx.fork();
  assert.equal((await child.runCode("kept = 3", js)).text, "3");
  await child.delete();
  await sbx.files.write("saved.txt", "saved");
  const snapshot = await sbx.snapshot();
  await Sandbox.with({ snapshot: snapshot.id }, async (copy) => assert.equal(await copy.files.read("saved.txt"), "saved"));
  await sbx.client.snapshots.delete(snapshot.id);
  assert.equal((await sbx.pause()).state, "paused");
  assert.equal((await sbx.runCode("kept", js)).text, "1"); // the call resumes it
  await sbx.pause();
  assert.equal((await Sandbox.connect(sbx.id)).info.state, "running");
  await sbx.pause();
  assert.equal((await sbx.resume()).state, "running");
});

test("its end, by delete, by a scope, and by failure", async () => {
  let inner;
  await assert.rejects(
    Sandbox.with({ image }, (s) => {
      inner = s;
      throw new Error("mine");
    }),
    /mine/,
  );
  assert.equal((await inner.refresh()).state, "destroyed");
  await assert.rejects(inner.run("true"), EndedError);
  await assert.rejects(Sandbox.connect(inner.id), EndedError);
  assert.equal((await inner.delete()).state, "destroyed");
  await assert.rejects(Sandbox.create({ image: "modbox/nope" }), ValidationError);
});
