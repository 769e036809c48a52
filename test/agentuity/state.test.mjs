// Files, archives, jobs, pause and checkpoints.
import assert from "node:assert/strict";
import { createHash } from "node:crypto";
import { gzipSync } from "node:zlib";
import { test } from "node:test";
import { APIClient, sandboxDownloadArchive, sandboxExecute, sandboxUploadArchive } from "@agentuity/server";
import { apiKey, client, is, orgId, sandbox, sh, text, until, url } from "./setup.mjs";

const logger = { trace() {}, debug() {}, info() {}, warn() {}, error() {}, child() { return this; } };
const low = new APIClient(url, logger, apiKey, { maxRetries: 0 });
const bytes = async (stream) => Buffer.from(await new Response(stream).arrayBuffer());

test("files: write many, read, list", async (t) => {
	const sb = await sandbox(t);
	const content = Buffer.from(Array.from({ length: 256 }, (_, i) => i));
	const n = await sb.writeFiles([{ path: "a/b/bin", content }, { path: "/tmp/x", content: Buffer.from("x") }, { path: "empty", content: Buffer.alloc(0) }]);
	assert.equal(n, 3);
	assert.deepEqual(await bytes(await sb.readFile("a/b/bin")), content);
	assert.equal((await bytes(await sb.readFile("/tmp/x"))).toString(), "x");
	assert.equal((await bytes(await sb.readFile("empty"))).length, 0);
	await sh(sb, "ln -s a/b/bin link && chmod 600 empty");
	const files = Object.fromEntries((await sb.listFiles()).map((f) => [f.path, f]));
	assert.deepEqual(Object.keys(files), ["a", "empty", "link"]);
	assert.equal(files.a.isDir, true);
	assert.deepEqual([files.empty.size, files.empty.mode, files.empty.isDir], [0, "0600", false]);
	assert.deepEqual([files.link.isSymlink, files.link.linkTarget], [true, "a/b/bin"]);
	assert.deepEqual((await sb.listFiles("a/b")).map((f) => f.path), ["bin"]);
	await assert.rejects(sb.readFile("missing"), is("SandboxResponseError"));
	await assert.rejects(sb.listFiles("missing"), /missing/);
});

test("files: mkDir, rmFile and rmDir", async (t) => {
	const sb = await sandbox(t);
	assert.deepEqual(await sb.listFiles(), []);
	await sb.mkDir("one");
	await assert.rejects(sb.mkDir("x/y/z"));
	await sb.mkDir("x/y/z", true);
	await sb.writeFiles([{ path: "x/f", content: Buffer.from("f") }]);
	await assert.rejects(sb.rmDir("x"));
	await assert.rejects(sb.rmFile("x"), /directory/);
	await assert.rejects(sb.rmDir("x/f"), /directory/);
	assert.deepEqual(await sb.rmFile("x/f"), { found: true });
	assert.deepEqual(await sb.rmFile("x/f"), { found: false });
	assert.deepEqual(await sb.rmDir("x", true), { found: true });
	assert.deepEqual(await sb.rmDir("x", true), { found: false });
	assert.deepEqual((await sb.listFiles()).map((f) => f.path), ["one"]);
});

for (const format of ["tar.gz", "zip"]) {
	test(`archives: down and up as ${format}`, async (t) => {
		const sb = await sandbox(t);
		await sh(sb, "mkdir -p tree/sub && echo one > tree/1 && echo two > tree/sub/2 && chmod 755 tree/1");
		const archive = await bytes(await sandboxDownloadArchive(low, { sandboxId: sb.id, path: "tree", format, orgId }));
		await sandboxUploadArchive(low, { sandboxId: sb.id, archive, path: "copy", format: format === "zip" ? undefined : format, orgId });
		assert.equal((await sh(sb, "cat copy/1 copy/sub/2 copy/tree/1 copy/tree/sub/2 2>/dev/null")).stdout, "one\ntwo\n");
	});
}

test("archives: what is none is refused", async (t) => {
	const sb = await sandbox(t);
	const upload = (archive) => sandboxUploadArchive(low, { sandboxId: sb.id, archive, path: ".", format: "tar.gz", orgId });
	await assert.rejects(upload(gzipSync(Buffer.from("no tar"))));
	assert.deepEqual(await sb.listFiles(), []);
});

test("jobs: in parallel, beside a command, with their output", async (t) => {
	const sb = await sandbox(t);
	// Each waits for the other, and for the command.
	const script = (own, other) => `touch /tmp/${own}; while ! [ -e /tmp/${other} -a -e /tmp/go ]; do sleep 0.05; done; echo job ${own}`;
	const jobs = await Promise.all([[1, 2], [2, 1]].map(([a, b]) => client.createJob(sb.id, { command: ["sh", "-c", script(a, b)] })));
	for (const job of jobs) assert.equal((await job.get()).status, "running");
	await sh(sb, "touch /tmp/go");
	const ends = await Promise.all(jobs.map((j) => until("job ends", () => j.get(), (v) => v.status !== "running")));
	for (const end of ends) assert.deepEqual([end.status, end.exitCode], ["completed", 0]);
	assert.equal(await text(ends[0].stdoutStreamUrl), "job 1\n");
	assert.equal(await text(ends[1].stdoutStreamUrl), "job 2\n");
	assert.equal((await client.listJobs(sb.id)).jobs.length, 2);
	assert.equal((await client.listExecutions(sb.id)).executions.length, 1);
});

