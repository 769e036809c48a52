// ComputeSDK's provider for E2B, as published: sandboxes, commands, files, snapshots.
import assert from "node:assert/strict";
import { test } from "node:test";
import { current } from "./setup.mjs";

const { e2b } = await import("@computesdk/e2b");

test("ComputeSDK: a sandbox with commands and files, found again, and a snapshot of it", async (t) => {
	const provider = e2b({});
	const sandbox = await provider.sandbox.create({ timeout: 600_000, envs: { FROM: "creation" } });
	t.after(() => current.Sandbox.kill(sandbox.sandboxId));
	const ran = await sandbox.runCommand("printenv FROM MORE; pwd; echo bad >&2; exit 4", { env: { MORE: "x" }, cwd: "/tmp" });
	assert.deepEqual([ran.exitCode, ran.stdout, ran.stderr], [4, "creation\nx\n/tmp\n", "bad\n"]);
	assert.equal((await sandbox.runCommand("sh -c 'echo $$ >/tmp/pid; exec sleep 1000'", { background: true })).exitCode, 0);

	const files = sandbox.filesystem;
	await files.mkdir("/home/user/dir");
	await files.writeFile("/home/user/dir/a.txt", "content");
	assert.equal(await files.readFile("/home/user/dir/a.txt"), "content");
	assert.deepEqual((await files.readdir("/home/user/dir")).map((f) => f.name), ["a.txt"]);
	assert.equal(await files.exists("/home/user/dir/a.txt"), true);

	assert.ok((await provider.sandbox.list()).some((s) => s.sandboxId === sandbox.sandboxId));
	const again = await provider.sandbox.getById(sandbox.sandboxId);
	assert.equal((await again.runCommand("until [ -s /tmp/pid ]; do :; done; kill -0 $(cat /tmp/pid)")).exitCode, 0);

	const snapshot = await provider.snapshot.create(sandbox.sandboxId);
	t.after(() => current.Sandbox.deleteSnapshot(snapshot.id));
	const second = await provider.sandbox.create({ snapshotId: snapshot.id });
	t.after(() => current.Sandbox.kill(second.sandboxId));
	assert.equal(await second.filesystem.readFile("/home/user/dir/a.txt"), "content");

	await files.remove("/home/user/dir/a.txt");
	assert.equal(await files.exists("/home/user/dir/a.txt"), false);
	await provider.sandbox.destroy(sandbox.sandboxId);
	assert.equal(await provider.sandbox.getById(sandbox.sandboxId), null);
});
