// What the server does not have: each method of the clients says so, in an error of its type.
import assert from "node:assert/strict";
import { test } from "node:test";
import { create, lines, url } from "./setup.mjs";

for (const [line, { Sandbox, Secret, SecretError, SecretNotFoundError, Volume, VolumeError, VolumeNotFoundError, VolumePathNotFoundError }] of Object.entries(lines)) {
	/** absent wants an error of a class, of none of its kinds, with a message. */
	const absent = (Class, kinds, message) => (err) => {
		assert.ok(err instanceof Class && !kinds.some((Kind) => err instanceof Kind), String(err));
		assert.match(err.message, message);
		return true;
	};
	test(`${line}: volumes are not available`, async () => {
		const expected = absent(VolumeError, [VolumeNotFoundError, VolumePathNotFoundError], /^400: volumes are not available on this server; .*volume/);
		await assert.rejects(Volume.create("data"), expected);
		await assert.rejects(Volume.connect("v1"), expected);
		await assert.rejects(Volume.getInfo("v1"), expected);
		await assert.rejects(Volume.list(), expected);
		await assert.rejects(Volume.destroy("v1"), expected);
		// An object that a program has kept from another server.
		const kept = new Volume("v1", "data", "a-token");
		const at = process.env.E2B_DOMAIN ? {} : { apiUrl: url };
		await assert.rejects(kept.list("/", at), expected);
		await assert.rejects(kept.makeDir("/d", at), expected);
		await assert.rejects(kept.getInfo("/f", at), expected);
		await assert.rejects(kept.exists("/f", at), expected);
		await assert.rejects(kept.updateMetadata("/f", { mode: 0o600 }, at), expected);
		await assert.rejects(kept.readFile("/f", at), expected);
		await assert.rejects(kept.writeFile("/f", "text", at), expected);
		await assert.rejects(kept.remove("/f", at), expected);
		await assert.rejects(Sandbox.create({ volumeMounts: { "/mnt": "data" } }), /volumeMounts.*not available/);
	});
	test(`${line}: secrets are not available`, async () => {
		const expected = absent(SecretError, [SecretNotFoundError], /^400: secrets are not available on this server; .*environment variables/);
		await assert.rejects(Secret.create("key", "hidden"), expected);
		await assert.rejects(Secret.update("key", "hidden"), expected);
		await assert.rejects(Secret.getInfo("key"), expected);
		await assert.rejects(Secret.list().nextItems(), expected);
		await assert.rejects(Secret.exists("key"), expected);
		await assert.rejects(Secret.destroy("key"), expected);
		// These two are made by the client alone; the server refuses the use of the second.
		assert.equal(Secret.fill("key"), "${e2b.secrets.key}");
		const token = Secret.iamToken({ audience: "https://example.com", tokenType: "id_token" });
		assert.equal(token.audience, "https://example.com");
		await assert.rejects(Sandbox.create({ iam: { tokens: { own: token } } }), /iam.*not available/);
	});
	test(`${line}: a sandbox without an MCP server`, async (t) => {
		const sbx = await create(t, Sandbox);
		assert.equal(sbx.getMcpUrl(), `https://${sbx.getHost(50005)}/mcp`);
		await assert.rejects(sbx.getMcpToken(), /not exist/);
	});
}
