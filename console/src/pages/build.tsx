// An image from a Dockerfile, with the log of the build as it comes.
import { ArrowLeft, FilePlus2, FolderPlus, Hammer, Plus, Square, Trash2, Upload } from "lucide-react";
import { type FormEvent, type ReactNode, useCallback, useEffect, useRef, useState } from "react";
import { Link } from "wouter";
import { FormError, useFaults } from "../faults.tsx";
import { type BuildMessage, type Image, images } from "../calls/images.ts";
import { bytes, span } from "../format.ts";
import { useNow } from "../hooks.ts";
import { Failure, Field } from "../parts.tsx";
import { useSession } from "../session.ts";
import { tar } from "../tar.ts";
import { AdminPage } from "./shell.tsx";

/** kept is how much of a log is shown, in characters: the end of it. */
const kept = 400_000;

interface Part {
	kind: "step" | "output" | "warning" | "error" | "done";
	text: string;
}

type Phase = "ready" | "building" | "done" | "failed" | "stopped";

interface Build {
	phase: Phase;
	log: Part[];
	/** What is under way, such as a pull. */
	now: string;
	error: unknown;
	image: Image | null;
	began: number;
	took: number;
}

const none: Build = { phase: "ready", log: [], now: "", error: undefined, image: null, began: 0, took: 0 };

/** add puts a part at the end of a log; output joins the output before it, and the oldest parts go when the log is long. */
function add(log: Part[], part: Part): Part[] {
	const last = log.at(-1);
	const next = last?.kind === "output" && part.kind === "output" ? [...log.slice(0, -1), { kind: last.kind, text: (last.text + part.text).slice(-kept) }] : [...log, part];
	let size = next.reduce((n, p) => n + p.text.length, 0);
	while (size > kept && next.length > 1) size -= next.shift()?.text.length ?? 0;
	return next;
}

/** follow returns what a build is after a message; text is what the message has of the output. */
function follow(b: Build, m: BuildMessage, text: string): Build {
	switch (m.type) {
		case "step":
			return { ...b, now: "", log: add(b.log, { kind: "step", text: m.cached ? "  cached" : `[${m.step}/${m.steps}] ${m.instruction ?? ""}` }) };
		case "output":
			return { ...b, now: "", log: add(b.log, { kind: "output", text }) };
		case "progress": {
			const count = m.phase === "pulling" || m.phase === "pushing" ? bytes : (n: number) => n.toLocaleString();
			const counted = m.done === undefined ? "" : ` ${count(m.done)}${m.total ? ` of ${count(m.total)}` : ""}`;
			return { ...b, now: `${m.phase ?? ""}${counted}${m.message ? ` · ${m.message}` : ""}` };
		}
		case "warning":
			return { ...b, log: add(b.log, { kind: "warning", text: `warning: ${m.message}` }) };
		case "error":
			return { ...b, phase: "failed", now: "", log: add(b.log, { kind: "error", text: m.message ?? "The build failed." }) };
		case "done":
			return { ...b, phase: "done", now: "", image: m.image ?? null, log: add(b.log, { kind: "done", text: m.image ? `${m.image.ref || m.image.digest} · ${bytes(m.image.size_bytes)}` : "done" }) };
		case "ping":
			return b;
	}
}

/** useBuild runs one build at a time; it ends with the page. */
function useBuild() {
	const [build, setBuild] = useState(none);
	const running = useRef<AbortController>(null);
	useEffect(() => () => running.current?.abort(), []);
	const start = useCallback(async (run: (onMessage: (m: BuildMessage) => void, signal: AbortSignal) => Promise<void>) => {
		const now = (running.current = new AbortController());
		const decoder = new TextDecoder();
		const began = Date.now();
		setBuild({ ...none, phase: "building", began });
		let end: Partial<Build> = { phase: "failed", error: new Error("The connection broke before the build was done. Build again: finished layers are in the cache.") };
		try {
			await run((m) => {
				// A character may come in two messages.
				const text = m.data ? decoder.decode(Uint8Array.from(atob(m.data), (c) => c.charCodeAt(0)), { stream: true }) : "";
				setBuild((was) => follow(was, m, text));
			}, now.signal);
		} catch (err) {
			end = now.signal.aborted ? { phase: "stopped" } : { phase: "failed", error: err };
		}
		setBuild((was) => ({ ...was, ...(was.phase === "building" ? end : {}), now: "", took: Date.now() - began }));
	}, []);
	const stop = useCallback(() => running.current?.abort(), []);
	return { build, start, stop };
}

interface Form {
	name: string;
	dockerfile: string;
	files: { name: string; content: File }[];
	args: string;
	network: boolean;
	fresh: boolean;
}

