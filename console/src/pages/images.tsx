// The images of which sandboxes are made: what is here, what uses it, and pulls.
import { ChevronRight, Download, Eraser, Hammer, Layers, Plus, Trash2 } from "lucide-react";
import { type FormEvent, Suspense, useCallback, useMemo, useState } from "react";
import { Link } from "wouter";
import { message, type Sandbox } from "../api.ts";
import { images, type Image, type ImageProgress, snapshots, type Snapshot } from "../calls/images.ts";
import { ago, bytes, moment } from "../format.ts";
import { useLoad, useNow, useSandboxes } from "../hooks.ts";
import { late } from "../late.ts";
import { Confirm, Empty, Failure, Field, FormFoot, Modal, Skeleton, usePending } from "../parts.tsx";
import type { PageProps } from "../places.ts";
import { useMay, useSession } from "../session.ts";
import { AdminPage, SearchField, Segments } from "./shell.tsx";

const BuildPage = late(() => import("./build.tsx"));

export default function Images({ part }: PageProps) {
	const may = useMay();
	if (part === "build" && may("images:write")) return <Suspense fallback={<Skeleton label="Loading the page" />}><BuildPage /></Suspense>;
	return <List />;
}

const kinds = [{ id: "all", name: "All" }, { id: "here", name: "On the disk" }, { id: "builtin", name: "Built in" }, { id: "other", name: "Pulled and built" }] as const;
type Kind = (typeof kinds)[number]["id"];

const fits = (kind: Kind, i: Image) => kind === "all" || (kind === "here" ? i.digest !== "" : i.builtin === (kind === "builtin"));

function List() {
	const may = useMay();
	const { items } = useSandboxes();
	const { data, error, reload } = useLoad(images.list);
	const maySee = may("sandboxes:read");
	const { data: saved } = useLoad(useCallback((signal: AbortSignal) => (maySee ? snapshots.list(signal) : Promise.resolve([])), [maySee]));
	const [kind, setKind] = useState<Kind>("all");
	const [search, setSearch] = useState("");
	const [asking, setAsking] = useState<"pull" | "prune" | null>(null);
	const shown = useMemo(() => data?.filter((i) => fits(kind, i) && `${i.ref} ${i.description} ${i.digest}`.toLowerCase().includes(search.trim().toLowerCase())), [data, kind, search]);
	const mayPull = may("sandboxes:write");
	const mayBuild = may("images:write");
	const size = data?.reduce((n, i) => n + i.size_bytes, 0) ?? 0;
	return (
		<AdminPage
			title="Images"
			actions={(mayPull || mayBuild) && (
				<>
					{mayBuild && <button type="button" className="button" onClick={() => setAsking("prune")}><Eraser size={15} aria-hidden="true" />Free disk…</button>}
					{mayPull && <button type="button" className={mayBuild ? "button" : "button primary"} onClick={() => setAsking("pull")}><Download size={15} aria-hidden="true" />Pull…</button>}
					{mayBuild && <Link href="/images/build" className="button primary"><Hammer size={15} aria-hidden="true" />Build</Link>}
				</>
			)}
			tools={<><SearchField label="Search by name or description" value={search} onChange={setSearch} /><Segments label="Kind" options={kinds} value={kind} onChange={setKind} /></>}
		>
			{error && <Failure text={error} retry={reload} />}
			{!shown ? !error && <Skeleton label="Loading the images" /> : shown.length === 0 ? (
				<Empty icon={<Layers size={22} />} title={data?.length ? "No image fits" : "No images"} text={data?.length ? "No image of this kind has these words in its name or description." : "Pull an image from a registry, or build one from a Dockerfile."}>
					{data?.length ? <button type="button" className="button" onClick={() => { setKind("all"); setSearch(""); }}>Show all</button> : null}
				</Empty>
			) : (
				<section className="card">
					<h2>{shown.length} {shown.length === 1 ? "image" : "images"}<span className="grow" /><small className="muted">{bytes(size)} on the disk; each is a file system of its own</small></h2>
					<ul className="rows" aria-label="Images">{shown.map((i) => <Row key={i.id} image={i} sandboxes={items} snapshots={saved ?? []} reload={reload} />)}</ul>
				</section>
			)}
			<Modal open={asking === "pull"} onClose={() => setAsking(null)} title="Pull an image"><Pull onClose={() => setAsking(null)} done={reload} /></Modal>
			<Prune open={asking === "prune"} onClose={() => setAsking(null)} done={reload} />
		</AdminPage>
	);
}

