// A notebook of a sandbox: cells of code that run in its contexts, with what they write and show.
import "../../styles/notebook.css";
import { ArrowDown, ArrowUp, CircleStop, Eraser, ListEnd, Play, Plus, RotateCcw, Trash2 } from "lucide-react";
import { memo, Suspense, useCallback, useEffect, useRef, useState, useSyncExternalStore } from "react";
import type { Context } from "../../calls/box.ts";
import { span, type Tone } from "../../format.ts";
import { useAct } from "../../hooks.ts";
import { late } from "../../late.ts";
import type { TabProps } from "../../pages/sandbox.tsx";
import { Confirm, Empty, Failure, Skeleton } from "../../parts.tsx";
import { useSession } from "../../session.ts";
import { OutputView } from "./output.tsx";
import { type Cell, type CellState, known, notebook, type Notebook, runs } from "./state.ts";

const CodeMirror = late(() => import("../codemirror.tsx"));

const names: Record<string, string> = { python: "Python", javascript: "JavaScript", typescript: "TypeScript", bash: "Bash", r: "R" };
/** files are the names of files that have the highlighting of a language. */
const files: Record<string, string> = { python: "cell.py", javascript: "cell.js", typescript: "cell.ts", bash: "cell.sh", r: "cell.r" };
const tones: Record<CellState, Tone> = { new: "quiet", waiting: "busy", running: "busy", ok: "good", error: "bad", interrupted: "warn", timed_out: "bad", lost: "bad" };

export default function NotebookTab({ sb }: TabProps) {
	const { me, store: sandboxes } = useSession();
	const book = notebook(me.user_id, sb.id);
	const view = useSyncExternalStore(book.subscribe, book.snapshot);
	const [focus, setFocus] = useState("");
	const page = useRef<HTMLDivElement>(null);
	const { look, store } = book;
	useEffect(() => {
		const reading = new AbortController();
		void look(reading.signal);
		addEventListener("pagehide", store);
		return () => {
			reading.abort();
			removeEventListener("pagehide", store);
			store();
		};
	}, [look, store]);
	useEffect(() => {
		if (!focus) return;
		page.current?.querySelector<HTMLElement>(`[data-cell="${CSS.escape(focus)}"] .cm-content`)?.focus();
		setFocus("");
	}, [focus]);
	/** run runs a cell, and goes to the next one, which is made after the last. */
	const run = useCallback((id: string, on: boolean) => {
		void book.run(id);
		if (!on) return;
		const { cells } = book.snapshot();
		setFocus(cells[cells.findIndex((c) => c.id === id) + 1]?.id ?? book.add(id));
	}, [book]);
	const busy = view.cells.some(runs);
	/** waits says for which cells a cell waits. */
	const waits = (c: Cell) => {
		if (c.state !== "waiting") return "";
		const ahead = book.ahead(c).map((a) => {
			const at = view.cells.findIndex(({ id }) => id === a.cell);
			return at < 0 ? `a cell of ${sandboxes.snapshot().items.find(({ id }) => id === a.sandbox)?.name ?? a.sandbox}` : `cell ${at + 1}`;
		});
		return ahead.length > 0 ? `waiting for ${ahead.join(" or ")}` : "waiting for the interpreter";
	};
	return (
		<div className="notebook" ref={page}>
			<div className="notebook-tools" role="toolbar" aria-label="Notebook">
				<button type="button" className="button small" onClick={() => setFocus(book.add())}><Plus size={14} aria-hidden="true" />Add a cell</button>
				<button type="button" className="button small" disabled={busy} onClick={() => void book.runAll()}><ListEnd size={14} aria-hidden="true" />Run all</button>
				<button type="button" className="button small" onClick={() => book.clear()}><Eraser size={14} aria-hidden="true" />Clear outputs</button>
				<span className="grow" />
				<ul className="contexts" aria-label="Contexts">{view.contexts.map((c) => <ContextChip key={c.id} book={book} context={c} changed={look} />)}</ul>
			</div>
			{view.error && <Failure text={view.error} retry={() => void look()} />}
			{view.unkept && <p role="alert" className="alert bar">{view.unkept}</p>}
			{view.languages?.length === 0 && (
				<Empty icon={<CircleStop size={22} />} title="The image has no language for a notebook" text="Create a sandbox from the image modbox/data, or one with the package python3-ipykernel, nodejs or bash." />
			)}
			<ol className="cells">
				{view.cells.map((c, i) => <CellView key={c.id} book={book} cell={c} at={i} last={i === view.cells.length - 1} languages={view.languages ?? known} contexts={view.contexts} waits={waits(c)} run={run} />)}
			</ol>
			<p className="notebook-foot muted"><kbd>Shift Enter</kbd> runs a cell and goes to the next, <kbd>Ctrl Enter</kbd> runs it; <kbd>Esc</kbd> <kbd>Tab</kbd> leaves the editor. The cells are kept in this browser tab, variables in the sandbox.</p>
		</div>
	);
}

