// The files of a sandbox: a tree, an editor, upload by drop, download.
import "../styles/files.css";
import { Download, FilePlus, FolderOpen, FolderPlus, FolderUp, Link2, RefreshCw, Trash2, Upload } from "lucide-react";
import { type DragEvent, useCallback, useRef, useState } from "react";
import { type Sandbox } from "../api.ts";
import { box, type FileInfo } from "../calls/box.ts";
import { changes, type FileChange } from "../calls/diff.ts";
import { useAct, useLoad } from "../hooks.ts";
import { Segments } from "../pages/shell.tsx";
import { Confirm, Empty, Failure, Skeleton } from "../parts.tsx";
import { inTurn } from "../work.ts";
import { Ask } from "./ask.tsx";
import { ChangeList, ChangeView } from "./changes.tsx";
import { download } from "./download.ts";
import { Editor } from "./editor.tsx";
import { Tree, useTree } from "./tree.tsx";

const parent = (path: string) => path.replace(/\/[^/]*$/, "") || "/";
const join = (dir: string, name: string) => `${dir === "/" ? "" : dir}/${name}`;

export default function Files({ sb }: { sb: Sandbox }) {
	// The working directory of commands; a relative path begins there.
	const start = useLoad(useCallback((signal: AbortSignal) => box.stat(sb.id, ".", signal), [sb.id]), true);
	const [root, setRoot] = useState("");
	const at = root || start.data?.path;
	if (start.error) return <Failure text={start.error} retry={start.reload} />;
	if (!at) return <Skeleton label="Loading the files" />;
	return <Browser sb={sb} root={at} setRoot={setRoot} />;
}

