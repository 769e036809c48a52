// A registry of this machine with one small image.
import { createHash } from "node:crypto";
import { createServer } from "node:http";
import { gzipSync } from "node:zlib";

const digest = (bytes) => `sha256:${createHash("sha256").update(bytes).digest("hex")}`;

/** archive is a tar with one small file. */
function archive(name, content) {
	const head = Buffer.alloc(512);
	const put = (at, text) => head.write(text, at, "latin1");
	put(0, name);
	put(100, "0000644\0");
	put(108, "0000000\0");
	put(116, "0000000\0");
	put(124, `${content.length.toString(8).padStart(11, "0")}\0`);
	put(136, "00000000000\0");
	put(148, "        0");
	put(257, "ustar\x0000");
	put(148, `${head.reduce((n, b) => n + b, 0).toString(8).padStart(6, "0")}\0 `);
	return Buffer.concat([head, Buffer.from(content), Buffer.alloc(512 - (content.length % 512)), Buffer.alloc(1024)]);
}

/** startRegistry returns the host of a registry, which has the image NAME:v1 for every NAME, and a function that ends it. */
export async function startRegistry() {
	const layer = archive("hello.txt", "hello from a registry\n");
	const packed = gzipSync(layer);
	const arch = { x64: "amd64", arm64: "arm64" }[process.arch];
	const config = Buffer.from(JSON.stringify({ architecture: arch, os: "linux", config: {}, rootfs: { type: "layers", diff_ids: [digest(layer)] } }));
	const types = { manifest: "application/vnd.oci.image.manifest.v1+json", config: "application/vnd.oci.image.config.v1+json", layer: "application/vnd.oci.image.layer.v1.tar+gzip" };
	const manifest = Buffer.from(JSON.stringify({
		schemaVersion: 2, mediaType: types.manifest,
		config: { mediaType: types.config, size: config.length, digest: digest(config) },
		layers: [{ mediaType: types.layer, size: packed.length, digest: digest(packed) }],
	}));
	const blobs = new Map([[digest(config), config], [digest(packed), packed]]);
	const server = createServer((req, res) => {
		const [, kind, ref] = /^\/v2\/.+\/(manifests|blobs)\/([^/]+)$/.exec(req.url) ?? [];
		const body = kind === "blobs" ? blobs.get(ref) : kind && (ref === "v1" || ref === digest(manifest)) ? manifest : undefined;
		if (!body) {
			res.writeHead(req.url === "/v2/" ? 200 : 404).end();
			return;
		}
		res.writeHead(200, { "Content-Type": kind === "blobs" ? "application/octet-stream" : types.manifest, "Content-Length": body.length, "Docker-Content-Digest": digest(body) });
		res.end(req.method === "HEAD" ? undefined : body);
	});
	await new Promise((done) => server.listen(0, "127.0.0.1", done));
	return { host: `127.0.0.1:${server.address().port}`, close: () => new Promise((done) => { server.closeAllConnections(); server.close(done); }) };
}
