// Terminals of a sandbox in the web console: shells that go on without the page.
import assert from "node:assert/strict";
import { test } from "node:test";
import { api, begin, clean, console_, sandbox, shown, signInByToken, visit } from "./kit.mjs";

begin();

async function open(sb) {
	const page = await visit();
	await page.addInitScript(() => {
		window.sockets = [];
		window.WebSocket = class extends WebSocket {
			constructor(...args) {
				super(...args);
				window.sockets.push(this);
			}
		};
	});
	await signInByToken(page);
	await page.goto(`${console_}/sandboxes/${sb.id}/terminal`);
	await connected(page);
	return page;
}

/** pane is the terminal that is shown. */
const pane = (page) => page.locator('.shell-page[data-state="active"]');
const connected = (page) => pane(page).getByText("Connected.").waitFor();
const line = (page, text) => pane(page).locator(".xterm-rows").getByText(text, { exact: true }).first();
const type = async (page, text) => {
	await pane(page).locator(".xterm-screen").click();
	await page.keyboard.type(text);
};
const running = async (sb) => (await api("GET", `/sandboxes/${sb.id}/executions`)).items.filter((e) => e.state === "running");

test("shells go on without the page, and are attached again", async () => {
	const sb = await sandbox("shells");
	const page = await open(sb);
	await type(page, "one=1$((1))1; echo \"first $one\"\n");
	await line(page, "first 111").waitFor();
	await page.getByRole("button", { name: "New shell" }).click();
	await page.getByRole("tab", { name: "Shell 2" }).waitFor();
	await connected(page);
	await type(page, "two=2$((2))2; echo \"second $two\"\n");
	await line(page, "second 222").waitFor();
	await page.getByRole("tab", { name: "Shell 1" }).click();
	await line(page, "first 111").waitFor();
	await shown(page, "terminals");
	assert.equal((await running(sb)).length, 2);

	// After a reload both are there, with what they wrote and what they know.
	await page.reload();
	await page.getByRole("tab", { name: "Shell 2" }).waitFor();
	await connected(page);
	await line(page, "second 222").waitFor();
	await type(page, "echo \"still $two\"\n");
	await line(page, "still 222").waitFor();
	await page.getByRole("tab", { name: "Shell 1" }).click();
	await connected(page);
	await type(page, "echo \"still $one\"\n");
	await line(page, "still 111").waitFor();
	assert.equal((await running(sb)).length, 2);

	// So they are after another page of the console.
	await page.getByRole("tab", { name: /Events/ }).click();
	await page.getByRole("tab", { name: "Terminal" }).click();
	await page.getByRole("tab", { name: "Shell 1" }).click();
	await connected(page);
	await line(page, "still 111").waitFor();

	// By the keyboard: out of the terminal, to the other one.
	await pane(page).locator(".xterm-screen").click();
	await page.keyboard.press("Control+Shift+ArrowUp");
	assert.equal(await page.evaluate(() => document.activeElement.textContent), "Shell 1");
	await page.keyboard.press("ArrowRight");
	await page.waitForFunction(() => document.activeElement.textContent === "Shell 2");
	await page.keyboard.press("Enter");
	await line(page, "still 222").waitFor();

	await pane(page).getByRole("button", { name: "End the shell" }).click();
	await page.getByRole("tab", { name: "Shell 2" }).waitFor({ state: "detached" });
	for (const end = Date.now() + 60_000; (await running(sb)).length !== 1; ) assert.ok(Date.now() < end, "the ended shell runs on");
	await pane(page).getByRole("button", { name: "End the shell" }).click();
	await page.getByText("No shell runs.").waitFor();
	await shown(page, "terminals-none");
	clean(page);
});

test("a shell is found again after many commands", async () => {
	const sb = await sandbox("shell-commands");
	const page = await open(sb);
	await type(page, "one=1$((1))1; echo \"first $one\"\n");
	await line(page, "first 111").waitFor();
	for (let i = 0; i < 201; i += 3) await Promise.all([0, 1, 2].map(() => api("POST", `/sandboxes/${sb.id}/executions`, { kind: "exec", command: ["true"] })));
	await page.reload();
	await connected(page);
	await line(page, "first 111").waitFor();
	assert.equal((await running(sb)).length, 0, "shells among the newest executions");
	assert.equal(await page.getByRole("tab", { name: /^Shell/ }).count(), 1);
	clean(page);
});

test("a terminal has the size of its place, and connects again by itself", async () => {
	const sb = await sandbox("shell");
	const page = await open(sb);
	const size = async (text) => {
		await type(page, `echo ${text} $(stty size)\n`);
		const row = pane(page).locator(".xterm-rows > div", { hasText: new RegExp(`^${text} \\d+ \\d+`) }).first();
		return (await row.textContent()).trim().split(" ").slice(1).map(Number);
	};
	const [rows, cols] = await size("wide");
	await page.setViewportSize({ width: 800, height: 500 });
	// The shell learns of its size a moment after the page.
	for (let i = 0; ; i++) {
		const [r, c] = await size(`narrow${i}`);
		if (r < rows && c < cols) break;
		assert.ok(i < 50, `the terminal of 800 × 500 has ${r} rows and ${c} columns, before ${rows} and ${cols}`);
	}

	// The connection breaks, while the shell writes.
	await type(page, "for i in 1 2 3; do sleep 1; echo tick-$i; done; echo all ticks\n");
	await line(page, "tick-1").waitFor();
	await page.context().setOffline(true);
	await page.evaluate(() => window.sockets.forEach((s) => s.close()));
	await page.getByText("The connection is broken").waitFor();
	await shown(page, "terminal-lost");
	await page.context().setOffline(false);
	await connected(page);
	await line(page, "all ticks").waitFor();
	for (const n of [1, 2, 3]) assert.equal(await pane(page).locator(".xterm-rows").getByText(`tick-${n}`, { exact: true }).count(), 1, `lines with tick-${n}`);

	// A pause keeps the shell.
	await type(page, "kept=yes\n");
	await page.getByRole("button", { name: "Pause", exact: true }).click();
	await page.getByText("The sandbox is paused, and the shell with it.").waitFor();
	await shown(page, "terminal-paused");
	await pane(page).getByRole("button", { name: "Resume" }).click();
	await connected(page);
	await type(page, "echo kept: $kept\n");
	await line(page, "kept: yes").waitFor();
	await type(page, "exit 3\n");
	await page.getByText("The shell ended with exit code 3.").waitFor();
	await pane(page).getByRole("button", { name: "Start a new shell" }).click();
	await connected(page);
	clean(page);
});
