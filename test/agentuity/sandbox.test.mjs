// Interactive sandboxes: create, get, list, execute, errors.
import assert from "node:assert/strict";
import { Writable } from "node:stream";
import { test } from "node:test";
import { SandboxClient } from "@agentuity/server";
import { apiKey, call, client, is, orgId, sandbox, sh, text, until, url, without } from "./setup.mjs";

test("create, get and connect show what was asked for", async (t) => {
	const sb = await sandbox(t, {
		name: "shown", description: "for the test", runtime: "node:lts", projectId: "proj_1",
		resources: { memory: "512Mi", cpu: "500m", disk: "1Gi" }, timeout: { idle: "5m", execution: "30s", paused: "24h" },
		env: { GREETING: "hello" }, metadata: { text: "a", number: 1, nested: { list: [true, null] } },
	});
	assert.match(sb.id, /^sbx_[0-9a-f]{32}$/);
	const info = await client.get(sb.id);
	assert.equal(info.name, "shown");
	assert.equal(info.description, "for the test");
	assert.equal(info.mode, "interactive");
	assert.equal(info.runtime.name, "node:lts");
	assert.equal(info.project.id, "proj_1");
	assert.deepEqual(info.resources, { memory: "512Mi", cpu: "500m", disk: "1Gi" });
	assert.deepEqual(info.timeout, { idle: "5m0s", execution: "30s", paused: "24h0m0s" });
	assert.deepEqual(info.metadata, { text: "a", number: 1, nested: { list: [true, null] } });
	const again = await client.connect(sb.id);
	assert.equal((await sh(again, "echo $GREETING")).stdout, "hello\n");
});

test("a create without a runtime has base:latest, which runs the documentation's Python", async (t) => {
	const sb = await sandbox(t);
	const { runtime } = await client.get(sb.id);
	assert.equal(runtime.name, "base:latest");
	assert.equal((await client.list({ limit: 100 })).sandboxes.find((s) => s.sandboxId === sb.id).runtime.name, "base:latest");
	assert.equal((await client.listRuntimes({ limit: 100 })).runtimes.find((r) => r.name === "base:latest").id, runtime.id);
	assert.equal((await sh(sb, "echo $AGENTUITY_SANDBOX_RUNTIME $AGENTUITY_SANDBOX_RUNTIME_ID")).stdout, `base:latest ${runtime.id}\n`);
	for (const named of [{ runtime: "base:latest" }, { runtime: "code-exec:latest" }, { runtimeId: runtime.id }]) {
		const r = await client.run({ ...named, command: { exec: ["python3", "-c", 'print("Hello!")'] } });
		assert.deepEqual([r.stdout, (await client.get(r.sandboxId)).runtime.name], ["Hello!\n", "base:latest"]);
	}
	const { snapshotId, runtimeId } = await client.createSnapshot(sb.id);
	t.after(() => client.deleteSnapshot(snapshotId));
	assert.equal(runtimeId, runtime.id);
	assert.equal((await (await sandbox(t, { snapshot: snapshotId })).get()).runtime.name, "base:latest");
});

test("get shows the command of an interactive create", async (t) => {
	const sb = await sandbox(t, { command: { exec: ["sleep", "600"] } });
	const info = await client.get(sb.id);
	assert.equal(info.mode, "interactive");
	assert.deepEqual(info.command, { exec: ["sleep", "600"], mode: "interactive" });
});

test("execute right after create waits for the sandbox", async (t) => {
	const sb = await sandbox(t);
	const r = await sb.execute({ command: ["true"] });
	assert.equal(r.status, "completed");
	assert.equal(r.exitCode, 0);
});

test("execute: exit code, both outputs, pipe, no shell", async (t) => {
	const sb = await sandbox(t);
	const r = await sh(sb, "echo out; echo err >&2; exit 7");
	assert.deepEqual([r.status, r.exitCode, r.stdout, r.stderr], ["completed", 7, "out\n", "err\n"]);
	const chunks = [];
	const stdout = new Writable({ write: (c, _, done) => (chunks.push(c), done()) });
	await sb.execute({ command: ["echo", "$HOME", "a  b"], pipe: { stdout } });
	assert.equal(Buffer.concat(chunks).toString(), "$HOME a  b\n");
});

test("execute: files first, a timeout of its own, ignored output", async (t) => {
	const sb = await sandbox(t);
	const r = await sh(sb, "cat note.txt", { files: [{ path: "note.txt", content: Buffer.from("noted") }] });
	assert.equal(r.stdout, "noted");
	const late = await sb.execute({ command: ["sleep", "60"], timeout: "500ms" });
	assert.equal(late.status, "timeout");
	const quiet = await sb.execute({ command: ["echo", "x"], stream: { stdout: "ignore" } });
	assert.equal(quiet.stdoutStreamUrl, undefined);
	assert.ok(quiet.stderrStreamUrl);
});

