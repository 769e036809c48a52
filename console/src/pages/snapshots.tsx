// The snapshots of a workspace: the list, and one with its lineage and what differs from another.
import { ArrowLeft, Camera, Layers, Plus, Tag, Trash2 } from "lucide-react";
import { useCallback, useMemo, useState } from "react";
import { Link, useLocation } from "wouter";
import { Ask } from "../box/ask.tsx";
import { images, named, type Snapshot, snapshots } from "../calls/images.ts";
import { ago, bytes, moment } from "../format.ts";
import { useLoad, useNow } from "../hooks.ts";
import { Confirm, CopyButton, Empty, Failure, Skeleton } from "../parts.tsx";
import type { PageProps } from "../places.ts";
import { useMay, useSession } from "../session.ts";
import { Compare } from "./compare.tsx";
import { AdminPage, Fact, SearchField } from "./shell.tsx";

/** reference is what a request calls a snapshot: its id, when another has taken its tag. */
const reference = (s: Snapshot) => (s.tag ? `${s.name}:${s.tag}` : s.id);

export default function Snapshots({ part }: PageProps) {
	return part ? <One key={part} id={part} /> : <List />;
}

function List() {
	const { data, error, reload } = useLoad(snapshots.list);
	const [search, setSearch] = useState("");
	const now = useNow(30_000);
	const shown = useMemo(() => data?.filter((s) => `${named(s)} ${s.image} ${s.description ?? ""} ${s.message ?? ""} ${s.id}`.toLowerCase().includes(search.trim().toLowerCase())), [data, search]);
	return (
		<AdminPage title="Snapshots" tools={<SearchField label="Search by name, tag or image" value={search} onChange={setSearch} />}>
			{error && <Failure text={error} retry={reload} />}
			{!shown ? !error && <Skeleton label="Loading the snapshots" /> : shown.length === 0 ? (
				<Empty icon={<Camera size={22} />} title={data?.length ? "No snapshot fits" : "No snapshots yet"} text={data?.length ? "No snapshot has these words in its name, tag or image." : "A snapshot keeps the files of a sandbox, for new sandboxes that begin with them. Take one on the page of a sandbox, under Checkpoints, or with modbox snapshot build."}>
					{data?.length ? <button type="button" className="button" onClick={() => setSearch("")}>Show all</button> : <Link href="/" className="button">Go to the sandboxes</Link>}
				</Empty>
			) : (
				<section className="card">
					<h2>{shown.length} {shown.length === 1 ? "snapshot" : "snapshots"}</h2>
					<ul className="rows" aria-label="Snapshots">
						{shown.map((s) => (
							<li key={s.id}>
								<div className="row-main">
									<p><Link href={`/snapshots/${s.id}`} className="mono big clip strong">{named(s)}</Link>{s.public && <span className="chip">public</span>}</p>
									{(s.description || s.message) && <p className="muted">{s.description || s.message}</p>}
									<p className="facts">
										<span>{bytes(s.size_bytes)}</span>
										<span>{bytes(s.layer_bytes)} added</span>
										<span>{s.file_count.toLocaleString()} files</span>
										<span className="mono clip">{s.image}</span>
										<span title={moment(s.created_at)}>created {ago(s.created_at, now)}</span>
									</p>
								</div>
								<Actions snapshot={s} changed={reload} />
							</li>
						))}
					</ul>
				</section>
			)}
		</AdminPage>
	);
}

function Actions({ snapshot: s, changed, gone = changed }: { snapshot: Snapshot; changed: () => void; gone?: () => void }) {
	const { mayWrite, createFrom, say } = useSession();
	const [asking, setAsking] = useState<"tag" | "remove" | null>(null);
	if (!mayWrite) return null;
	const close = () => setAsking(null);
	return (
		<div className="row-actions">
			<button type="button" className="button small" aria-label={`Create a sandbox from ${named(s)}`} onClick={() => createFrom({ snapshot: reference(s) })}><Plus size={14} aria-hidden="true" />Create</button>
			<button type="button" className="button small" aria-label={`Tag ${named(s)}`} onClick={() => setAsking("tag")}><Tag size={14} aria-hidden="true" />Tag…</button>
			<button type="button" className="icon-button small" aria-label={`Remove ${named(s)}`} title="Remove" onClick={() => setAsking("remove")}><Trash2 size={14} /></button>
			<Ask open={asking === "tag"} onClose={close} title={`Tag ${named(s)}`} label="Tag" hint={`Another snapshot called ${s.name} with this tag loses it. Empty: no tag.`} action="Tag" optional run={async (tag, signal) => { const now = await snapshots.tag(s.id, tag || null, signal); changed(); say(now.tag ? `It is ${named(now)}` : `${now.name} has no tag now`); }} />
			<Confirm open={asking === "remove"} onClose={close} title={`Remove ${named(s)}?`} text="Sandboxes that were made from it go on, and snapshots of these stay. Nothing new can be made from it." action="Remove" run={async (signal) => { await snapshots.remove(s.id, signal); gone(); say(`${named(s)} is removed`); }} />
		</div>
	);
}

