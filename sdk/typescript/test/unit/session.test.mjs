import assert from "node:assert/strict";
import { test } from "node:test";
import { ConnectionError, ModboxClient } from "modbox-sdk";
import { json, problem, serve, wireSandbox } from "../server.mjs";

/** A WebSocket whose other end is the test. */
class FakeSocket extends EventTarget {
  static last;
  readyState = 0;
  sent = [];
  constructor(url, options) {
    super();
    Object.assign(this, { url, options });
    FakeSocket.last = this;
    queueMicrotask(() => this.begin());
  }
  begin() {
    this.readyState = 1;
    this.dispatchEvent(new Event("open"));
  }
  send(data) {
    this.sent.push(data);
  }
  close() {
    if (this.readyState === 3) return;
    this.readyState = 3;
    this.dispatchEvent(new Event("close"));
  }
  receive(data) {
    const message = typeof data === "string" ? data : Uint8Array.from(data).buffer;
    this.dispatchEvent(Object.assign(new Event("message"), { data: message }));
  }
}

class RefusedSocket extends FakeSocket {
  begin() {
    this.dispatchEvent(new Event("error"));
  }
}

const client = (WebSocket = FakeSocket, baseUrl = "https://server/x/") => new ModboxClient({ token: "mbx_test", baseUrl, workspaceId: "w", WebSocket });

async function collect(session) {
  const events = [];
  for await (const e of session) events.push(e);
  return events;
}

test("a session sends its command, input and signals, and gives output and exit", async () => {
  const session = await client().sandboxes.attach("a b", { command: ["cat"], timeoutSeconds: 5, tty: { rows: 1, cols: 2 }, stdin: true });
  const socket = FakeSocket.last;
  assert.deepEqual([socket.url, socket.options], ["wss://server/x/v1/sandboxes/a%20b/exec/attach", { headers: { authorization: "Bearer mbx_test", "x-workspace-id": "w" } }]);
  session.write("a");
  session.write(new Uint8Array(40_000));
  session.closeStdin();
  session.resize({ rows: 3, cols: 4 });
  session.kill(15);
  assert.deepEqual(JSON.parse(socket.sent[0]), { command: ["cat"], timeout_seconds: 5, tty: { rows: 1, cols: 2 }, stdin: true });
  assert.deepEqual([...socket.sent[1]], [0, 97]);
  assert.deepEqual(socket.sent.slice(2, 4).map((m) => m.length - 1), [32768, 40_000 - 32768]);
  assert.deepEqual(socket.sent.slice(4).map((m) => JSON.parse(m)), [{ type: "stdin_eof" }, { type: "resize", rows: 3, cols: 4 }, { type: "signal", signal: 15 }]);
  for (const m of ['{"type":"started","pid":7}', [1, 104], [2, 105], [9, 1], '{"type":"later"}', '{"type":"exit","exit_code":3}']) socket.receive(m);
  assert.deepEqual(await collect(session), [
    { type: "started", pid: 7 },
    { type: "stdout", data: Uint8Array.of(104) },
    { type: "stderr", data: Uint8Array.of(105) },
    { type: "exit", exitCode: 3, signal: 0, timedOut: false, durationMs: 0 },
  ]);
  assert.equal(socket.readyState, 3);
});

test("a session that breaks, or that the server ends, throws", async () => {
  const broken = await client().sandboxes.attach("a", { shell: "x" });
  FakeSocket.last.close();
  await assert.rejects(collect(broken), ConnectionError);
  const ended = await client().sandboxes.attach("a", { shell: "x" });
  FakeSocket.last.receive('{"type":"error","code":"not_running","message":"no"}');
  await assert.rejects(collect(ended), { code: "not_running", message: "no" });
  const strange = await client().sandboxes.attach("a", { shell: "x" });
  FakeSocket.last.receive("{");
  await assert.rejects(collect(strange), ConnectionError);
});

test("output that nobody reads has a bound", async () => {
  const session = await client().sandboxes.attach("a", { shell: "yes" });
  const message = new Uint8Array((1 << 20) + 1).fill(1);
  for (let i = 0; i < 17; i++) FakeSocket.last.receive(message);
  assert.equal(FakeSocket.last.readyState, 3);
  await assert.rejects(collect(session), { code: "too_large" });
});

test("a refused session says what the server says of its object", async (t) => {
  const s = await serve(t, (r, res) => (r.path.endsWith("/none") ? problem(res, 404, "not_found") : json(res, wireSandbox())));
  const { sandboxes } = client(RefusedSocket, s.baseUrl);
  await assert.rejects(sandboxes.attach("none", { shell: "x" }), { code: "not_found" });
  await assert.rejects(sandboxes.attach("a", { shell: "x" }), ConnectionError);
});

test("a temporary sandbox that does not run is destroyed", async (t) => {
  const s = await serve(t, (r, res) => json(res, wireSandbox({ state: r.path.endsWith("/wait") ? "failed" : "provisioning" })));
  await assert.rejects(s.client().sandboxes.temporary({ image: "i", waitSeconds: 5 }), { code: "ended" });
  assert.deepEqual(s.requests.map((r) => r.method), ["POST", "GET", "DELETE"]);
  assert.deepEqual(s.requests[0].json(), { image: "i" });
});

test("a build sends what there is, and nothing when it is unchanged", async (t) => {
  const snapshot = { id: "p", name: "n", full_name: "@w/n", image: "i", size_bytes: 1, layer_bytes: 1, file_count: 1, public: false, created_at: "t" };
  const s = await serve(t, (r, res, n) => {
    if (n === 3) return json(res, { unchanged: true, snapshot });
    if (r.method === "PUT") return res.writeHead(204).end();
    json(res, r.path.endsWith("/finish") ? snapshot : { id: "b", unchanged: false }, 201);
  });
  const { snapshots } = s.client();
  const built = await snapshots.build("base", { name: "n", files: Uint8Array.of(1), npmPackages: ["p"], env: { A: "1" }, contentHash: "h", waitForQuotaSeconds: 30 });
  assert.deepEqual([built.snapshot.id, built.unchanged], ["p", false]);
  assert.equal((await snapshots.build("base")).unchanged, true);
  assert.deepEqual(
    s.requests.map((r) => [r.method, r.path, r.body.toString()]),
    [
      ["POST", "/v1/snapshot-builds", '{"name":"n","content_hash":"h","runtime":"base"}'],
      ["PUT", "/v1/snapshot-builds/b/files", "\x01"],
      ["POST", "/v1/snapshot-builds/b/finish", '{"npm_packages":["p"],"env":{"A":"1"},"wait_for_quota_seconds":30}'],
      ["POST", "/v1/snapshot-builds", '{"runtime":"base"}'],
    ],
  );
});

test("Debian packages are checked", async (t) => {
  const s = await serve(t, (_, res) => json(res, { valid: ["a"], invalid: [{ name: "b", reason: "none" }] }));
  assert.deepEqual(await s.client().images.validateAptPackages(["a", "b"], { image: "i" }), {
    valid: ["a"], invalid: [{ name: "b", reason: "none", versions: [] }],
  });
  assert.deepEqual(s.requests[0].json(), { apt_packages: ["a", "b"], image: "i" });
});
