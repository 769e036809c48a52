import { useVirtualizer } from "@tanstack/react-virtual";
import { Boxes, CircleAlert, Pause, Play, Plus, Search, Trash2, X } from "lucide-react";
import { memo, useCallback, useEffect, useMemo, useRef, useState, useSyncExternalStore } from "react";
import { Link, useLocation } from "wouter";
import { api, message, type Sandbox, type SandboxState } from "../api.ts";
import { bytes, ended as endedStates, moment, quantity, since, until } from "../format.ts";
import { useKeys, useNow, useSandboxes, useTitle } from "../hooks.ts";
import { Confirm, Empty, State } from "../parts.tsx";
import { useSession } from "../session.ts";
import { Spark } from "../spark.tsx";
import { pausable, resumable, SandboxMenu } from "../actions.tsx";
import { inTurn } from "../work.ts";

type Filter = "live" | "running" | "paused" | "starting" | "ended";
const filters: { id: Filter; name: string; states: SandboxState[] | null }[] = [
	{ id: "live", name: "All", states: null },
	{ id: "running", name: "Running", states: ["running"] },
	{ id: "paused", name: "Paused", states: ["paused", "pausing", "resuming"] },
	{ id: "starting", name: "Starting", states: ["provisioning"] },
	{ id: "ended", name: "Ended", states: endedStates },
];
/** endedMost is how many ended sandboxes are shown, the newest. */
const endedMost = 1000;

/** matcher returns whether a sandbox has all words of a search in its name, id, image or labels. */
function matcher(search: string): (sb: Sandbox) => boolean {
	const words = search.toLowerCase().split(/\s+/).filter(Boolean);
	if (words.length === 0) return () => true;
	return (sb) => {
		const text = `${sb.name} ${sb.id} ${sb.image} ${Object.entries(sb.labels ?? {}).map(([k, v]) => `${k}=${v}`).join(" ")}`.toLowerCase();
		return words.every((w) => text.includes(w));
	};
}

export function ListPage() {
	useTitle("Sandboxes");
	const { mayWrite, create, store } = useSession();
	const { items, complete, connected, error } = useSandboxes();
	const [filter, setFilter] = useState<Filter>("live");
	const [search, setSearch] = useState("");
	const ended = useEnded(filter === "ended");
	const searchRef = useRef<HTMLInputElement>(null);

	const counts = useMemo(() => new Map(filters.map((f) => [f.id, f.states ? items.reduce((n, s) => n + (f.states?.includes(s.state) ? 1 : 0), 0) : items.length])), [items]);
	const rows = useMemo(() => {
		const states = filters.find((f) => f.id === filter)?.states;
		const fits = matcher(search);
		return (filter === "ended" ? ended.items : items).filter((s) => (!states || states.includes(s.state)) && fits(s));
	}, [items, ended.items, filter, search]);

	useKeys(useCallback((e) => {
		if (e.key === "/") {
			e.preventDefault();
			searchRef.current?.focus();
		} else if (e.key === "c" && mayWrite) {
			e.preventDefault();
			create();
		}
	}, [mayWrite, create]));

	const loading = filter === "ended" ? ended.loading : !complete;
	const failure = filter === "ended" ? ended.error : error;
	return (
		<div className="page list-page">
			<header className="page-head">
				<h1>Sandboxes</h1>
				<span className="live" data-on={connected} title={connected ? "Changes are shown as they happen" : "The connection is broken; it is being made again"}>{connected ? "Live" : "Connecting…"}</span>
				<span className="grow" />
				{mayWrite && <button type="button" className="button primary" onClick={create}><Plus size={16} aria-hidden="true" />Create <kbd>C</kbd></button>}
			</header>
			<div className="toolbar">
				<label className="search">
					<Search size={15} aria-hidden="true" />
					<input ref={searchRef} type="search" aria-label="Search by name, id, image or label" placeholder="Search by name, id, image or label" value={search} onChange={(e) => setSearch(e.target.value)} onKeyDown={(e) => {
						if (e.key === "Escape") setSearch("");
						if (e.key === "Escape" || e.key === "Enter") e.currentTarget.blur(); // the keys of the list count again
					}} />
					<kbd>/</kbd>
				</label>
				<div className="segments" role="group" aria-label="State">
					{filters.map((f) => (
						<button key={f.id} type="button" aria-pressed={filter === f.id} onClick={() => setFilter(f.id)}>
							{f.name}{f.id !== "ended" && <small>{counts.get(f.id)}</small>}
						</button>
					))}
				</div>
			</div>
			{failure && (
				<p role="alert" className="alert bar"><CircleAlert size={16} aria-hidden="true" />{failure}<button type="button" className="button small" onClick={filter === "ended" ? ended.reload : store.reload}>Try again</button></p>
			)}
			{rows.length > 0 ? (
				<Table key={filter} rows={rows} isEnded={filter === "ended"} />
			) : loading ? (
				<div className="skeleton" aria-busy="true" role="status"><span className="visually-hidden">Loading the list</span>{Array.from({ length: 8 }, (_, i) => <i key={i} />)}</div>
			) : failure ? null : search || filter !== "live" ? (
				<Empty icon={<Search size={22} />} title="No sandbox fits" text={search ? <>Nothing in this view has “{search}” in its name, id, image or labels.</> : "No sandbox is in this state now."}>
					<button type="button" className="button" onClick={() => { setSearch(""); setFilter("live"); }}>Show all</button>
				</Empty>
			) : (
				<Empty icon={<Boxes size={22} />} title="No sandboxes yet" text={mayWrite ? "A sandbox is an isolated Linux machine that starts in a moment. Create one here, with an SDK, or with the command line." : "Your role in this workspace lets you look. When a member creates a sandbox, it appears here."}>
					{mayWrite && <button type="button" className="button primary" onClick={create}><Plus size={16} aria-hidden="true" />Create a sandbox</button>}
				</Empty>
			)}
		</div>
	);
}

