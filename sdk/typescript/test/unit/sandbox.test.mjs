import assert from "node:assert/strict";
import { test } from "node:test";
import { EndedError, Modbox, ModboxClient, QuotaError, Sandbox, SandboxFailedError, TimeoutError } from "modbox-sdk";
import { json, problem, serve, wireSandbox } from "../server.mjs";

const { id } = wireSandbox();

/** A server and a sandbox on it; `answer` gets the requests after the sandbox's creation. */
async function withSandbox(t, answer) {
  const s = await serve(t, (r, res, n) => (n === 0 ? json(res, wireSandbox(), 201) : answer(r, res, n - 1)));
  const sbx = await Sandbox.create({ client: s.client() });
  return { ...s, sbx, later: () => s.requests.slice(1).map((r) => [r.method, r.path]) };
}

test("ModboxClient is a Modbox", async (t) => {
  const s = await serve(t, (_, res) => json(res, wireSandbox()));
  assert(s.client() instanceof Modbox && s.client() instanceof ModboxClient);
  assert.equal(typeof new Modbox({ token: "t" }).provisionSandbox, "undefined");
});

test("create waits, with a ttl of 15 minutes, and passes every option on", async (t) => {
  const s = await serve(t, (_, res) => json(res, wireSandbox(), 201));
  const sbx = await Sandbox.create({ client: s.client(), image: "modbox/data", env: { A: "1" } });
  assert.deepEqual(s.requests[0].json(), { image: "modbox/data", env: { A: "1" }, ttl_seconds: 900, wait_seconds: 60 });
  await Sandbox.create({ client: s.client(), ttlSeconds: 0, waitSeconds: 5 });
  assert.deepEqual(s.requests[1].json(), { ttl_seconds: 0, wait_seconds: 5 });
  assert.deepEqual([sbx.id, sbx.name, sbx.info.state, sbx.client instanceof Modbox], [id, "a", "running", true]);
});

test("without a client, the statics use the environment's", async (t) => {
  const s = await serve(t, (_, res) => json(res, wireSandbox()));
  const before = { ...process.env };
  t.after(() => (process.env = before));
  Object.assign(process.env, { MODBOX_URL: s.baseUrl, MODBOX_API_TOKEN: "mbx_env" });
  await Sandbox.connect("a");
  assert.equal(s.requests[0].headers.authorization, "Bearer mbx_env");
});

test("create throws what went wrong with the cause", async (t) => {
  const cause = { code: "image", message: "no such image" };
  const s = await serve(t, (_, res, n) => json(res, wireSandbox({ state: n === 0 ? "failed" : "destroying", cause })));
  await assert.rejects(Sandbox.create({ client: s.client() }), SandboxFailedError);
  await assert.rejects(Sandbox.create({ client: s.client() }), (err) => {
    assert(err instanceof SandboxFailedError && err instanceof EndedError);
    assert.deepEqual([err.cause, err.info.id, err.code], [cause, id, "ended"]);
    return /no such image/.test(err.message);
  });
  assert.equal(s.requests.length, 2); // it has ended: there is nothing to delete
});

test("create deletes a sandbox that does not run in time", async (t) => {
  const s = await serve(t, (_, res) => json(res, wireSandbox({ state: "provisioning" }), 201));
  await assert.rejects(Sandbox.create({ client: s.client(), waitSeconds: 1 }), TimeoutError);
  assert.deepEqual(s.requests.map((r) => [r.method, r.path]), [["POST", "/v1/sandboxes"], ["DELETE", `/v1/sandboxes/${id}`]]);
});

test("create does not delete the sandbox of an equal request", async (t) => {
  const s = await serve(t, (_, res) => json(res, wireSandbox({ state: "provisioning" }), 200));
  await assert.rejects(Sandbox.create({ client: s.client(), waitSeconds: 1 }), (err) => err instanceof TimeoutError && /was not deleted/.test(err.message));
  assert.deepEqual(s.requests.map((r) => r.method), ["POST"]);
});

test("create waits longer than one request may", async (t) => {
  const s = await serve(t, (_, res, n) => json(res, wireSandbox({ state: n < 2 ? "provisioning" : "running" })));
  await Sandbox.create({ client: s.client(), waitSeconds: 500 });
  assert.equal(s.requests[0].json().wait_seconds, 240);
  assert.deepEqual(s.requests.map((r) => r.method), ["POST", "GET", "GET"]);
});

