// Mastra's sandbox for E2B, as published: agents, whose model is a script, run commands, code and servers in it.
import assert from "node:assert/strict";
import { test } from "node:test";
import { z } from "zod";
import { current } from "./setup.mjs";

process.env.MASTRA_TELEMETRY_DISABLED = "1";
const { Agent } = await import("@mastra/core/agent");
const { createCodeMode, createTool } = await import("@mastra/core/tools");
const { Workspace, WORKSPACE_TOOLS } = await import("@mastra/core/workspace");
const { E2BCodeModeTransport, E2BSandbox } = await import("@mastra/e2b");

const { EXECUTE_COMMAND, GET_PROCESS_OUTPUT, KILL_PROCESS } = WORKSPACE_TOOLS.SANDBOX;

/**
 * scripted returns a model that follows a script, a generator: each call of a tool that it yields, as [name, arguments], gives it
 * the result of the tool, and its return value is the text at the end.
 */
function scripted(script) {
	const steps = script();
	let calls = 0;
	return {
		specificationVersion: "v2",
		provider: "script",
		modelId: "script",
		supportedUrls: {},
		async doGenerate({ prompt }) {
			const last = prompt.at(-1);
			const { done, value } = steps.next(last.role === "tool" ? last.content[0].output.value : undefined);
			return {
				content: [done ? { type: "text", text: value } : { type: "tool-call", toolCallId: `call-${++calls}`, toolName: value[0], input: JSON.stringify(value[1]) }],
				finishReason: done ? "stop" : "tool-calls",
				usage: { inputTokens: 1, outputTokens: 1, totalTokens: 2 },
				warnings: [],
			};
		},
		doStream: () => Promise.reject(new Error("the agents of these tests do not stream")),
	};
}

/** sandboxOf returns a sandbox of Mastra's, which ends with the test. */
function sandboxOf(t, options = {}) {
	const sandbox = new E2BSandbox({ template: "base", timeout: 600_000, ...options });
	t.after(() => sandbox._destroy());
	return sandbox;
}

test("Mastra: an agent runs commands, a server and code that calls its tools", async (t) => {
	const sandbox = sandboxOf(t, { env: { FROM: "creation" } });
	const price = createTool({
		id: "price",
		description: "The price of an item",
		inputSchema: z.object({ item: z.string() }),
		outputSchema: z.object({ price: z.number() }),
		execute: async ({ item }) => ({ price: item.length }),
	});
	const code = createCodeMode({ tools: { price }, sandbox }, new E2BCodeModeTransport());
	const program = `
		const prices: { price: number }[] = await Promise.all(["pear", "apple"].map((item) => external_price({ item })));
		console.log("asked for", prices.length);
		return prices.reduce((sum, p) => sum + p.price, 0);`;
	const told = {};
	const model = scripted(function* () {
		told.first = yield [EXECUTE_COMMAND, { command: "echo $FROM >notes.txt; pwd; id -un; echo bad >&2; exit 3" }];
		told.second = yield [EXECUTE_COMMAND, { command: "python3 -c 'print(open(\"notes.txt\").read() * 2)'" }];
		told.code = yield ["execute_typescript", { code: program }];
		told.server = yield [EXECUTE_COMMAND, { command: "python3 -u -m http.server 3000", background: true }];
		const pid = /PID: (\d+)/i.exec(told.server)?.[1];
		told.page = yield [EXECUTE_COMMAND, { command: "until curl -sf localhost:3000/notes.txt; do sleep 0.1; done" }];
		do told.output = yield [GET_PROCESS_OUTPUT, { pid }];
		while (!told.output.includes("GET /notes.txt"));
		told.killed = yield [KILL_PROCESS, { pid }];
		told.after = yield [EXECUTE_COMMAND, { command: "while curl -s -o /dev/null localhost:3000; do sleep 0.1; done; echo gone" }];
		return "done";
	});
	const agent = new Agent({
		id: "agent", name: "agent", instructions: ["You use a computer.", code.instructions], model,
		workspace: new Workspace({ sandbox }), tools: { execute_typescript: code.tool },
	});
	const answer = await agent.generate("Go.", { maxSteps: 10_000 });
	assert.equal(answer.text, "done", JSON.stringify(told));
	assert.match(told.first, /\/home\/user\nuser\n[^]*bad[^]*3/);
	assert.match(told.second, /creation\ncreation\n/);
	assert.deepEqual(told.code, { success: true, result: 9, logs: ["asked for 2"] });
	assert.match(told.page, /^creation\n/);
	assert.match(told.after, /gone/);
});

test("Mastra: files, input of a process, a pause that keeps it, and the sandbox found again by its name", async (t) => {
	const id = `named-${Date.now()}`;
	const sandbox = sandboxOf(t, { id, metadata: { purpose: "test" } });
	await sandbox._start();
	await sandbox.writeFiles([{ path: "/home/user/a/text.txt", content: "täxt" }, { path: "/home/user/a/bytes", content: Buffer.from([0, 255, 10]) }]);
	const ran = await sandbox.executeCommand("sh", ["-c", "cat a/text.txt; wc -c <a/bytes; printenv MORE"], { env: { MORE: "more" }, cwd: "/home/user" });
	assert.deepEqual([ran.exitCode, ran.stdout], [0, "täxt3\nmore\n"]);

	const sort = await sandbox.processes.spawn("read line; echo \"got $line\"; exec sleep 1000");
	await sort.sendStdin("a line\n");
	while (!sort.stdout.includes("got a line")) await new Promise((resolve) => setTimeout(resolve, 20)); // polls another process
	await sandbox._stop();
	assert.equal(sandbox.status, "stopped");
	const [info] = await current.Sandbox.list({ query: { metadata: { "mastra-sandbox-id": id, purpose: "test" } } }).nextItems();
	assert.equal(info.state, "paused");

	const again = sandboxOf(t, { id });
	await again._start();
	assert.equal(again.e2b.sandboxId, info.sandboxId);
	const found = (await again.processes.list()).find((p) => p.pid === sort.pid);
	assert.ok(found?.command.includes("sleep 1000"), JSON.stringify(found));
	const handle = await again.processes.get(sort.pid);
	assert.equal(await handle.kill(), true);
	assert.equal((await handle.wait()).success, false);
	await again._destroy();
	assert.equal((await current.Sandbox.list({ query: { metadata: { "mastra-sandbox-id": id } } }).nextItems()).length, 0);
});

test("Mastra: a sandbox of a template that it builds", async (t) => {
	const id = `built-${Date.now()}`;
	const template = current.Template().fromTemplate("base").runCmd("echo built >/home/user/built");
	const sandbox = sandboxOf(t, { id, template });
	t.after(() => fetch(`${process.env.E2B_API_URL}/templates/mastra-${id}`, { method: "DELETE", headers: { "X-API-Key": process.env.E2B_API_KEY } }));
	await sandbox._start();
	assert.equal((await sandbox.executeCommand("cat", ["/home/user/built"])).stdout, "built\n");
});