/** useEnded reads the ended sandboxes when they are shown. */
function useEnded(wanted: boolean) {
	const [state, setState] = useState<{ items: Sandbox[]; loading: boolean; error: string }>({ items: [], loading: true, error: "" });
	const [turn, setTurn] = useState(0);
	useEffect(() => {
		if (!wanted) return;
		const reading = new AbortController();
		setState((was) => ({ ...was, loading: true, error: "" }));
		api.sandboxes(endedStates, endedMost, undefined, reading.signal).then(
			(items) => setState({ items, loading: false, error: "" }),
			(err: unknown) => !reading.signal.aborted && setState({ items: [], loading: false, error: message(err) }),
		);
		return () => reading.abort();
	}, [wanted, turn]);
	return { ...state, reload: () => setTurn((n) => n + 1) };
}

const rowHeight = 44;
const phoneHeight = 64;

function usePhone(): boolean {
	const [phone, setPhone] = useState(() => matchMedia("(max-width: 760px)").matches);
	useEffect(() => {
		const query = matchMedia("(max-width: 760px)");
		const listen = () => setPhone(query.matches);
		query.addEventListener("change", listen);
		return () => query.removeEventListener("change", listen);
	}, []);
	return phone;
}

/** Table shows the rows that are in view, however many there are. */
function Table({ rows, isEnded }: { rows: Sandbox[]; isEnded: boolean }) {
	const { mayWrite } = useSession();
	const phone = usePhone();
	const scroller = useRef<HTMLDivElement>(null);
	const virtual = useVirtualizer({ count: rows.length, getScrollElement: () => scroller.current, estimateSize: () => (phone ? phoneHeight : rowHeight), overscan: 8 });
	useEffect(() => virtual.measure(), [phone, virtual]);
	const [chosen, setChosen] = useState<ReadonlySet<string>>(new Set());
	const [cursor, setCursor] = useState(-1);
	const [, navigate] = useLocation();
	const now = useNow();
	const selectable = mayWrite && !isEnded;

	// Sandboxes that have gone are not chosen any more.
	const selected = useMemo(() => rows.filter((s) => chosen.has(s.id)), [rows, chosen]);
	const toggle = useCallback((id: string) => setChosen((was) => {
		const next = new Set(was);
		if (!next.delete(id)) next.add(id);
		return next;
	}), []);

	useKeys(useCallback((e) => {
		const step = e.key === "j" || e.key === "ArrowDown" ? 1 : e.key === "k" || e.key === "ArrowUp" ? -1 : 0;
		const at = rows[cursor];
		if (step) {
			e.preventDefault();
			const next = Math.min(rows.length - 1, Math.max(0, cursor + step));
			setCursor(next);
			virtual.scrollToIndex(next);
		} else if (at && e.key === "x" && selectable) {
			toggle(at.id);
		} else if (at && e.key === "Enter" && !(e.target as HTMLElement).closest("a, button")) {
			navigate(`/sandboxes/${at.id}`);
		} else if (e.key === "Escape") {
			setChosen(new Set());
		}
	}, [rows, cursor, virtual, selectable, toggle, navigate]));

	return (
		<>
			<div className="table" role="table" aria-label="Sandboxes" aria-rowcount={rows.length + 1} data-selectable={selectable}>
				<div role="rowgroup" className="table-head">
					<div role="row" aria-rowindex={1} className="row head">
						{selectable && (
							<span role="columnheader" className="cell check">
								<input type="checkbox" aria-label="Choose all" checked={selected.length === rows.length} ref={(e) => { if (e) e.indeterminate = selected.length > 0 && selected.length < rows.length; }} onChange={(e) => setChosen(e.target.checked ? new Set(rows.map((s) => s.id)) : new Set())} />
							</span>
						)}
						<span role="columnheader" className="cell">Name</span>
						<span role="columnheader" className="cell">State</span>
						<span role="columnheader" className="cell wide-only">Image</span>
						<span role="columnheader" className="cell wide-only">Limits</span>
						<span role="columnheader" className="cell wide-only">{!isEnded && "CPU · memory"}</span>
						<span role="columnheader" className="cell number">{isEnded ? "Ended" : "Age"}</span>
						<span role="columnheader" className="cell number">{isEnded ? "Cause" : "Ends in"}</span>
						<span role="columnheader" className="cell"><span className="visually-hidden">Actions</span></span>
					</div>
				</div>
				<div role="rowgroup" className="table-body" ref={scroller} tabIndex={0} aria-label="Rows">
					<div role="presentation" style={{ height: virtual.getTotalSize(), position: "relative" }}>
						{virtual.getVirtualItems().map((v) => {
							const sb = rows[v.index];
							return sb && <Row key={sb.id} sb={sb} index={v.index} top={v.start} height={v.size} now={now} selectable={selectable} isEnded={isEnded} chosen={chosen.has(sb.id)} current={v.index === cursor} toggle={toggle} />;
						})}
					</div>
				</div>
			</div>
			{selected.length > 0 && <Bulk selected={selected} clear={() => setChosen(new Set())} />}
		</>
	);
}

