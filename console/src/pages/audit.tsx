// The audit log: who did what to which object, and how it ended.
import { ChevronRight, Download, ScrollText, ShieldCheck } from "lucide-react";
import { DropdownMenu } from "radix-ui";
import { useCallback, useEffect, useMemo, useRef, useState } from "react";
import { message } from "../api.ts";
import { download } from "../box/download.ts";
import { accounts } from "../calls/accounts.ts";
import { type Entry, everything, type Filter, type Format, head, page, verify, written } from "../calls/audit.ts";
import { bytes, moment, type Tone } from "../format.ts";
import { useLoad } from "../hooks.ts";
import { Empty, Failure, Field, Skeleton } from "../parts.tsx";
import { useMay, useSession } from "../session.ts";
import { AdminPage, Fact, Segments } from "./shell.tsx";

const pageSize = 100;
/** exported and exportedBytes bound an export, so that it fits into the memory of the browser. */
const exported = 100_000;
const exportedBytes = 200e6;

const outcomes = ["ok", "started", "cancelled", "interrupted", "failed", "forbidden", "unauthenticated", "invalid", "not_found", "quota_exceeded"];
const tones: Record<string, Tone> = { ok: "good", started: "busy", cancelled: "quiet", interrupted: "warn" };

/** useLog reads the log page by page. */
function useLog(filter: Filter) {
	const [state, setState] = useState<{ entries: Entry[]; cursor: string | undefined; loading: boolean; error: string }>({ entries: [], cursor: undefined, loading: true, error: "" });
	const [turn, setTurn] = useState(0);
	const reading = useRef<AbortController>(null);
	const read = useCallback(async (cursor?: string) => {
		reading.current?.abort();
		const now = (reading.current = new AbortController());
		setState((was) => ({ ...was, entries: cursor ? was.entries : [], loading: true, error: "" }));
		try {
			const { items, next_cursor } = await page(filter, pageSize, cursor, now.signal);
			if (now.signal.aborted) return;
			setState((was) => ({ entries: [...was.entries, ...(items ?? [])], cursor: next_cursor, loading: false, error: "" }));
		} catch (err) {
			if (!now.signal.aborted) setState((was) => ({ ...was, loading: false, error: message(err) }));
		}
	}, [filter]);
	useEffect(() => {
		void read();
		return () => reading.current?.abort();
	}, [read, turn]);
	return { ...state, more: () => void read(state.cursor), reload: () => setTurn((n) => n + 1) };
}

const scopes = [{ id: "workspace", name: "This workspace" }, { id: "installation", name: "All workspaces" }] as const;

export default function Audit() {
	const may = useMay();
	const [filter, setFilter] = useState(everything);
	const log = useLog(filter);
	const [typed, setTyped] = useState(everything);
	// Typing asks the server once it pauses.
	useEffect(() => {
		const timer = setTimeout(() => setFilter(typed), 350);
		return () => clearTimeout(timer);
	}, [typed]);
	const set = (change: Partial<Filter>) => setTyped((was) => ({ ...was, ...change }));
	const { me } = useSession();
	const { data: members } = useLoad(useCallback((signal: AbortSignal) => accounts.members(me.workspace_id, signal), [me.workspace_id]));
	const names = useMemo(() => new Map([[me.user_id, me.name], ...(members ?? []).map((m) => [m.user_id, m.name] as const)]), [me, members]);
	const actions = useMemo(() => [...new Set(log.entries.map((e) => e.record.action))].sort(), [log.entries]);
	const narrowed = Object.entries(filter).some(([k, v]) => k !== "installation" && v !== "");
	return (
		<AdminPage
			title="Audit log"
			actions={<>{may("admin") && <Verify />}<Export filter={filter} /></>}
			tools={may("admin") && <Segments label="Records" options={scopes} value={typed.installation ? "installation" : "workspace"} onChange={(id) => set({ installation: id === "installation" })} />}
		>
			<Filters value={typed} set={set} actions={actions} names={names} />
			{log.error && <Failure text={log.error} retry={log.reload} />}
			{log.entries.length > 0 ? (
				<section className="card">
					<ul className="rows log-rows" aria-label="Records">{log.entries.map((e) => <Row key={e.seq} entry={e} names={names} />)}</ul>
					{log.cursor && <div className="more"><button type="button" className="button" disabled={log.loading} onClick={log.more}>{log.loading ? "Loading…" : "Show older records"}</button></div>}
				</section>
			) : log.loading ? <Skeleton label="Loading the audit log" /> : !log.error && (
				<Empty icon={<ScrollText size={22} />} title={narrowed ? "No record fits" : "No records"} text={narrowed ? "Nothing that fits all of these filters is in the log." : "Everything that changes or runs something is recorded here from now on."}>
					{narrowed && <button type="button" className="button" onClick={() => setTyped({ ...everything, installation: typed.installation })}>Show all</button>}
				</Empty>
			)}
		</AdminPage>
	);
}

