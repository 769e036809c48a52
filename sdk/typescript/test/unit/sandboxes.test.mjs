import assert from "node:assert/strict";
import { test } from "node:test";
import { EndedError, ModboxError, NotFoundError, TimeoutError, ValidationError } from "modbox-sdk";
import { json, problem, serve, wireSandbox } from "../server.mjs";

test("create sends the wire's names and decodes the answer", async (t) => {
  const s = await serve(t, (_, res) => json(res, wireSandbox({ readiness_port: 3000 }), 201));
  const sb = await s.client().sandboxes.create({
    name: "a", image: "modbox/code-exec", env: { A: "1" }, labels: { some_key: "v" }, ttlSeconds: 60,
    resources: { memory: "512Mi" }, replace: true, waitSeconds: 30,
  });
  assert.deepEqual(s.requests[0].json(), {
    name: "a", image: "modbox/code-exec", env: { A: "1" }, labels: { some_key: "v" }, ttl_seconds: 60,
    resources: { memory: "512Mi" }, replace: true, wait_seconds: 30,
  });
  assert.deepEqual([sb.workspaceId, sb.readinessPort, sb.labels, sb.endedAt], ["w", 3000, { some_key: "v" }, undefined]);
});

test("create repeats itself with one idempotency key, and another call has another", async (t) => {
  const s = await serve(t, (_, res, n) => (n < 2 ? problem(res, 503, "unavailable") : json(res, wireSandbox())));
  await s.client().sandboxes.create();
  await s.client().sandboxes.create();
  const keys = s.requests.map((r) => r.headers["idempotency-key"]);
  assert.equal(keys.length, 4);
  assert(keys[0]);
  assert.deepEqual([keys[1], keys[2]], [keys[0], keys[0]]);
  assert.notEqual(keys[3], keys[0]);
});

test("list walks over the pages", async (t) => {
  const s = await serve(t, (r, res) => {
    const last = r.query.get("cursor") === "c2";
    json(res, { items: [wireSandbox({ name: last ? "b" : "a" })], next_cursor: last ? undefined : "c2" });
  });
  const names = [];
  for await (const sb of s.client().sandboxes.list({ states: ["running", "failed"], labels: { k: "v" }, limit: 1 })) names.push(sb.name);
  assert.deepEqual(names, ["a", "b"]);
  assert.deepEqual(s.requests[0].query.getAll("state"), ["running", "failed"]);
  assert.deepEqual(s.requests[1].query.getAll("label"), ["k=v"]);
});

test("wait returns, tells an end from a timeout, and goes on after a part of the time", async (t) => {
  const states = ["provisioning", "running", "failed", "provisioning"];
  const s = await serve(t, (_, res, n) => json(res, wireSandbox({ state: states[n], cause: { code: "image", message: "no such image" } })));
  const { sandboxes } = s.client();
  assert.equal((await sandboxes.wait("a", { timeoutSeconds: 400 })).state, "running");
  assert.equal(s.requests.length, 2);
  assert.equal(s.requests[0].query.get("timeout_seconds"), "240");
  await assert.rejects(sandboxes.wait("a"), (err) => err instanceof EndedError && /failed: no such image/.test(err.message));
  await assert.rejects(sandboxes.wait("a", { timeoutSeconds: 0 }), TimeoutError);
});

test("exec gives text, and bytes when asked", async (t) => {
  const result = (stdout) => ({
    exit_code: 3, timed_out: false, stdout, stderr: "", stdout_truncated: true, stderr_truncated: false, duration_ms: 4,
  });
  const s = await serve(t, (r, res) => json(res, result(r.json().encoding === "base64" ? "AP8=" : "hi")));
  const { sandboxes } = s.client();
  const text = await sandboxes.exec("a", { shell: "x", cwd: "/tmp", env: { A: "1" }, user: "root", stdin: "in", timeoutSeconds: 5, maxOutputBytes: 10 });
  assert.deepEqual(text, {
    exitCode: 3, signal: 0, timedOut: false, stdout: "hi", stderr: "", stdoutTruncated: true, stderrTruncated: false, durationMs: 4,
  });
  assert.deepEqual(s.requests[0].json(), {
    shell: "x", cwd: "/tmp", env: { A: "1" }, user: "root", stdin: "in", timeout_seconds: 5, max_output_bytes: 10,
  });
  const bytes = await sandboxes.exec("a", { command: ["true"], output: "bytes" });
  assert.deepEqual(bytes.stdout, Uint8Array.of(0, 255));
});

test("exec is never sent twice", async (t) => {
  const s = await serve(t, (_, res) => problem(res, 503, "unavailable"));
  await assert.rejects(s.client().sandboxes.exec("a", { shell: "x" }), ModboxError);
  assert.equal(s.requests.length, 1);
});

const started = { type: "started", pid: 7 };
const exit = { type: "exit", exit_code: 0, duration_ms: 1 };

