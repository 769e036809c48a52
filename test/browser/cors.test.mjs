// Pages of other origins than the server's call the API with the SDK, in a browser of this machine. The
// server has the setting http.cors_origins for one of them.
import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { build } from "esbuild";
import { launch } from "./machine.mjs";

const { MODBOX_URL: server, MODBOX_API_TOKEN: token, MODBOX_HTTP_CORS_ORIGINS: allowed } = process.env;
if (!server || !token || !allowed) throw new Error("set MODBOX_URL, MODBOX_API_TOKEN and MODBOX_HTTP_CORS_ORIGINS");

let browser, sdk;
before(async () => {
	const entry = { contents: 'export * from "modbox-sdk"', resolveDir: import.meta.dirname };
	sdk = (await build({ stdin: entry, bundle: true, format: "esm", platform: "browser", write: false })).outputFiles[0].text;
	browser = await launch();
});
after(() => browser?.close());

/**
 * pageOf returns a page of an origin that has the SDK. Its user lets it connect to this machine: browsers ask
 * people before a page from elsewhere does that.
 */
async function pageOf(origin) {
	const page = await (await browser.newContext({ permissions: ["local-network-access"] })).newPage();
	page.setDefaultTimeout(300_000);
	await page.route(`${origin}/**`, (route) => route.fulfill(route.request().url().endsWith("/sdk.js")
		? { contentType: "text/javascript", body: sdk }
		: { contentType: "text/html", body: "<!doctype html><title>A page</title>" }));
	await page.goto(`${origin}/`);
	assert.equal(await page.evaluate(() => location.origin), origin);
	return page;
}

test("a page of an origin in the setting uses a sandbox", async () => {
	const page = await pageOf(allowed);
	const got = await page.evaluate(async ({ server, token }) => {
		const { Modbox, NotFoundError, Sandbox } = await import("/sdk.js");
		const client = new Modbox({ baseUrl: server, token });
		return Sandbox.with({ client, image: "modbox/code-exec", ttlSeconds: 600 }, async (sbx) => {
			await sbx.files.write("notes.txt", "grüezi");
			let streamed = "";
			await sbx.run("for i in 1 2 3; do echo $i; done", { onStdout: (text) => (streamed += text) });
			const code = await sbx.runCode("6 * 7", { language: "javascript" });
			const missing = await client.sandboxes.get("no-such-sandbox").catch((err) => err);
			return { file: await sbx.files.read("notes.txt"), streamed, code: code.text, missing: missing instanceof NotFoundError };
		});
	}, { server, token });
	assert.deepEqual(got, { file: "grüezi", streamed: "1\n2\n3\n", code: "42", missing: true });
});

test("pages of all other origins are refused", async () => {
	const page = await pageOf("http://other.localhost");
	const got = await page.evaluate(async ({ server, token }) => {
		const { ConnectionError, Modbox } = await import("/sdk.js");
		const client = new Modbox({ baseUrl: server, token, maxRetries: 0 });
		const err = await client.whoami().catch((err) => err);
		return { refused: err instanceof ConnectionError, text: String(err) };
	}, { server, token });
	assert.ok(got.refused, `whoami answered ${got.text}`);
});
