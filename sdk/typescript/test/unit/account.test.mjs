import assert from "node:assert/strict";
import { test } from "node:test";
import { AuthError, ConflictError, ConnectionError, ModboxClient } from "modbox-sdk";
import { json, problem, serve, wireSandbox } from "../server.mjs";

const tokens = (n, seconds = 300) => ({ access_token: `mba_${n}`, refresh_token: `mbr_${n}`, expires_in: seconds, refresh_expires_in: 1800 });

/** A server that signs in with tokens that work so many seconds, and answers sandboxes. */
function signing(t, seconds, more = () => false) {
  let n = 0;
  return serve(t, (req, res, i) => {
    if (more(req, res, i)) return;
    if (req.path === "/v1/auth/login" || req.path === "/v1/auth/accept") return json(res, tokens(0, seconds));
    if (req.path === "/v1/auth/refresh") return json(res, tokens(++n));
    json(res, wireSandbox());
  });
}

test("login makes a client for the session", async (t) => {
  const s = await signing(t, 300);
  const client = await ModboxClient.login({ baseUrl: s.baseUrl, username: "ada", password: "secret" });
  assert.deepEqual(s.requests[0].json(), { username: "ada", password: "secret" });
  assert.equal(s.requests[0].headers.authorization, undefined);
  await client.sandboxes.get("a");
  assert.equal(s.requests[1].headers.authorization, "Bearer mba_0");
  const { accessToken, refreshToken, expiresAt } = client.account.session;
  assert.deepEqual([accessToken, refreshToken], ["mba_0", "mbr_0"]);
  assert(Date.parse(expiresAt) > Date.now() + 200_000);

  await ModboxClient.acceptInvitation({ baseUrl: s.baseUrl, code: "mbi_1", name: "ada", password: "secret" });
  assert.deepEqual(s.requests[2].json(), { code: "mbi_1", name: "ada", password: "secret" });
});

test("a session is renewed once for all calls, told, and kept", async (t) => {
  const s = await signing(t, 10); // ends within the margin
  const told = [];
  const client = await ModboxClient.login({
    baseUrl: s.baseUrl,
    username: "ada",
    password: "secret",
    onSession: async (session) => void told.push(session.refreshToken),
  });
  await Promise.all([client.sandboxes.get("a"), client.sandboxes.get("b"), client.sandboxes.get("c")]);
  const refreshes = s.requests.filter((r) => r.path === "/v1/auth/refresh");
  assert.deepEqual(refreshes.map((r) => r.json()), [{ refresh_token: "mbr_0" }]);
  assert.equal(refreshes[0].headers.authorization, undefined);
  assert.deepEqual(s.requests.slice(-3).map((r) => r.headers.authorization), Array(3).fill("Bearer mba_1"));
  assert.deepEqual(told, ["mbr_1"]);

  const other = new ModboxClient({ baseUrl: s.baseUrl, session: client.account.session });
  assert.equal((await other.account.refresh()).accessToken, "mba_2");
});

test("new tokens are not used before they are kept", async (t) => {
  const s = await signing(t, 10);
  let keeping, kept;
  const begun = new Promise((resolve) => (keeping = resolve));
  const held = new Promise((resolve) => (kept = resolve));
  let calls = 0;
  const client = await ModboxClient.login({
    baseUrl: s.baseUrl,
    username: "ada",
    password: "secret",
    onSession: async () => {
      calls++;
      keeping();
      await held;
      if (calls === 1) throw new Error("the disk is full");
    },
  });
  const first = client.sandboxes.get("a");
  await begun;
  assert.equal(client.account.session.refreshToken, "mbr_0");
  const second = client.sandboxes.get("b");
  assert(!s.requests.some((r) => r.path.startsWith("/v1/sandboxes")));
  kept();
  await assert.rejects(first, /the disk is full/);
  await assert.rejects(second, /the disk is full/);
  assert.equal(client.account.session.refreshToken, "mbr_0");

  await client.sandboxes.get("c");
  assert.equal(calls, 2);
  assert.equal(s.requests.filter((r) => r.path === "/v1/auth/refresh").length, 1);
  assert.equal(client.account.session.refreshToken, "mbr_1");
});

