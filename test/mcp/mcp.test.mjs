// The tools of MCP sessions, over both transports, on real sandboxes.
import assert from "node:assert/strict";
import { test } from "node:test";
import { Client } from "@modelcontextprotocol/sdk/client/index.js";
import { StdioClientTransport } from "@modelcontextprotocol/sdk/client/stdio.js";
import { StreamableHTTPClientTransport } from "@modelcontextprotocol/sdk/client/streamableHttp.js";

const { MODBOX_URL: url, MODBOX_API_TOKEN: token, MODBOX_BIN: bin } = process.env;

const transports = {
	http: (auth = token) => new StreamableHTTPClientTransport(new URL("/mcp", url), { requestInit: { headers: { Authorization: `Bearer ${auth}` } } }),
	stdio: () => new StdioClientTransport({ command: bin, args: ["mcp"], env: { ...process.env } }),
};

/** connect begins a session that ends with the test t. */
async function connect(t, transport) {
	const client = new Client({ name: "test", version: "1" });
	await client.connect(transport);
	let over;
	const end = () => (over ??= (transport.terminateSession?.() ?? Promise.resolve()).then(() => client.close()));
	t.after(end);
	return { client, end };
}

/** use calls a tool and returns its result with the text of it. */
async function use(client, name, args = {}) {
	const result = await client.callTool({ name, arguments: args }, undefined, { timeout: 600_000 });
	return { ...result, text: result.content.filter((c) => c.type === "text").map((c) => c.text).join("") };
}

/** must is use for a call that must succeed; it returns the text. */
async function must(client, name, args) {
	const result = await use(client, name, args);
	assert.ok(!result.isError, `${name}: ${result.text}`);
	return result.text;
}

/** get asks /v1. */
const get = async (path) => (await fetch(url + path, { headers: { Authorization: `Bearer ${token}` } })).json();

/** ended waits until a sandbox has ended. */
async function ended(id) {
	for (;;) {
		const info = await get(`/v1/sandboxes/${id}/wait?state=destroyed&timeout_seconds=60`);
		if (info.state === "destroyed") return;
		assert.ok(info.state, JSON.stringify(info));
	}
}

