// Calls of the API about images and snapshots.
import { all, ApiError, call, lines, type Page, request, type Schemas } from "../api.ts";

export type Image = Schemas["Image"];
export type ImageBuild = Schemas["ImageBuild"];
export type BuildMessage = Schemas["ImageBuildMessage"];
export type ImageProgress = Schemas["ImageProgress"];
export type Snapshot = Schemas["Snapshot"];
export type SnapshotFile = Schemas["SnapshotFile"];

/** named is a snapshot's name for people. */
export const named = (s: Snapshot) => (s.tag ? `${s.name}:${s.tag}` : s.name);

/** most bounds the lists. */
const most = 10_000;
const snapshot = (id: string) => `/snapshots/${encodeURIComponent(id)}`;

export const images = {
	list: (signal?: AbortSignal) => all<Image>("/images", most, undefined, signal),
	/** get returns an image with its layers. */
	get: (id: string, signal?: AbortSignal) => call<Image>("GET", `/images/${encodeURIComponent(id)}`, undefined, signal),
	remove: (id: string, signal: AbortSignal) => call<void>("DELETE", `/images/${encodeURIComponent(id)}`, undefined, signal),
	/** unused says what prune would remove; both count only what the workspace has built. */
	unused: (signal: AbortSignal) => call<Schemas["PrunedImages"]>("POST", "/images/prune", { dry_run: true }, signal),
	prune: (signal: AbortSignal) => call<Schemas["PrunedImages"]>("POST", "/images/prune", {}, signal),
	/** pull returns the image when it is here. */
	async pull(image: string, onProgress: (p: ImageProgress) => void, signal: AbortSignal): Promise<Image> {
		let done: Image | undefined;
		await lines<ImageProgress>(await request("POST", "/images/pull", { image }, signal), (m) => {
			if (m.type === "error") throw new ApiError(m.code ?? "internal", m.message ?? "The pull failed.", 200);
			if (m.type === "done") done = m.image;
			else if (m.type === "progress") onProgress(m);
		});
		if (!done) throw new ApiError("unreachable", "The connection broke before the pull was done. Pull again: what has arrived is not pulled twice.", 0);
		return done;
	},
	/** build gives each message to onMessage until the build has ended. context is a tar of the files. */
	async build(options: ImageBuild, dockerfile: string, context: Blob, onMessage: (m: BuildMessage) => void, signal: AbortSignal): Promise<void> {
		const body = new FormData(); // in the order in which the server reads the parts
		body.set("options", new Blob([JSON.stringify(options)], { type: "application/json" }));
		if (dockerfile) body.set("dockerfile", dockerfile);
		body.set("context", context, "context.tar");
		await lines(await request("POST", "/images/build", body, signal), onMessage);
	},
};

export const snapshots = {
	list: (signal?: AbortSignal) => all<Snapshot>("/snapshots?sort=created&order=desc", most, undefined, signal),
	get: (id: string, signal?: AbortSignal) => call<Snapshot>("GET", snapshot(id), undefined, signal),
	lineage: (id: string, signal?: AbortSignal) => all<Snapshot>(`${snapshot(id)}/lineage`, 1000, undefined, signal),
	tag: (id: string, tag: string | null, signal: AbortSignal) => call<Snapshot>("PATCH", snapshot(id), { tag }, signal),
	remove: (id: string, signal: AbortSignal) => call<void>("DELETE", snapshot(id), undefined, signal),
	/** files returns everything in a snapshot below a directory, by path. */
	async files(id: string, dir: string, onCount: (n: number) => void, signal: AbortSignal): Promise<Map<string, SnapshotFile>> {
		const found = new Map<string, SnapshotFile>();
		let cursor: string | undefined;
		do {
			const q = new URLSearchParams({ path: dir, recursive: "true", limit: "1000", ...(cursor ? { cursor } : {}) });
			const page = await call<Page<SnapshotFile>>("GET", `${snapshot(id)}/files?${q}`, undefined, signal);
			for (const f of page.items ?? []) found.set(f.path, f);
			onCount(page.items?.length ?? 0);
			cursor = page.next_cursor;
		} while (cursor);
		return found;
	},
};

export interface Difference {
	path: string;
	kind: "added" | "removed" | "changed";
	before: SnapshotFile | undefined;
	after: SnapshotFile | undefined;
}

/** same reports whether a name stands for the same in both, by what the listing says: a file whose size and time are the same counts as unchanged. */
const same = (a: SnapshotFile, b: SnapshotFile) =>
	a.type === b.type && a.mode === b.mode && a.uid === b.uid && a.gid === b.gid && a.target === b.target
	&& (a.type !== "file" || (a.size_bytes === b.size_bytes && a.mod_time === b.mod_time));

/** differences returns what differs between the files of two snapshots, by path. */
export function differences(before: Map<string, SnapshotFile>, after: Map<string, SnapshotFile>): Difference[] {
	const found: Difference[] = [];
	for (const [path, a] of before) {
		const b = after.get(path);
		if (!b) found.push({ path, kind: "removed", before: a, after: b });
		else if (!same(a, b)) found.push({ path, kind: "changed", before: a, after: b });
	}
	for (const [path, b] of after) if (!before.has(path)) found.push({ path, kind: "added", before: undefined, after: b });
	return found.sort((a, b) => (a.path < b.path ? -1 : 1));
}