test("new tokens that ended before they were kept are renewed", async (t) => {
  const s = await signing(t, 10, (req, res) => req.path === "/v1/auth/refresh" && (json(res, tokens(9, 10)), true));
  let calls = 0;
  const onSession = () => {
    if (++calls === 1) throw new Error("the disk is full");
  };
  const client = await ModboxClient.login({ baseUrl: s.baseUrl, username: "ada", password: "secret", onSession });
  await assert.rejects(client.sandboxes.get("a"), /the disk is full/);
  await client.sandboxes.get("a");
  const refreshes = s.requests.filter((r) => r.path === "/v1/auth/refresh");
  assert.deepEqual(refreshes.map((r) => r.json().refresh_token), ["mbr_0", "mbr_9"]);
});

test("new tokens of a refresh are told again, and those before are not used", async (t) => {
  const s = await signing(t, 300);
  let calls = 0;
  const onSession = () => {
    if (++calls === 1) throw new Error("the disk is full");
  };
  const client = await ModboxClient.login({ baseUrl: s.baseUrl, username: "ada", password: "secret", onSession });
  await assert.rejects(client.account.refresh(), /the disk is full/);
  await client.sandboxes.get("a");
  assert.equal(s.requests.filter((r) => r.path === "/v1/auth/refresh").length, 1);
  assert.equal(s.requests.at(-1).headers.authorization, "Bearer mba_1");
});

test("a refresh is never sent twice, and what it said is the call's error", async (t) => {
  const s = await signing(t, 10, (req, res) => req.path === "/v1/auth/refresh" && (res.destroy(), true));
  const client = await ModboxClient.login({ baseUrl: s.baseUrl, username: "ada", password: "secret" });
  await assert.rejects(client.sandboxes.get("a"), ConnectionError);
  assert.equal(s.requests.length, 2);

  const ended = await signing(t, 10, (req, res) => req.path === "/v1/auth/refresh" && (problem(res, 401, "unauthenticated"), true));
  const gone = await ModboxClient.login({ baseUrl: ended.baseUrl, username: "ada", password: "secret" });
  await assert.rejects(gone.sandboxes.get("a"), AuthError);
  assert.equal(ended.requests.length, 2);
});

test("an API token has no session", async (t) => {
  const s = await signing(t, 300);
  assert.equal(s.client().account.session, undefined);
  await assert.rejects(s.client().account.refresh(), (err) => err.code === "invalid");
});

test("the account's calls", async (t) => {
  const login = { id: "s", method: "password", address: "192.0.2.1", current: true, created_at: "c", refreshed_at: "r", expires_at: "e" };
  const lists = { "/v1/auth/providers": ["acme"], "/v1/account/sessions": [login] };
  const s = await serve(t, (req, res) => (req.method === "GET" ? json(res, { items: lists[req.path] }) : res.writeHead(204).end()));
  const { account } = s.client();
  assert.deepEqual(await account.providers().all(), ["acme"]);
  assert.equal(s.requests[0].headers.authorization, undefined);
  await account.setPassword("new one", { currentPassword: "old one" });
  assert.deepEqual([s.requests[1].method, s.requests[1].path], ["PUT", "/v1/account/password"]);
  assert.deepEqual(s.requests[1].json(), { password: "new one", current_password: "old one" });
  await account.logout();
  assert.equal(s.requests[2].path, "/v1/auth/logout");
  const { created_at: createdAt, refreshed_at: refreshedAt, expires_at: expiresAt, ...same } = login;
  assert.deepEqual(await account.sessions().all(), [{ ...same, createdAt, refreshedAt, expiresAt }]);
  await account.deleteSession("a/b");
  await account.logout({ everywhere: true });
  const ends = s.requests.slice(4).map((r) => `${r.method} ${r.path}`);
  assert.deepEqual(ends, ["DELETE /v1/account/sessions/a%2Fb", "DELETE /v1/account/sessions"]);
});

test("users are walked over", async (t) => {
  const one = (name) => ({ id: name, name, email: "", administrator: false, workspace_id: "w", created_at: "t" });
  const s = await serve(t, (req, res) => {
    const first = req.query.get("cursor") === null;
    json(res, first ? { items: [one("a"), one("b")], next_cursor: "n" } : { items: [one("c")] });
  });
  const names = [];
  for await (const user of s.client().users.list()) names.push(user.name);
  assert.deepEqual(names, ["a", "b", "c"]);
});

