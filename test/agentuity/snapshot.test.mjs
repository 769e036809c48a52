// Snapshots: made of sandboxes, and sandboxes made from them.
import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { createHash } from "node:crypto";
import { test } from "node:test";
import { APIClient, snapshotPublicGet, snapshotPublicList } from "@agentuity/server";
import { call, client, is, sandbox, sh, url } from "./setup.mjs";

const logger = { trace() {}, debug() {}, info() {}, warn() {}, error() {}, child() { return this; } };
const unique = () => `snap-${Date.now()}-${Math.floor(Math.random() * 1e6)}`;

/** snapshot makes one that is deleted with the test. */
async function snapshot(t, sb, options) {
	const sn = await client.createSnapshot(sb.id, options);
	t.after(() => client.deleteSnapshot(sn.snapshotId).catch(is("SnapshotNotFoundError"))); // the test may have done it
	return sn;
}

test("snapshots: files come back in sandboxes made from it, by id, name, name:tag and tag", async (t) => {
	const name = unique();
	const from = await sandbox(t, { runtime: "python:3.13" });
	await sh(from, "mkdir -p data && echo kept > data/file && chmod 750 data/file && ln -s data/file link");
	const sn = await snapshot(t, from, { name, tag: "v1", description: "with a file" });
	assert.match(sn.snapshotId, /^snp_/);
	assert.deepEqual([sn.name, sn.tag, sn.description, sn.public], [name, "v1", "with a file", false]);
	assert.ok(sn.sizeBytes > 0 && sn.fileCount > 0);
	await sh(from, "echo later > data/file");
	for (const ref of [sn.snapshotId, `${name}:v1`]) {
		const sb = await sandbox(t, { snapshot: ref });
		assert.equal((await sh(sb, "cat link; stat -c %a data/file; echo $AGENTUITY_SANDBOX_RUNTIME")).stdout.split("\n").slice(0, 2).join(), "kept,750");
		const info = await sb.get();
		assert.deepEqual([info.snapshot.id, info.snapshot.name, info.snapshot.tag, info.snapshot.public], [sn.snapshotId, name, "v1", false]);
		assert.deepEqual((await client.list({ snapshotId: sn.snapshotId, limit: 1 })).sandboxes.map((s) => s.sandboxId), [sb.id]);
	}
	const tag = unique();
	await client.tagSnapshot(sn.snapshotId, tag);
	assert.equal((await (await sandbox(t, { snapshot: tag })).get()).snapshot.id, sn.snapshotId);
	await client.tagSnapshot(sn.snapshotId, "latest");
	const run = await client.run({ snapshot: name, command: { exec: ["cat", "data/file"] } });
	assert.equal(run.stdout, "kept\n");
});

test("snapshots: get, list, tags that move, lineage, delete", async (t) => {
	const name = unique();
	const sb = await sandbox(t);
	await sh(sb, "echo 1 > one");
	const first = await snapshot(t, sb, { name });
	assert.equal(first.tag, "latest");
	await sh(sb, "echo 2 > two");
	const second = await snapshot(t, sb, { name });
	assert.equal((await client.getSnapshot(second.snapshotId)).tag, "latest");
	assert.ok(!(await client.getSnapshot(first.snapshotId)).tag);
	assert.equal(second.parentSnapshotId, first.snapshotId);
	const list = await client.listSnapshots({ sandboxId: sb.id });
	assert.deepEqual([list.total, list.snapshots.map((s) => s.snapshotId)], [2, [second.snapshotId, first.snapshotId]]);
	const page = await client.listSnapshots({ sandboxId: sb.id, limit: 1, offset: 1, sort: "created", direction: "asc" });
	assert.deepEqual(page.snapshots.map((s) => s.snapshotId), [second.snapshotId]);
	assert.equal((await client.tagSnapshot(first.snapshotId, "old")).tag, "old");
	assert.ok(!(await client.tagSnapshot(first.snapshotId, null)).tag);
	const ids = async (params) => (await client.getSnapshotLineage(params)).lineage.map((s) => [s.snapshotId, s.deleted ?? false]);
	await client.deleteSnapshot(first.snapshotId);
	assert.deepEqual(await ids({ name }), [[second.snapshotId, false], [first.snapshotId, true]]);
	assert.deepEqual(await ids({ snapshot: second.snapshotId, limit: 1 }), [[second.snapshotId, false]]);
	await assert.rejects(client.getSnapshot(first.snapshotId), is("SnapshotNotFoundError"));
	assert.equal((await client.listSnapshots({ sandboxId: sb.id })).total, 1);
});