test("jobs: completed with 0, failed with another code", async (t) => {
	const sb = await sandbox(t);
	for (const [code, status] of [[0, "completed"], [5, "failed"]]) {
		const job = await client.createJob(sb.id, { command: ["sh", "-c", `exit ${code}`] });
		assert.match(job.id, /^job_/);
		const end = await until("job ends", () => job.get(), (v) => !["pending", "running"].includes(v.status));
		assert.deepEqual([end.status, end.exitCode], [status, code]);
	}
});

test("jobs: stop is SIGTERM first, force is SIGKILL", async (t) => {
	const sb = await sandbox(t);
	const script = "trap 'echo asked; exit 9' TERM; echo ready; while :; do sleep 0.1; done";
	const start = async () => {
		const job = await client.createJob(sb.id, { command: ["sh", "-c", script] });
		const { stdoutStreamUrl } = await job.get();
		const reader = (await fetch(stdoutStreamUrl)).body.getReader();
		await reader.read();
		await reader.cancel();
		return { job, stdoutStreamUrl };
	};
	const polite = await start();
	const stopped = await polite.job.stop();
	assert.equal(stopped.status, "cancelled");
	assert.equal(await text(polite.stdoutStreamUrl), "ready\nasked\n");
	const rude = await start();
	const killed = await rude.job.stop(true);
	assert.deepEqual([killed.status, killed.exitCode], ["cancelled", 137]);
	assert.equal(await text(rude.stdoutStreamUrl), "ready\n");
	await assert.rejects(client.getJob(sb.id, `job_${"0".repeat(32)}`));
});

test("pause and resume: files, environment and a running counter go on", async (t) => {
	const sb = await sandbox(t, { timeout: { paused: "24h" } });
	const job = await client.createJob(sb.id, { command: ["python3", "-c", "import os, time\nn=0\nwhile True:\n n+=1; open('/tmp/next','w').write(str(n)); os.replace('/tmp/next','/tmp/n'); time.sleep(0.02)"] });
	const counter = async () => Number((await sh(sb, "cat /tmp/n")).stdout);
	await until("counts", counter, (n) => n > 20);
	const before = await counter();
	const paused = await sb.pause();
	assert.equal(paused.status, "suspended");
	assert.match(paused.checkpointId, /^ckpt_/);
	assert.ok(Date.parse(paused.terminatesAt) > Date.now() + 23 * 3600_000);
	assert.equal((await client.get(sb.id)).status, "suspended");
	await sb.resume();
	assert.ok(["idle", "running"].includes((await client.get(sb.id)).status));
	const after = await counter();
	assert.ok(after >= before, `${after} after ${before}: it began anew`);
	await until("goes on", counter, (n) => n > after);
	assert.equal((await job.get()).status, "running");
	await sb.resume(); // a sandbox that runs is resumed already
});

test("execute resumes a suspended sandbox and says so beside the data", async (t) => {
	const sb = await sandbox(t);
	await sh(sb, "echo kept > f");
	await sb.pause();
	const r = await sandboxExecute(low, { sandboxId: sb.id, options: { command: ["cat", "f"] }, orgId });
	assert.equal(r.autoResumed, true);
	assert.equal(await text(r.stdoutStreamUrl), "kept\n");
	// The output ends a moment before the execution does, and only one may run.
	await until("its end", () => client.getExecution(r.executionId), (e) => e.status === "completed");
	const next = await sandboxExecute(low, { sandboxId: sb.id, options: { command: ["true"] }, orgId });
	assert.equal(next.autoResumed, undefined);
});

test("files of 64 MiB are written while they arrive, beside others", async (t) => {
	const sb = await sandbox(t);
	const big = Buffer.alloc(64 << 20, "0123456789abcdef\n");
	const n = await sb.writeFiles([{ path: "big", content: big }, { path: "small", content: Buffer.from("x") }]);
	assert.equal(n, 2);
	const sum = createHash("sha256").update(big).digest("hex");
	assert.equal((await sh(sb, "sha256sum big; cat small")).stdout, `${sum}  big\nx`);
});

test("checkpoints: back to what was, by id; names are unique; deleted ones are gone", async (t) => {
	const sb = await sandbox(t);
	await sh(sb, "echo before > f");
	const cp = await client.createDiskCheckpoint(sb.id, "clean");
	assert.equal(cp.parent, "");
	await assert.rejects(client.createDiskCheckpoint(sb.id, "clean"), (err) => err.status === 409);
	await sh(sb, "echo after > f; touch extra");
	await cp.restore();
	assert.equal((await sh(sb, "cat f; ls")).stdout, "before\nf\n");
	await sb.pause();
	await sb.resume();
	assert.deepEqual((await client.listDiskCheckpoints(sb.id)).map((c) => [c.id, c.name]), [[cp.id, "clean"]]);
	await cp.delete();
	assert.deepEqual(await client.listDiskCheckpoints(sb.id), []);
	await assert.rejects(cp.restore());
});

test("checkpoints: the parent is the checkpoint that was made or restored last", async (t) => {
	const sb = await sandbox(t);
	const parents = async () => Object.fromEntries((await client.listDiskCheckpoints(sb.id)).map((c) => [c.name, c.parent]));
	const a = await client.createDiskCheckpoint(sb.id, "a");
	assert.equal(a.parent, "");
	const b = await client.createDiskCheckpoint(sb.id, "b");
	assert.equal(b.parent, "a");
	await sb.pause();
	await sb.resume();
	assert.equal((await client.createDiskCheckpoint(sb.id, "c")).parent, "b");
	await a.restore();
	assert.equal((await client.createDiskCheckpoint(sb.id, "d")).parent, "a");
	assert.deepEqual(await parents(), { a: "", b: "a", c: "b", d: "a" });
	await b.delete();
	assert.deepEqual(await parents(), { a: "", c: "a", d: "a" });
});