test("workers are listed, drained and removed", async (t) => {
  const one = { id: "w", name: "two", state: "connected", draining: true, sandboxes: 1, memory_promised_bytes: 5, seen_at: "t", created_at: "t" };
  const s = await serve(t, (req, res) => {
    if (req.method === "DELETE") return res.writeHead(204).end();
    json(res, req.path === "/v1/workers" ? { items: [one] } : one);
  });
  const { workers } = s.client();
  const names = [];
  for await (const worker of workers.list()) names.push(worker.name);
  assert.deepEqual(names, ["two"]);
  const shown = await workers.get("two");
  assert.deepEqual([shown.state, shown.draining, shown.memoryPromisedBytes, shown.connectedAt], ["connected", true, 5, undefined]);
  await workers.update("two", { draining: false });
  await workers.delete("two");
  await workers.delete("two", { force: true });
  assert.deepEqual(s.requests[2].json(), { draining: false });
  const calls = s.requests.slice(1).map((r) => `${r.method} ${r.path} ${r.query.get("force")}`);
  assert.deepEqual(calls, ["GET", "PATCH", "DELETE"].map((m) => `${m} /v1/workers/two null`).concat("DELETE /v1/workers/two true"));
});

test("a pull tells its progress, skips pings, and ends with the image or an error", async (t) => {
  const image = { id: "i", name: "org/app", tag: "v1", ref: "org/app:v1", digest: "sha256:1", created_at: "t", updated_at: "t" };
  const lines = [
    { type: "progress", phase: "pulling", done: 1, total: 2, message: "layer" },
    { type: "ping" },
    { type: "later" },
    { type: "done", image },
  ];
  const s = await serve(t, (_, res, n) => {
    const sent = [lines, [lines[0], { type: "error", code: "unavailable", message: "the registry is down" }], [lines[0]]][n];
    res.end(sent.map((line) => JSON.stringify(line) + "\n").join(""));
  });
  const events = [];
  for await (const event of s.client().images.pull("org/app:v1")) events.push(event);
  assert.deepEqual(events.map((e) => e.type), ["progress", "done"]);
  assert.deepEqual(events[0], { type: "progress", phase: "pulling", done: 1, total: 2, message: "layer" });
  assert.equal(events[1].image.ref, "org/app:v1");
  const all = async () => {
    for await (const _ of s.client().images.pull("org/app:v1"));
  };
  await assert.rejects(all, (err) => err.code === "unavailable" && err.message === "the registry is down");
  await assert.rejects(all, ConnectionError); // no end was seen
});

test("making things is never sent twice", async (t) => {
  const s = await serve(t, (_, res) => problem(res, 503, "unavailable"));
  const c = s.client();
  const calls = [
    () => c.users.create("ada"),
    () => c.users.resetPassword("ada"),
    () => c.users.delete("ada"),
    () => c.workers.delete("one"),
    () => c.registries.create({ name: "r", server: "s", username: "u", password: "p" }),
    () => c.sandboxImages.create("agent", "org/agent"),
    () => c.createSandboxImage({ name: "agent", image: "org/agent" }),
    () => c.addWorkspaceMember("w", { email: "a@b.example", role: "member" }),
  ];
  for (const call of calls) await assert.rejects(call, (err) => err.code === "unavailable");
  assert.equal(s.requests.length, calls.length);
});

test("images of the catalogue have the wire's names", async (t) => {
  const wire = {
    id: "i", name: "agent", image: "org/agent", tag: "v1", builtin: false, enabled: true, is_default: true, memory_mb: 512,
    readiness_port: 8080, created_at: "t", updated_at: "t",
  };
  const s = await serve(t, (_, res, n) => (n === 2 ? problem(res, 409, "exists") : json(res, n === 3 ? { items: [wire] } : wire)));
  const { sandboxImages } = s.client();
  const made = await sandboxImages.create("agent", "org/agent", { tag: "v1", isDefault: true, memoryMb: 512, readinessPort: 8080 });
  assert.deepEqual(s.requests[0].json(), { name: "agent", image: "org/agent", tag: "v1", is_default: true, memory_mb: 512, readiness_port: 8080 });
  assert.deepEqual([made.isDefault, made.memoryMb, made.readinessPort, made.ttlSeconds], [true, 512, 8080, undefined]);
  await sandboxImages.update("i", { enabled: false });
  assert.deepEqual([s.requests[1].method, s.requests[1].json()], ["PATCH", { enabled: false }]);
  await assert.rejects(sandboxImages.update("i", { name: "other" }), ConflictError);
  await sandboxImages.list({ enabledOnly: true });
  assert.equal(s.requests[3].query.get("enabled_only"), "true");
});
