// The desktop of a sandbox in the web console.
import assert from "node:assert/strict";
import { test } from "node:test";
import { api, begin, clean, console_, patience, sandbox, shown, signInByToken, visit } from "./kit.mjs";

begin();

test("the desktop is shown in a frame of the sandbox's own origin, and used by hand", async () => {
	const sb = await sandbox("screen", { image: "modbox/sandbox" });
	const run = (shell) => api("POST", `/sandboxes/${sb.id}/exec`, { shell, timeout_seconds: 60 });
	const page = await visit({ permissions: ["local-network-access"] });
	await signInByToken(page);
	await page.goto(`${console_}/sandboxes/${sb.id}/desktop`);
	const frame = page.frameLocator("iframe");
	await frame.locator("canvas").waitFor();
	const inside = page.frames().find((f) => f !== page.mainFrame());
	assert.match(new URL(inside.url()).hostname, /^[a-z0-9]+(-[a-z0-9]+)*\.localhost$/);
	assert.notEqual(new URL(inside.url()).origin, console_);
	await frame.getByText("Connecting", { exact: false }).waitFor({ state: "hidden" });
	await shown(page, "desktop");

	// Watching moves nothing; with the switch on, the pointer of the desktop follows.
	const pointer = async () => /x:(\d+)/.exec((await run("DISPLAY=:99 xdotool getmouselocation")).stdout)?.[1];
	const box = await page.locator("iframe").boundingBox();
	const before = await pointer();
	await page.mouse.move(box.x + 200, box.y + 200);
	await page.mouse.move(box.x + 240, box.y + 220);
	assert.equal(await pointer(), before);
	await page.getByRole("switch", { name: "Mouse and keyboard" }).click();
	await frame.locator("canvas").waitFor();
	for (const end = Date.now() + patience; (await pointer()) === before; ) {
		assert.ok(Date.now() < end, "the pointer of the desktop does not move");
		await page.mouse.move(box.x + 200 + (Date.now() % 100), box.y + 200);
	}

	// The frame has no way to the console: not its page, not its session, not its window.
	const got = await page.frames().find((f) => f !== page.mainFrame()).evaluate(async (at) => {
		const attempt = async (f) => { try { return String(await f()); } catch { return "refused"; } };
		return [
			await attempt(() => parent.document.title),
			await attempt(async () => (await fetch(`${at}/v1/whoami`, { credentials: "include" })).status),
			await attempt(() => { top.location.href = "about:blank"; return "gone"; }),
			await attempt(() => (window.open(`${at}/`) ? "open" : "refused")),
		];
	}, console_);
	assert.deepEqual(got, ["refused", "refused", "refused", "refused"]);
	await api("POST", `/sandboxes/${sb.id}/pause`);
	await page.getByText("The sandbox is paused").waitFor();
	clean(page);
});
