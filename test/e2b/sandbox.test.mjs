// The control plane: create, find, connect, timeouts, pause, snapshots, forks, errors.
import assert from "node:assert/strict";
import { test } from "node:test";
import { call, create, current, domain, lines, networkOf, token, url } from "./setup.mjs";

for (const [line, { Sandbox, SandboxNotFoundError, NotFoundError }] of Object.entries(lines)) {
	const Missing = SandboxNotFoundError ?? NotFoundError;
	test(`${line}: a sandbox from create to kill`, async (t) => {
		const sbx = await create(t, Sandbox, { metadata: { line, "odd & key": "a=b/ü" }, envs: { GREETING: "hello" }, timeoutMs: 120_000 });
		assert.match(sbx.sandboxId, /^[a-z0-9]+$/);
		assert.equal(await sbx.isRunning(), true);
		assert.equal((await sbx.commands.run('echo "$GREETING"')).stdout, "hello\n");
		const info = await sbx.getInfo();
		assert.equal(info.sandboxId, sbx.sandboxId);
		assert.equal(info.state, "running");
		assert.deepEqual(info.metadata, { line, "odd & key": "a=b/ü" });
		assert.ok(info.endAt - Date.now() > 60_000 && info.endAt - Date.now() < 121_000, `ends at ${info.endAt}`);
		const same = await Sandbox.connect(sbx.sandboxId);
		assert.equal((await same.commands.run("whoami; pwd")).stdout, "user\n/home/user\n");
		await sbx.setTimeout(600_000);
		assert.ok((await sbx.getInfo()).endAt - Date.now() > 500_000);
		const [metrics] = await sbx.getMetrics();
		assert.ok(metrics.memTotal > metrics.memUsed && metrics.memUsed > 0, JSON.stringify(metrics));
		assert.equal(await sbx.kill(), true);
		assert.equal(await sbx.isRunning(), false);
		assert.equal(await sbx.kill(), false);
		await assert.rejects(Sandbox.connect(sbx.sandboxId), Missing);
		await assert.rejects(Sandbox.getInfo(sbx.sandboxId), Missing);
	});

	test(`${line}: pages of a list`, async (t) => {
		const key = `list-${line}`;
		const made = [];
		for (let i = 0; i < 3; i++) made.unshift((await create(t, Sandbox, { metadata: { key } })).sandboxId);
		const pages = Sandbox.list({ query: { metadata: { key } }, limit: 1 });
		const found = [];
		while (pages.hasNext) found.push(...(await pages.nextItems()));
		assert.deepEqual(found.map((s) => s.sandboxId), made);
		await Sandbox.pause(made[0]);
		for (const [state, want] of [["paused", made.slice(0, 1)], ["running", made.slice(1)]]) {
			const p = Sandbox.list({ query: { metadata: { key }, state: [state] } });
			assert.deepEqual((await p.nextItems()).map((s) => s.sandboxId), want);
			assert.equal(p.hasNext, false);
		}
		const exact = Sandbox.list({ query: { metadata: { key } }, limit: 3 });
		assert.equal((await exact.nextItems()).length, 3);
		assert.equal(exact.hasNext, false); // the page was exactly full
	});

	test(`${line}: a pause keeps processes, variables and files`, async (t) => {
		const sbx = await create(t, Sandbox, { timeoutMs: 120_000 });
		await sbx.files.write("kept.txt", "kept");
		const sleeper = await sbx.commands.run("sleep 1000", { background: true, timeoutMs: 0 });
		sleeper.wait().catch(() => {}); // its stream ends with the pause
		await Sandbox.pause(sbx.sandboxId);
		assert.equal(await sbx.isRunning(), false);
		assert.equal((await Sandbox.getInfo(sbx.sandboxId)).state, "paused");
		const back = await Sandbox.connect(sbx.sandboxId, { timeoutMs: 120_000 });
		assert.equal(await back.files.read("kept.txt"), "kept");
		assert.ok((await back.commands.list()).some((p) => p.pid === sleeper.pid));
		assert.equal(await back.commands.kill(sleeper.pid), true);
		assert.equal(await back.commands.kill(sleeper.pid), false);
	});

	test(`${line}: a pause without memory keeps variables and files, and no process`, async (t) => {
		const sbx = await create(t, Sandbox, { timeoutMs: 120_000, envs: { GREETING: "hello" } });
		await sbx.files.write("kept.txt", "kept");
		const sleeper = await sbx.commands.run("sleep 1000", { background: true, timeoutMs: 0 });
		sleeper.wait().catch(() => {}); // its stream ends with the pause
		assert.equal(await Sandbox.pause(sbx.sandboxId, { keepMemory: false }), true);
		assert.equal(await Sandbox.pause(sbx.sandboxId, { keepMemory: false }), false);
		assert.equal((await Sandbox.getInfo(sbx.sandboxId)).state, "paused");
		const back = await Sandbox.connect(sbx.sandboxId, { timeoutMs: 120_000 });
		assert.equal(back.sandboxId, sbx.sandboxId);
		assert.equal(await back.files.read("kept.txt"), "kept");
		assert.equal((await back.commands.run('echo "$GREETING"; pgrep -c sleep || true')).stdout, "hello\n0\n");
	});
}

