// One file in the editor. Large and binary files are not edited but downloaded.
import { Download, FileDiff, FileWarning, Save } from "lucide-react";
import { Suspense, useCallback, useEffect, useState } from "react";
import { box, type FileInfo } from "../calls/box.ts";
import { bytes } from "../format.ts";
import { useAct, useLoad } from "../hooks.ts";
import { late } from "../late.ts";
import { Confirm, Empty, Failure, Skeleton } from "../parts.tsx";
import { download } from "./download.ts";
import { asText, textMost } from "./text.ts";

const CodeMirror = late(() => import("./codemirror.tsx"));

interface Props {
	id: string;
	info: FileInfo;
	onUnsaved: (unsaved: boolean) => void;
	onSaved: (info: FileInfo) => void;
	/** Shows what differs from the image; undefined when nothing is known to differ. */
	onCompare?: (() => void) | undefined;
}

/** open reads a file as text; null is a binary file. */
async function open(id: string, path: string, signal: AbortSignal) {
	const info = await box.stat(id, path, signal);
	if (info.size_bytes > textMost) return { info, text: null };
	return { info, text: asText(new Uint8Array(await (await box.read(id, path, signal)).arrayBuffer())) };
}

export function Editor({ id, info, onUnsaved, onSaved, onCompare }: Props) {
	const file = useLoad(useCallback((signal: AbortSignal) => open(id, info.path, signal), [id, info.path]), true);
	const [text, setText] = useState<string | null>(null);
	const [conflict, setConflict] = useState(false);
	const { act, busy } = useAct();
	const original = file.data?.text ?? null;
	const unsaved = text !== null && text !== original;
	useEffect(() => {
		onUnsaved(unsaved);
		return () => onUnsaved(false);
	}, [unsaved, onUnsaved]);
	useEffect(() => {
		if (!unsaved) return;
		const ask = (e: BeforeUnloadEvent) => e.preventDefault();
		addEventListener("beforeunload", ask);
		return () => removeEventListener("beforeunload", ask);
	}, [unsaved]);
	if (!file.data) return file.error ? <Failure text={file.error} retry={file.reload} /> : <Skeleton label="Loading the file" />;
	const loaded = file.data;
	if (original === null) {
		return (
			<Empty icon={<FileWarning size={22} />} title={`${info.name} is not text`} text={`${bytes(loaded.info.size_bytes)}. The editor opens text of up to ${bytes(textMost)}.`}>
				<button type="button" className="button" disabled={busy} onClick={() => void act(async () => download(await box.read(id, info.path), info.name))}><Download size={15} aria-hidden="true" />Download</button>
			</Empty>
		);
	}
	const write = async (signal?: AbortSignal) => {
		const content = text ?? original;
		const now = await box.write(id, info.path, new Blob([content]), signal);
		file.set({ info: now, text: content });
		onSaved(now);
	};
	const save = () => void act(async () => {
		if (!unsaved) return;
		const now = await box.stat(id, info.path);
		if (now.mod_time !== loaded.info.mod_time || now.size_bytes !== loaded.info.size_bytes) setConflict(true);
		else await write();
	});
	return (
		<>
			<header className="file-head">
				<span className="mono clip" title={info.path}>{info.path}</span>
				<small className="muted mono">{loaded.info.mode} · {bytes(loaded.info.size_bytes)}</small>
				<span className="grow" />
				<small className="muted" role="status">{unsaved ? "Not saved" : text === null ? "" : "Saved"}</small>
				{onCompare && <button type="button" className="button small" disabled={unsaved} title={unsaved ? "Save first" : "What differs from the image"} onClick={onCompare}><FileDiff size={14} aria-hidden="true" />Compare</button>}
				<button type="button" className="button small primary" disabled={!unsaved || busy} onClick={save}><Save size={14} aria-hidden="true" />Save</button>
			</header>
			<Suspense fallback={<Skeleton label="Loading the editor" />}>
				<CodeMirror name={info.name} text={text ?? original} label={`Content of ${info.name}`} onChange={setText} onSave={save} />
			</Suspense>
			<Confirm open={conflict} onClose={() => setConflict(false)} title={`Replace ${info.name}?`} text="The file has changed in the sandbox since it was opened here. Replacing it loses these changes." action="Replace" run={write} />
		</>
	);
}
