// The published command line @e2b/cli: sandboxes, commands, terminals, logs, metrics, templates.
import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { fileURLToPath } from "node:url";
import { create, current, later, moment } from "./setup.mjs";

const program = fileURLToPath(new URL("node_modules/@e2b/cli/dist/index.js", import.meta.url));

/** run runs a program to its end and returns its output and exit code. talk gets the child and what it has printed. */
async function run([file, ...args], { input, home, talk } = {}) {
	const child = spawn(file, args, { env: { ...process.env, HOME: home, NO_UPDATE_NOTIFIER: "1", NO_COLOR: "1", TERM: "xterm" }, stdio: [input === undefined && !talk ? "ignore" : "pipe", "pipe", "pipe"] });
	const out = { stdout: "", stderr: "" };
	for (const name of ["stdout", "stderr"]) {
		child[name].setEncoding("utf8").on("data", (text) => {
			out[name] += text;
			talk?.(child, out.stdout);
		});
	}
	if (input !== undefined) child.stdin.end(input);
	const { promise, resolve, reject } = later();
	child.on("error", reject).on("close", resolve);
	return { code: await promise, ...out };
}

/** commandLine returns a function that runs the command line as a user without a login. */
async function commandLine(t) {
	const home = await mkdtemp(join(tmpdir(), "e2b-"));
	t.after(() => rm(home, { recursive: true }));
	const e2b = (args, options) => run([process.execPath, program, ...args], { home, ...options });
	/** good also wants success, and returns the standard output. */
	const good = async (args, options) => {
		const res = await e2b(args, options);
		assert.equal(res.code, 0, `${args.join(" ")}: ${res.stdout}${res.stderr}`);
		return res.stdout;
	};
	return { e2b, good, home };
}

