// The pages of images and snapshots in the web console. Real builds and pulls; they share one sandbox.
import assert from "node:assert/strict";
import { test } from "node:test";
import { api, begin, clean, confirmed, console_, made, mark, patience, sandbox, server, shown, signInByToken, token, visit } from "./kit.mjs";
import { startRegistry } from "./registry.mjs";

begin();

const put = async (sb, path, body) => {
	const res = await fetch(`${server}/v1/sandboxes/${sb.id}/files?path=${encodeURIComponent(path)}`, { method: "PUT", body, headers: { Authorization: `Bearer ${token}` }, signal: AbortSignal.timeout(patience) });
	assert.ok(res.ok, await res.text());
};

test("an image is pulled, found and removed", async () => {
	const registry = await startRegistry();
	try {
		const ref = `${registry.host}/team/hello-${mark}:v1`;
		const page = await visit();
		await signInByToken(page);
		await page.keyboard.press("Control+k");
		await page.keyboard.type("go to images");
		await page.keyboard.press("Enter");
		await page.getByRole("heading", { name: "Images", exact: true }).waitFor();
		await page.getByRole("list", { name: "Images" }).getByText("modbox/code-exec:latest").waitFor();

		await page.getByRole("button", { name: "Pull…" }).click();
		const dialog = page.getByRole("dialog", { name: "Pull an image" });
		await dialog.getByLabel("Reference").fill(`${registry.host}/team/hello:none`);
		await page.keyboard.press("Enter");
		await dialog.getByText(/not found|no such|does not have|404/i).waitFor(); // the reason
		await dialog.getByLabel("Reference").fill(ref);
		await page.keyboard.press("Enter");
		await dialog.waitFor({ state: "detached" });
		await page.getByRole("list", { name: "Images" }).getByText(ref).waitFor();
		assert.ok((await api("GET", "/images")).items.some((i) => i.ref === ref));

		await page.keyboard.press("/");
		await page.keyboard.type(`hello-${mark}`);
		await page.waitForFunction(() => document.querySelectorAll("[aria-label=Images] > li").length === 1);
		await page.getByRole("button", { name: `Remove ${ref}` }).click();
		await confirmed(page, "Remove");
		await page.getByText("No image fits").waitFor();
		await shown(page, "images-none");
		assert.ok(!(await api("GET", "/images")).items.some((i) => i.ref === ref));
		clean(page);
	} finally {
		await registry.close();
	}
});

test("a pull that hangs is stopped", async () => {
	const page = await visit();
	await page.clock.install();
	await signInByToken(page);
	await page.goto(`${console_}/images`);
	await page.route("**/v1/images/pull", () => {}); // no answer
	await page.getByRole("button", { name: "Pull…" }).click();
	const dialog = page.getByRole("dialog", { name: "Pull an image" });
	await dialog.getByLabel("Reference").fill("example.com/team/app:v1");
	await page.keyboard.press("Enter");
	await dialog.getByText("Asks the registry").waitFor();
	await dialog.getByRole("button", { name: "Pulling…" }).waitFor();
	await dialog.getByRole("button", { name: "Close", disabled: true }).waitFor();
	assert.equal(await dialog.getByLabel("Reference").getAttribute("readonly"), "");
	await page.keyboard.press("Escape");
	await shown(page, "images-pull");
	await page.clock.fastForward(11_000);
	const aborted = page.waitForEvent("requestfailed", (r) => r.url().endsWith("/images/pull"));
	await dialog.getByRole("button", { name: "Stop waiting", exact: true }).click();
	await aborted;
	await dialog.getByText("You stopped the pull").waitFor();
	assert.equal(await dialog.getByText("Asks the registry").count(), 0);
	assert.equal(await dialog.getByLabel("Reference").getAttribute("readonly"), null);
	await dialog.getByRole("button", { name: "Cancel" }).click();
	await dialog.waitFor({ state: "detached" });
	clean(page);
});

