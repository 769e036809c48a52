// Terminals and scopes. Needs a server: MODBOX_URL and MODBOX_API_TOKEN; and in Node before 22 --experimental-websocket.
import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { ModboxClient } from "modbox-sdk";

let client;
let sandbox;

before(async () => {
  client = new ModboxClient();
  sandbox = await client.sandboxes.temporary({ image: "modbox/code-exec", ttlSeconds: 300 });
});
after(() => sandbox?.[Symbol.asyncDispose]());

/** Reads until the exit, or until `until` holds for the output so far. */
async function read(session, until = () => false) {
  let output = "";
  for await (const e of session) {
    if (e.type === "exit") return { output, exitCode: e.exitCode };
    if (e.data) output += Buffer.from(e.data).toString();
    if (until(output)) return { output };
  }
}

test("a temporary sandbox runs, and is destroyed at the end of its scope", async () => {
  const own = await client.sandboxes.temporary({ image: "modbox/code-exec", ttlSeconds: 3600, waitSeconds: 600 });
  assert.equal(own.state, "running");
  await own[Symbol.asyncDispose]();
  assert.equal((await client.sandboxes.get(own.id)).state, "destroyed");
});

test("a session has input, which ends", async () => {
  const session = await client.sandboxes.attach(sandbox.id, { command: ["cat"], stdin: true });
  session.write("grü");
  session.write(Buffer.from("ezi"));
  session.closeStdin();
  assert.deepEqual(await read(session), { output: "grüezi", exitCode: 0 });
  assert.throws(() => session.write("more"), { code: "connection" });
});

test("a terminal has a size, and signals reach the command", async () => {
  const session = await client.sandboxes.attach(sandbox.id, {
    shell: "trap 'stty size; exit 4' WINCH; stty size; while :; do sleep 0.05; done",
    tty: { rows: 20, cols: 70 },
  });
  let output = "";
  for await (const e of session) {
    if (e.type === "exit") {
      assert.equal(e.exitCode, 4);
      break;
    }
    if (!e.data) continue;
    output += Buffer.from(e.data).toString();
    if (output === "20 70\r\n") session.resize({ rows: 30, cols: 90 });
  }
  assert.equal(output, "20 70\r\n30 90\r\n");
  const sleeping = await client.sandboxes.attach(sandbox.id, { command: ["sleep", "300"] });
  sleeping.kill(15);
  assert.deepEqual(await read(sleeping), { output: "", exitCode: 143 });
});

test("an execution on a terminal is attached to again, from any byte", async () => {
  const e = await client.executions.start(sandbox.id, { shell: "echo begun; read line; echo got $line", tty: { rows: 24, cols: 80 } });
  const first = await client.executions.attach(sandbox.id, e.id);
  assert.equal((await read(first, (o) => o.endsWith("\n"))).output, "begun\r\n");
  const second = await client.executions.attach(sandbox.id, e.id, { offset: 5 });
  second.write("it\n");
  const { output, exitCode } = await read(second);
  assert.equal(exitCode, 0);
  assert.match(output, /^\r\n.*got it\r\n$/s);
});

test("what cannot be attached to says why", async () => {
  await assert.rejects(client.sandboxes.attach("no-such-sandbox", { command: ["true"] }), { code: "not_found" });
  await assert.rejects(client.executions.attach(sandbox.id, sandbox.id), { code: "not_found" });
  await assert.rejects(read(await client.sandboxes.attach(sandbox.id, { command: ["/no/such/program"] })), (err) => /no\/such/.test(err.message));
});

test("an abort ends a session and its command", async () => {
  const controller = new AbortController();
  const session = await client.sandboxes.attach(sandbox.id, { command: ["sleep", "300"], signal: controller.signal });
  controller.abort();
  await assert.rejects(read(session), { name: "AbortError" });
});
