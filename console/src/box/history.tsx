// The checkpoints of a sandbox and its forks as a tree, to save, go back, and fork.
import "../styles/box.css";
import { Bookmark, Camera, CircleDot, GitFork, RotateCcw, Save, Trash2 } from "lucide-react";
import { type ReactNode, useCallback, useMemo, useState } from "react";
import { Link } from "wouter";
import type { Sandbox, SandboxEvent } from "../api.ts";
import { box, type Checkpoint } from "../calls/box.ts";
import { ago, bytes, hasEnded, moment } from "../format.ts";
import { useLoad, useNow, useSandboxes } from "../hooks.ts";
import { Confirm, Empty, Failure, Skeleton, State } from "../parts.tsx";
import { useSession } from "../session.ts";
import { Ask } from "./ask.tsx";

interface Props {
	sb: Sandbox;
	/** The sandbox's events, the newest first: they say at which checkpoint it stands. */
	events: SandboxEvent[];
	onChange: (sb: Sandbox) => void;
}

/** standing returns the id of the checkpoint that was made or restored last. */
function standing(list: Checkpoint[], events: SandboxEvent[]): string {
	const known = new Set(list.map((c) => c.id));
	for (const e of events) {
		const id = e.data?.checkpoint;
		if (typeof id === "string" && known.has(id)) return id;
	}
	return list.at(-1)?.id ?? "";
}

export default function History({ sb, events, onChange }: Props) {
	const { mayWrite, store, say } = useSession();
	const { items } = useSandboxes();
	const last = events.find((e) => e.data?.checkpoint)?.seq; // someone has saved, restored or removed a checkpoint
	const { data, error, reload } = useLoad(useCallback((signal: AbortSignal) => (void last, box.checkpoints(sb.id, signal)), [sb.id, last]));
	const [asking, setAsking] = useState<"save" | "fork" | "snapshot" | null>(null);
	const forks = useMemo(() => items.filter((s) => s.parent_id === sb.id), [items, sb.id]);
	const usable = mayWrite && (sb.state === "running" || sb.state === "paused");
	const close = () => setAsking(null);
	const fork = async (text: string, signal: AbortSignal) => {
		const count = Number(text || "1");
		if (!Number.isInteger(count) || count < 1) throw new Error("Enter how many forks to make, from 1.");
		const made = (await box.fork(sb.id, count, signal)).forks ?? [];
		for (const f of made) if (f.sandbox) store.put(f.sandbox);
		const failed = made.find((f) => f.error);
		if (failed) throw new Error(failed.error?.detail ?? "A fork did not start.");
		say(made.length === 1 ? `${made[0]?.sandbox?.name ?? "The fork"} runs` : `${made.length} forks run`);
	};
	return (
		<div className="stack">
			<section className="card">
				<h2>Checkpoints and forks <span className="grow" />
					{usable && (
						<span className="buttons">
							<button type="button" className="button small" onClick={() => setAsking("save")}><Save size={14} aria-hidden="true" />Save a checkpoint</button>
							<button type="button" className="button small" onClick={() => setAsking("fork")}><GitFork size={14} aria-hidden="true" />Fork</button>
							<button type="button" className="button small" onClick={() => setAsking("snapshot")}><Camera size={14} aria-hidden="true" />Snapshot</button>
						</span>
					)}
				</h2>
				<p className="muted lead">A checkpoint has the memory and the files of the sandbox at a moment: going back brings both. A fork is a sandbox of its own that begins where this one is.</p>
				{error && <Failure text={error} retry={reload} />}
				{!data ? !error && <Skeleton label="Loading the checkpoints" rows={3} />
					: <Branches sb={sb} list={data} at={standing(data, events)} forks={forks} usable={usable} reload={reload} onChange={onChange} />}
			</section>
			<Ask open={asking === "save"} onClose={close} title="Save a checkpoint" label="Name" hint="Made up when empty. A running sandbox stands still while it is saved." action="Save" optional run={async (name, signal) => { await box.save(sb.id, name, signal); reload(); }} />
			<Ask open={asking === "fork"} onClose={close} title={`Fork ${sb.name}`} label="How many" hint="Each has the memory, processes and files of this sandbox as they are now; 1 when empty." action="Fork" optional run={fork} />
			<Ask open={asking === "snapshot"} onClose={close} title="Make a snapshot" label="Name" hint="Saves the files alone, for new sandboxes. Made up when empty." action="Make" optional run={async (name, signal) => { const made = await box.snapshot(sb.id, name, signal); say(`Snapshot ${made.full_name} is made`); }} />
		</div>
	);
}