function Browser({ sb, root, setRoot }: { sb: Sandbox; root: string; setRoot: (dir: string) => void }) {
	const tree = useTree(sb.id, root);
	const [chosen, setChosen] = useState<FileInfo | null>(null);
	const [asking, setAsking] = useState<"file" | "directory" | "remove" | null>(null);
	const [unsaved, setUnsaved] = useState(false);
	const [leaving, setLeaving] = useState<{ file: FileInfo | null; change: FileChange | null } | null>(null);
	const [over, setOver] = useState(false);
	const { act, busy } = useAct();
	const picker = useRef<HTMLInputElement>(null);
	// The diff is read on request: the sandbox stands still meanwhile.
	const [view, setView] = useState<"all" | "changed">("all");
	const [wanted, setWanted] = useState(false);
	const [change, setChange] = useState<FileChange | null>(null);
	const diff = useLoad(useCallback((signal: AbortSignal) => (wanted ? changes(sb.id, signal) : Promise.resolve(undefined)), [sb.id, wanted]), true);
	// The buttons are for what is shown.
	const show = (file: FileInfo | null, c: FileChange | null) => {
		setChosen(file);
		setChange(c);
	};
	const see = (c: FileChange) => {
		if (unsaved) setLeaving({ file: null, change: c });
		else show(null, c);
	};
	const edit = (c: FileChange) => act(async () => {
		const info = await box.stat(sb.id, c.path);
		show(info, null);
	});
	// New files go to the directory that is chosen, or of the file that is.
	const place = !chosen ? root : chosen.type === "directory" ? chosen.path : parent(chosen.path);
	const choose = (info: FileInfo) => {
		setChange(null);
		if (unsaved && chosen && chosen.path !== info.path && info.type !== "directory") setLeaving({ file: info, change: null });
		else if (!(unsaved && info.type === "directory")) setChosen(info);
	};
	const upload = (dir: string, files: File[]) => act(async () => {
		const errors = await inTurn(files, async (f) => void (await box.write(sb.id, join(dir, f.name), f)));
		if (dir !== root) tree.toggle(dir, true);
		await tree.read(dir);
		if (errors.length > 0) throw errors[0];
	}, `${files.length} ${files.length === 1 ? "file is" : "files are"} in ${dir}`);
	const drop = (dir: string, e: DragEvent) => {
		e.preventDefault();
		e.stopPropagation();
		setOver(false);
		const files = [...e.dataTransfer.files];
		if (files.length > 0) void upload(dir, files);
	};
	const make = async (name: string, signal: AbortSignal) => {
		const path = name.startsWith("/") ? name : join(place, name);
		const made = asking === "directory" ? await box.mkdir(sb.id, path, signal) : await box.write(sb.id, path, new Blob([]), signal);
		if (place !== root) tree.toggle(place, true);
		await tree.read(parent(made.path));
		choose(made);
	};
	const remove = async (signal: AbortSignal) => {
		if (!chosen) return;
		await box.remove(sb.id, chosen.path, signal);
		show(null, null);
		setUnsaved(false);
		await tree.read(parent(chosen.path));
	};
	const top = tree.top;
	const known = chosen ? diff.data?.byPath.get(chosen.path) : undefined;
	return (
		<div className="files" data-over={over} onDragOver={(e) => { e.preventDefault(); setOver(true); }} onDragLeave={(e) => { if (e.currentTarget === e.target) setOver(false); }} onDrop={(e) => drop(root, e)}>
			<section className="files-side" aria-label="Directory">
				<Crumbs root={root} setRoot={(dir) => { setRoot(dir); if (!unsaved) setChosen(null); }} />
				<div className="files-view">
					<Segments label="Files shown" options={[{ id: "all", name: "All files" }, { id: "changed", name: diff.data ? `Changes ${diff.data.list.length.toLocaleString()}${diff.data.more ? "+" : ""}` : "Changes" }]} value={view} onChange={(to) => { setView(to); setWanted(wanted || to === "changed"); }} />
				</div>
				<div className="files-tools" role="toolbar" aria-label="Files">
					<button type="button" className="icon-button small" aria-label="New file" title={`New file in ${place}`} onClick={() => setAsking("file")}><FilePlus size={15} /></button>
					<button type="button" className="icon-button small" aria-label="New directory" title={`New directory in ${place}`} onClick={() => setAsking("directory")}><FolderPlus size={15} /></button>
					<button type="button" className="icon-button small" aria-label="Upload files" title={`Upload files to ${place}; or drop them on the tree`} disabled={busy} onClick={() => picker.current?.click()}><Upload size={15} /></button>
					<button type="button" className="icon-button small" aria-label="Download" title={chosen ? `Download ${chosen.path}` : `Download ${root} as tar.gz`} disabled={busy} onClick={() => void act(async () => {
						const what = chosen?.path ?? root, isDir = !chosen || chosen.type === "directory";
						await download(isDir ? await box.archive(sb.id, what) : await box.read(sb.id, what), `${what.split("/").pop() || "root"}${isDir ? ".tar.gz" : ""}`);
					})}><Download size={15} /></button>
					<button type="button" className="icon-button small" aria-label="Remove" title="Remove what is chosen" disabled={!chosen} onClick={() => setAsking("remove")}><Trash2 size={15} /></button>
					<span className="grow" />
					<button type="button" className="icon-button small" aria-label="Read again" title="Read again" onClick={() => { void tree.read(root); for (const dir of tree.open) void tree.read(dir); if (wanted) diff.reload(); setChange(null); }}><RefreshCw size={14} /></button>
					<input ref={picker} type="file" multiple hidden aria-label="Files to upload" onChange={(e) => { void upload(place, [...(e.target.files ?? [])]); e.target.value = ""; }} />
				</div>
				{view === "changed" ? (
					diff.error ? <Failure text={diff.error} retry={diff.reload} /> : !diff.data ? <Skeleton label="Comparing with the image" /> : <ChangeList changes={diff.data} chosen={change?.path ?? ""} choose={see} />
				) : !top ? <Skeleton label="Loading the directory" /> : !Array.isArray(top) ? <Failure text={top.error} retry={() => void tree.read(root)} />
					: top.length === 0 ? <p className="muted pad">This directory is empty. Drop files here to upload them.</p>
						: <Tree tree={tree} chosen={chosen?.path ?? ""} choose={choose} drop={drop} changes={diff.data} />}
			</section>
			<section className="files-main" aria-label="File">
				{change ? <ChangeView key={change.path} id={sb.id} change={change} onEdit={change.change !== "removed" && change.type === "file" ? () => void edit(change) : undefined} />
					: chosen?.type === "symlink" || chosen?.type === "other" ? <Empty icon={<Link2 size={22} />} title={chosen.type === "symlink" ? `${chosen.name} is a symbolic link` : `${chosen.name} is no file`} text={chosen.type === "symlink" ? `It leads to ${chosen.target ?? "nowhere"}.` : "It is a device, a pipe or a socket."} />
					: chosen && chosen.type !== "directory" ? <Editor key={chosen.path} id={sb.id} info={chosen} onUnsaved={setUnsaved} onSaved={(now) => void tree.read(parent(now.path))} onCompare={known ? () => setChange(known) : undefined} />
					: <Empty icon={<FolderOpen size={22} />} title="No file is open" text="Choose a file in the tree to read or edit it. Drop files on a directory to upload them." />}
			</section>
			<Ask open={asking === "file" || asking === "directory"} onClose={() => setAsking(null)} title={asking === "directory" ? "New directory" : "New file"} label="Name" hint={`In ${place}; a path from / also works.`} action="Create" run={make} />
			<Confirm open={asking === "remove"} onClose={() => setAsking(null)} title={`Remove ${chosen?.path ?? ""}?`} text={chosen?.type === "directory" ? "The directory and everything in it is removed." : "The file is removed from the sandbox."} action="Remove" run={remove} />
			<Confirm open={leaving !== null} onClose={() => setLeaving(null)} title={`Leave ${chosen?.name ?? ""} without saving?`} text="The changes in the editor are lost." action="Leave" run={() => { setUnsaved(false); show(leaving?.file ?? null, leaving?.change ?? null); return Promise.resolve(); }} />
		</div>
	);
}

/** Crumbs shows where the tree begins, and leads to the directories above. */
function Crumbs({ root, setRoot }: { root: string; setRoot: (dir: string) => void }) {
	const parts = root.split("/").filter(Boolean);
	return (
		<nav className="crumbs" aria-label="Path">
			<button type="button" className="icon-button small" aria-label="The directory above" title="The directory above" disabled={root === "/"} onClick={() => setRoot(parent(root))}><FolderUp size={15} /></button>
			<button type="button" onClick={() => setRoot("/")} aria-current={root === "/" ? "page" : undefined}>/</button>
			{parts.map((p, i) => <button key={i} type="button" className="clip" aria-current={i === parts.length - 1 ? "page" : undefined} onClick={() => setRoot(`/${parts.slice(0, i + 1).join("/")}`)}>{p}</button>)}
		</nav>
	);
}