/** Sends lines in pieces that do not respect the lines. */
async function sendLines(res, lines, pieceBytes = 7) {
  res.writeHead(200, { "content-type": "application/x-ndjson" });
  const bytes = Buffer.from(lines.map((l) => JSON.stringify(l) + "\n").join(""));
  for (let i = 0; i < bytes.length; i += pieceBytes) {
    res.write(bytes.subarray(i, i + pieceBytes));
    await new Promise((resolve) => setImmediate(resolve));
  }
}

test("execStream gives bytes and skips what it does not know", async (t) => {
  const s = await serve(t, async (_, res) => {
    await sendLines(res, [started, { type: "news" }, { type: "ping" }, { type: "stdout", data: "AP8=" }, { type: "stderr", data: "aGk=" }, { ...exit, exit_code: 143, signal: 15 }]);
    res.end();
  });
  const events = [];
  for await (const e of s.client().sandboxes.execStream("a", { command: ["x"] })) events.push(e);
  assert.deepEqual(events, [
    { type: "started", pid: 7 },
    { type: "stdout", data: Uint8Array.of(0, 255) },
    { type: "stderr", data: Uint8Array.from(Buffer.from("hi")) },
    { type: "exit", exitCode: 143, signal: 15, timedOut: false, durationMs: 1 },
  ]);
});

async function drain(iterable) {
  for await (const _ of iterable);
}

test("execStream throws the server's error, and when the connection breaks", async (t) => {
  const s = await serve(t, async (_, res, n) => {
    await sendLines(res, n === 0 ? [started, { type: "error", code: "agent_unreachable", message: "gone" }] : [started]);
    if (n === 2) res.destroy();
    else res.end();
  });
  const { sandboxes } = s.client();
  await assert.rejects(drain(sandboxes.execStream("a", { shell: "x" })), (err) => err.code === "agent_unreachable" && err.message === "gone");
  for (const how of ["ended", "broken"]) {
    await assert.rejects(drain(sandboxes.execStream("a", { shell: "x" })), (err) => err.code === "connection", how);
  }
});

test("leaving execStream closes the connection, and so does the signal", async (t) => {
  const closed = [];
  const s = await serve(t, async (_, res) => {
    closed.push(new Promise((resolve) => res.on("close", resolve)));
    await sendLines(res, [started], 1000);
  });
  const { sandboxes } = s.client();
  for await (const e of sandboxes.execStream("a", { shell: "x" })) {
    assert.equal(e.type, "started");
    break;
  }
  await closed[0];
  const controller = new AbortController();
  await assert.rejects(async () => {
    for await (const _ of sandboxes.execStream("a", { shell: "x", signal: controller.signal })) controller.abort();
  }, { name: "AbortError" });
  await closed[1];
});

test("files: contents pass unchanged, whole and as streams", async (t) => {
  const content = Uint8Array.from({ length: 100_000 }, (_, i) => i % 256);
  const info = { name: "f", path: "/f", type: "file", size_bytes: 3, mode: "0600", uid: 0, gid: 0, mod_time: "t" };
  const s = await serve(t, (r, res) => (r.method === "PUT" ? json(res, info) : res.end(content)));
  const { files } = s.client().sandboxes;
  assert.equal((await files.write("a", "/d/ü", content, { mode: "0600", parents: true })).mode, "0600");
  const [put] = s.requests;
  assert.deepEqual(Object.fromEntries(put.query), { path: "/d/ü", mode: "0600", parents: "true" });
  assert.equal(put.headers["content-type"], "application/octet-stream");
  assert(put.body.equals(content));
  await files.write("a", "/f", new Blob([content]).stream());
  assert(s.requests[1].body.equals(content));
  assert.deepEqual(await files.read("a", "/f"), content);
  const chunks = [];
  for await (const chunk of await files.readStream("a", "/f")) chunks.push(chunk);
  assert(Buffer.concat(chunks).equals(content));
});

test("files: the other calls", async (t) => {
  const entry = { name: "f", path: "/f", type: "symlink", size_bytes: 3, mode: "0777", uid: 0, gid: 0, mod_time: "t", target: "x" };
  const s = await serve(t, (r, res) => {
    if (r.path.endsWith("/list")) return json(res, { items: [entry], next_cursor: "n" });
    if (/[/](stat|mkdir|move)$/.test(r.path)) return json(res, entry);
    res.writeHead(204).end();
  });
  const { files } = s.client().sandboxes;
  const list = await files.list("a", "/", { limit: 1 });
  assert.deepEqual([list.nextCursor, list.items[0].target], ["n", "x"]);
  assert.equal((await files.stat("a", "/f")).type, "symlink");
  assert.equal((await files.mkdir("a", "/d", { parents: true })).path, "/f");
  assert.equal((await files.move("a", "/f", "/g", { overwrite: true })).path, "/f");
  await files.delete("a", "/d", { recursive: true });
  const seen = s.requests.map((r) => `${r.method} ${r.path}?${r.query} ${r.body}`);
  assert.deepEqual(seen, [
    "GET /v1/sandboxes/a/files/list?path=%2F&limit=1 ",
    "GET /v1/sandboxes/a/files/stat?path=%2Ff ",
    'POST /v1/sandboxes/a/files/mkdir? {"path":"/d","parents":true}',
    'POST /v1/sandboxes/a/files/move? {"from":"/f","to":"/g","overwrite":true}',
    "DELETE /v1/sandboxes/a/files?path=%2Fd&recursive=true ",
  ]);
});