function Filters({ value, set, actions, names }: { value: Filter; set: (change: Partial<Filter>) => void; actions: string[]; names: ReadonlyMap<string, string> }) {
	const [open, setOpen] = useState(false); // counts on a phone only
	return (
		<section className="card filters" aria-label="Filters" data-open={open}>
			<Field label="Search">{(p) => <input {...p} type="search" value={value.search} placeholder="words" maxLength={200} onChange={(e) => set({ search: e.target.value })} autoComplete="off" spellCheck={false} />}</Field>
			<Field label="Object">{(p) => <input {...p} type="search" value={value.object} placeholder="id or name" onChange={(e) => set({ object: e.target.value })} autoComplete="off" spellCheck={false} />}</Field>
			<Field label="Action">{(p) => (
				<>
					<input {...p} type="search" list="actions" value={value.action} placeholder="exec" onChange={(e) => set({ action: e.target.value })} autoComplete="off" spellCheck={false} />
					<datalist id="actions">{actions.map((a) => <option key={a} value={a} />)}</datalist>
				</>
			)}</Field>
			<Field label="User">{(p) => <select {...p} value={value.user} onChange={(e) => set({ user: e.target.value })}><option value="">everybody</option>{[...names].map(([id, name]) => <option key={id} value={id}>{name}</option>)}</select>}</Field>
			<Field label="Outcome">{(p) => <select {...p} value={value.outcome} onChange={(e) => set({ outcome: e.target.value })}><option value="">any</option>{outcomes.map((o) => <option key={o} value={o}>{o}</option>)}</select>}</Field>
			<Field label="From">{(p) => <input {...p} type="datetime-local" value={value.since} onChange={(e) => set({ since: e.target.value })} />}</Field>
			<Field label="Until">{(p) => <input {...p} type="datetime-local" value={value.until} onChange={(e) => set({ until: e.target.value })} />}</Field>
			<button type="button" className="button small fold-filters" aria-expanded={open} onClick={() => setOpen(!open)}>{open ? "Fewer filters" : "More filters"}</button>
		</section>
	);
}

const shownElsewhere = new Set(["seq", "time", "action", "outcome", "stdout", "stderr"]);