interface RowProps {
	sb: Sandbox;
	index: number;
	top: number;
	height: number;
	now: number;
	selectable: boolean;
	isEnded: boolean;
	chosen: boolean;
	current: boolean;
	toggle: (id: string) => void;
}

const Row = memo(function Row({ sb, index, top, height, now, selectable, isEnded, chosen, current, toggle }: RowProps) {
	const deadline = sb.state === "paused" ? (sb.paused_deadline ?? sb.deadline) : sb.deadline;
	return (
		<div role="row" aria-rowindex={index + 2} className="row" data-chosen={chosen} data-current={current} style={{ position: "absolute", top: 0, left: 0, right: 0, height, transform: `translateY(${top}px)` }}>
			{selectable && <span role="cell" className="cell check"><input type="checkbox" aria-label={`Choose ${sb.name}`} checked={chosen} onChange={() => toggle(sb.id)} /></span>}
			<span role="cell" className="cell name"><Link href={`/sandboxes/${sb.id}`} className="clip">{sb.name}</Link><small className="mono clip">{sb.id.slice(0, 13)}</small></span>
			<span role="cell" className="cell"><State state={sb.state} filesOnly={sb.paused_without_memory} /></span>
			<span role="cell" className="cell wide-only clip muted" title={sb.image}>{sb.image || sb.snapshot_id || "–"}</span>
			<span role="cell" className="cell wide-only clip muted mono">{[sb.resources.cpu, sb.resources.memory].filter(Boolean).join(" · ")}</span>
			<span role="cell" className="cell wide-only use">{sb.state === "running" && <Sparks sb={sb} />}</span>
			<span role="cell" className="cell number" title={moment(isEnded ? (sb.ended_at ?? sb.updated_at) : sb.created_at)}>{!isEnded && <span className="phone-only">age </span>}{since(isEnded ? (sb.ended_at ?? sb.updated_at) : sb.created_at, now)}{isEnded && " ago"}</span>
			<span role="cell" className="cell number muted clip" title={isEnded ? sb.cause?.message : deadline && moment(deadline)}>{isEnded ? (sb.cause?.code ?? "–") : deadline ? <><span className="phone-only">ends in </span>{until(deadline, now)}</> : <>never<span className="phone-only"> ends</span></>}</span>
			<span role="cell" className="cell end"><SandboxMenu sb={sb} /></span>
		</div>
	);
});