test("create waits longer while the server makes the image, and reports it", async (t) => {
  const step = { seq: 7, sandbox_id: id, time: "2026-01-01T00:00:00Z", type: "image_building", message: "installing", data: { phase: "installing" } };
  let waits = 0;
  const s = await serve(t, (r, res) => {
    if (r.path.startsWith(`/v1/sandboxes/${id}/events`)) {
      return json(res, { items: r.path.includes("after_seq=7") ? [] : [{ ...step, seq: 6, type: "created" }, step] });
    }
    if (r.path.includes("/wait")) waits++;
    json(res, wireSandbox({ state: waits > 1 ? "running" : "provisioning" }));
  });
  const events = [];
  t.mock.timers.enable({ apis: ["Date"] });
  const made = Sandbox.create({
    client: s.client(),
    onProgress: (event) => {
      events.push(event.message);
      t.mock.timers.tick(120_000); // more than a sandbox may take otherwise
    },
  });
  assert.equal((await made).info.state, "running");
  assert.deepEqual(events, ["installing"]);
  assert.equal(s.requests[0].json().wait_seconds, 5);
});

test("create resumes the paused sandbox of the same request, and does not delete it", async (t) => {
  const s = await serve(t, (_, res, n) => json(res, wireSandbox({ state: n === 0 ? "paused" : "running" })));
  const sbx = await Sandbox.create({ client: s.client(), name: "a" });
  assert.deepEqual(s.requests.map((r) => [r.method, r.path]), [["POST", "/v1/sandboxes"], ["POST", `/v1/sandboxes/${id}/resume`]]);
  assert.equal(sbx.info.state, "running");
});

test("create returns a one-shot that has completed", async (t) => {
  const s = await serve(t, (_, res) => json(res, wireSandbox({ state: "destroyed", cause: { code: "completed", message: "m" } })));
  assert.equal((await Sandbox.create({ client: s.client(), mode: "oneshot", command: { shell: "true" } })).info.state, "destroyed");
});

test("a quota is a QuotaError", async (t) => {
  const s = await serve(t, (_, res) => problem(res, 429, "quota_exceeded"));
  await assert.rejects(Sandbox.create({ client: s.client() }), QuotaError);
});

test("connect resumes a paused sandbox and refuses an ended one", async (t) => {
  let state = "paused";
  const s = await serve(t, (r, res) => json(res, wireSandbox({ state: r.method === "POST" ? "running" : state, cause: { code: "ttl", message: "its time was up" } })));
  const sbx = await Sandbox.connect("a", { client: s.client(), memory: "require" });
  assert.deepEqual([sbx.info.state, s.requests[1].json()], ["running", { memory: "require" }]);
  state = "destroyed";
  await assert.rejects(Sandbox.connect("a", { client: s.client() }), (err) => err.constructor === EndedError && /its time was up/.test(err.message));
  state = "failed";
  await assert.rejects(Sandbox.connect("a", { client: s.client() }), SandboxFailedError);
});

test("list gives records", async (t) => {
  const s = await serve(t, (_, res) => json(res, { items: [wireSandbox()] }));
  assert.deepEqual((await Sandbox.list({ client: s.client(), name: "a" }).all()).map((info) => info.id), [id]);
  assert.equal(s.requests[0].query.get("name"), "a");
});

test("with deletes the sandbox, also after an error, and so does the end of a scope", async (t) => {
  const s = await serve(t, (_, res) => json(res, wireSandbox()));
  const client = s.client();
  assert.equal(await Sandbox.with({ client }, (sbx) => sbx.name), "a");
  await assert.rejects(Sandbox.with({ client }, () => Promise.reject(new Error("mine"))), /mine/);
  const sbx = await Sandbox.create({ client });
  if (Symbol.asyncDispose) await sbx[Symbol.asyncDispose]();
  else await sbx.delete();
  assert.deepEqual(s.requests.map((r) => r.method), ["POST", "DELETE", "POST", "DELETE", "POST", "DELETE"]);
});