function Row({ entry: { record: r, hash }, names }: { entry: Entry; names: ReadonlyMap<string, string> }) {
	const [open, setOpen] = useState(false);
	const object = r.object_name || r.object_id || "";
	const facts = Object.entries(r).flatMap(([k, v]) => (shownElsewhere.has(k) || typeof v === "object" ? [] : [[k, String(v)] as const]));
	return (
		<li className="wraps">
			<button type="button" className="record" aria-expanded={open} onClick={() => setOpen(!open)}>
				<ChevronRight size={14} aria-hidden="true" />
				<time dateTime={r.time}>{moment(r.time)}</time>
				<b>{r.action}</b>
				<span className="clip">{object}</span>
				<span className="muted clip">{names.get(r.user_id ?? "") ?? r.user_id?.slice(0, 13) ?? r.via ?? r.address}</span>
				<span className="state" data-tone={tones[r.outcome] ?? "bad"}>{r.outcome}</span>
			</button>
			{open && (
				<div className="record-more">
					{r.command && <pre className="mono" aria-label="Command" tabIndex={0}>{r.command.join(" ")}{r.command_truncated && " …"}</pre>}
					<dl className="columns">
						<Fact name="number">{r.seq}</Fact>
						{facts.map(([k, v]) => <Fact key={k} name={k === "duration_ms" ? "duration" : k.replaceAll("_", " ")}><span className="mono">{k === "duration_ms" ? `${v} ms` : v}</span></Fact>)}
						{Object.entries(r.details ?? {}).map(([k, v]) => <Fact key={`details ${k}`} name={k.replaceAll("_", " ")}><span className="mono">{v}</span></Fact>)}
						<Fact name="hash"><span className="mono">{hash}</span></Fact>
					</dl>
					{(["stdout", "stderr"] as const).map((stream) => r[stream] && <pre key={stream} className="mono" aria-label={stream} tabIndex={0}>{r[stream]}</pre>)}
				</div>
			)}
		</li>
	);
}

function Export({ filter }: { filter: Filter }) {
	const { say } = useSession();
	const [read, setRead] = useState(-1);
	const running = useRef<AbortController>(null);
	useEffect(() => () => running.current?.abort(), []);
	const save = async (format: Format) => {
		const now = (running.current = new AbortController());
		const parts: BlobPart[] = [head(format)];
		let count = 0;
		let size = 0;
		setRead(0);
		try {
			let cursor: string | undefined;
			do {
				const next = await page(filter, 1000, cursor, now.signal);
				const part = written(next.items ?? [], format);
				parts.push(part);
				size += part.size;
				cursor = next.next_cursor;
				setRead((count += next.items?.length ?? 0));
			} while (cursor && count < exported && size < exportedBytes);
			await download(new Response(new Blob(parts)), `audit.${format}`);
			say(cursor ? `The newest ${count.toLocaleString()} records are exported, ${bytes(size)}. Narrow the time for the others, or use modbox audit export.` : `${count.toLocaleString()} records are exported`);
		} catch (err) {
			if (!now.signal.aborted) say(message(err), true);
		}
		setRead(-1);
	};
	return (
		<DropdownMenu.Root>
			<DropdownMenu.Trigger className="button" disabled={read >= 0}><Download size={15} aria-hidden="true" />{read < 0 ? "Export" : `${read.toLocaleString()} records…`}</DropdownMenu.Trigger>
			<DropdownMenu.Portal>
				<DropdownMenu.Content className="menu" align="end" sideOffset={4}>
					<DropdownMenu.Label className="menu-label">The records that fit the filters</DropdownMenu.Label>
					<DropdownMenu.Item className="menu-item" onSelect={() => void save("csv")}>CSV, for a spreadsheet</DropdownMenu.Item>
					<DropdownMenu.Item className="menu-item" onSelect={() => void save("jsonl")}>JSON lines, with hashes</DropdownMenu.Item>
				</DropdownMenu.Content>
			</DropdownMenu.Portal>
		</DropdownMenu.Root>
	);
}

/** Verify checks the chain of the whole log. */
function Verify() {
	const { say } = useSession();
	const [busy, setBusy] = useState(false);
	const run = async () => {
		setBusy(true);
		try {
			const report = await verify();
			say(report.ok ? `All ${report.records.toLocaleString()} records are unchanged; the head is ${report.head_seq}:${report.head_hash.slice(0, 12)}…` : `The log is not what it was: ${report.problem}`, !report.ok);
		} catch (err) {
			say(message(err), true);
		}
		setBusy(false);
	};
	return <button type="button" className="button" disabled={busy} onClick={() => void run()}><ShieldCheck size={15} aria-hidden="true" />{busy ? "Verifying…" : "Verify"}</button>;
}