test("an image is built with its log as it comes, and says what uses it", async () => {
	const name = `built-${mark}:v1`;
	const page = await visit();
	await signInByToken(page);
	await page.goto(`${console_}/images`);
	await page.getByRole("link", { name: "Build", exact: true }).click();
	await page.getByRole("heading", { name: "Build an image" }).waitFor();
	const log = page.getByLabel("Output of the build");

	await page.getByLabel("Dockerfile", { exact: true }).fill("FROM modbox/code-exec\nRUN echo begun; exit 7\n");
	await page.getByRole("button", { name: "Build", exact: true }).click();
	await page.getByText("line 2:").waitFor();
	await page.getByRole("status").getByText("failed").waitFor();
	await shown(page, "images-build-failed");

	await page.getByLabel("Name", { exact: true }).fill(name);
	await page.getByLabel("Add files").setInputFiles({ name: "greeting.txt", mimeType: "text/plain", buffer: Buffer.from("a greeting\n") });
	await page.getByLabel("Open a Dockerfile").setInputFiles({ name: "Dockerfile", mimeType: "text/plain", buffer: Buffer.from(`FROM modbox/code-exec\nARG WHO\nCOPY greeting.txt /greeting.txt\nRUN cat /greeting.txt; echo "for $WHO"; sleep 3; echo it is over\n`) });
	await page.getByLabel("Build arguments").fill("WHO=ärzte");
	await page.getByRole("button", { name: "Build", exact: true }).click();
	await log.getByText("for ärzte").waitFor();
	await page.getByRole("status").getByText("building").waitFor(); // the output comes while the build goes on
	await page.getByRole("status").getByText("built").waitFor();
	await log.locator(".log-output", { hasText: "it is over" }).waitFor();
	await log.getByText("a greeting").waitFor();
	await shown(page, "images-build");
	await page.getByRole("button", { name: "Create a sandbox" }).click();
	assert.equal(await page.getByRole("dialog", { name: "Create a sandbox" }).getByLabel("Image").inputValue(), name);
	await page.keyboard.press("Escape");

	const sb = await sandbox("user", { image: name });
	assert.equal((await api("POST", `/sandboxes/${sb.id}/exec`, { command: ["cat", "/greeting.txt"] })).stdout, "a greeting\n");
	await page.getByRole("link", { name: "Back to the images" }).click();
	const row = page.getByRole("list", { name: "Images" }).getByRole("listitem").filter({ hasText: name }).first();
	await row.getByRole("button", { name: "used by 1 sandbox" }).click();
	await row.getByRole("link", { name: sb.name }).waitFor();
	await row.getByRole("button", { name: "layers" }).click();
	const layers = page.getByRole("list", { name: `Layers of ${name}` });
	await layers.getByText("RUN cat /greeting.txt").first().waitFor();
	await page.getByText("over modbox/code-exec:latest").waitFor();
	await layers.scrollIntoViewIfNeeded();
	await shown(page, "images");
	await page.getByRole("button", { name: `Remove ${name}` }).click();
	await page.getByRole("alertdialog").getByText("1 sandbox made from it").waitFor();
	await confirmed(page, "Remove");
	await row.waitFor({ state: "detached" });

	// A build is stopped, and ends on the server.
	await page.goto(`${console_}/images/build`);
	await page.getByLabel("Dockerfile", { exact: true }).fill("FROM modbox/code-exec\nRUN echo waits; sleep 600\n");
	await page.getByRole("button", { name: "Build", exact: true }).click();
	await log.getByText("waits", { exact: true }).waitFor();
	await page.getByRole("button", { name: "Stop" }).click();
	await page.getByRole("status").getByText("stopped").waitFor();
	clean(page);
});

test("snapshots are listed with their lineage, compared, tagged and removed", async () => {
	const name = `saved-${mark}`;
	const first = await sandbox("first");
	await put(first, "/root/kept.txt", "the same\n");
	await put(first, "/root/changed.txt", "before\n");
	await put(first, "/root/gone.txt", "gone\n");
	const parent = await api("POST", `/sandboxes/${first.id}/snapshots`, { name, tag: "v1" });
	const second = await sandbox("second", { image: undefined, snapshot: `${name}:v1` });
	await put(second, "/root/changed.txt", "after that\n");
	await put(second, "/root/added.txt", "added\n");
	await api("DELETE", `/sandboxes/${second.id}/files?path=/root/gone.txt`);
	const child = await api("POST", `/sandboxes/${second.id}/snapshots`, { name, tag: "v2" });

	const page = await visit();
	await signInByToken(page);
	await page.goto(`${console_}/snapshots`);
	await page.getByRole("link", { name: `${name}:v1` }).waitFor();
	await shown(page, "snapshots");
	await page.getByRole("link", { name: `${name}:v2` }).click();
	const lineage = page.getByRole("list", { name: "Lineage" });
	await lineage.getByRole("link", { name: `${name}:v1` }).waitFor();
	await page.getByRole("button", { name: "Compare" }).click(); // with its parent
	const listed = async (kind) => (await page.getByRole("list", { name: `Files ${kind}` }).getByRole("listitem").allTextContents()).filter((t) => t.startsWith("/root/"));
	await page.getByRole("list", { name: "Files added" }).getByText("/root/added.txt").waitFor();
	assert.deepEqual(await listed("added"), ["/root/added.txt6 B"]);
	assert.deepEqual(await listed("removed"), ["/root/gone.txt5 B"]);
	assert.deepEqual(await listed("changed"), ["/root/changed.txt7 B → 11 B"]);
	await shown(page, "snapshot");
	const many = Array.from({ length: 160_000 }, (_, i) => ({ path: `/${i}` }));
	await page.route("**/v1/snapshots/*/files?*", (route) => route.fulfill({ json: { items: many, next_cursor: "more" } }));
	await page.getByRole("button", { name: "Compare" }).click();
	await page.getByRole("alert").getByText("more than 300,000 names").waitFor();
	await page.unroute("**/v1/snapshots/*/files?*");

	await page.getByRole("button", { name: `Create a sandbox from ${name}:v2` }).click();
	const dialog = page.getByRole("dialog", { name: "Create a sandbox" });
	assert.equal(await dialog.getByLabel("Snapshot").inputValue(), `${name}:v2`);
	await dialog.getByLabel("Name").fill(`third-${mark}`);
	await dialog.getByRole("button", { name: "Create", exact: true }).click();
	await page.getByRole("heading", { name: `third-${mark}` }).waitFor();
	const third = await api("GET", `/sandboxes/third-${mark}`);
	made.push(third.id);
	assert.equal(third.snapshot_id, child.id);

	await page.goto(`${console_}/snapshots/${child.id}`);
	await page.getByRole("button", { name: `Tag ${name}:v2` }).click();
	await page.getByLabel("Tag", { exact: true }).fill("good");
	await page.keyboard.press("Enter");
	await page.getByRole("heading", { name: `${name}:good` }).waitFor();
	await page.getByRole("button", { name: `Remove ${name}:good` }).click();
	await confirmed(page, "Remove");
	await page.getByRole("heading", { name: "Snapshots", exact: true }).waitFor();
	await page.getByRole("link", { name: `${name}:good` }).waitFor({ state: "detached" });
	assert.deepEqual((await api("GET", `/snapshots?name=${name}`)).items.map((s) => s.id), [parent.id]);
	await api("DELETE", `/snapshots/${parent.id}`);
	clean(page);
});