test("its state changes are in info", async (t) => {
  const states = ["paused", "running", "running", "running", "destroyed"];
  const { sbx, requests, later } = await withSandbox(t, (_, res, n) => json(res, wireSandbox({ state: states[n] })));
  const seen = [];
  for (const change of [() => sbx.pause(), () => sbx.resume(), () => sbx.setTimeout(3600), () => sbx.refresh(), () => sbx.delete()]) {
    const info = await change();
    assert.equal(sbx.info, info);
    seen.push(info.state);
  }
  assert.deepEqual(seen, states);
  const path = `/v1/sandboxes/${id}`;
  assert.deepEqual(later(), [["POST", `${path}/pause`], ["POST", `${path}/resume`], ["PATCH", path], ["GET", path], ["DELETE", path]]);
  assert.deepEqual(requests[3].json(), { ttl_seconds: 3600 });
});

test("fork gives sandboxes, or none", async (t) => {
  const child = (n) => ({ sandbox: wireSandbox({ id: `child-${n}` }) });
  const { sbx, later } = await withSandbox(t, (r, res, n) => {
    if (n === 0) return json(res, { forks: [child(1), child(2)] });
    if (n === 1) return json(res, { forks: [child(3), { error: { code: "quota_exceeded", detail: "full" } }] });
    json(res, wireSandbox());
  });
  assert.deepEqual((await sbx.fork({ count: 2 })).map((f) => [f.id, f.client === sbx.client]), [["child-1", true], ["child-2", true]]);
  await assert.rejects(sbx.fork({ count: 2 }), (err) => err instanceof QuotaError && err.message === "full");
  assert.deepEqual(later().at(-1), ["DELETE", "/v1/sandboxes/child-3"]);
});

test("url publishes a port once, and leaves the access of a published one", async (t) => {
  const port = (n, access) => ({ port: n, url: `http://p${n}`, access, created_at: "2026-01-01T00:00:00Z" });
  const { sbx, requests, later } = await withSandbox(t, (r, res) =>
    json(res, r.method === "GET" ? { items: [port(3000, "private")] } : port(Number(r.path.split("/").pop()), r.json().access ?? "public")),
  );
  assert.equal(await sbx.url(3000), "http://p3000");
  assert.equal(await sbx.url(3000, { access: "private" }), "http://p3000");
  assert.deepEqual(later().map(([method]) => method), ["GET", "GET"]);
  assert.equal(await sbx.url(4000), "http://p4000");
  await sbx.url(3000, { access: "public" });
  const puts = requests.filter((r) => r.method === "PUT").map((r) => [r.path, r.json()]);
  assert.deepEqual(puts, [[`/v1/sandboxes/${id}/ports/4000`, {}], [`/v1/sandboxes/${id}/ports/3000`, { access: "public" }]]);
});

test("files make parents, and tell a missing file from other errors", async (t) => {
  const info = { name: "f", path: "/f", type: "file", size: 1, size_bytes: 1, mode: "0644", modified_at: "2026-01-01T00:00:00Z", user: "u", group: "g" };
  const { sbx, requests } = await withSandbox(t, (r, res) => {
    const path = r.query.get("path");
    if (path === "gone") return problem(res, 404, "file_not_found");
    if (path === "bad") return problem(res, 410, "ended");
    if (r.method === "GET" && r.path.endsWith("/files")) return res.end("h\u00e9");
    json(res, info);
  });
  await sbx.files.write("a/b", "x");
  await sbx.files.write("a/b", "x", { parents: false });
  assert.deepEqual(requests.slice(1).map((r) => r.query.get("parents")), ["true", "false"]);
  await sbx.files.write("a/b", "x", { metadata: { k: "\u00fc" } });
  assert.deepEqual([requests.at(-2), requests.at(-1)].map((r) => JSON.parse(r.query.get("metadata"))), [null, { k: "\u00fc" }]);
  await sbx.files.mkdir("d");
  assert.deepEqual(requests.at(-1).json(), { path: "d", parents: true });
  assert.equal(await sbx.files.read("a"), "h\u00e9");
  assert.deepEqual(await sbx.files.readBytes("a"), Uint8Array.of(104, 195, 169));
  assert.deepEqual([await sbx.files.exists("a"), await sbx.files.exists("gone")], [true, false]);
  await assert.rejects(sbx.files.exists("bad"), EndedError);
});