const archive = /\.(tar|tgz|tar\.(gz|bz2|zst))$/;

/** context returns the files of a build as it is sent: an archive alone as it is. */
function context(files: Form["files"]): Blob {
	const [only] = files;
	return files.length === 1 && only && archive.test(only.name) ? only.content : tar(files);
}

function buildArgs(text: string): Record<string, string> {
	const found: Record<string, string> = {};
	for (const line of text.split("\n").filter((l) => l.trim())) {
		const at = line.indexOf("=");
		if (at < 1) throw new Error(`“${line.slice(0, 40)}” is not NAME=value.`);
		found[line.slice(0, at).trim()] = line.slice(at + 1);
	}
	return found;
}

export default function BuildPage() {
	const { build, start, stop } = useBuild();
	const { createFrom, mayWrite } = useSession();
	const busy = build.phase === "building";
	useEffect(() => {
		if (!busy) return;
		const warn = (e: BeforeUnloadEvent) => e.preventDefault();
		window.addEventListener("beforeunload", warn);
		return () => window.removeEventListener("beforeunload", warn);
	}, [busy]);
	const image = build.image;
	return (
		<AdminPage
			title="Build an image"
			back={<Link href="/images" className="icon-button" aria-label="Back to the images"><ArrowLeft size={16} /></Link>}
			actions={image?.ref && mayWrite && <button type="button" className="button" onClick={() => createFrom({ image: image.ref })}><Plus size={15} aria-hidden="true" />Create a sandbox</button>}
		>
			<div className="halves">
				<BuildForm busy={busy} error={build.error} start={start} />
				<Log build={build} stop={stop} />
			</div>
		</AdminPage>
	);
}

function BuildForm({ busy, error, start }: { busy: boolean; error: unknown; start: ReturnType<typeof useBuild>["start"] }) {
	const [form, setForm] = useState<Form>({ name: "", dockerfile: "", files: [], args: "", network: false, fresh: false });
	const { form: element, setError, fault, rest } = useFaults();
	useEffect(() => setError(error), [setError, error]);
	const set = (change: Partial<Form>) => setForm((was) => ({ ...was, ...change }));
	const wrongFiles = fault("context");
	const submit = (e: FormEvent) => {
		e.preventDefault();
		setError(undefined);
		try {
			const args = buildArgs(form.args);
			const options = { ...(form.name.trim() ? { tag: form.name.trim() } : {}), ...(Object.keys(args).length ? { build_args: args } : {}), ...(form.network ? { network: true } : {}), ...(form.fresh ? { no_cache: true } : {}) };
			const files = context(form.files);
			void start((onMessage, signal) => images.build(options, form.dockerfile, files, onMessage, signal));
		} catch (err) {
			setError(err);
		}
	};
	const take = async (list: FileList | null) => {
		// A directory's files have names below it.
		const more = [...(list ?? [])].map((content) => ({ content, name: content.webkitRelativePath.split("/").slice(1).join("/") || content.name }));
		const names = new Set(more.map((f) => f.name));
		setForm((was) => ({ ...was, files: [...was.files.filter((f) => !names.has(f.name)), ...more] }));
		const dockerfile = more.find((f) => f.name === "Dockerfile")?.content;
		if (dockerfile) set({ dockerfile: await dockerfile.text() });
	};
	const size = form.files.reduce((n, f) => n + f.content.size, 0);
	return (
		<form className="card form" ref={element} onSubmit={submit} aria-label="Build an image">
			<Field label="Name" hint="As in app:v1. Without one the image is known by its digest and kept for an hour." error={fault("tag")}>{(p) => <input {...p} className="mono" value={form.name} onChange={(e) => set({ name: e.target.value })} placeholder="app:v1" spellCheck={false} autoComplete="off" />}</Field>
			<Field label="Dockerfile" hint={form.dockerfile || form.files.length === 0 ? "Each RUN runs in a sandbox of its own." : "Empty: the file Dockerfile of the archive."} error={fault("dockerfile")}>
				{(p) => <textarea {...p} rows={10} value={form.dockerfile} onChange={(e) => set({ dockerfile: e.target.value })} placeholder={"FROM modbox/code-exec\nRUN pip install requests"} spellCheck={false} autoComplete="off" />}
			</Field>
			<div className="field">
				<div className="buttons wrap">
					<Pick label="Open a Dockerfile" icon={<Upload size={14} aria-hidden="true" />} take={(list) => void list?.[0]?.text().then((dockerfile) => set({ dockerfile }))} />
					<Pick label="Add files" icon={<FilePlus2 size={14} aria-hidden="true" />} multiple take={(list) => void take(list)} />
					<Pick label="Add a directory" icon={<FolderPlus size={14} aria-hidden="true" />} directory take={(list) => void take(list)} />
				</div>
				{form.files.length > 0 ? (
					<ul className="picked" aria-label="Files for COPY">
						{form.files.slice(0, 8).map((f) => <li key={f.name}><span className="mono clip">{f.name}</span><small className="muted">{bytes(f.content.size)}</small><button type="button" className="icon-button small" aria-label={`Leave out ${f.name}`} onClick={() => set({ files: form.files.filter((o) => o !== f) })}><Trash2 size={13} /></button></li>)}
						<li className="muted"><small>{form.files.length} {form.files.length === 1 ? "file" : "files"}, {bytes(size)}</small><span className="grow" /><button type="button" className="button quiet small" onClick={() => set({ files: [] })}>Leave out all</button></li>
					</ul>
				) : <p className="note">Files that COPY and ADD name; or one archive (tar, also with gzip, bzip2 or zstd).</p>}
				{wrongFiles && <p className="note bad" role="alert">{wrongFiles}</p>}
			</div>
			<Field label="Build arguments" hint="NAME=value, one on a line. They are no secrets." error={fault("build_args")}>{(p) => <textarea {...p} rows={2} value={form.args} onChange={(e) => set({ args: e.target.value })} spellCheck={false} autoComplete="off" />}</Field>
			<label className="checkbox"><input type="checkbox" checked={form.network} onChange={(e) => set({ network: e.target.checked })} /><span>Access to the internet<small>For RUN, as a sandbox with a network has it.</small></span></label>
			<label className="checkbox"><input type="checkbox" checked={form.fresh} onChange={(e) => set({ fresh: e.target.checked })} /><span>Without the cache<small>Every layer is made anew.</small></span></label>
			<FormError rest={rest} />
			<footer className="dialog-foot"><button type="submit" className="button primary" disabled={busy || (!form.dockerfile.trim() && form.files.length === 0)}><Hammer size={15} aria-hidden="true" />{busy ? "Building…" : "Build"}</button></footer>
		</form>
	);
}

