import assert from "node:assert/strict";
import { test } from "node:test";
import { BuildError, ConnectionError } from "modbox-sdk";
import { json, problem, serve } from "../server.mjs";

const step = { type: "step", step: 1, steps: 2, stage: "0", line: 1, instruction: "FROM base" };
const done = { type: "done", image: { id: "i", name: "app", tag: "v1", ref: "app:v1", created_at: "t", updated_at: "t" } };

function lines(res, ...objects) {
  res.end(objects.map((o) => JSON.stringify(o) + "\n").join(""));
}

async function collect(iterable) {
  const list = [];
  for await (const item of iterable) list.push(item);
  return list;
}

/** The parts of a form by their names. */
async function parts(request) {
  const form = await new Response(request.body, { headers: { "content-type": request.headers["content-type"] } }).formData();
  return Object.fromEntries(await Promise.all([...form].map(async ([name, value]) => [name, typeof value === "string" ? value : await value.text()])));
}

test("a build sends its parts, from memory or as a stream, and tells what happens", async (t) => {
  const s = await serve(t, (_, res) => lines(res, step, { type: "ping" }, { type: "output", data: "aGkK" }, { type: "warning", message: "w" }, done));
  const contents = ["tar\r\nfile", new TextEncoder().encode("tar\r\nfile"), new Blob(["tar\r\nfile"]), new Blob(["tar\r\nfile"]).stream()];
  for (const [i, files] of contents.entries()) {
    const events = await collect(
      s.client().images.build(files, {
        tag: "app:v1",
        dockerfile: "FROM base\n",
        path: "x/Dockerfile",
        buildArgs: { A: "1" }, waitForQuotaSeconds: 30,
        noCache: true,
        resources: { memory: "1Gi" },
        timeoutSeconds: 60,
      }),
    );
    assert.deepEqual(events.map((e) => e.type), ["step", "output", "warning", "done"]);
    assert.deepEqual(events[0], { ...step, cached: false });
    assert.equal(new TextDecoder().decode(events[1].data), "hi\n");
    assert.equal(events[3].image.ref, "app:v1");
    const { options, dockerfile, context } = await parts(s.requests[i]);
    assert.deepEqual(JSON.parse(options), {
      tag: "app:v1", dockerfile: "x/Dockerfile", build_args: { A: "1" }, no_cache: true, resources: { memory: "1Gi" }, timeout_seconds: 60, wait_for_quota_seconds: 30,
    });
    assert.deepEqual([dockerfile, context], ["FROM base\n", "tar\r\nfile"]);
  }
});

test("an instruction that fails is a BuildError, an end that was not told a ConnectionError", async (t) => {
  const error = { type: "error", code: "invalid", message: "it ended with 1", line: 3, instruction: "RUN false", exit_code: 1 };
  const s = await serve(t, (_, res, n) => (n === 0 ? lines(res, step, error) : n === 1 ? lines(res, step) : problem(res, 503, "unavailable")));
  const build = () => collect(s.client().images.build("tar"));
  await assert.rejects(build, (err) => {
    assert(err instanceof BuildError);
    assert.deepEqual([err.code, err.line, err.instruction, err.exitCode], ["invalid", 3, "RUN false", 1]);
    return true;
  });
  await assert.rejects(build, ConnectionError);
  await assert.rejects(build, (err) => err.code === "unavailable");
  assert.equal(s.requests.length, 3); // never sent twice
});

test("images are pushed and removed", async (t) => {
  const s = await serve(t, (req, res) => (req.method === "DELETE" ? res.writeHead(204).end() : lines(res, { type: "progress", phase: "pushing" }, done)));
  const events = await collect(s.client().images.push("app:v1", { to: "r.example/app:v1" }));
  assert.deepEqual(events.map((e) => e.type), ["progress", "done"]);
  assert.deepEqual(s.requests[0].json(), { image: "app:v1", to: "r.example/app:v1" });
  await s.client().images.delete("i");
  assert.equal(s.requests[1].path, "/v1/images/i");
});

