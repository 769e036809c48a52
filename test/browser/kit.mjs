// What the tests of the console share: the server, its users and sandboxes, and pages that note what breaks their policy.
// Screenshots, in both themes and at the width of a phone, are kept in build/console.
import assert from "node:assert/strict";
import { mkdirSync, readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { join, resolve } from "node:path";
import { after, before } from "node:test";
import { launch } from "./machine.mjs";

export const { MODBOX_URL: server, MODBOX_API_TOKEN: token } = process.env;
if (!server || !token) throw new Error("set MODBOX_URL and MODBOX_API_TOKEN");
export const console_ = `http://console.localhost:${new URL(server).port}`;
export const root = resolve(import.meta.dirname, "../..");
const pictures = join(root, "build/console");
const axe = readFileSync(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");
export const patience = 120_000; // for a busy machine
export const mark = Math.random().toString(36).slice(2, 8); // of this run, in the names of what it makes

let browser;
/** made are the ids of the sandboxes that are destroyed after the tests of a file. */
export const made = [];

export async function api(method, path, body, as = token) {
	const headers = { Authorization: `Bearer ${as}`, "Content-Type": "application/json" };
	const res = await fetch(`${server}/v1${path}`, { method, headers, body: body && JSON.stringify(body), signal: AbortSignal.timeout(patience) });
	const text = await res.text();
	assert.ok(res.ok, `${method} ${path}: ${res.status} ${text}`);
	return text && JSON.parse(text);
}

/** sandbox makes a running sandbox. */
export async function sandbox(name, more = {}) {
	const sb = await api("POST", "/sandboxes", { image: "modbox/code-exec", name: `${name}-${mark}`, ttl_seconds: 3600, wait_seconds: 240, ...more });
	assert.equal(sb.state, "running", JSON.stringify(sb.cause));
	made.push(sb.id);
	return sb;
}

/** user makes a user with a password and a role in the default workspace. */
export async function user(name, role) {
	const me = await api("GET", "/whoami");
	const created = await api("POST", "/users", { name: `${name}-${mark}` });
	await api("POST", `/workspaces/${me.workspace_id}/members`, { name: created.name, role });
	await api("POST", "/auth/accept", { code: created.code, password: "correct horse battery" });
	return { name: `${name}-${mark}`, id: created.id, workspace: me.workspace_id };
}

/** visit returns a page of a new browser profile, in which everything that breaks the content security policy, or a script, is noted. */
export async function visit(options = {}) {
	const context = await browser.newContext({ viewport: { width: 1360, height: 840 }, ...options });
	context.setDefaultTimeout(patience); // also of events of the context, such as a new page
	const page = await context.newPage();
	page.faults = [];
	page.on("pageerror", (err) => page.faults.push(String(err)));
	page.on("console", (m) => {
		if (m.type() === "error" && /content security policy|refused to/i.test(m.text())) page.faults.push(m.text());
	});
	return page;
}

/** signIn signs in by name and password. */
export async function signIn(page, name, password = "correct horse battery") {
	await page.goto(`${console_}/`);
	await page.getByLabel("Name or e-mail address").fill(name);
	await page.getByLabel("Password").fill(password);
	await page.getByRole("button", { name: "Sign in", exact: true }).click();
	await page.getByRole("heading", { name: "Sandboxes", exact: true }).waitFor();
}

export async function signInByToken(page) {
	await page.goto(`${console_}/`);
	await page.getByRole("button", { name: "Use an API token" }).click();
	await page.getByLabel("API token").fill(token);
	await page.getByRole("button", { name: "Sign in", exact: true }).click();
	await page.getByRole("heading", { name: "Sandboxes", exact: true }).waitFor();
}

const everything = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa"];
const colors = { type: "rule", values: ["color-contrast", "link-in-text-block"] };

/** accessible expects axe to find nothing serious in the page as it is shown. */
export async function accessible(page, what, runOnly = everything) {
	// Not by a script element, which the content security policy forbids.
	if (!(await page.evaluate(() => "axe" in window))) await page.evaluate(axe);
	// Details are made of violations only.
	const { violations } = await page.evaluate((runOnly) => window.axe.run(document, { runOnly, resultTypes: ["violations"] }), runOnly);
	const serious = violations.filter((v) => v.impact === "serious" || v.impact === "critical");
	assert.deepEqual(serious.map((v) => `${what}: ${v.id}: ${v.nodes.slice(0, 3).map((n) => n.html).join(" | ")}`), []);
}

/** shown has axe look at a page in both themes, which differ in colors only, and at the width of a phone, and keeps pictures of it. */
export async function shown(page, name) {
	for (const [theme, size] of [["light", { width: 1360, height: 840 }], ["dark", { width: 1360, height: 840 }], ["light", { width: 390, height: 800 }]]) {
		await page.setViewportSize(size);
		await page.emulateMedia({ colorScheme: theme, reducedMotion: "reduce" });
		await page.waitForFunction((theme) => document.documentElement.dataset.theme === theme, theme);
		const kind = size.width < 500 ? "phone" : theme;
		await accessible(page, `${name}, ${kind}`, kind === "dark" ? colors : everything);
		await page.screenshot({ path: join(pictures, `${name}-${kind}.png`) });
	}
	await page.setViewportSize({ width: 1360, height: 840 });
	await page.emulateMedia({ colorScheme: "light", reducedMotion: "reduce" });
}

/** confirmed answers the question of a dialog, and returns when the dialog has closed: until then, the page around it has no roles. */
export async function confirmed(page, action) {
	const dialog = page.getByRole("alertdialog");
	await dialog.getByRole("button", { name: action, exact: true }).click();
	await dialog.waitFor({ state: "detached" });
	await page.getByRole("main").waitFor();
}

/** until waits for something that no locator sees. */
export async function until(done, what) {
	for (const end = Date.now() + patience; !(await done()); await new Promise((r) => setTimeout(r, 50))) assert.ok(Date.now() < end, what());
}

/** inState waits until the page of a sandbox shows a state, and returns its place; an error has what the server says. */
export async function inState(page, ref, state) {
	const shown = page.locator(".page-head .state");
	try {
		await shown.filter({ hasText: state }).waitFor();
	} catch (cause) {
		const texts = await shown.allTextContents();
		const sb = await api("GET", `/sandboxes/${ref}`);
		const events = (await api("GET", `/sandboxes/${ref}/events`)).items.map((e) => `${e.time} ${e.type} ${e.message}`);
		throw new Error(`The page shows the state ${JSON.stringify(texts)}, not ${state}. For the server, it is ${sb.state} since ${sb.updated_at}, ${JSON.stringify(sb.cause)}:\n${events.join("\n")}`, { cause });
	}
	return shown.filter({ hasText: state });
}

/** clean expects that nothing of a page broke its policy. */
export const clean = (page) => assert.deepEqual(page.faults, []);

/** begin starts the browser before the tests of a file, and ends it and their sandboxes after them. */
export function begin() {
	before(async () => {
		mkdirSync(pictures, { recursive: true });
		browser = await launch();
	});
	after(async () => {
		await browser?.close();
		for (const id of made) await api("DELETE", `/sandboxes/${id}`);
	});
}
