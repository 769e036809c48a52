// Runtimes outside the server's list: images that a registry has, a process of its
// own, by reference.
import assert from "node:assert/strict";
import { execFileSync, spawn } from "node:child_process";
import { createHash } from "node:crypto";
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { after, before, test } from "node:test";
import { gzipSync } from "node:zlib";
import { client, sandbox, sh, until } from "./setup.mjs";

const sha256 = (data) => `sha256:${createHash("sha256").update(data).digest("hex")}`;
const dir = mkdtempSync(join(tmpdir(), "registry-"));
let registry, host;

before(async () => {
	execFileSync("go", ["build", "-o", dir, "github.com/google/go-containerregistry/cmd/registry"], { cwd: join(import.meta.dirname, "../..") });
	registry = spawn(join(dir, "registry"), ["-port", "0"], { stdio: ["ignore", "ignore", "pipe"] });
	for await (const line of createInterface(registry.stderr)) {
		const port = /serving on port (\d+)/.exec(line)?.[1];
		if (port) {
			host = `localhost:${port}`;
			break;
		}
	}
	registry.stderr.resume();
});

after(() => {
	registry.kill();
	rmSync(dir, { recursive: true });
});

/** push makes an image of busybox and a file, and returns its reference. */
async function push(name, tag, version) {
	const root = join(dir, "root");
	for (const sub of ["bin", "etc"]) mkdirSync(join(root, sub), { recursive: true });
	execFileSync("cp", ["/bin/busybox", join(root, "bin/sh")]);
	writeFileSync(join(root, "etc/version"), version);
	const tar = execFileSync("tar", ["-C", root, "--owner=0", "--group=0", "-c", "."], { maxBuffer: 1 << 26 });
	const layer = gzipSync(tar);
	const config = Buffer.from(JSON.stringify({
		architecture: { x64: "amd64" }[process.arch] ?? process.arch, os: "linux",
		config: { Env: ["PATH=/bin"] }, rootfs: { type: "layers", diff_ids: [sha256(tar)] },
	}));
	for (const blob of [layer, config]) await put("POST", `${name}/blobs/uploads/?digest=${sha256(blob)}`, blob);
	const type = (what) => `application/vnd.oci.image.${what}`;
	const manifest = Buffer.from(JSON.stringify({
		schemaVersion: 2, mediaType: type("manifest.v1+json"),
		config: { mediaType: type("config.v1+json"), size: config.length, digest: sha256(config) },
		layers: [{ mediaType: type("layer.v1.tar+gzip"), size: layer.length, digest: sha256(layer) }],
	}));
	await put("PUT", `${name}/manifests/${tag}`, manifest, type("manifest.v1+json"));
	return `${host}/${name}:${tag}`;
}

async function put(method, path, body, type = "application/octet-stream") {
	const res = await fetch(`http://${host}/v2/${path}`, { method, body, headers: { "Content-Type": type } });
	assert.equal(res.status, 201, `${method} ${path}: ${await res.text()}`);
}

test("registry: a sandbox of an image by its reference", async (t) => {
	const runtime = await push("team/python", "3.14", "one");
	const sb = await sandbox(t, { runtime });
	const { stdout } = await sh(sb, "read v < /etc/version; echo $v $AGENTUITY_SANDBOX_RUNTIME $AGENTUITY_SANDBOX_RUNTIME_ID");
	const info = await sb.get();
	assert.equal(info.runtime.name, runtime);
	assert.match(info.runtime.id, /^srt_[0-9a-f]{32}$/);
	assert.equal(stdout, `one ${runtime} ${info.runtime.id}\n`);
	// It has its id from then on, and so have snapshots and what is made from them.
	assert.equal((await client.run({ runtimeId: info.runtime.id, command: { exec: ["sh", "-c", "read v < /etc/version; echo $v"] } })).stdout, "one\n");
	const sn = await client.createSnapshot(sb.id);
	t.after(() => client.deleteSnapshot(sn.snapshotId));
	assert.equal((await (await sandbox(t, { snapshot: sn.snapshotId })).get()).runtime.name, runtime);
	// It is none of the runtimes that the server offers.
	assert.ok(!(await client.listRuntimes({ limit: 100 })).runtimes.some((r) => r.name === runtime));
});

test("registry: what it does not have, and one that is not there, are told by their names", async (t) => {
	for (const [runtime, words] of [
		[`${host}/team/none:3.14`, new RegExp(`${host}.*team/none.*(NAME_UNKNOWN|MANIFEST_UNKNOWN)`)],
		["localhost:1/team/python:3.14", /localhost:1.*cannot be reached/],
	]) {
		const sb = await sandbox(t, { runtime });
		await assert.rejects(sh(sb, "true"), words);
		await until("failed", async () => (await sb.get()).status, (status) => status === "failed");
		const { events } = await client.listEvents(sb.id, { direction: "desc" });
		assert.match(JSON.stringify(events[0]), words);
	}
	await assert.rejects(client.create({ runtime: "No Reference" }), /runtime.*python:3.15/);
	await assert.rejects(client.create({ runtimeId: `srt_${"0".repeat(32)}` }), /runtimeId/);
});
