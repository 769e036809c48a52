// The published command line, in its own process each time, run by bun.
import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { existsSync, mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, test } from "node:test";
import { apiKey, call, client, sandbox, url } from "./setup.mjs";

const modules = new URL("cli/node_modules/", import.meta.url).pathname;
// npm's link to bun is made by a script of the package, which is not run.
const bun = readdirSync(join(modules, "@oven")).map((dir) => join(modules, "@oven", dir, "bin/bun")).find(existsSync);
const main = join(modules, "@agentuity/cli/bin/cli.ts");

const work = mkdtempSync(join(tmpdir(), "agentuity-"));
after(() => rmSync(work, { recursive: true }));
const [org] = (await call("GET", "/cli/organization")).json.data;
const env = {
	PATH: process.env.PATH, HOME: work, TMPDIR: work, NO_COLOR: "1",
	AGENTUITY_CLI_API_KEY: apiKey, AGENTUITY_USER_ID: "user", AGENTUITY_CLOUD_ORG_ID: org.id, AGENTUITY_REGION: "local",
	AGENTUITY_CATALYST_URL: url, AGENTUITY_TRANSPORT_URL: url, AGENTUITY_API_URL: url, AGENTUITY_APP_URL: url,
	AGENTUITY_STREAM_URL: `${url}/streams`, AGENTUITY_CONFIG_DIR: join(work, "config"), AGENTUITY_SKIP_VERSION_CHECK: "1",
};

/** cli runs a command below "cloud sandbox" and returns how it ended. */
const cli = (args, input) => cloud(["sandbox", ...args], input);

/** cloud runs a command below "cloud" with more variables, and returns how it ended. */
function cloud(args, input = "", more = {}) {
	return new Promise((resolve) => {
		const child = execFile(bun, [main, "cloud", ...args], { env: { ...env, ...more }, cwd: work, timeout: 600_000 }, (err, stdout, stderr) => {
			resolve({ code: err ? (err.code ?? err.signal) : 0, stdout, stderr });
		});
		child.stdin.end(input);
	});
}

/** json runs a command that must succeed and returns what it prints. */
async function json(...args) {
	const r = await cli(["--json", ...args]);
	assert.equal(r.code, 0, `${args.join(" ")}: ${r.stdout}${r.stderr}`);
	return JSON.parse(r.stdout);
}

test("cli: run passes input, output and the exit code on", async () => {
	const r = await cli(["run", "--runtime", "python:3.13", "--", "sh", "-c", "cat; echo oops >&2; exit 3"], "typed\n");
	assert.match(r.stdout, /^typed\n/);
	assert.match(r.stderr + r.stdout, /oops/);
	assert.equal(r.code, 3);
});

test("cli: create, exec, env, get, list, events, stats, delete", async () => {
	const { sandboxId: id } = await json("create", "--name", "of the cli", "--env", "A=1", "--memory", "256Mi", "--port", "3000", "--wait");
	const r = await cli(["exec", id, "--", "sh", "-c", "echo $A; exit 4"]);
	assert.match(r.stdout, /^1\n/);
	assert.equal(r.code, 4);
	assert.deepEqual((await json("env", id, "B=2", "--delete", "A")).env, { B: "2" });
	const info = await json("get", id);
	assert.deepEqual([info.name, info.status, info.resources.memory], ["of the cli", "idle", "256Mi"]);
	assert.match(info.url, /p3000-[a-z0-9]{20}$/);
	assert.ok((await json("list", "--name", "of the cli")).sandboxes.some((s) => s.id === id));
	assert.equal((await json("execution", "list", id)).executions[0].exitCode, 4);
	assert.equal((await json("events", id, "--limit", "1")).events[0].type, "create");
	assert.ok((await json("stats")).services.sandbox.totalActive >= 1);
	assert.equal((await json("delete", id, "--confirm")).success, true);
	assert.equal((await json("get", id)).status, "deleted");
});

test("cli: files in, out and over", async (t) => {
	const { id } = await sandbox(t);
	mkdirSync(join(work, "tree/sub"), { recursive: true });
	writeFileSync(join(work, "tree/one"), "one\n");
	writeFileSync(join(work, "tree/sub/two"), "two\n");
	assert.equal((await json("fs", "cp", "-r", "tree", `${id}:tree`)).filesTransferred, 2);
	await json("fs", "cp", "tree/one", `${id}:/tmp/one`);
	await json("fs", "cp", "-r", `${id}:tree`, "back");
	assert.equal(readFileSync(join(work, "back/sub/two"), "utf8"), "two\n");
	await json("fs", "mkdir", id, "x/y", "-p");
	assert.deepEqual((await json("fs", "ls", id)).files.map((f) => f.path), ["tree", "x"]);
	assert.equal((await json("fs", "rmdir", id, "x", "-r")).found, true);
	assert.equal((await json("fs", "rm", id, "tree/one")).found, true);
	await json("fs", "download", id, "all.tar.gz");
	await json("fs", "upload", id, "all.tar.gz", "--path", "/tmp/copy");
	assert.equal((await cli(["exec", id, "--", "cat", "/tmp/one", "/tmp/copy/tree/sub/two"])).stdout.slice(0, 8), "one\ntwo\n");
});

