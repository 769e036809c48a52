// What all tests share: the client, and sandboxes that end with their test.
import { SandboxClient } from "@agentuity/server";

export const { MODBOX_URL: url, MODBOX_API_TOKEN: apiKey } = process.env;
if (!url || !apiKey) throw new Error("set MODBOX_URL and MODBOX_API_TOKEN");

// The only thing the client's options do not cover: where run() sends its input.
process.env.AGENTUITY_STREAM_URL = `${url}/streams`;

/** call makes a request of its own, beside the client. */
export async function call(method, path, { body, token = apiKey } = {}) {
	const headers = { "Content-Type": "application/json" };
	if (token) headers.Authorization = `Bearer ${token}`;
	const res = await fetch(url + path, { method, headers, body: body && JSON.stringify(body) });
	const text = await res.text();
	return { status: res.status, type: res.headers.get("content-type"), text, json: text.startsWith("{") ? JSON.parse(text) : undefined };
}

/** without says whether the server lacks something that MODBOX_TEST_WITHOUT names: network or sandboxes.usage. */
export const without = (what) => (process.env.MODBOX_TEST_WITHOUT ?? "").split(",").includes(what);

const who = await call("GET", "/v1/whoami");
/** orgId is the organization of the dialect: a workspace. */
export const orgId = who.json.workspace_id;
export const client = new SandboxClient({ url, apiKey, orgId });

/** sandbox makes a sandbox for the test t. */
export async function sandbox(t, options) {
	const sb = await client.create(options);
	t.after(() => client.destroy(sb.id));
	return sb;
}

/** text returns what a stream holds when it has ended. */
export async function text(streamUrl) {
	const res = await fetch(streamUrl);
	if (!res.ok) throw new Error(`stream: ${res.status}`);
	return res.text();
}

/** sh runs a shell script to its end and returns its output with the result. */
export async function sh(sb, script, options) {
	const result = await sb.execute({ command: ["sh", "-c", script], ...options });
	return { ...result, stdout: await text(result.stdoutStreamUrl), stderr: await text(result.stderrStreamUrl) };
}

/** until asks again until probe's answer satisfies ok. */
export async function until(what, probe, ok = Boolean) {
	const deadline = Date.now() + 300_000;
	for (;;) {
		const v = await probe();
		if (ok(v)) return v;
		if (Date.now() > deadline) throw new Error(`${what}: not within five minutes; last: ${JSON.stringify(v)}`);
		await new Promise((done) => setTimeout(done, 50));
	}
}

/** is returns a check that an error is of the client's type with that name. */
export const is = (name) => (err) => {
	if (err.name !== name) throw new Error(`error ${err.name}: ${err.message}, want ${name}`, { cause: err });
	return true;
};