/** Pick is a button that chooses files. */
function Pick({ label, icon, multiple, directory, take }: { label: string; icon: ReactNode; multiple?: boolean; directory?: boolean; take: (list: FileList | null) => void }) {
	const field = useRef<HTMLInputElement>(null);
	return (
		<>
			<button type="button" className="button small" onClick={() => field.current?.click()}>{icon}{label}</button>
			<input ref={field} type="file" hidden aria-label={label} multiple={multiple ?? false} {...(directory ? { webkitdirectory: "" } : {})} onChange={(e) => { take(e.target.files); e.target.value = ""; }} />
		</>
	);
}

const titles: Record<Phase, string> = { ready: "Log", building: "building", done: "built", failed: "failed", stopped: "stopped" };
const tones: Record<Phase, string> = { ready: "quiet", building: "busy", done: "good", failed: "bad", stopped: "quiet" };

function Log({ build, stop }: { build: Build; stop: () => void }) {
	const place = useRef<HTMLPreElement>(null);
	const now = useNow();
	const [stuck, setStuck] = useState(true); // to the end, unless the reader has scrolled up
	useEffect(() => {
		if (stuck && place.current) place.current.scrollTop = place.current.scrollHeight;
	}, [build.log, stuck]);
	const busy = build.phase === "building";
	return (
		<section className="card build-log" aria-label="Build log">
			<h2>
				{build.phase === "ready" ? "Log" : <span className="state" data-tone={tones[build.phase]} role="status">{titles[build.phase]}</span>}
				<span className="grow" />
				{build.phase !== "ready" && <small className="muted">{span((busy ? now - build.began : build.took) / 1000)}</small>}
				{busy && <button type="button" className="button small" onClick={stop}><Square size={13} aria-hidden="true" />Stop</button>}
			</h2>
			<pre className="output log" ref={place} tabIndex={0} aria-label="Output of the build" onScroll={(e) => setStuck(e.currentTarget.scrollHeight - e.currentTarget.scrollTop - e.currentTarget.clientHeight < 24)}>
				{build.log.map((p, i) => <span key={i} className={`log-${p.kind}`}>{p.text}{p.text.endsWith("\n") ? "" : "\n"}</span>)}
				{build.phase === "ready" && <span className="muted">The log of the build comes here. The build ends when you leave this page.</span>}
				{build.now && <span className="muted">{build.now}</span>}
			</pre>
			{build.phase === "failed" && build.log.length === 0 && build.error === undefined && <Failure text="The build ended without a word." />}
		</section>
	);
}