for (const [line, { Sandbox, SandboxNotFoundError, NotFoundError }] of Object.entries(lines)) {
	const Missing = SandboxNotFoundError ?? NotFoundError;
	test(`${line}: the calls of the class, and the same calls of a sandbox`, async (t) => {
		const sbx = await create(t, Sandbox, "modbox/base", { timeoutMs: 120_000 });
		const id = sbx.sandboxId;
		await Sandbox.setTimeout(id, 600_000);
		assert.ok((await Sandbox.getInfo(id)).endAt - Date.now() > 500_000);
		assert.equal((await Sandbox.getFullInfo(id)).sandboxId, id);
		assert.ok((await Sandbox.getMetrics(id))[0].memTotal > 0);
		const past = new Date(Date.now() - 3600_000);
		assert.deepEqual(await sbx.getMetrics({ start: past, end: new Date(past.getTime() + 1000) }), []);
		assert.match(sbx.getHost(3000), new RegExp(`^3000-${id}\\.`));
		await sbx.updateNetwork({ allowInternetAccess: false });
		assert.equal((await sbx.getInfo()).allowInternetAccess, false);
		await Sandbox.updateNetwork(id, { denyOut: ["0.0.0.0/0"] });
		const rules = { allowOut: ["example.com", "198.51.100.0/24"], denyOut: ["0.0.0.0/0"] };
		await sbx.updateNetwork({ allowOut: ["Example.com", "198.51.100.0/24"], allowInternetAccess: false });
		assert.deepEqual(await networkOf(sbx), { ...rules, allowPublicTraffic: true });
		await sbx.updateNetwork({ denyOut: ["198.51.100.1"] });
		assert.deepEqual(await networkOf(sbx), { denyOut: ["198.51.100.1"], allowPublicTraffic: true });
		await assert.rejects(sbx.updateNetwork({ allowOut: ["example.com"] }), /denyOut/);
		await assert.rejects(sbx.updateNetwork({ denyOut: ["example.com"] }), /denyOut\[0\]/);
		await sbx.updateNetwork({});
		assert.equal((await sbx.getInfo()).allowInternetAccess, true);

		assert.equal(await sbx.pause(), true);
		assert.equal(await Sandbox.pause(id), false);
		assert.equal((await sbx.connect({ timeoutMs: 120_000 })).sandboxId, id);
		assert.equal(await sbx.betaPause(), true);
		assert.equal(await Sandbox.betaPause(id), false);
		await sbx.connect();
		assert.equal((await sbx.commands.run("echo again")).stdout, "again\n");

		const snapshot = await Sandbox.createSnapshot(id, { name: `of-${line.replace(".", "-")}` });
		t.after(() => Sandbox.deleteSnapshot(snapshot.snapshotId));
		const pages = Sandbox.listSnapshots({ sandboxId: id, limit: 1 });
		assert.deepEqual((await pages.nextItems()).map((s) => s.snapshotId), [snapshot.snapshotId]);
		assert.deepEqual([pages.hasNext, pages.nextToken], [false, undefined]);

		await sbx.files.write("parent.txt", line);
		const forked = [...(await sbx.fork({ count: 2, timeoutMs: 120_000 })), ...(await Sandbox.fork(id, { timeoutMs: 120_000 }))];
		for (const child of forked) t.after(() => child.kill());
		assert.equal(new Set(forked.map((child) => child.sandboxId)).size, 3);
		for (const child of forked) assert.equal(await child.files.read("parent.txt"), line);

		assert.equal(await Sandbox.kill(id), true);
		assert.equal(await Sandbox.kill(id), false);
		await assert.rejects(Sandbox.setTimeout(id, 60_000), Missing);
		await assert.rejects(Sandbox.getMetrics(id), Missing);
		await assert.rejects(Sandbox.pause(id), Missing);
		await assert.rejects(Sandbox.createSnapshot(id), Missing);
		await assert.rejects(Sandbox.fork(id), Missing);
		await assert.rejects(Sandbox.updateNetwork(id, {}), Missing);
	});
}