test("execute: the filesystem stays between commands", async (t) => {
	const sb = await sandbox(t);
	await sh(sb, "echo kept > f");
	assert.equal((await sh(sb, "cat f")).stdout, "kept\n");
});

test("execute: a second command at a time is refused as busy", async (t) => {
	const sb = await sandbox(t);
	await sh(sb, "true");
	const first = sb.execute({ command: ["sh", "-c", "until [ -e /tmp/go ]; do sleep 0.05; done"] });
	await until("running", () => client.get(sb.id), (i) => i.status === "running");
	await assert.rejects(sb.execute({ command: ["true"] }), is("SandboxBusyError"));
	await sb.writeFiles([{ path: "/tmp/go", content: Buffer.from("") }]);
	assert.equal((await first).exitCode, 0);
	assert.equal((await sb.execute({ command: ["true"] })).exitCode, 0);
});

test("executions are listed and can be asked for afterwards", async (t) => {
	const sb = await sandbox(t);
	const first = await sh(sb, "exit 4");
	await sh(sb, "true");
	const { executions } = await client.listExecutions(sb.id);
	assert.equal(executions.length, 2);
	const one = await client.getExecution(first.executionId);
	assert.equal(one.exitCode, 4);
	assert.equal(one.sandboxId, sb.id);
	assert.equal((await client.get(sb.id)).executions, 2);
});

test("output is read again from the start, without a token, and not by guessing", async (t) => {
	const sb = await sandbox(t);
	const r = await sh(sb, "echo twice");
	assert.equal(await text(r.stdoutStreamUrl), "twice\n");
	assert.equal(await text(`${r.stdoutStreamUrl}?v=2`), "twice\n");
	const other = await fetch(`${r.stdoutStreamUrl.slice(0, -3)}aaa`);
	assert.equal(other.status, 404);
});

test("setEnv: merges, deletes, and holds for the next command", async (t) => {
	const sb = await sandbox(t, { env: { A: "1", B: "2" } });
	assert.deepEqual(await sb.setEnv({ B: null, C: "3" }), { A: "1", C: "3" });
	assert.equal((await sh(sb, "echo $A-$B-$C")).stdout, "1--3\n");
});

test("list: filters, order, pages", async (t) => {
	const a = await sandbox(t, { name: "list-a", projectId: "proj_list" });
	const b = await sandbox(t, { name: "list-b", projectId: "proj_list" });
	const ids = async (params) => (await client.list(params)).sandboxes.map((s) => s.sandboxId);
	assert.deepEqual(await ids({ projectId: "proj_list" }), [b.id, a.id]);
	assert.deepEqual(await ids({ projectId: "proj_list", sort: "name", direction: "asc" }), [a.id, b.id]);
	assert.deepEqual(await ids({ projectId: "proj_list", limit: 1, offset: 1 }), [a.id]);
	assert.deepEqual(await ids({ name: "list-a" }), [a.id]);
	assert.deepEqual(await ids({ projectId: "proj_list", mode: "oneshot" }), []);
	assert.deepEqual(await ids({ projectId: "proj_list", live: true }), [b.id, a.id]);
	assert.deepEqual(await ids({ projectId: "proj_list", live: false }), []);
	assert.deepEqual(await ids({ projectId: "proj_list", sort: "execution_count" }), [b.id, a.id]);
	await assert.rejects(client.list({ sort: "colour" }), /sort/);
	await sh(a, "true");
	await sh(b, "true");
	assert.deepEqual(await ids({ projectId: "proj_list", status: "idle" }), [b.id, a.id]);
	await a.pause();
	assert.deepEqual(await ids({ projectId: "proj_list", status: "suspended" }), [a.id]);
	assert.equal((await client.list({ projectId: "proj_list" })).total, 2);
});

test("events tell a life in order, both ways", async (t) => {
	const { sandboxEventList, APIClient } = await import("@agentuity/server");
	const sb = await sandbox(t);
	await sh(sb, "true");
	await sb.pause();
	await sb.resume();
	const events = (await client.listEvents(sb.id)).events;
	const types = events.map((e) => e.type).filter((e) => ["create", "lifecycle:started", "pause", "resume"].includes(e));
	assert.deepEqual(types, ["create", "lifecycle:started", "pause", "resume"]);
	const back = (await client.listEvents(sb.id, { direction: "desc", limit: 2 })).events;
	assert.deepEqual(back.map((e) => e.eventId), events.slice(-2).map((e) => e.eventId).reverse());
	const logger = { trace() {}, debug() {}, info() {}, warn() {}, error() {}, child() { return this; } };
	const low = await sandboxEventList(new APIClient(url, logger, apiKey), { sandboxId: sb.id, orgId, limit: 1 });
	assert.equal(low.events[0].type, "create");
});

