// One-shot sandboxes: run().
import assert from "node:assert/strict";
import { Readable, Writable } from "node:stream";
import { test } from "node:test";
import { client, is, sandbox, text, until } from "./setup.mjs";

test("run: output, exit code, workspace and automatic variables", async () => {
	const r = await client.run({ command: { exec: ["sh", "-c", "pwd; echo $AGENTUITY_SANDBOX_ID; echo oops >&2; exit 3"] } });
	assert.equal(r.exitCode, 3);
	assert.equal(r.stdout, `/home/agentuity\n${r.sandboxId}\n`);
	assert.equal(r.stderr, "oops\n");
});

test("run: the automatic variables tell of the sandbox", async () => {
	const script = "env | grep ^AGENTUITY_SANDBOX_ | sort";
	const r = await client.run({ command: { exec: ["sh", "-c", script] }, runtime: "python:3.13", projectId: "proj_1", network: { port: 3000 } });
	const env = Object.fromEntries(r.stdout.trim().split("\n").map((line) => line.split(/=(.*)/)));
	const { runtime, org, url } = await client.get(r.sandboxId);
	assert.match(url, /p3000-/);
	assert.deepEqual(env, {
		AGENTUITY_SANDBOX_ID: r.sandboxId, AGENTUITY_SANDBOX_RUNTIME: "python:3.13", AGENTUITY_SANDBOX_RUNTIME_ID: runtime.id,
		AGENTUITY_SANDBOX_ORG_ID: org.id, AGENTUITY_SANDBOX_PROJECT_ID: "proj_1", AGENTUITY_SANDBOX_URL: url,
	});
});

const stamped = /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d+Z (.*)$/;

test("run and execute: the time of every line on demand", async (t) => {
	const command = ["sh", "-c", "echo one; echo two"];
	const r = await client.run({ command: { exec: command }, stream: { timestamps: true } });
	assert.deepEqual(r.stdout.trim().split("\n").map((l) => l.match(stamped)?.[1]), ["one", "two"]);
	const sb = await sandbox(t);
	const times = await sb.execute({ command, stream: { timestamps: true } });
	assert.deepEqual((await text(times.stdoutStreamUrl)).trim().split("\n").map((l) => l.match(stamped)?.[1]), ["one", "two"]);
	const plain = await sb.execute({ command });
	assert.equal(await text(plain.stdoutStreamUrl), "one\ntwo\n");
});

test("run: the sandbox ends by itself, and its result stays", async () => {
	const r = await client.run({ command: { exec: ["true"] } });
	const info = await until("terminated", () => client.get(r.sandboxId), (i) => i.status === "terminated");
	assert.equal(info.exitCode, 0);
	assert.equal(info.mode, "oneshot");
	assert.deepEqual(info.command.exec, ["true"]);
	assert.equal((await client.listEvents(r.sandboxId, { direction: "desc", limit: 1 })).events[0].type, "lifecycle:completed");
});

test("run: stdin is streamed", async () => {
	const input = Readable.from(Array.from({ length: 100 }, (_, i) => `line ${i}\n`));
	const r = await client.run({ command: { exec: ["wc", "-l"] } }, { stdin: input });
	assert.equal(r.stdout.trim(), "100");
	assert.equal(r.exitCode, 0);
});

test("run: output is piped while it comes", async () => {
	const chunks = [];
	const stdout = new Writable({ write: (chunk, _, done) => (chunks.push(chunk), done()) });
	await client.run({ command: { exec: ["sh", "-c", "echo one; echo two"] } }, { stdout });
	assert.equal(Buffer.concat(chunks).toString(), "one\ntwo\n");
});

test("run: files are there before the command, at relative and absolute paths", async () => {
	const files = [
		{ path: "src/main.py", content: Buffer.from("print(open('/tmp/in').read())") },
		{ path: "/tmp/in", content: Buffer.from("from a file") },
	];
	const r = await client.run({ command: { exec: ["python3", "src/main.py"], files } });
	assert.equal(r.stdout, "from a file\n");
});

test("run: the execution timeout ends the command", async () => {
	const r = await client.run({ command: { exec: ["sleep", "60"] }, timeout: { execution: "1s" } });
	assert.notEqual(r.exitCode, 0);
});

test("run: a program that does not exist is no success", async () => {
	const r = await client.run({ command: { exec: ["no-such-program"] } });
	assert.notEqual(r.exitCode, 0);
});

test("run: large output arrives whole", async () => {
	const r = await client.run({ command: { exec: ["sh", "-c", "head -c 5000000 /dev/zero | tr '\\0' x"] } });
	assert.equal(r.stdout.length, 5_000_000);
});

test("run: aborting destroys the sandbox", async () => {
	const abort = new AbortController();
	const stdout = new Writable({ write: (_c, _e, done) => (abort.abort(), done()) });
	const running = client.run({ command: { exec: ["sh", "-c", "echo started; sleep 60"] }, name: "aborted" }, { signal: abort.signal, stdout });
	await assert.rejects(running, is("ExecutionCancelledError"));
	await until("gone", () => client.list({ name: "aborted" }), (l) => l.total === 0);
});
