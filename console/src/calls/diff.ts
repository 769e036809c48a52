// Calls of the API about what differs between a sandbox and its image.
import { ApiError, at, call, type Page, request, type Schemas } from "../api.ts";

export type FileChange = Schemas["FileChange"];

/** pagesMost bounds the pages that are read, because the sandbox stands still for each; a page may have few changes. */
const pagesMost = 5;

/** letters are those of docker diff. */
export const letters = { added: "A", changed: "C", removed: "D" } as const;

export interface Changes {
	list: FileChange[];
	/** byPath has the changes by path. */
	byPath: ReadonlyMap<string, FileChange>;
	/** around are the directories in which something has changed. */
	around: ReadonlySet<string>;
	more: boolean;
}

/** changes reads what a sandbox has written since it was made. */
export async function changes(ref: string, signal: AbortSignal): Promise<Changes> {
	const list: FileChange[] = [];
	let cursor: string | undefined;
	let pages = 0;
	do {
		const q = new URLSearchParams({ limit: "1000", ...(cursor ? { cursor } : {}) });
		const page = await call<Page<FileChange>>("GET", `${at(ref)}/diff?${q}`, undefined, signal);
		list.push(...(page.items ?? []));
		cursor = page.next_cursor;
	} while (cursor && ++pages < pagesMost);
	const around = new Set<string>();
	for (const { path } of list) {
		for (let dir = parent(path); !around.has(dir); dir = parent(dir)) {
			around.add(dir);
			if (dir === "/") break;
		}
	}
	return { list, byPath: new Map(list.map((c) => [c.path, c])), around, more: Boolean(cursor) };
}

const parent = (path: string) => path.replace(/\/[^/]*$/, "") || "/";

/** original reads a file as it is in the image; null when the image has none. */
export async function original(ref: string, path: string, signal: AbortSignal): Promise<Uint8Array | null> {
	try {
		return new Uint8Array(await (await request("GET", `${at(ref)}/diff/original?path=${encodeURIComponent(path)}`, undefined, signal)).arrayBuffer());
	} catch (err) {
		if (err instanceof ApiError && err.code === "file_not_found") return null;
		throw err;
	}
}