test("runtimes: those that there are, and no others", async (t) => {
	const { runtimes, total } = await client.listRuntimes();
	const names = runtimes.map((r) => r.name);
	for (const name of ["base:latest", "bun:1", "node:latest", "node:lts", "python:3.13", "python:3.14", "claude-code:latest", "amp:latest", "opencode:latest"]) {
		assert.ok(names.includes(name), `${name} in ${names}`);
	}
	assert.equal(total, runtimes.length);
	// A registry has this one, which the tests cannot reach.
	assert.match(runtimes.find((r) => r.name === "python:3.14").description, /astral\/uv/);
	const bun = runtimes.find((r) => r.name === "bun:1");
	assert.ok(bun.description && bun.readme && bun.tags.includes("bun") && bun.iconUrl && bun.brandColor && bun.url, JSON.stringify(bun));
	assert.deepEqual([typeof bun.requirements.memory, bun.requirements.networkEnabled], ["string", false]);
	assert.deepEqual((await client.listRuntimes({ limit: 1, offset: 1, sort: "name", direction: "asc" })).runtimes.map((r) => r.name), [names.toSorted()[1]]);
	assert.equal(new Set(runtimes.map((r) => r.id)).size, runtimes.length);
	const sb = await sandbox(t, { runtimeId: runtimes.find((r) => r.name === "python:3.13").id });
	assert.match((await sh(sb, "python3 --version")).stdout, /^Python 3\.13/);
	assert.equal((await sb.get()).runtime.name, "python:3.13");
	await assert.rejects(client.create({ runtime: "none:1" }), /runtime/);
});

test("typed errors", async (t) => {
	const nowhere = `sbx_${"0".repeat(32)}`;
	for (const id of [nowhere, "sbx_nonsense", "nonsense"]) {
		await assert.rejects(client.get(id), is("SandboxNotFoundError"));
		await assert.rejects(client.pause(id), /no such sandbox/);
		// The client drops the code here.
		await assert.rejects(client.writeFiles(id, [{ path: "a", content: Buffer.from("") }]), is("SandboxResponseError"));
		await assert.rejects(client.listJobs(id), is("SandboxNotFoundError"));
	}
	await assert.rejects(client.getExecution("exec_nonsense"), is("ExecutionNotFoundError"));
	const sb = await sandbox(t);
	await sb.destroy();
	await assert.rejects(sb.execute({ command: ["true"] }), is("SandboxNotFoundError"));
	await assert.rejects(sb.get(), is("SandboxNotFoundError"));
	const ended = await client.run({ command: { exec: ["true"] } });
	await until("terminated", () => client.get(ended.sandboxId), (i) => i.status === "terminated");
	const again = await client.connect(ended.sandboxId);
	await assert.rejects(again.execute({ command: ["true"] }), is("SandboxTerminatedError"));
});

test("what cannot be is refused by name, and nothing is left of it", async () => {
	const name = `refused-${Date.now()}`;
	for (const [options, what] of [[{ timeout: { idle: "soon" } }, /timeout\.idle/], [{ dependencies: ["no such;"] }, /dependencies/], [{ runtime: "no" }, /runtime/]]) {
		await assert.rejects(client.create({ name, ...options }), what);
	}
	assert.equal((await client.list({ name })).total, 0);
});

test("dependencies and packages are installed before the first command", { skip: without("network") }, async (t) => {
	const sb = await sandbox(t, { runtime: "node:lts", dependencies: ["hello"], packages: ["cowsay"] });
	const r = await sh(sb, "hello; cowsay -l >/dev/null && echo packages");
	assert.equal(r.stdout, "Hello, world!\npackages\n", r.stderr);
	const info = await sb.get();
	assert.deepEqual([info.dependencies, info.packages, info.networkEnabled], [["hello"], ["cowsay"], false]);
	const wrong = await client.create({ dependencies: ["no-such-package-anywhere"] });
	t.after(() => client.destroy(wrong.id));
	await assert.rejects(wrong.execute({ command: ["true"] }), /no-such-package-anywhere/);
	await until("failed", () => wrong.get(), (i) => i.status === "failed");
});

