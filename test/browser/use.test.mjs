// What sandboxes use, as curves in the web console.
import assert from "node:assert/strict";
import { test } from "node:test";
import { api, begin, clean, console_, sandbox, shown, signInByToken, visit } from "./kit.mjs";

begin();

test("the use of a sandbox grows as curves, and in the list", async () => {
	const sb = await sandbox("busy", { network: { enabled: false } });
	const page = await visit();
	await signInByToken(page);
	await page.goto(`${console_}/sandboxes/${sb.id}/use`);
	const plot = (title) => page.getByRole("img", { name: new RegExp(`^${title}: now `) });
	await plot("Memory").waitFor();
	const now = async (title) => parseFloat(/now ([\d.]+)/.exec(await plot(title).getAttribute("aria-label"))[1]);
	assert.ok((await now("Memory")) > 0, "memory in use");
	assert.ok((await now("Processes")) >= 1, "processes");
	assert.match(await plot("Memory").getAttribute("aria-label"), / of [\d.]+ [MG]iB, at most /);

	// A busy processor, and a file, are in the curves by themselves.
	const busy = await api("POST", `/sandboxes/${sb.id}/executions`, { kind: "job", shell: "head -c 50M /dev/urandom >/tmp/file; while :; do :; done" });
	await page.waitForFunction(() => {
		const at = (title, pattern) => [...document.querySelectorAll(".plot svg")].some((svg) => svg.getAttribute("aria-label").startsWith(title) && pattern.test(svg.getAttribute("aria-label")));
		return at("CPU", /now (0\.[1-9]|[1-9])/) && at("Disk", /now (4[5-9]|[5-9]\d|\d{3})(\.\d)? MiB/);
	});
	await api("POST", `/executions/${busy.id}/cancel`); // a whole processor, for as long as it runs
	await shown(page, "use");
	assert.ok((await page.locator(".plot-curve[data-curve='0'] polyline").count()) >= 4, "curves");

	// The value of an earlier moment is read by the arrow keys.
	await plot("CPU").focus();
	await page.keyboard.press("ArrowLeft");
	await page.getByRole("img", { name: /^CPU: .* At .+: / }).waitFor();
	await page.keyboard.press("Tab");
	await page.getByRole("img", { name: /^CPU: .* At .+: / }).waitFor({ state: "detached" });

	await page.getByRole("link", { name: "Back to the list" }).click();
	const row = page.locator(".row", { hasText: sb.name });
	await row.getByRole("img", { name: /^CPU: \d+ % of a core/ }).waitFor();
	await row.getByRole("img", { name: /^Memory: .+ of .+/ }).waitFor();
	await page.waitForFunction((name) => [...document.querySelectorAll(".row")].some((r) => r.textContent.includes(name) && r.querySelector(".spark polyline")), sb.name);
	await shown(page, "list-use");
	clean(page);
});