for (const [line, { Sandbox }] of Object.entries(lines)) test(`${line}: a snapshot is the template of other sandboxes`, async (t) => {
	const sbx = await create(t, Sandbox, "modbox/base"); // the smallest, because a snapshot has all of it
	await sbx.files.write("data.txt", "from the snapshot");
	const snapshot = await sbx.createSnapshot();
	assert.equal(await sbx.isRunning(), true);
	const other = await create(t, Sandbox, snapshot.snapshotId);
	assert.equal(await other.files.read("data.txt"), "from the snapshot");
	const list = sbx.listSnapshots();
	assert.deepEqual((await list.nextItems()).map((s) => s.snapshotId), [snapshot.snapshotId]);
	assert.equal(await Sandbox.deleteSnapshot(snapshot.snapshotId), true);
	assert.equal(await Sandbox.deleteSnapshot(snapshot.snapshotId), false);
});

test("a fork has the files and processes of its parent", async (t) => {
	const sbx = await create(t, current.Sandbox, { timeoutMs: 120_000 });
	await sbx.files.write("parent.txt", "1");
	const made = await call("POST", `/sandboxes/${sbx.sandboxId}/fork`, {
		headers: { "X-API-Key": token, "Content-Type": "application/json" }, body: JSON.stringify({ count: 2, timeout: 120 }),
	});
	assert.equal(made.status, 201, made.text);
	assert.equal(made.json.length, 2);
	for (const { sandbox } of made.json) {
		const child = await current.Sandbox.connect(sandbox.sandboxID);
		t.after(() => child.kill());
		assert.notEqual(child.sandboxId, sbx.sandboxId);
		assert.equal(await child.files.read("parent.txt"), "1");
	}
});

test("an auto-resumed sandbox wakes for a command, and a plain one does not", async (t) => {
	const { Sandbox } = current;
	const plain = await create(t, Sandbox);
	await plain.pause();
	await assert.rejects(plain.commands.run("true"));
	assert.equal((await Sandbox.getInfo(plain.sandboxId)).state, "paused");
	const wakes = await create(t, Sandbox, { lifecycle: { onTimeout: "pause", autoResume: true }, timeoutMs: 60_000 });
	const info = await Sandbox.getInfo(wakes.sandboxId);
	assert.deepEqual(info.lifecycle, { onTimeout: "pause", autoResume: true });
	await wakes.pause();
	assert.equal((await wakes.commands.run("echo back")).stdout, "back\n");
});

test("errors have a code, and name what is not there", async (t) => {
	const { Sandbox, AuthenticationError } = current;
	const key = { "X-API-Key": token, "Content-Type": "application/json" };
	await assert.rejects(Sandbox.create({ apiKey: "e2b_00" }), AuthenticationError);
	await assert.rejects(Sandbox.create("no-such-template-at-all"));
	for (const [method, path, status, body] of [
		["GET", "/sandboxes/nothing", 404], ["GET", "/sandboxes/iaaaaaaaaaaaaaaaaaaaaaaaaaa", 404], ["DELETE", "/templates/none", 404],
		["POST", "/v2/sandboxes", 400, "{"], ["POST", "/v2/sandboxes", 400, '{"timeout":0}'], ["POST", "/v2/sandboxes", 400, '{"volumeMounts":[{"name":"a","path":"/v"}]}'],
		["POST", "/v2/sandboxes", 400, '{"network":{"allowOut":["example.com"]}}'], ["POST", "/v2/sandboxes", 400, '{"network":{"denyOut":["example.com"]}}'], ["POST", "/v2/sandboxes", 400, '{"network":{"maskRequestHost":"localhost/"}}'], ["POST", "/v3/templates", 400, "{}"],
		["POST", "/v2/sandboxes", 400, '{"autoPauseMemory":false}'], ["GET", "/volumes", 400], ["GET", "/secrets", 400], ["GET", "/v2/sandboxes?state=odd", 400],
		["GET", "/v2/sandboxes?limit=0", 400], ["GET", "/templates/aliases/no-such-template-at-all", 404],
	]) {
		const res = await call(method, path, { headers: key, body });
		assert.deepEqual([res.status, res.json?.code, typeof res.json?.message], [status, status, "string"], `${method} ${path} ${body}: ${res.text}`);
	}
	assert.deepEqual((({ status, json }) => [status, json.code])(await call("GET", "/sandboxes/nothing", { headers: { "X-API-Key": "e2b_00" } })), [401, 401]);
	assert.equal((await call("GET", "/templates/aliases/base", { headers: key })).status, 200);
	assert.equal((await call("GET", "/health")).status, 200);
	assert.equal((await call("GET", "/sandboxes", { headers: { "X-API-Key": token } })).status, 200);
});

