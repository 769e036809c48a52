// Development servers in a sandbox, opened in a browser of this machine by the URL of a published
// port: an edit in the sandbox changes the page over the server's WebSocket, without a reload.
import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { Readable } from "node:stream";
import { after, before, test } from "node:test";
import { launch } from "./machine.mjs";

const { MODBOX_URL: server, MODBOX_API_TOKEN: token } = process.env;
if (!server || !token) throw new Error("set MODBOX_URL and MODBOX_API_TOKEN");

const patience = 300_000; // for a busy machine

async function api(method, path, body) {
	const headers = { Authorization: `Bearer ${token}`, "Content-Type": "application/json" };
	const res = await fetch(`${server}/v1${path}`, { method, headers, body: body && JSON.stringify(body), signal: AbortSignal.timeout(patience) });
	const text = await res.text();
	assert.ok(res.ok, `${method} ${path}: ${res.status} ${text}`);
	return text && JSON.parse(text);
}

/** files writes text files below /workspace. */
const files = (contents) => api("POST", `/sandboxes/${sandbox.id}/files/batch`, {
	files: Object.entries(contents).map(([path, content]) => ({ path: `/workspace/${path}`, content: Buffer.from(content).toString("base64") })),
});

/** install installs npm packages in a directory below /workspace. */
async function install(dir, ...packages) {
	const line = `cd /workspace/${dir} && npm install --no-audit --no-fund --no-save --loglevel=error ${packages.join(" ")}`;
	const r = await api("POST", `/sandboxes/${sandbox.id}/exec`, { shell: line, timeout_seconds: 600 });
	assert.equal(r.exit_code, 0, r.stderr + r.stdout);
}

/** copy copies the npm packages of a directory here, without their source maps, below /workspace. An install in the sandbox takes four times the CPU time. */
async function copy(dir) {
	const tar = spawn("tar", ["-c", "-C", new URL(dir, import.meta.url).pathname, "--exclude=*.map", "node_modules"], { stdio: ["ignore", "pipe", "inherit"] });
	const ended = once(tar, "exit");
	const res = await fetch(`${server}/v1/sandboxes/${sandbox.id}/files/archive?format=tar&path=/workspace/${dir}`, {
		method: "PUT", headers: { Authorization: `Bearer ${token}`, "Content-Type": "application/x-tar" }, body: Readable.toWeb(tar.stdout), duplex: "half", signal: AbortSignal.timeout(patience),
	});
	assert.ok(res.ok, `${res.status} ${await res.text()}`);
	assert.deepEqual(await ended, [0, null]);
}

/** open starts a development server and returns a page that shows it, by the URL of its port. */
async function open(dir, command, port) {
	const job = await api("POST", `/sandboxes/${sandbox.id}/executions`, { kind: "job", shell: `cd /workspace/${dir} && exec npx ${command}` });
	const { url } = await api("PUT", `/sandboxes/${sandbox.id}/ports/${port}`, {});
	const page = await (await browser.newContext()).newPage();
	page.setDefaultTimeout(patience);
	const deadline = Date.now() + patience;
	for (;;) {
		const answer = await page.goto(url);
		if (answer.ok()) return page;
		const state = await api("GET", `/executions/${job.id}`);
		assert.equal(state.state, "running", `${command} ended; its page answers ${answer.status()}`);
		assert.ok(Date.now() < deadline && answer.headers()["x-modbox-error"] === "port_closed", `${answer.status()}: ${await answer.text()}`);
		await new Promise((done) => setTimeout(done, 500));
	}
}

/**
 * edited changes a file and expects the text to appear in the page, which is not loaded again. Next.js tells only connected pages
 * of a change, and a page shows its first text before it is connected: so the file changes again until the page has noticed.
 */
async function edited(page, file, content, text) {
	const mark = crypto.randomUUID();
	await page.evaluate((mark) => { window.mark = mark; }, mark);
	const deadline = Date.now() + patience;
	for (let n = 0; ; n++) {
		await files({ [file]: content + "\n".repeat(n) });
		try {
			await page.getByText(text, { exact: true }).waitFor({ timeout: 20_000 });
			break;
		} catch (err) {
			if (Date.now() > deadline) throw err;
		}
	}
	assert.equal(await page.evaluate(() => window.mark), mark, "the page was loaded again");
}

let sandbox, browser;
before(async () => {
	sandbox = await api("POST", "/sandboxes", {
		image: "modbox/code-exec", ttl_seconds: 3600, network: { enabled: true }, resources: { memory: "2Gi", cpu: "2" }, wait_seconds: 300,
	});
	assert.equal(sandbox.state, "running", JSON.stringify(sandbox.cause));
	browser = await launch();
});
after(async () => {
	await browser?.close();
	if (sandbox) await api("DELETE", `/sandboxes/${sandbox.id}`);
});

test("Vite replaces a module of a page without a reload", async () => {
	const text = (s) => `export const text = ${JSON.stringify(s)};\n`;
	await files({
		"vite/package.json": `{ "type": "module" }`,
		"vite/index.html": `<!DOCTYPE html><title>App</title><p id="app"></p><script type="module" src="/main.js"></script>`,
		"vite/main.js": `import { text } from "./text.js";
const show = (text) => { document.getElementById("app").textContent = text; };
show(text);
import.meta.hot.accept("./text.js", (module) => show(module.text));
`,
		"vite/text.js": text("first"),
	});
	await install("vite", "vite@8.3.8");
	const page = await open("vite", "vite", 5173);
	assert.match(new URL(page.url()).hostname, /^p5173-[a-z0-9]+\.localhost$/);
	await page.getByText("first", { exact: true }).waitFor();
	await edited(page, "vite/text.js", text("second"), "second");
});

test("Next.js renders a page again without a reload", async () => {
	const shown = (text) => `export default function Page() { return <p>${text}</p>; }\n`;
	await files({
		"next/package.json": "{}",
		"next/app/layout.js": `export default function Layout({ children }) { return <html lang="en"><body>{children}</body></html>; }\n`,
		"next/app/page.js": shown("first"),
	});
	await copy("next");
	const page = await open("next", "next dev --port 3000", 3000);
	await page.getByText("first", { exact: true }).waitFor();
	await edited(page, "next/app/page.js", shown("second"), "second");
});