const made = (i: Image) => (i.builtin ? "built in" : i.digest === "" ? "not here" : "");

function Row({ image, sandboxes, snapshots, reload }: { image: Image; sandboxes: readonly Sandbox[]; snapshots: Snapshot[]; reload: () => void }) {
	const may = useMay();
	const { createFrom, say } = useSession();
	const [asking, setAsking] = useState(false);
	const [open, setOpen] = useState(false);
	const [layered, setLayered] = useState(false);
	const now = useNow(30_000);
	const users = useMemo(() => sandboxes.filter((s) => (s.image_digest ? s.image_digest === image.digest : s.image === image.ref)), [sandboxes, image]);
	const kept = useMemo(() => snapshots.filter((s) => (s.base_digest ? s.base_digest === image.digest : s.image === image.ref)), [snapshots, image]);
	const uses = [users.length && `${users.length} ${users.length === 1 ? "sandbox" : "sandboxes"}`, kept.length && `${kept.length} ${kept.length === 1 ? "snapshot" : "snapshots"}`].filter(Boolean).join(", ");
	return (
		<li className="wraps">
			<div className="row-main">
				<p><b className="mono big clip" title={image.ref}>{image.ref}</b>{image.is_default && <span className="chip">default</span>}{made(image) && <span className="chip">{made(image)}</span>}</p>
				{image.description && <p className="muted">{image.description}</p>}
				<p className="facts">
					{image.digest ? <span>{bytes(image.size_bytes)}</span> : <span>not on the disk: its first use builds or pulls it</span>}
					{image.memory && image.memory !== "0" && <span>{image.memory} of memory</span>}
					{image.digest && <span className="mono" title={image.digest}>{image.digest.slice(0, 19)}</span>}
					{image.digest && <span title={moment(image.created_at)}>created {ago(image.created_at, now)}</span>}
					{image.digest && <button type="button" className="disclose" aria-expanded={layered} onClick={() => setLayered(!layered)}><ChevronRight size={13} aria-hidden="true" />layers</button>}
					{uses && <button type="button" className="disclose" aria-expanded={open} onClick={() => setOpen(!open)}><ChevronRight size={13} aria-hidden="true" />used by {uses}</button>}
				</p>
			</div>
			<div className="row-actions">
				{may("sandboxes:write") && <button type="button" className="button small" aria-label={`Create a sandbox from ${image.ref}`} onClick={() => createFrom({ image: image.ref })}><Plus size={14} aria-hidden="true" />Create</button>}
				{may(image.builtin ? "admin" : "images:write") && image.digest && <button type="button" className="icon-button small" aria-label={`Remove ${image.ref}`} title="Remove" onClick={() => setAsking(true)}><Trash2 size={14} /></button>}
			</div>
			{layered && <LayerList image={image} />}
			{open && uses && (
				<ul className="uses" aria-label={`Users of ${image.ref}`}>
					{users.slice(0, 50).map((s) => <li key={s.id}><Link href={`/sandboxes/${s.id}`}>{s.name}</Link></li>)}
					{users.length > 50 && <li className="muted">and {users.length - 50} more sandboxes</li>}
					{kept.slice(0, 50).map((s) => <li key={s.id}><Link href={`/snapshots/${s.id}`}>{s.name}{s.tag && `:${s.tag}`}</Link> <small className="muted">snapshot</small></li>)}
				</ul>
			)}
			<Confirm
				open={asking} onClose={() => setAsking(false)} title={`Remove ${image.ref}?`} action="Remove"
				text={<>The name goes; {uses ? <>{uses} made from it go on, and the files stay as long as one needs them.</> : "nothing in this workspace uses it."} {image.builtin && "Its next use builds it again."}</>}
				run={async (signal) => { await images.remove(image.id, signal); reload(); say(`${image.ref} is removed`); }}
			/>
		</li>
	);
}