test("images are removed by reference and pruned", async (t) => {
  const pruned = { images: [{ ref: "app:v1", digest: "sha256:1", size_bytes: 5, workspace_id: "w" }, { digest: "sha256:2", size_bytes: 6 }], freed_bytes: 11, dry_run: true };
  const s = await serve(t, (req, res) => (req.method === "DELETE" ? res.writeHead(204).end() : json(res, pruned)));
  const { images } = s.client();
  await images.delete("r.example/team/app:v1");
  const got = await images.prune({ all: true, dryRun: true });
  await images.prune();
  assert.deepEqual(got, {
    images: [
      { ref: "app:v1", digest: "sha256:1", sizeBytes: 5, workspaceId: "w" },
      { ref: undefined, digest: "sha256:2", sizeBytes: 6, workspaceId: undefined },
    ],
    freedBytes: 11,
    dryRun: true,
  });
  assert.deepEqual(s.requests.map((r) => [r.method, r.method === "POST" ? r.json() : undefined]), [
    ["DELETE", undefined],
    ["POST", { all: true, dry_run: true }],
    ["POST", {}],
  ]);
  assert.match(s.requests[0].path, /^\/v1\/images\/r\.example(%2F|\/)team(%2F|\/)app(:|%3A)v1$/);
});

test("the audit log is walked over, both ways", async (t) => {
  const entry = (seq) => ({ seq, prev: "00", hash: "11", record: { time: "t", action: "exec", outcome: "ok", duration_ms: 5, command: ["ls"] } });
  const s = await serve(t, (req, res) => {
    const seqs = req.query.get("order") === "asc" ? [1, 2, 3] : [3, 2, 1];
    const at = Number(req.query.get("cursor") ?? 0);
    json(res, { items: seqs.slice(at, at + 2).map(entry), next_cursor: at + 2 < 3 ? String(at + 2) : undefined });
  });
  const { audit } = s.client();
  const entries = await collect(audit.list({ since: new Date(0), action: "exec" }));
  assert.deepEqual(entries.map((e) => e.seq), [3, 2, 1]);
  assert.deepEqual([entries[0].record.durationMs, entries[0].record.command, entries[0].record.via], [5, ["ls"], undefined]);
  assert.equal(s.requests[0].query.get("since"), "1970-01-01T00:00:00.000Z");
  assert.deepEqual((await collect(audit.listInstallation({ order: "asc", workspace: "w" }))).map((e) => e.seq), [1, 2, 3]);
  const last = s.requests.at(-1);
  assert.deepEqual([last.path, last.query.get("cursor"), last.query.get("workspace")], ["/v1/audit/installation", "2", "w"]);
});

test("quotas have the wire's names", async (t) => {
  const used = { sandboxes: 1, memory: "1Gi", cpu: "1", disk: "2Gi", disk_by: { sandbox_bytes: 1, paused_bytes: 2, checkpoint_bytes: 3, snapshot_bytes: 4, stream_bytes: 5, build_bytes: 9, upload_bytes: 6, image_bytes: 7, build_cache_bytes: 8 } };
  const report = { workspace_id: "w", limits: { sandboxes: 20, creates_per_minute: 60 }, set: {}, used };
  const s = await serve(t, (_, res) => json(res, report));
  const got = await s.client().workspaces.setQuota("w", { sandboxes: 20, createsPerMinute: 0, sandboxMemory: "4Gi" });
  assert.deepEqual([s.requests[0].method, s.requests[0].path], ["PUT", "/v1/workspaces/w/quota"]);
  assert.deepEqual(s.requests[0].json(), { sandboxes: 20, creates_per_minute: 0, sandbox_memory: "4Gi" });
  assert.deepEqual([got.limits.createsPerMinute, got.set.sandboxes, got.used.diskBy.pausedBytes], [60, undefined, 2]);
  assert.deepEqual([got.used.diskBy.imageBytes, got.used.diskBy.buildCacheBytes, got.used.diskBy.buildBytes], [7, 8, 9]);
  assert.equal((await s.client().workspaces.quota("w")).workspaceId, "w");
});

test("files of snapshots are walked over, and shared by an address", async (t) => {
  const file = (path) => ({ path, type: "file", size_bytes: 1, mode: "0644", uid: 0, gid: 0, mod_time: "t", sha256: "ab" });
  const s = await serve(t, (req, res) => {
    if (req.path.endsWith("/download")) return json(res, { url: "/v1/downloads/k", expires_at: "t" });
    json(res, req.query.has("cursor") ? { items: [file("/srv/b")] } : { items: [file("/srv")], next_cursor: "c" });
  });
  const { snapshots } = s.client();
  const files = await collect(snapshots.files("n:v1", { path: "/srv", recursive: true, sha256: true }));
  assert.deepEqual(files.map((f) => [f.path, f.name, f.sha256]), [["/srv", "srv", "ab"], ["/srv/b", "b", "ab"]]);
  assert.equal(s.requests[1].query.get("recursive"), "true");
  assert.equal((await snapshots.share("n:v1", { path: "/srv" })).url, `${s.baseUrl}/v1/downloads/k`);
  assert.deepEqual([s.requests[2].method, s.requests[2].query.get("path")], ["POST", "/srv"]);
});
