// What only clients with host names can do: the ports of sandboxes by getHost(), and URLs that name their sandbox.
import assert from "node:assert/strict";
import { once } from "node:events";
import http2 from "node:http2";
import { test } from "node:test";
import { both, create, domain } from "./setup.mjs";

assert.ok(domain, "these tests need E2B_DOMAIN");
for (const name of ["E2B_API_URL", "E2B_SANDBOX_URL"]) assert.equal(process.env[name], undefined);

for (const [line, { Sandbox }] of Object.entries(both)) {
	test(`${line}: ports by host`, async (t) => {
		const sbx = await create(t, Sandbox);
		assert.equal(sbx.sandboxDomain, domain);
		assert.equal(sbx.getHost(3000), `3000-${sbx.sandboxId}.${domain}`);
		await sbx.files.write("index.html", "served");
		assert.equal(await sbx.files.read("index.html"), "served");
		const server = await sbx.commands.run("exec python3 -m http.server 3000 --bind 127.0.0.1", { background: true, timeoutMs: 0 });
		server.wait().catch(() => {}); // its stream ends with the sandbox
		await sbx.commands.run("for i in $(seq 600); do curl -fs -o /dev/null 127.0.0.1:3000 && exit; sleep 0.1; done; exit 1");
		const res = await fetch(`https://${sbx.getHost(3000)}/index.html`);
		assert.deepEqual([res.status, await res.text()], [200, "served"]);
		const closed = await fetch(`https://${sbx.getHost(3001)}/`);
		assert.deepEqual([closed.status, (await closed.json()).message], [502, "The sandbox is running but port is not open"]);
		const absent = await fetch(`https://3000-iaaaaaaaaaaaaaaaaaaaaaaaaaa.${domain}/`);
		assert.deepEqual([absent.status, (await absent.json()).message], [502, "The sandbox was not found"]);

		const signed = await sbx.downloadUrl("index.html", { user: "user" });
		assert.equal(new URL(signed).host, sbx.getHost(49983));
		assert.equal(await (await fetch(signed)).text(), "served");
	});
}

test("1.13, which knows no other address than E2B_DOMAIN: a sandbox, commands, files", async (t) => {
	const { Sandbox } = await import("e2b-1");
	const sbx = await create(t, Sandbox, "base", { timeoutMs: 300_000, metadata: { line: "1" } });
	assert.deepEqual((await sbx.commands.run("echo hello; whoami")).stdout, "hello\nuser\n");
	await sbx.files.write("a.txt", "text");
	assert.equal(await sbx.files.read("a.txt"), "text");
	assert.ok((await sbx.files.list(".")).some((f) => f.name === "a.txt"));
	await sbx.setTimeout(600_000);
	assert.ok((await Sandbox.list()).some((s) => s.sandboxId === sbx.sandboxId && s.metadata.line === "1"));
	assert.equal(await (await Sandbox.connect(sbx.sandboxId)).isRunning(), true);
	await sbx.kill();
	await assert.rejects(sbx.commands.run("true"));
});

test("HTTP/2 is offered to clients", async (t) => {
	const session = http2.connect(`https://api.${domain}`);
	t.after(() => session.close());
	const stream = session.request({ ":path": "/health" });
	const [headers] = await once(stream, "response");
	stream.resume();
	assert.equal(headers[":status"], 200);
	assert.equal(session.alpnProtocol, "h2");
});
