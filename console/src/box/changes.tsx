// What differs between the files of a sandbox and its image: a list, and the difference of one text file.
import { FileDiff, FileWarning, Pencil } from "lucide-react";
import { Suspense, useCallback } from "react";
import { box } from "../calls/box.ts";
import { type Changes, type FileChange, letters, original } from "../calls/diff.ts";
import { bytes } from "../format.ts";
import { useLoad } from "../hooks.ts";
import { late } from "../late.ts";
import { Empty, Failure, Skeleton } from "../parts.tsx";
import { asText, textMost } from "./text.ts";

const Merge = late(() => import("./merge.tsx"));

const tones = { added: "good", changed: "warn", removed: "bad" } as const;

/** Mark says by a letter what happened to a path. */
export function Mark({ change }: { change: FileChange["change"] }) {
	return <span className="change-mark" data-tone={tones[change]} title={`${change} since the sandbox was made`}><span aria-hidden="true">{letters[change]}</span><span className="visually-hidden">{change}</span></span>;
}

export function ChangeList({ changes, chosen, choose }: { changes: Changes; chosen: string; choose: (c: FileChange) => void }) {
	if (changes.list.length === 0 && !changes.more) return <Empty icon={<FileDiff size={22} />} title="Nothing has changed" text="The files are those of the image. /tmp is not compared." />;
	return (
		<div className="changes scroll" role="region" aria-label="Changed files" tabIndex={0}>
			<ul aria-label="Changes">
				{changes.list.map((c) => (
					<li key={c.path}>
						<button type="button" aria-pressed={c.path === chosen} title={c.path} onClick={() => choose(c)}>
							<Mark change={c.change} />
							<span className="mono clip grow">{c.path}{c.type === "directory" && "/"}</span>
							{c.type === "file" && <small>{bytes(c.size_bytes)}</small>}
						</button>
					</li>
				))}
			</ul>
			{changes.more && <p className="note pad">These are the first {changes.list.length.toLocaleString()} by name. The command line lists all: modbox diff.</p>}
		</div>
	);
}

/** said says what is different about a path beside its content. */
function said(c: FileChange): string {
	const b = c.before;
	const out: string[] = [];
	if (b && b.type !== c.type) out.push(`${b.type} → ${c.type}`);
	if (b && b.mode !== c.mode) out.push(`mode ${b.mode} → ${c.mode}`);
	if (b && (b.uid !== c.uid || b.gid !== c.gid)) out.push(`owner ${b.uid}:${b.gid} → ${c.uid}:${c.gid}`);
	if (c.target) out.push(b?.target ? `${b.target} → ${c.target}` : `leads to ${c.target}`);
	if (c.type === "file") out.push(b?.type === "file" && b.size_bytes !== c.size_bytes ? `${bytes(b.size_bytes)} → ${bytes(c.size_bytes)}` : bytes(c.size_bytes));
	return out.join(" · ");
}

interface Versions {
	before: string | null;
	after: string | null;
}

/** versions reads a file in the image and in the sandbox; null is none, or not text. */
async function versions(id: string, c: FileChange, signal: AbortSignal): Promise<Versions> {
	const was = c.change === "removed" ? c : c.before;
	const read = async (there: boolean, size: number, get: () => Promise<Uint8Array | null>) => {
		if (!there) return "";
		if (size > textMost) return null;
		const content = await get();
		return content && asText(content);
	};
	const [before, after] = await Promise.all([
		read(was?.type === "file", was?.size_bytes ?? 0, () => original(id, c.path, signal)),
		read(c.change !== "removed" && c.type === "file", c.size_bytes, async () => new Uint8Array(await (await box.read(id, c.path, signal)).arrayBuffer())),
	]);
	return { before, after };
}

/** ChangeView shows one change, of a text file with its lines. onEdit opens the file in the editor. */
export function ChangeView({ id, change, onEdit }: { id: string; change: FileChange; onEdit?: (() => void) | undefined }) {
	const isFile = change.type === "file" || change.before?.type === "file";
	const { data, error, reload } = useLoad(useCallback((signal: AbortSignal) => (isFile ? versions(id, change, signal) : Promise.resolve(null)), [id, change, isFile]));
	return (
		<>
			<header className="file-head">
				<Mark change={change.change} />
				<span className="mono clip" title={change.path}>{change.path}</span>
				<small className="muted clip">{said(change)}</small>
				<span className="grow" />
				{onEdit && <button type="button" className="button small" onClick={onEdit}><Pencil size={14} aria-hidden="true" />Edit</button>}
			</header>
			{error ? <Failure text={error} retry={reload} />
				: data === undefined ? <Skeleton label="Loading both versions" />
				: !data ? <Empty icon={<FileDiff size={22} />} title={`The ${change.type} was ${change.change}`} text={said(change) || "It has no content of its own."} />
				: data.before === null || data.after === null ? <Empty icon={<FileWarning size={22} />} title="There are no lines to compare" text={`It is not text, or more than ${bytes(textMost)}.`} />
				: data.before === data.after ? <Empty icon={<FileDiff size={22} />} title="The content is the same" text="The sandbox has written the file anew, with the content that it has in the image." />
				: <Suspense fallback={<Skeleton label="Loading the comparison" />}><Merge name={change.path} before={data.before} after={data.after} label={`Changes of ${change.path}`} /></Suspense>}
		</>
	);
}