/** LayerList shows the steps in which an image was made, the newest first. */
function LayerList({ image }: { image: Image }) {
	const { data, error, reload } = useLoad(useCallback((signal: AbortSignal) => images.get(image.id, signal), [image.id]));
	if (!data) return error ? <Failure text={error} retry={reload} /> : <Skeleton label="Loading the layers" rows={2} />;
	const layers = [...(data.layers ?? [])].reverse();
	const own = layers.reduce((n, l) => n + (l.base ? 0 : l.size_bytes), 0);
	const all = layers.reduce((n, l) => n + l.size_bytes, 0);
	return (
		<div className="layers">
			<p className="muted">{bytes(all)} in compressed layers{data.base && <>, {bytes(own)} of them over <span className="mono">{data.base}</span></>}. The newest is first.</p>
			<ol aria-label={`Layers of ${image.ref}`}>
				{layers.map((l, i) => (
					<li key={i} data-base={l.base}>
						<span className="layer-size">{l.digest ? bytes(l.size_bytes) : "no files"}</span>
						<span className="mono" title={l.created_by}>{l.created_by || "not known"}</span>
						<small className="muted">{l.digest && <span className="mono" title={l.digest}>{l.digest.replace("sha256:", "").slice(0, 12)}</span>}{l.base && <span className="chip">base</span>}</small>
					</li>
				))}
			</ol>
		</div>
	);
}

const phases: Record<string, string> = { waiting: "Waits for its turn", pulling: "Pulls layers", writing: "Writes the file system" };

function Pull({ onClose, done }: { onClose: () => void; done: () => void }) {
	const { say } = useSession();
	const [ref, setRef] = useState("");
	const [error, setError] = useState("");
	const [progress, setProgress] = useState<ImageProgress | null>(null);
	const pending = usePending();
	const { busy } = pending;
	const submit = async (e: FormEvent) => {
		e.preventDefault();
		setError("");
		let stopped: AbortSignal | undefined;
		try {
			await pending.during(async (signal) => {
				stopped = signal;
				const image = await images.pull(ref.trim(), (p) => { if (!signal.aborted) setProgress(p); }, signal);
				done();
				say(`${image.ref} is here`);
			});
			onClose();
		} catch (err) {
			setError(stopped?.aborted ? "You stopped the pull. Layers that have arrived are not pulled again." : message(err));
		}
		setProgress(null);
	};
	const counts = progress?.phase === "pulling" ? bytes : (n: number) => n.toLocaleString();
	return (
		<form className="ask" onSubmit={(e) => void submit(e)}>
			<Field label="Reference" hint="As in ghcr.io/org/app:v1, or with a digest. Private registries need an entry under Registries." error={error || undefined}>
				{(p) => <input {...p} className="mono" value={ref} placeholder="docker.io/library/debian:trixie" autoFocus spellCheck={false} autoComplete="off" readOnly={busy} onChange={(e) => setRef(e.target.value)} />}
			</Field>
			{busy && (
				<div role="status" className="progress">
					<span>{progress ? phases[progress.phase ?? ""] ?? progress.phase : "Asks the registry"}{progress?.done !== undefined && ` · ${counts(progress.done)}${progress.total ? ` of ${counts(progress.total)}` : ""}`}</span>
					{progress?.total ? <progress aria-label="Progress" max={progress.total} value={progress.done ?? 0} /> : <progress aria-label="Progress" />}
				</div>
			)}
			<FormFoot pending={pending} action="Pull" working="Pulling…" ready={Boolean(ref.trim())} onClose={onClose} />
		</form>
	);
}

/** Prune says what would be removed before it removes it. */
function Prune({ open, onClose, done }: { open: boolean; onClose: () => void; done: () => void }) {
	const { say } = useSession();
	const { data, error } = useLoad(useCallback((signal: AbortSignal) => (open ? images.unused(signal) : Promise.resolve(null)), [open]));
	const list = data?.images ?? [];
	return (
		<Confirm
			open={open} onClose={onClose} title="Free the disk of what nothing uses?" action="Free it"
			text={error || (!data ? "Measuring…" : list.length === 0 && data.freed_bytes === 0 ? "There is nothing to remove: every image and cached layer of this workspace is in use or was used within ten minutes." : (
				<>
					Images without a name and cached layers of builds that were not used within ten minutes are removed: {bytes(data.freed_bytes)}. Images with a name stay.
					{list.length > 0 && <ul className="names">{list.slice(0, 6).map((i) => <li key={i.digest} className="clip">{i.ref || i.digest}</li>)}{list.length > 6 && <li>and {list.length - 6} more</li>}</ul>}
				</>
			))}
			run={async (signal) => { const { freed_bytes } = await images.prune(signal); done(); say(`${bytes(freed_bytes)} are free again`); }}
		/>
	);
}