test("events, stats, images, tokens, whoami, version", async (t) => {
  const answers = {
    "/v1/sandboxes/a/events": { items: [{ seq: 2, sandbox_id: "i", time: "t", type: "exec", message: "m", data: { exit_code: "0" } }] },
    "/v1/sandboxes/a/usage": { cpu_seconds: 1.5, network_sent_bytes: 7 },
    "/v1/sandboxes/a/stats": { time: "t", memory_bytes: 5, host_pss_bytes: 6 },
    "/v1/images": { items: [{ id: "i", ref: "modbox/base:latest", is_default: false, ttl_seconds: 0 }] },
    "/v1/runtimes": { items: [{ id: "i", name: "node:lts", tags: ["node"], built: true, size_bytes: 7, requirements: { memory: "1Gi", network: false } }] },
    "/v1/tokens": { items: [], id: "t-1", token: "mbx_new" },
    "/v1/whoami": { user_id: "u", workspace_id: "w", token_id: "t" },
    "/v1/version": { version: "1", driver: "fake" },
    "/v1/host": { version: "1", driver: "fake", started_at: "t", memory: {}, disk: {}, waiting: {}, sandboxes: [], images: [], operations: [], pool: { boxes: 2, blank_boxes: 1, hits: 7, misses: 3 } },
    "/v1/ssh-keys": { items: [], id: "k-1", fingerprint: "SHA256:a/b", type: "ssh-ed25519" },
  };
  const s = await serve(t, (r, res) => (r.method === "DELETE" ? res.writeHead(204).end() : json(res, answers[r.path])));
  const client = s.client();
  assert.deepEqual((await client.sandboxes.events("a", { afterSeq: 1, order: "desc" })).items[0].data, { exit_code: "0" });
  assert.equal(s.requests[0].query.toString(), "after_seq=1&order=desc");
  assert.equal((await client.sandboxes.stats("a")).hostPssBytes, 6);
  const usage = await client.sandboxes.usage("a");
  assert.deepEqual([usage.at, usage.cpuSeconds, usage.networkSentBytes], [undefined, 1.5, 7]);
  assert.equal((await client.images.list()).items[0].ref, "modbox/base:latest");
  assert.equal((await client.tokens.create({ description: "ci", expiresInSeconds: 60 })).token, "mbx_new");
  assert.deepEqual(s.requests[4].json(), { description: "ci", expires_in_seconds: 60 });
  assert.deepEqual(await client.tokens.list().all(), []);
  await client.tokens.revoke("t-1");
  const [runtime] = await client.images.runtimes().all();
  assert.deepEqual([runtime.name, runtime.sizeBytes, runtime.requirements.memory], ["node:lts", 7, "1Gi"]);
  assert.equal(s.requests[6].path, "/v1/tokens/t-1");
  assert.equal((await client.whoami()).workspaceId, "w");
  assert.equal((await client.version()).driver, "fake");
  assert.deepEqual((await client.host()).pool, { boxes: 2, blankBoxes: 1, hits: 7, misses: 3 });
  const key = await client.sshKeys.add("ssh-ed25519 AAAA", { name: "laptop", workspaceOnly: true });
  assert.deepEqual([key.id, key.fingerprint, key.workspaceId, key.expiresAt], ["k-1", "SHA256:a/b", undefined, undefined]);
  assert.deepEqual(s.requests.at(-1).json(), { public_key: "ssh-ed25519 AAAA", name: "laptop", workspace_only: true });
  assert.deepEqual(await client.sshKeys.list().all(), []);
  await client.sshKeys.delete(key.fingerprint);
  assert.equal(s.requests.at(-1).method, "DELETE");
});

test("references are encoded, and impossible ones refused before anything is sent", async (t) => {
  const s = await serve(t, (_, res) => problem(res, 404, "not_found"));
  await assert.rejects(s.client().sandboxes.get("a/../b?c#d"), NotFoundError);
  assert.equal(s.requests[0].path, "/v1/sandboxes/a%2F..%2Fb%3Fc%23d");
  for (const ref of ["", ".", ".."]) await assert.rejects(s.client().sandboxes.delete(ref), ValidationError);
  assert.equal(s.requests.length, 1);
});