test("snapshots: their files are listed and downloaded, without a token, by an address that cannot be guessed", async (t) => {
	const sb = await sandbox(t);
	await sh(sb, "mkdir -p a/b && printf content > a/b/file.json && chmod 640 a/b/file.json && ln -s /etc/passwd a/out && printf out > /srv/elsewhere");
	const made = await snapshot(t, sb, { name: unique() });
	const sn = await client.getSnapshot(made.snapshotId);
	assert.deepEqual(sn.files, [{
		path: "a/b/file.json", size: 7, sha256: createHash("sha256").update("content").digest("hex"), contentType: "application/json", mode: 0o640,
	}]);
	for (const address of [made.downloadUrl, sn.downloadUrl]) {
		const res = await fetch(address); // nobody is signed in
		assert.equal(res.headers.get("content-type"), "application/gzip");
		const tar = spawnSync("tar", ["-tvzf", "-"], { input: Buffer.from(await res.arrayBuffer()), encoding: "utf8" });
		assert.equal(tar.status, 0, tar.stderr);
		assert.deepEqual(tar.stdout.trim().split("\n").map((l) => l.split(/\s+/).slice(5).join(" ")), ["a/", "a/b/", "a/b/file.json", "a/out -> /etc/passwd"]);
	}
	const letters = sn.downloadUrl.split("");
	letters[letters.length - 30] = letters.at(-30) === "A" ? "B" : "A";
	assert.equal((await fetch(letters.join(""))).status, 404);
	await client.deleteSnapshot(sn.snapshotId);
	assert.equal((await fetch(sn.downloadUrl)).status, 404);
	// One without a workspace has no files in it; the lists have none at all.
	const bare = await snapshot(t, await sandbox(t), { name: unique() });
	assert.deepEqual((await client.getSnapshot(bare.snapshotId)).files, []);
	assert.ok((await client.listSnapshots({})).snapshots.every((s) => !s.files && !s.downloadUrl));
});

test("snapshots: of a suspended sandbox", async (t) => {
	const sb = await sandbox(t);
	await sh(sb, "echo asleep > file");
	await sb.pause();
	const sn = await snapshot(t, sb, { name: unique() });
	assert.equal((await sb.get()).status, "suspended");
	assert.equal((await sh(await sandbox(t, { snapshot: sn.snapshotId }), "cat file")).stdout, "asleep\n");
});

test("snapshots: public ones are read by anybody", async (t) => {
	const name = unique();
	const sb = await sandbox(t);
	const open = await snapshot(t, sb, { name, public: true });
	const closed = await snapshot(t, sb, { name: unique() });
	assert.ok(open.public && open.org.slug && open.fullName === `@${open.org.slug}/${name}:latest`, JSON.stringify(open));
	const nobody = new APIClient(url, logger, undefined, { maxRetries: 0 });
	for (const snapshotRef of [open.snapshotId, open.fullName, `${name}:latest`, name]) {
		const told = await snapshotPublicGet(nobody, { snapshotRef });
		assert.deepEqual([told.snapshotId, told.files, told.downloadUrl], [open.snapshotId, undefined, undefined]);
	}
	const ids = (await snapshotPublicList(nobody, { limit: 100 })).snapshots.map((s) => s.snapshotId);
	assert.ok(ids.includes(open.snapshotId) && !ids.includes(closed.snapshotId));
	await assert.rejects(snapshotPublicGet(nobody, { snapshotRef: closed.snapshotId }), is("SnapshotNotFoundError"));
	assert.equal((await call("GET", `/sandbox/snapshots/${open.snapshotId}`, { token: "" })).status, 401);
	assert.equal((await (await sandbox(t, { snapshot: open.fullName })).get()).snapshot.fullName, open.fullName);
});

test("snapshots: what is wrong is refused by name", async (t) => {
	const sb = await sandbox(t);
	await assert.rejects(client.createSnapshot(sb.id, { name: "no name" }), /name/);
	await assert.rejects(client.createSnapshot(sb.id, { name: "ok", tag: ".x" }), /tag/);
	await assert.rejects(client.create({ snapshot: "none:such" }), is("SnapshotNotFoundError"));
	await assert.rejects(client.getSnapshot(`snp_${"0".repeat(32)}`), is("SnapshotNotFoundError"));
	await assert.rejects(client.listSnapshots({ sort: "colour" }), /sort/);
});
