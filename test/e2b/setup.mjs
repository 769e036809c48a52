// What all tests share: the published clients, pointed at the server by the variables that the
// documentation names, and sandboxes that end with their test. With E2B_DOMAIN the clients know nothing else.
import { record, recordCode } from "./record.mjs";

const { MODBOX_URL: url, MODBOX_API_TOKEN: token, E2B_DOMAIN: domain } = process.env;
if (!url || !token) throw new Error("set MODBOX_URL and MODBOX_API_TOKEN");
if (!domain) {
	process.env.E2B_API_URL = url;
	process.env.E2B_SANDBOX_URL = url;
}
process.env.E2B_API_KEY = `e2b_${Buffer.from(token).toString("hex")}`;

export { domain, url, token };
export const current = await import("e2b");
export const old = await import("e2b-old");
const codes = { code: await import("@e2b/code-interpreter"), "code-old": await import("code-interpreter-old") };
record("2.51", current);
record("2.45", old);
for (const [line, { Sandbox }] of Object.entries(codes)) recordCode(line, Sandbox);

/** create makes a sandbox that ends with the test t. */
export async function create(t, Sandbox, ...args) {
	const sbx = await Sandbox.create(...args);
	t.after(() => sbx.kill());
	return sbx;
}

/** networkOf returns the settings of the network of a sandbox, without those that are not there. */
export const networkOf = async (sbx) => JSON.parse(JSON.stringify((await sbx.getInfo()).network));

/** call makes a request of its own, beside the clients. */
export async function call(method, path, { headers = {}, body } = {}) {
	const res = await fetch(url + path, { method, headers, body });
	const text = await res.text();
	return { status: res.status, headers: res.headers, text, json: text.startsWith("{") || text.startsWith("[") ? JSON.parse(text) : undefined };
}

/** moment passes between two looks at what the server does meanwhile. */
export const moment = () => new Promise((resolve) => setTimeout(resolve, 100));

/** later returns a promise with the functions that settle it. */
export function later() {
	let settle;
	const promise = new Promise((resolve, reject) => (settle = { resolve, reject }));
	return { promise, ...settle };
}

/** both are the lines of the client. */
export const both = { "2.51": current, "2.45": old };
/**
 * lines are the lines of the client with which a test runs, and interpreters those of the code interpreter, each on top of its line of the client. How the
 * lines address sandboxes by host names is tested in hosts.test.mjs, with both: all other tests of host names run with the newer one.
 */
export const lines = domain ? { "2.51": current } : both;
export const interpreters = domain ? { code: codes.code } : codes;