/** ContextChip shows the state of a context, interrupts its code, and starts it again. */
function ContextChip({ book, context, changed }: { book: Notebook; context: Context; changed: () => Promise<void> }) {
	const { act, busy } = useAct();
	const [asking, setAsking] = useState(false);
	const name = names[context.id] ?? `${names[context.language] ?? context.language} ${context.id.slice(0, 8)}`;
	return (
		<li className="context">
			<span className="state" data-tone={context.state === "busy" ? "busy" : context.state === "idle" ? "good" : "quiet"}>{name} · {context.state}</span>
			{context.state === "busy" && <button type="button" className="icon-button small" disabled={busy} aria-label={`Interrupt ${name}`} title="Interrupt the code that runs" onClick={() => void act(() => book.interruptContext(context.id).then(changed))}><CircleStop size={14} /></button>}
			<button type="button" className="icon-button small" disabled={busy} aria-label={`Restart ${name}`} title="Start it again without its variables" onClick={() => setAsking(true)}><RotateCcw size={14} /></button>
			<Confirm
				open={asking} onClose={() => setAsking(false)} title={`Restart ${name}?`} text="Code that runs in it ends, its variables and imports are gone, and cells that wait for it do not run. The cells and the files of the sandbox stay." action="Restart"
				run={async (signal) => {
					await book.restart(context.id, signal);
					await changed();
				}}
			/>
		</li>
	);
}

interface CellProps {
	book: Notebook;
	cell: Cell;
	at: number;
	last: boolean;
	languages: readonly string[];
	contexts: readonly Context[];
	/** For what the cell waits; "" when it does not. */
	waits: string;
	run: (id: string, on: boolean) => void;
}

const CellView = memo(function CellView({ book, cell, at, last, languages, contexts, waits, run }: CellProps) {
	const { act, busy } = useAct();
	const { id, where } = cell;
	const others = contexts.filter((c) => !known.includes(c.id));
	const language = known.includes(where) ? where : (contexts.find((c) => c.id === where)?.language ?? "python");
	const name = `cell ${at + 1}`;
	return (
		<li>
			<section className="cell-box" data-cell={id} data-state={cell.state} aria-label={`Cell ${at + 1}`}>
				<header className="cell-head">
					{runs(cell) ? <button type="button" className="icon-button small stop" disabled={busy} aria-label={`Interrupt ${name}`} title="Interrupt" onClick={() => void act(() => book.interrupt(id))}><CircleStop size={15} /></button>
						: <button type="button" className="icon-button small run" aria-label={`Run ${name}`} title="Run (Ctrl Enter)" onClick={() => run(id, false)}><Play size={15} /></button>}
					<select aria-label={`Language of ${name}`} value={where} disabled={runs(cell)} onChange={(e) => book.change(id, { where: e.target.value })}>
						{[...new Set([...languages, ...(known.includes(where) ? [where] : [])])].map((l) => <option key={l} value={l}>{names[l]}</option>)}
						{others.map((c) => <option key={c.id} value={c.id}>{names[c.language] ?? c.language} · {c.id.slice(0, 8)}</option>)}
						{!known.includes(where) && !others.some((c) => c.id === where) && <option value={where}>a context that is gone</option>}
					</select>
					<span className="cell-state" role="status">{cell.state !== "new" && <span className="state" data-tone={tones[cell.state]}>{waits || cell.state.replace("_", " ")}</span>}</span>
					{cell.ms !== undefined && <small className="muted">{cell.ms < 1000 ? `${cell.ms} ms` : cell.ms < 60_000 ? `${(cell.ms / 1000).toFixed(1)} s` : span(cell.ms / 1000)}</small>}
					<span className="grow" />
					{cell.count !== undefined && <small className="muted mono" title="The number of the execution in its context">[{cell.count}]</small>}
					<button type="button" className="icon-button small" disabled={at === 0} aria-label={`Move ${name} up`} title="Move up" onClick={() => book.move(id, -1)}><ArrowUp size={14} /></button>
					<button type="button" className="icon-button small" disabled={last} aria-label={`Move ${name} down`} title="Move down" onClick={() => book.move(id, 1)}><ArrowDown size={14} /></button>
					<button type="button" className="icon-button small" disabled={runs(cell)} aria-label={`Remove ${name}`} title="Remove" onClick={() => book.remove(id)}><Trash2 size={14} /></button>
				</header>
				<Suspense fallback={<Skeleton label="Loading the editor" rows={1} />}>
					<CodeMirror small name={files[language] ?? "cell"} text={cell.code} label="Code" onChange={(code) => book.change(id, { code })} onRun={(on) => run(id, on)} />
				</Suspense>
				{cell.outputs.length > 0 && <div className="outputs" role="group" aria-label={`Output of ${name}`}>{cell.outputs.map((o, i) => <OutputView key={i} output={o} />)}</div>}
			</section>
		</li>
	);
});