test("the command line: sandboxes", async (t) => {
	const { e2b, good, home } = await commandLine(t);
	const id = (await good(["sandbox", "create", "--detach", "--timeout", "600"])).trim();
	t.after(() => current.Sandbox.kill(id));
	const listed = JSON.parse(await good(["sandbox", "list", "--format", "json"]));
	assert.ok(listed.some((s) => s.sandboxId === id && s.state === "running"), JSON.stringify(listed));
	assert.ok((await good(["sandbox", "list"])).includes(id));
	assert.ok((await good(["sandbox", "info", id])).includes(id));

	const executed = await e2b(["sandbox", "exec", "-c", "/tmp", "-e", "WORD=word", id, "sh", "-c", "echo $WORD; pwd; echo bad >&2; exit 3"]);
	assert.deepEqual([executed.code, executed.stdout, executed.stderr.includes("bad")], [3, "word\n/tmp\n", true], JSON.stringify(executed));
	assert.equal(await good(["sandbox", "exec", "-u", "root", id, "sh", "-c", "id -un; cat"], { input: "from stdin" }), "root\nfrom stdin");

	const logs = (await good(["sandbox", "logs", "--format", "json", id])).trim().split("\n").map((line) => JSON.parse(line));
	assert.ok(logs.length > 0 && logs.every((l) => l.message && l.logger === "sandbox" && l.timestamp), JSON.stringify(logs));
	const [metric] = (await good(["sandbox", "metrics", "--format", "json", id])).trim().split("\n").map((line) => JSON.parse(line));
	assert.ok(metric.memTotal > 0 && metric.cpuCount > 0, JSON.stringify(metric));

	// A terminal of this machine, in which the command line opens a terminal of the sandbox.
	let typed = false;
	const command = [process.execPath, program, "sandbox", "connect", id].map((word) => `'${word}'`).join(" ");
	const terminal = await run(["script", "--quiet", "--return", "--command", command, "/dev/null"], {
		home,
		talk: (child, shown) => {
			if (typed || !/[$#] $/.test(shown.replace(/\x1b\[[0-9;?]*[a-zA-Z]/g, ""))) return; // the prompt of the shell
			typed = true;
			child.stdin.end("echo $((6 * 7))-done; exit\n");
		},
	});
	assert.ok(terminal.code === 0 && terminal.stdout.includes("42-done"), JSON.stringify(terminal));

	await good(["sandbox", "pause", id]);
	assert.equal((await current.Sandbox.getInfo(id)).state, "paused");
	await good(["sandbox", "resume", id]);
	assert.equal((await current.Sandbox.getInfo(id)).state, "running");
	assert.match(await good(["sandbox", "kill", id]), /has been killed/);
	assert.match((await e2b(["sandbox", "kill", id])).stderr, /wasn't found/);
	assert.notEqual((await e2b(["sandbox", "exec", id, "true"])).code, 0);
});

test("the command line: logs and metrics that are followed to the end of the sandbox", async (t) => {
	const { e2b, good } = await commandLine(t);
	const id = (await good(["sandbox", "create", "--detach", "--timeout", "600"])).trim();
	t.after(() => current.Sandbox.kill(id));
	/** follow follows one of them, and settles when it has shown what is awaited. */
	const follow = (what, awaited) => {
		const shown = later();
		const ended = e2b(["sandbox", what, "--follow", "--format", "json", id], { talk: (child, text) => awaited(text) && shown.resolve(child) });
		return { ended, shown: Promise.race([shown.promise, ended.then((res) => assert.fail(JSON.stringify(res)))]) };
	};
	const parsed = (text) => text.split("\n").filter((line) => line.startsWith("{")).map((line) => JSON.parse(line));
	// Two samples of different times; the events of a pause and a resume, which come after the start.
	const metrics = follow("metrics", (text) => text.split("\n").length > 3);
	const meter = await metrics.shown;
	const samples = parsed((await stop(meter, metrics.ended)).stdout);
	assert.ok(samples.length >= 2 && samples[0].timestamp < samples[1].timestamp && samples.every((m) => m.memTotal > 0), JSON.stringify(samples));

	const logs = follow("logs", (text) => text.includes("{"));
	await logs.shown;
	await current.Sandbox.setTimeout(id, 500_000);
	assert.equal(await current.Sandbox.kill(id), true);
	const followed = await logs.ended; // it ends by itself
	assert.equal(followed.code, 0, JSON.stringify(followed));
	const entries = parsed(followed.stdout);
	assert.equal(new Set(entries.map((entry) => JSON.stringify(entry))).size, entries.length, "no event twice");

	// The log remains. The server records events in the background, so that the last may come after the answer to the kill.
	let after = [];
	while (!after.some((entry) => entry.message.includes("delete") || entry.message.includes("destroy"))) {
		await moment();
		after = parsed(await good(["sandbox", "logs", "--format", "json", id]));
	}
	assert.ok(after.length >= entries.length, JSON.stringify({ entries, after }));
	const none = await e2b(["sandbox", "logs", "iaaaaaaaaaaaaaaaaaaaaaaaaaa"]);
	assert.ok(none.code !== 0 && none.stderr.includes("does not exist"), JSON.stringify(none));
});

/** stop interrupts a program, and waits for its end. */
async function stop(child, ended) {
	child.kill("SIGINT");
	return ended;
}

test("the command line: templates", async (t) => {
	const { e2b, good } = await commandLine(t);
	const dir = await mkdtemp(join(tmpdir(), "e2b-"));
	t.after(() => rm(dir, { recursive: true }));
	await writeFile(join(dir, "note.txt"), "a note");
	await writeFile(join(dir, "e2b.Dockerfile"), "FROM e2bdev/base\nCOPY note.txt /opt/note.txt\nRUN cat /opt/note.txt >/opt/copy.txt\n");
	const name = "by-command-line";
	t.after(() => current.Sandbox.kill && good(["template", "delete", "--yes", name]).catch(() => {}));
	assert.match(await good(["template", "create", "--path", dir, "--memory-mb", "512", "--cpu-count", "1", name]), /finished/);
	const listed = JSON.parse(await good(["template", "list", "--format", "json"]));
	assert.ok(listed.some((x) => x.templateID === name && x.memoryMB === 512), JSON.stringify(listed));
	assert.ok((await good(["template", "list"])).includes(name));
	const sbx = await create(t, current.Sandbox, name);
	assert.equal(await sbx.files.read("/opt/copy.txt"), "a note");
	for (const command of ["publish", "unpublish"]) {
		const refused = await e2b(["template", command, "--yes", name]);
		assert.ok(refused.code !== 0 && refused.stderr.includes("on this server templates are private to their workspace: they cannot be published or unpublished"), JSON.stringify(refused));
	}
	assert.equal(JSON.parse(await good(["template", "list", "--format", "json"])).find((x) => x.templateID === name).public, false);
	await good(["template", "delete", "--yes", name]);
	assert.equal(await current.Template.exists(name), false);
});