/** sparkLeast is how many measurements a curve has place for at first. */
const sparkLeast = 6;

/** Sparks shows what a sandbox has used in the last minutes. */
function Sparks({ sb: { id, resources } }: { sb: Sandbox }) {
	const { use } = useSession().store;
	const samples = useSyncExternalStore(use.subscribe, () => use.of(id));
	const now = samples.at(-1);
	if (!now) return <span className="muted" title="It has not been measured twice yet">–</span>;
	const room = Math.max(samples.length, sparkLeast); // the curves grow until they fill their place
	return (
		<>
			<Spark values={samples.map((s) => s.cpu)} top={quantity(resources.cpu) ?? 0} room={room} label={`CPU: ${Math.round(now.cpu * 100)} % of a core`} />
			<Spark values={samples.map((s) => s.memory)} top={quantity(resources.memory) ?? 0} room={room} label={`Memory: ${bytes(now.memory)} of ${resources.memory}`} />
		</>
	);
}

/** Bulk acts on all chosen sandboxes. */
function Bulk({ selected, clear }: { selected: Sandbox[]; clear: () => void }) {
	const { store, say } = useSession();
	const [asking, setAsking] = useState<"pause" | "resume" | "destroy" | null>(null);
	const [memory, setMemory] = useState(true);
	const running = selected.filter(pausable);
	const paused = selected.filter(resumable);
	const act = async (list: Sandbox[], call: (id: string, signal: AbortSignal) => Promise<Sandbox>, done: string, signal: AbortSignal) => {
		const errors = await inTurn(list, async (sb) => store.put(await call(sb.id, signal)), signal);
		if (signal.aborted) say(`You stopped: ${list.length - errors.length} of ${list.length} ${done}. Requests under way may still take effect.`, true);
		if (errors.length > 0) throw new Error(`${list.length - errors.length} of ${list.length} ${done}. ${message(errors[0])}`);
		say(`${list.length} ${list.length === 1 ? "sandbox" : "sandboxes"} ${done}`);
		clear();
	};
	const names = (list: Sandbox[]) => <ul className="names">{list.slice(0, 6).map((s) => <li key={s.id} className="clip">{s.name}</li>)}{list.length > 6 && <li>and {list.length - 6} more</li>}</ul>;
	return (
		<div className="bulk" role="toolbar" aria-label="Chosen sandboxes">
			<b>{selected.length} chosen</b>
			<button type="button" className="button small" disabled={running.length === 0} onClick={() => { setMemory(true); setAsking("pause"); }}><Pause size={14} aria-hidden="true" />Pause</button>
			<button type="button" className="button small" disabled={paused.length === 0} onClick={() => setAsking("resume")}><Play size={14} aria-hidden="true" />Resume</button>
			<button type="button" className="button small danger" onClick={() => setAsking("destroy")}><Trash2 size={14} aria-hidden="true" />Destroy</button>
			<button type="button" className="icon-button small" aria-label="Choose none" onClick={clear}><X size={14} /></button>
			<Confirm open={asking === "pause"} onClose={() => setAsking(null)} title={`Pause ${running.length} running ${running.length === 1 ? "sandbox" : "sandboxes"}?`} text={(
				<>
					{memory ? "Their memory and files are saved, and their connections break. The next call resumes them." : "Their processes are ended, and what they have in memory is lost. Their files are saved, and the next call starts them anew with these."}
					<label className="checkbox"><input type="checkbox" checked={memory} onChange={(e) => setMemory(e.target.checked)} /><span>Save their memory</span></label>
					{names(running)}
				</>
			)} action="Pause" mild run={(signal) => act(running, memory ? api.pause : api.pauseFiles, "paused", signal)} />
			<Confirm open={asking === "resume"} onClose={() => setAsking(null)} title={`Resume ${paused.length} paused ${paused.length === 1 ? "sandbox" : "sandboxes"}?`} text={<>They go on where they were.{names(paused)}</>} action="Resume" mild run={(signal) => act(paused, api.resume, "resumed", signal)} />
			<Confirm open={asking === "destroy"} onClose={() => setAsking(null)} title={`Destroy ${selected.length} ${selected.length === 1 ? "sandbox" : "sandboxes"}?`} text={<>Their processes, memory and files are gone for good.{names(selected)}</>} action="Destroy" run={(signal) => act(selected, api.destroy, "destroyed", signal)} />
		</div>
	);
}