function Branches({ sb, list, at, forks, usable, reload, onChange }: { sb: Sandbox; list: Checkpoint[]; at: string; forks: Sandbox[]; usable: boolean; reload: () => void; onChange: (sb: Sandbox) => void }) {
	if (list.length === 0 && forks.length === 0) {
		return <Empty icon={<Bookmark size={22} />} title={hasEnded(sb.state) ? "The sandbox has ended" : "No checkpoints yet"} text={hasEnded(sb.state) ? "Its checkpoints are removed with it. Forks and snapshots of it stay." : "Save one before something risky, and go back to it when it goes wrong."} />;
	}
	const known = new Set(list.map((c) => c.id));
	const below = (parent: string) => list.filter((c) => (c.parent_id && known.has(c.parent_id) ? c.parent_id : "") === parent);
	const now = <li key="now" className="branch"><Point current icon={<CircleDot size={15} />} title="Now" more={<State state={sb.state} />} /></li>;
	const branch = (parent: string): ReactNode[] => [
		...below(parent).map((c) => (
			<li key={c.id} className="branch">
				<Saved sb={sb} point={c} usable={usable} reload={reload} onChange={onChange} />
				{(below(c.id).length > 0 || at === c.id) && <ul>{branch(c.id)}</ul>}
			</li>
		)),
		...(at === parent || (parent === "" && !known.has(at)) ? [now, ...forks.map((f) => (
			<li key={f.id} className="branch"><Point icon={<GitFork size={15} />} title={<Link href={`/sandboxes/${f.id}`}>{f.name}</Link>} more={<State state={f.state} />} time={f.created_at} /></li>
		))] : []),
	];
	return <ul className="branches" aria-label="Checkpoints and forks">{branch("")}</ul>;
}

function Point({ icon, title, more, time, current, children }: { icon: ReactNode; title: ReactNode; more?: ReactNode; time?: string; current?: boolean; children?: ReactNode }) {
	const now = useNow(10_000);
	return (
		<div className="point" data-current={current}>
			<span className="point-icon" aria-hidden="true">{icon}</span>
			<b className="clip">{title}</b>{more}
			{time && <small className="muted" title={moment(time)}>{ago(time, now)}</small>}
			<span className="grow" />{children}
		</div>
	);
}

function Saved({ sb, point, usable, reload, onChange }: { sb: Sandbox; point: Checkpoint; usable: boolean; reload: () => void; onChange: (sb: Sandbox) => void }) {
	const [asking, setAsking] = useState<"restore" | "remove" | null>(null);
	const { say } = useSession();
	return (
		<Point icon={<Bookmark size={15} />} title={point.name} time={point.created_at} more={<small className="muted">{bytes(point.size_bytes)}</small>}>
			{usable && (
				<>
					<button type="button" className="button small" aria-label={`Go back to ${point.name}`} onClick={() => setAsking("restore")}><RotateCcw size={14} aria-hidden="true" />Go back</button>
					<button type="button" className="icon-button small" aria-label={`Remove checkpoint ${point.name}`} title="Remove" onClick={() => setAsking("remove")}><Trash2 size={14} /></button>
				</>
			)}
			<Confirm open={asking === "restore"} onClose={() => setAsking(null)} title={`Go back to ${point.name}?`} text="Memory and files become what they were. What has happened since is lost, unless a checkpoint has it; connections break." action="Go back" run={async (signal) => { onChange(await box.restore(sb.id, point.id, signal)); reload(); say(`${sb.name} is as it was at ${point.name}`); }} />
			<Confirm open={asking === "remove"} onClose={() => setAsking(null)} title={`Remove checkpoint ${point.name}?`} text="The sandbox cannot go back to it any more." action="Remove" run={async (signal) => { await box.forget(sb.id, point.id, signal); reload(); }} />
		</Point>
	);
}