test("usage: of a sandbox while it lives, of the organization ever", { skip: without("sandboxes.usage") }, async (t) => {
	const sb = await sandbox(t);
	await sh(sb, "i=0; while [ $i -lt 20000 ]; do i=$((i+1)); done");
	const used = await until("measured", () => sb.get(), (i) => i.cpuTimeMs > 0 && i.memoryByteSec > 0);
	assert.equal(used.networkEgressBytes, 0);
	const stats = async (query) => (await call("GET", `/services/stats/${orgId}?service=sandbox${query}`)).json.data.services.sandbox;
	const all = await stats("");
	assert.ok(all.totalActive >= 1 && all.idle + all.running + all.creating <= all.totalActive, JSON.stringify(all));
	assert.ok(all.totalExecutions >= 1 && all.totalCpuTimeMs >= used.cpuTimeMs && all.totalMemoryByteSec >= used.memoryByteSec, JSON.stringify(all));
	assert.equal((await stats("&end=2020-01-01T00:00:00Z")).totalExecutions, 0);
	assert.equal((await call("GET", `/services/stats/${orgId}?start=yesterday`)).status, 422);
});

test("network: outbound, and its use", { skip: without("network") }, async (t) => {
	const sb = await sandbox(t, { network: { enabled: true }, runtime: "node:lts" });
	const r = await sh(sb, "npm view zod@4 version --silent | tail -1; npm view zod dist-tags.latest");
	assert.match(r.stdout, /\d+\.\d+\.\d+/, r.stderr);
	const info = await until("counted", () => sb.get(), (i) => i.networkEgressBytes > 0);
	assert.equal(info.networkEnabled, true);
	const closed = await sh(sb, "node -e 'fetch(\"http://169.254.169.254/\").catch((e) => console.log(\"closed\"))'");
	assert.equal(closed.stdout, "closed\n");
});

test("a wrong token or organization is refused", async () => {
	const stranger = new SandboxClient({ url, apiKey: "mbx_wrong", orgId });
	await assert.rejects(stranger.list(), (err) => err.status === 401);
	const lost = new SandboxClient({ url, apiKey, orgId: "org_unknown" });
	await assert.rejects(lost.list(), (err) => err.status === 404);
	assert.ok((await new SandboxClient({ url, apiKey }).list()).sandboxes);
});

test("destroy is idempotent and shows in the deleted ones", async (t) => {
	const name = `deleted-${Date.now()}`;
	const sb = await sandbox(t, { name });
	await sb.destroy();
	await sb.destroy();
	assert.equal((await client.list({ name })).total, 0);
	const { sandboxes } = await client.list({ name, deletedOnly: true });
	assert.deepEqual(sandboxes.map((s) => [s.sandboxId, s.status]), [[sb.id, "deleted"]]);
});

test("the routes of the command line, and words in the place of ids", async (t) => {
	const sb = await sandbox(t, { name: "cli" });
	const one = await call("GET", `/cli/sandbox/${sb.id}`);
	assert.equal(one.json.data.id, sb.id);
	const none = await call("GET", "/cli/sandbox/sbx_none");
	assert.deepEqual([none.status, none.json.success, none.json.code], [200, false, "NOT_FOUND"]);
	const all = await call("GET", "/cli/sandbox?name=cli");
	assert.deepEqual(all.json.data.sandboxes.map((s) => s.id), [sb.id]);
	assert.equal((await call("GET", "/sandbox/runtimes")).json.success, true);
	assert.deepEqual((await call("GET", "/cli/region")).json.data.map((r) => r.region), [one.json.data.region]);
	assert.deepEqual((await call("GET", "/cli/organization")).json.data.map((o) => o.id), [one.json.data.orgId]);
	// The command line does not sign in for this.
	const validate = (packages) => call("POST", "/cli/validate/apt-dependencies", { body: { packages }, token: "" });
	if (!without("network")) {
		const checked = (await validate(["curl", "jq=1.7*", "a;b", "no-such-package", "jq=99"])).json.data;
		assert.deepEqual([checked.valid, checked.invalid.map((i) => i.package)], [["curl", "jq=1.7*"], ["a;b", "no-such-package", "jq=99"]]);
		assert.match(checked.invalid[1].error, /no such Debian package/);
		assert.equal(checked.invalid[2].requestedVersion, "99");
		assert.match(checked.invalid[2].availableVersions[0], /^1\.7/);
	}
	assert.equal((await validate(Array(65).fill("curl"))).status, 422);
	assert.equal((await validate(["x".repeat(70_000)])).status, 413);
	for (const word of ["status", "env", "checkpoints", "jobs"]) {
		assert.equal((await call("GET", `/sandbox/${word}`)).json.code, "SANDBOX_NOT_FOUND");
	}
	const bare = await call("GET", "/sandbox", { token: "" });
	assert.deepEqual([bare.status, bare.type, bare.json.success], [401, "application/json", false]);
});
