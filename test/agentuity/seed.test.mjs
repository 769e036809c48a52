// The code of the product's documentation, taken from the page at run time. What
// the page leaves open is put around it: an agent's runtime, which here is a thin
// ctx over the published client.
import assert from "node:assert/strict";
import { createHash } from "node:crypto";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import { APIClient, sandboxEventList } from "@agentuity/server";
import { apiKey, client, orgId, sh, text, url } from "./setup.mjs";

const file = new URL("testdata/agentuity-sandboxes.txt", import.meta.url);
const page = readFileSync(file, "utf8");

/** block returns the lines of the page from the one with first to the next that is last. */
function block(first, last, nth = 0) {
	const lines = page.split("\n");
	const starts = lines.flatMap((l, i) => (l.includes(first) ? [i] : []));
	const end = lines.findIndex((l, i) => i >= starts[nth] && l.trimEnd() === last);
	assert.ok(starts[nth] >= 0 && end >= 0, `the page has no block ${first}`);
	return lines.slice(starts[nth], end + 1).join("\n");
}

/** evaluate runs a block, whose imports are given by name, and returns what result is in it. */
function evaluate(code, names, result = "undefined") {
	const body = code.replace(/^import .*$/gm, "");
	const AsyncFunction = (async () => {}).constructor;
	return new AsyncFunction(...Object.keys(names), `${body}\nreturn ${result};`)(...Object.values(names));
}

const logger = { trace() {}, debug() {}, info() {}, warn() {}, error() {}, child: () => logger };

/** context is the ctx of an agent; made collects its sandboxes. */
function context(made) {
	return {
		logger,
		sandbox: {
			run: (options) => client.run(options),
			async create(options) {
				const sb = await client.create(options);
				const handle = {
					...sb,
					executed: [],
					async execute(options) {
						const result = await sb.execute(options);
						handle.executed.push([options.command.join(" "), result.exitCode]);
						return result;
					},
					createJob: async (job) => ({ jobId: (await client.createJob(sb.id, job)).id }),
					getJob: async (id) => (await client.getJob(sb.id, id)).get(),
					stopJob: async (id, force) => (await client.getJob(sb.id, id)).stop(force),
				};
				made.push(handle);
				return handle;
			},
		},
	};
}

const agent = (nth) => evaluate(block("import { createAgent }", "});", nth), { createAgent: (_, a) => a }, "agent");

test("the page is as published", () => {
	const sum = readFileSync(new URL("testdata/SHA256SUMS", import.meta.url), "utf8").split(" ")[0];
	assert.equal(createHash("sha256").update(page).digest("hex"), sum);
});

test("one-shot: ctx.sandbox.run", async () => {
	const a = await agent(0);
	assert.deepEqual(await a.handler(context([]), {}), { output: "Hello!\n", exitCode: 0 });
});

test("interactive: ctx.sandbox.create with npm install", async () => {
	const a = await agent(1);
	const made = [];
	assert.deepEqual(await a.handler(context(made), {}), { exitCode: 0 });
	assert.deepEqual(made[0].executed, [["npm init -y", 0], ["npm install zod", 0], ['node -e console.log("ready")', 0]]);
});

test("background jobs: createJob, getJob, stopJob", async (t) => {
	const a = await agent(2);
	const made = [];
	t.after(() => Promise.all(made.map((sb) => sb.destroy())));
	const job = await a.handler(context(made), {});
	assert.match(job.jobId, /^job_/);
	const [sandbox] = made;
	assert.equal((await sandbox.getJob(job.jobId)).status, "running");
	await evaluate(block("// Graceful stop", "await sandbox.stopJob(job.jobId, true);"), { sandbox, job });
	assert.equal((await sandbox.getJob(job.jobId)).status, "cancelled");
});

test("events: sandboxEventList", async (t) => {
	const sb = await client.create();
	t.after(() => client.destroy(sb.id));
	await sh(sb, "true");
	const list = (low, params) => sandboxEventList(low, { ...params, sandboxId: sb.id, orgId }); // the page's id is an example
	const events = await evaluate(block("import { sandboxEventList }", "});"), {
		sandboxEventList: list, client: new APIClient(url, logger, apiKey),
	}, "events");
	for (const field of ["eventId", "sandboxId", "type", "event", "createdAt"]) assert.ok(events[0][field], field);
	assert.equal(events[0].type, "create");
});

test("resume, then execute", async (t) => {
	const sandbox = await client.create({ runtime: "bun:1" });
	t.after(() => client.destroy(sandbox.id));
	await sandbox.writeFiles([{ path: "package.json", content: Buffer.from('{"scripts":{"test":"echo run test"}}') }]);
	await sandbox.pause();
	const code = block("await sandbox.resume();", "  .info('Sandbox command completed');");
	const execution = await evaluate(code, { sandbox, ctx: { logger } }, "execution");
	assert.deepEqual([execution.status, execution.exitCode], ["completed", 0]);
	assert.equal(await text(execution.stdoutStreamUrl), "run test\n");
});