test("cli: ssh and scp", async (t) => {
	const { id } = await sandbox(t);
	const at = (await call("GET", "/v1/ssh")).json;
	assert.ok(at.enabled);
	// The command line takes the host from ion_url, without a port; all else is OpenSSH's to configure.
	const dir = join(work, "ssh");
	mkdirSync(dir);
	writeFileSync(join(dir, "production.yaml"), "name: production\noverrides:\n  ion_url: https://modbox.test\n");
	writeFileSync(join(dir, "known_hosts"), `modbox.test ${at.host_keys[0].public_key}\n`);
	writeFileSync(join(dir, "ssh_config"), [
		"Host modbox.test", `  HostName ${at.host}`, `  Port ${at.port}`, "  HostKeyAlias modbox.test", `  UserKnownHostsFile ${dir}/known_hosts`,
		"  StrictHostKeyChecking yes", "  NumberOfPasswordPrompts 1", "",
	].join("\n"));
	writeFileSync(join(dir, "askpass"), `#!/bin/sh\necho ${apiKey}\n`, { mode: 0o700 });
	for (const program of ["ssh", "scp"]) {
		writeFileSync(join(dir, program), `#!/bin/sh\nexec /usr/bin/${program} -F ${dir}/ssh_config "$@"\n`, { mode: 0o700 });
	}
	const more = {
		AGENTUITY_CONFIG_DIR: dir, PATH: `${dir}:${process.env.PATH}`, SSH_ASKPASS: join(dir, "askpass"), SSH_ASKPASS_REQUIRE: "force", SSH_AUTH_SOCK: "",
	};
	const r = await cloud(["ssh", id, "echo in; exit 7"], "", more);
	assert.match(r.stdout, /^in$/m, r.stderr);
	assert.equal(r.code, 7);
	writeFileSync(join(work, "sent"), "sent\n");
	const up = await cloud(["scp", "upload", "sent", "/tmp/sent", "--identifier", id], "", more);
	assert.equal(up.code, 0, up.stdout + up.stderr);
	const down = await cloud(["scp", "download", "/tmp/sent", "received", "--identifier", id], "", more);
	assert.equal(down.code, 0, down.stdout + down.stderr);
	assert.equal(readFileSync(join(work, "received"), "utf8"), "sent\n");
});

test("cli: jobs and their logs", async (t) => {
	const { id } = await sandbox(t);
	const { jobId } = await json("job", "create", id, "--", "sh", "-c", "echo begun; sleep 0.5; echo done");
	assert.match((await cli(["job", "logs", id, jobId, "--follow", "--no-timestamps"])).stdout, /begun\ndone\n/);
	assert.deepEqual((await json("job", "list", id)).jobs.map((j) => j.jobId), [jobId]);
	const long = await json("job", "create", id, "--", "sleep", "600");
	assert.equal((await json("job", "stop", id, long.jobId, "--force")).status, "cancelled");
});

test("cli: pause, resume and checkpoints", async (t) => {
	const { id } = await sandbox(t);
	const at = async () => (await cli(["exec", id, "--", "sh", "-c", "cat at 2>/dev/null || echo none"])).stdout.split("\n")[0];
	assert.equal((await json("checkpoint", "create", id, "before")).name, "before");
	await cli(["exec", id, "--", "sh", "-c", "echo after > at"]);
	assert.deepEqual((await json("checkpoint", "list", id)).checkpoints.map((c) => c.name), ["before"]);
	await json("pause", id);
	assert.equal((await json("get", id)).status, "suspended");
	await json("resume", id);
	assert.equal(await at(), "after");
	await json("checkpoint", "restore", id, "before");
	assert.equal(await at(), "none");
	await json("checkpoint", "delete", id, "before", "--confirm");
});

test("cli: runtimes and snapshots", async (t) => {
	const { runtimes } = await json("runtime", "list");
	for (const name of ["base:latest", "claude-code:latest"]) assert.ok(runtimes.some((r) => r.name === name), name);
	const { id } = await sandbox(t);
	await client.writeFiles(id, [{ path: "kept", content: Buffer.from("kept\n") }]);
	const { snapshotId } = await json("snapshot", "create", id, "--name", "from-cli", "--tag", "v1");
	t.after(() => client.deleteSnapshot(snapshotId));
	assert.ok((await json("snapshot", "list", "--sandbox", id)).snapshots.some((s) => s.snapshotId === snapshotId));
	assert.match((await cli(["run", "--snapshot", "from-cli:v1", "--", "cat", "kept"])).stdout, /^kept\n/);
	assert.equal((await json("snapshot", "tag", snapshotId, "v2")).tag, "v2");
	assert.equal((await json("snapshot", "get", snapshotId)).tag, "v2");
	assert.ok(!(await json("snapshot", "tag", snapshotId, "--clear")).tag);
});

test("cli: snapshot build, again without change, and what it gives", async (t) => {
	mkdirSync(join(work, "app/src"), { recursive: true });
	writeFileSync(join(work, "app/src/main.sh"), "echo from $WHO\n");
	writeFileSync(join(work, "app/.env"), "SECRET=1\n");
	writeFileSync(join(work, "app/agentuity-snapshot.yaml"), [
		"version: 1", "runtime: node:lts", "name: built", "description: by the command line", 'files: ["**"]',
		'dependencies: ["hello"]', 'env: { WHO: "${who}" }', "metadata: { team: blue }",
	].join("\n"));
	const build = (...more) => json("snapshot", "build", "app", "--env", "who=a build", "--tag", "v1", ...more);
	const first = await build();
	t.after(() => client.deleteSnapshot(first.snapshotId));
	assert.deepEqual([first.name, first.tag, first.userMetadata], ["built", "v1", { team: "blue" }]);
	const again = await build();
	assert.deepEqual([again.snapshotId, again.unchanged], [first.snapshotId, true]);
	const r = await client.run({ snapshot: "built:v1", command: { exec: ["sh", "-c", "sh src/main.sh; ls -A; hello"] } });
	assert.equal(r.stdout, "from a build\nagentuity-snapshot.yaml\nsrc\nHello, world!\n", r.stderr);
});