for (const [kind, transport] of Object.entries(transports)) {
	test(`${kind}: tools`, async (t) => {
		const { client } = await connect(t, transport());
		const { tools } = await client.listTools();
		assert.deepEqual(tools.map((tool) => tool.name).sort(), [
			"click", "create_sandbox", "destroy_sandbox", "drag", "exec", "focus_window", "fork", "get_url", "key", "list_files", "list_sandboxes", "list_windows", "move_mouse",
			"open", "read_file", "run_code", "screenshot", "scroll", "set_timeout", "snapshot", "type", "wait", "write_file",
		]);
		for (const tool of tools) {
			assert.equal(tool.inputSchema.additionalProperties, false, tool.name);
			for (const [name, property] of Object.entries(tool.inputSchema.properties ?? {})) assert.ok(property.description, `${tool.name}.${name}`);
		}
	});

	test(`${kind}: code, commands and files`, async (t) => {
		const { client, end } = await connect(t, transport());
		await must(client, "run_code", { code: "x = 41" });
		assert.match(await must(client, "run_code", { code: "print('hi'); x + 1" }), /stdout:\nhi\nresult:\n42\n/);
		assert.match(await must(client, "run_code", { code: "1/0" }), /error:\nZeroDivisionError/);
		const image = await use(client, "run_code", {
			code: "import struct, zlib\nfrom IPython.display import Image, display\nc = lambda k, d: struct.pack('>I', len(d)) + k + d + struct.pack('>I', zlib.crc32(k + d))\npng = b'\\x89PNG\\r\\n\\x1a\\n' + c(b'IHDR', struct.pack('>IIBBBBB', 1, 1, 8, 2, 0, 0, 0)) + c(b'IDAT', zlib.compress(b'\\0\\0\\0\\0')) + c(b'IEND', b'')\nopen('/tmp/p.png', 'wb').write(png)\ndisplay(Image(png))",
		});
		assert.deepEqual(image.content.filter((c) => c.type === "image").map((c) => c.mimeType), ["image/png"], image.text);
		assert.match((await use(client, "read_file", { path: "/tmp/p.png" })).content[0].data, /^iVBORw0KGgo/);
		await must(client, "write_file", { path: "/tmp/new/a.txt", content: "one\n" });
		assert.equal(await must(client, "exec", { command: "cat a.txt; pwd >&2; exit 3", cwd: "/tmp/new" }), "exit code: 3\nstdout:\none\nstderr:\n/tmp/new\n");
		assert.equal(await must(client, "read_file", { path: "/tmp/new/a.txt" }), "one\n");
		assert.match(await must(client, "list_files", { path: "/tmp/new" }), /"name":"a.txt"/);
		const long = await must(client, "exec", { command: "seq 1000000" });
		assert.ok(long.length < 40_000 && /bytes left out/.test(long) && long.endsWith("1000000\n"), `${long.length} bytes: ${long.slice(-100)}`);
		const { own_sandbox: own } = JSON.parse(await must(client, "list_sandboxes"));
		await end();
		await ended(own);
	});

	test(`${kind}: fork, snapshot, URL and errors`, async (t) => {
		const { client } = await connect(t, transport());
		await must(client, "run_code", { code: "x = 7" });
		await must(client, "write_file", { path: "kept.txt", content: "kept" }); // snapshots are without /tmp
		const { sandboxes: [copy] } = JSON.parse(await must(client, "fork"));
		t.after(() => use(client, "destroy_sandbox", { sandbox: copy.id }).catch(() => {}));
		await must(client, "run_code", { code: "x = 8" });
		assert.match(await must(client, "run_code", { code: "x", sandbox: copy.id }), /result:\n7\n/);
		await must(client, "set_timeout", { sandbox: copy.id, seconds: 120 });
		const saved = JSON.parse(await must(client, "snapshot"));
		const made = JSON.parse(await must(client, "create_sandbox", { snapshot: saved.id }));
		assert.equal(await must(client, "read_file", { path: "kept.txt", sandbox: made.id }), "kept");
		await must(client, "destroy_sandbox", { sandbox: made.id });
		await must(client, "exec", { command: "mkdir -p /tmp/www && echo served >/tmp/www/index.html && cd /tmp/www && (python3 -m http.server 8123 >/dev/null 2>&1 &)\nuntil python3 -c 'import socket; socket.create_connection((\"127.0.0.1\", 8123))' 2>/dev/null; do :; done" });
		const page = JSON.parse(await must(client, "get_url", { port: 8123 }));
		assert.equal(await (await fetch(page.url)).text(), "served\n");
		for (const [name, args, want] of [
			["exec", { command: "true", bogus: 1 }, /bogus/],
			["read_file", { path: "/none" }, /^file_not_found: /],
			["exec", { command: "true", sandbox: "nobody" }, /^not_found: /],
			["create_sandbox", { image: "modbox/nothing" }, /^(invalid|not_found): /],
		]) {
			const result = await use(client, name, args);
			assert.ok(result.isError, name);
			assert.match(result.text, want);
		}
	});
}

test("sessions have sandboxes of their own", async (t) => {
	const a = (await connect(t, transports.http())).client;
	const b = (await connect(t, transports.http())).client;
	await Promise.all([must(a, "run_code", { code: "who = 'a'" }), must(b, "run_code", { code: "who = 'b'" })]);
	assert.match(await must(a, "run_code", { code: "who" }), /'a'/);
	assert.match(await must(b, "run_code", { code: "who" }), /'b'/);
});

test("a wrong token is refused", async (t) => {
	await assert.rejects(connect(t, transports.http("mbx_wrong")), /401|Unauthorized|unauthenticated/i);
});