function One({ id }: { id: string }) {
	const { data, error, reload } = useLoad(useCallback((signal: AbortSignal) => snapshots.get(id, signal), [id]));
	const [, navigate] = useLocation();
	const back = <Link href="/snapshots" className="icon-button" aria-label="Back to the snapshots"><ArrowLeft size={16} /></Link>;
	if (!data) {
		return (
			<AdminPage title="Snapshot" back={back}>
				{error ? <Empty icon={<Camera size={22} />} title="The snapshot cannot be shown" text={error}><button type="button" className="button" onClick={reload}>Try again</button></Empty> : <Skeleton label="Loading the snapshot" />}
			</AdminPage>
		);
	}
	const entries = Object.entries(data.metadata ?? {});
	return (
		<AdminPage title={named(data)} back={back} actions={<Actions snapshot={data} changed={reload} gone={() => navigate("/snapshots")} />}>
			{error && <Failure text={error} retry={reload} />}
			<section className="card">
				<h2>Snapshot</h2>
				<dl className="columns">
					<Fact name="Id"><span className="mono">{data.id}</span> <CopyButton text={data.id} label="Copy the id" /></Fact>
					<Fact name="Full name"><span className="mono">{data.full_name}</span>{data.public && " · public"}</Fact>
					<Fact name="Image"><span className="mono">{data.image}</span></Fact>
					<Fact name="Size">{bytes(data.size_bytes)}, of which {bytes(data.layer_bytes)} beyond its base</Fact>
					<Fact name="Files">{data.file_count.toLocaleString()}</Fact>
					<Fact name="Taken" title={moment(data.created_at)}>{moment(data.created_at)}</Fact>
					{data.sandbox_id && <Fact name="Of sandbox"><Link href={`/sandboxes/${data.sandbox_id}`} className="mono">{data.sandbox_id}</Link></Fact>}
					{data.description && <Fact name="Description">{data.description}</Fact>}
					{data.message && <Fact name="Message">{data.message}</Fact>}
					{entries.map(([k, v]) => <Fact key={k} name={k}><span className="mono">{v}</span></Fact>)}
				</dl>
			</section>
			<Chain snapshot={data} />
			<Lineage snapshot={data} />
			<Compare snapshot={data} />
		</AdminPage>
	);
}

/** Chain shows the root filesystems below a snapshot, down to its image. */
function Chain({ snapshot }: { snapshot: Snapshot }) {
	const may = useMay();
	const mayImages = may("images:read");
	const { data } = useLoad(useCallback((signal: AbortSignal) => Promise.all([snapshots.list(signal), snapshots.lineage(snapshot.id, signal), mayImages ? images.list(signal) : []]), [snapshot.id, mayImages]));
	if (!data) return null;
	const [list, line, known] = data;
	const all = [...list, ...line];
	const chain: Snapshot[] = [snapshot];
	for (let at = snapshot; at.base_digest && chain.length < 100;) {
		const below = all.find((s) => s.digest === at.base_digest && !chain.some((c) => c.id === s.id));
		if (!below) break;
		chain.push((at = below));
	}
	const bottom = chain.at(-1)?.base_digest;
	const image = known.find((i) => i.digest === bottom);
	return (
		<section className="card">
			<h2>Layers</h2>
			<p className="muted lead">Its files lie over those of its base, which stay on the disk as long as it is there.</p>
			<ol className="branches" aria-label="Layers">
				{chain.map((s) => (
					<li key={s.id} className="branch">
						<div className="point" data-current={s.id === snapshot.id}>
							<span className="point-icon" aria-hidden="true"><Camera size={14} /></span>
							<b className="clip">{s.id === snapshot.id || s.deleted_at ? named(s) : <Link href={`/snapshots/${s.id}`}>{named(s)}</Link>}</b>
							{s.deleted_at && <span className="chip">removed</span>}
							<small className="muted">{bytes(s.layer_bytes)} over its base{s.digest && <> · <span className="mono" title={s.digest}>{s.digest.slice(7, 19)}</span></>}</small>
						</div>
					</li>
				))}
				<li className="branch">
					<div className="point">
						<span className="point-icon" aria-hidden="true"><Layers size={14} /></span>
						<b className="clip mono">{image?.ref ?? snapshot.image}</b>
						<span className="chip">image</span>
						<small className="muted">{image ? bytes(image.size_bytes) : bottom ? "another version than the present one" : ""}{bottom && <> · <span className="mono" title={bottom}>{bottom.slice(7, 19)}</span></>}</small>
					</div>
				</li>
			</ol>
		</section>
	);
}

/** Lineage shows the snapshots that one came from, and those that came from it. */
function Lineage({ snapshot }: { snapshot: Snapshot }) {
	const { data, error, reload } = useLoad(useCallback((signal: AbortSignal) => Promise.all([snapshots.lineage(snapshot.id, signal), snapshots.list(signal)]), [snapshot.id]));
	const now = useNow(30_000);
	const [line, list] = data ?? [undefined, []];
	const children = list.filter((s) => s.parent_id === snapshot.id);
	return (
		<section className="card">
			<h2>Lineage</h2>
			<p className="muted lead">The newest first. A snapshot comes from the one that its sandbox was made from, or that had its name and tag before.</p>
			{error && <Failure text={error} retry={reload} />}
			{!line ? !error && <Skeleton label="Loading the lineage" rows={2} /> : (
				<ol className="branches" aria-label="Lineage">
					{[...children, ...line].map((s) => (
						<li key={s.id} className="branch">
							<div className="point" data-current={s.id === snapshot.id}>
								<span className="point-icon" aria-hidden="true"><Camera size={14} /></span>
								<b className="clip">{s.id === snapshot.id || s.deleted_at ? named(s) : <Link href={`/snapshots/${s.id}`}>{named(s)}</Link>}</b>
								{s.id === snapshot.id && <span className="chip">this one</span>}
								{s.parent_id === snapshot.id && <span className="chip">made from this one</span>}
								{s.deleted_at && <span className="chip">removed</span>}
								<small className="muted" title={moment(s.created_at)}>{ago(s.created_at, now)} · {bytes(s.layer_bytes)} added</small>
							</div>
						</li>
					))}
				</ol>
			)}
		</section>
	);
}