test("the data plane wants the token of its sandbox", async (t) => {
	const sbx = await create(t, current.Sandbox);
	const at = { "E2b-Sandbox-Id": sbx.sandboxId, "E2b-Sandbox-Port": "49983" };
	const started = { "Content-Type": "application/json" };
	for (const headers of [at, { ...at, "X-Access-Token": "0".repeat(80) }]) {
		const res = await call("POST", "/process.Process/List", { headers: { ...headers, ...started }, body: "{}" });
		assert.deepEqual([res.status, res.json.code], [401, 401]);
	}
	assert.equal((await call("GET", "/files?path=/etc/passwd", { headers: at })).status, 401);
	assert.equal((await call("GET", "/health", { headers: at })).status, 204);
	assert.equal((await call("GET", "/health", { headers: { "E2b-Sandbox-Id": sbx.sandboxId } })).status, 400);
	const gone = await call("GET", "/health", { headers: { ...at, "E2b-Sandbox-Id": "iaaaaaaaaaaaaaaaaaaaaaaaaaa" } });
	assert.deepEqual([gone.status, gone.json.message, gone.json.code], [502, "The sandbox was not found", 502]);
	const other = await create(t, current.Sandbox);
	const stolen = await call("POST", "/process.Process/List", {
		headers: { ...at, ...started, "E2b-Sandbox-Id": other.sandboxId, "X-Access-Token": sbx.envdAccessToken }, body: "{}",
	});
	assert.equal(stolen.status, 401);
});

test("any port by header, and closed ports", async (t) => {
	const { Sandbox } = current;
	for (const allowPublicTraffic of [true, false]) {
		const sbx = await create(t, Sandbox, { network: { allowPublicTraffic } });
		const server = await sbx.commands.run("cd /home/user && echo served > index.html && exec python3 -m http.server 3000 --bind 127.0.0.1", { background: true, timeoutMs: 0 });
		server.wait().catch(() => {});
		await sbx.commands.run("for i in $(seq 600); do curl -fs -o /dev/null 127.0.0.1:3000 && exit; sleep 0.1; done; exit 1");
		const at = { "E2b-Sandbox-Id": sbx.sandboxId, "E2b-Sandbox-Port": "3000" };
		const bare = await call("GET", "/index.html", { headers: at });
		if (allowPublicTraffic) {
			assert.deepEqual([bare.status, bare.text], [200, "served\n"]);
		} else {
			assert.deepEqual([bare.status, bare.json.code], [403, 403]);
			const res = await call("GET", "/index.html", { headers: { ...at, "e2b-traffic-access-token": sbx.trafficAccessToken } });
			assert.deepEqual([res.status, res.text], [200, "served\n"]);
			continue;
		}
		const closed = await call("GET", "/", { headers: { ...at, "E2b-Sandbox-Port": "3001" } });
		assert.deepEqual([closed.status, closed.json], [502, { sandboxId: sbx.sandboxId, message: "The sandbox is running but port is not open", port: 3001, code: 502 }]);
	}
});

test("twenty sandboxes at once", async (t) => {
	const all = await Promise.all(Array.from({ length: 20 }, async (_, i) => {
		const sbx = await create(t, current.Sandbox, { metadata: { i: String(i) } });
		return (await sbx.commands.run(`echo ${i}`)).stdout;
	}));
	assert.deepEqual(all, Array.from({ length: 20 }, (_, i) => `${i}\n`));
	assert.equal(new URL(url).protocol, domain ? "https:" : "http:");
});
