// The cells of a notebook and the code that runs in them. They outlive the tab: code runs on while other pages are
// shown, and a page that is loaded again has the cells of the browser's session.
import { message } from "../../api.ts";
import { atSignOut } from "../../session.ts";
import { box, type CodeError, type CodeEvent, type CodeOutput, type Context } from "../../calls/box.ts";
import { CellQueue } from "./queue.ts";

export type Output = { kind: "text"; stream: "stdout" | "stderr"; text: string } | { kind: "value"; value: CodeOutput; restored?: boolean } | { kind: "error"; error: CodeError } | { kind: "note"; text: string };
export type CellState = "new" | "waiting" | "running" | "ok" | "error" | "interrupted" | "timed_out" | "lost";

export interface Cell {
	id: string;
	/** The language, whose default context runs the code, or the id of another context. */
	where: string;
	code: string;
	state: CellState;
	outputs: readonly Output[];
	/** The number of the execution in its interpreter. */
	count?: number;
	ms?: number;
}

export interface View {
	cells: readonly Cell[];
	contexts: readonly Context[];
	/** The languages that the sandbox has; null until they are known. */
	languages: readonly string[] | null;
	/** Why the languages or contexts could not be read. */
	error: string;
	/** What the browser's session has no room for. */
	unkept: string;
}

export const known = ["python", "javascript", "typescript", "bash", "r"];
export const runs = (c: Cell) => c.state === "waiting" || c.state === "running";

/** textMost is how much of a text is kept or shown, in characters: the end of what a stream brings, the beginning of a value. */
export const textMost = 200_000;
/** outputsMost is how many outputs a cell keeps, the newest. */
const outputsMost = 500;

/** interruptMost is how long the stream of a cell may be silent after an interruption, in milliseconds. The server fills a silence of 15 seconds. */
const interruptMost = 20_000;

/** probe writes the languages that an image has. */
const probe = `for p in python3 python /usr/bin/python3; do
  "$p" -c 'import importlib.util, sys; sys.exit(importlib.util.find_spec("ipykernel") is None)' 2>/dev/null && echo python && break
done
n=$(command -v node || command -v nodejs) && echo javascript && "$n" -e '
const { createRequire, stripTypeScriptTypes } = require("node:module");
const from = [process.execPath + "/../../lib/node_modules/x.js", "/usr/share/nodejs/x.js", "/usr/local/lib/node_modules/x.js", process.cwd() + "/x.js"];
const has = (name) => from.some((f) => { try { createRequire(require("node:path").resolve(f)).resolve(name); return true; } catch { return false; } });
process.exit(stripTypeScriptTypes || has("esbuild") || has("typescript") ? 0 : 1)' 2>/dev/null && echo typescript
command -v bash >/dev/null && echo bash
command -v R >/dev/null && R --slave -e 'quit(status = !nzchar(system.file(package = "IRkernel")))' >/dev/null 2>&1 && echo r
true`;

const prefix = "modbox.notebook.";
const notebooks = new Map<string, Notebook>();
const queue = new CellQueue(() => {
	for (const book of notebooks.values()) book.turned();
});
atSignOut(() => {
	for (const book of notebooks.values()) book.end();
	notebooks.clear();
});

/** notebook returns the notebook of a user for a sandbox. */
export function notebook(user: string, sandbox: string): Notebook {
	const key = `${prefix}${user}.${sandbox}`;
	let found = notebooks.get(key);
	if (!found) notebooks.set(key, (found = new Notebook(key, sandbox)));
	return found;
}

/** withoutOutputs replaces the outputs of cells by a note. */
const withoutOutputs = (cells: readonly Cell[]): Cell[] => cells.map((c) => (c.outputs.length > 0 ? { ...c, outputs: [{ kind: "note", text: "The outputs were too large to be kept when the page was loaded again." }] } : c));

const newCell = (where: string, code = ""): Cell => ({ id: crypto.randomUUID(), where, code, state: "new", outputs: [] });

export class Notebook {
	#view: View;
	#listeners = new Set<() => void>();
	#timer: ReturnType<typeof setTimeout> | undefined;
	#ended = false;
	/** Whether outputs of other sandboxes were dropped to make room. */
	#trimmed = false;
	/** The cells that have the turn, with what ends their streams, and the number of lines that came. */
	#running = new Map<string, { stop: AbortController; lines: number }>();

	constructor(
		private readonly key: string,
		private readonly sandbox: string,
	) {
		this.#view = { cells: this.#stored() ?? [newCell("python")], contexts: [], languages: null, error: "", unkept: "" };
	}

	subscribe = (call: () => void) => {
		this.#listeners.add(call);
		return () => void this.#listeners.delete(call);
	};
	snapshot = () => this.#view;

	#publish(change: Partial<View>) {
		if (this.#ended) return;
		this.#view = { ...this.#view, ...change };
		for (const call of this.#listeners) call();
		if (change.cells) this.#timer ??= setTimeout(this.store, 300);
	}

	/** turned shows which cells the waiting ones wait for. */
	turned() {
		this.#publish({});
	}

	/** end makes the notebook run no more cells, and write nothing more to the browser's session. The server interrupts code whose stream ends. */
	end() {
		this.#ended = true;
		for (const { stop } of this.#running.values()) stop.abort();
		for (const c of this.#view.cells) queue.drop(c.id);
		clearTimeout(this.#timer);
	}

	/** store writes the cells to the browser's session. When they do not fit, it leaves out their outputs, and then drops those of other sandboxes. It drops no code. */
	store = () => {
		clearTimeout(this.#timer);
		this.#timer = undefined;
		if (this.#ended) return;
		const { cells } = this.#view;
		const least = withoutOutputs(cells);
		let all = keep(this.key, cells);
		let code = all || keep(this.key, least);
		if (!code) {
			for (const key of Object.keys(sessionStorage)) if (key.startsWith(prefix) && key !== this.key && trim(key)) this.#trimmed = true;
			all = keep(this.key, cells);
			code = all || keep(this.key, least);
		}
		const said: string[] = [];
		if (!code) said.push("The browser has no room for the cells of this notebook: changes of the code are gone when the page is loaded again. Copy the code to a file.");
		else if (!all) said.push("The browser has no room for the outputs of this notebook: they are gone when the page is loaded again. The code is kept.");
		if (this.#trimmed) said.push("To make room, the outputs of notebooks of other sandboxes were dropped. Their code is kept.");
		const unkept = said.join(" ");
		if (unkept !== this.#view.unkept) this.#publish({ unkept });
	};

	#stored(): Cell[] | null {
		try {
			const cells = JSON.parse(sessionStorage.getItem(this.key) ?? "null") as Cell[] | null;
			if (!cells?.length) return null;
			// The server interrupts code whose page goes.
			return cells.map((c) => (runs(c) ? { ...c, state: "interrupted", outputs: [...restored(c.outputs), { kind: "note", text: "The page was left or loaded again while this ran." }] } : { ...c, outputs: restored(c.outputs) }));
		} catch {
			return null;
		}
	}

	/** look reads the languages, once, and the contexts. */
	look = async (signal?: AbortSignal) => {
		try {
			if (!this.#view.languages) {
				const { stdout } = await box.exec(this.sandbox, probe, signal);
				const languages = known.filter((l) => stdout.split("\n").includes(l));
				this.#publish({ languages });
				const first = languages[0];
				if (first) this.#publish({ cells: this.#view.cells.map((c) => (c.state === "new" && !c.code && !languages.includes(c.where) ? { ...c, where: first } : c)) });
			}
			await this.readContexts(signal);
		} catch (err) {
			if (!signal?.aborted) this.#publish({ error: message(err) });
		}
	};

	readContexts = async (signal?: AbortSignal) => {
		this.#publish({ contexts: await box.contexts(this.sandbox, signal), error: "" });
	};

	change(id: string, change: Partial<Cell> | ((was: Cell) => Partial<Cell>)) {
		this.#publish({ cells: this.#view.cells.map((c) => (c.id === id ? { ...c, ...(typeof change === "function" ? change(c) : change) } : c)) });
	}

	/** add adds a cell after another, or at the end, and returns its id. */
	add(after?: string): string {
		const { cells } = this.#view;
		const at = after ? cells.findIndex((c) => c.id === after) + 1 : cells.length;
		const cell = newCell(cells[at - 1]?.where ?? this.#view.languages?.[0] ?? "python");
		this.#publish({ cells: cells.toSpliced(at, 0, cell) });
		return cell.id;
	}

	remove(id: string) {
		const left = this.#view.cells.filter((c) => c.id !== id);
		this.#publish({ cells: left.length > 0 ? left : [newCell(this.#view.languages?.[0] ?? "python")] });
	}

	move(id: string, by: number) {
		const cells = [...this.#view.cells];
		const at = cells.findIndex((c) => c.id === id);
		const [cell] = cells.splice(at, 1);
		if (cell) cells.splice(Math.min(cells.length, Math.max(0, at + by)), 0, cell);
		this.#publish({ cells });
	}

	/** clear removes the outputs of all cells that do not run. */
	clear() {
		this.#publish({ cells: this.#view.cells.map((c) => (runs(c) ? c : { id: c.id, where: c.where, code: c.code, state: "new", outputs: [] })) });
	}

	/** runAll runs the cells in their order until one fails. */
	async runAll() {
		for (const { id } of this.#view.cells) {
			await this.run(id);
			if (this.#ended || this.#view.cells.find((c) => c.id === id)?.state !== "ok") return;
		}
	}

	/** run runs a cell, and returns when it or the notebook has ended. */
	async run(id: string) {
		const cell = this.#view.cells.find((c) => c.id === id);
		if (!cell || runs(cell) || this.#ended) return;
		if (!cell.code.trim()) return this.change(id, { state: "ok", outputs: [] });
		this.#publish({ cells: this.#view.cells.map((c) => (c.id === id ? { id, where: c.where, code: c.code, state: "waiting", outputs: [] } : c)) });
		const context = this.#context(cell.where);
		if (!(await queue.take(id, context))) return this.change(id, { state: "interrupted", outputs: [{ kind: "note", text: "It did not run." }] });
		const run = { stop: new AbortController(), lines: 0 };
		this.#running.set(id, run);
		try {
			if (this.#ended) return;
			await box.run(this.sandbox, cell.code, cell.where, known.includes(cell.where), (e) => {
				run.lines++;
				this.#note(id, e);
			}, run.stop.signal);
			this.change(id, (c) => (runs(c) ? { state: "lost", outputs: [...c.outputs, { kind: "note", text: "The connection broke before the code ended." }] } : {}));
		} catch (err) {
			this.change(id, (c) => ({ state: run.stop.signal.aborted ? "interrupted" : c.state === "running" ? "lost" : "error", outputs: [...c.outputs, { kind: "note", text: message(err) }] }));
		} finally {
			this.#running.delete(id);
			queue.end(context);
		}
		if (!this.#ended) await this.readContexts().catch(() => undefined); // the next reading says what is wrong
	}

	#context = (where: string) => `${this.sandbox} ${where}`;

	/** ahead returns the cells for which a waiting cell waits, with their sandboxes. */
	ahead(cell: Cell): { cell: string; sandbox: string }[] {
		return queue.ahead(cell.id, this.#context(cell.where)).map((a) => ({ cell: a.cell, sandbox: a.context.slice(0, a.context.indexOf(" ")) }));
	}

	/** restart starts a context again. The cells that wait for it do not run. */
	async restart(context: string, signal: AbortSignal) {
		queue.dropContext(this.#context(context));
		await box.restart(this.sandbox, context, signal);
	}

	/** interruptContext interrupts the code that runs in a context, whoever sent it. */
	async interruptContext(context: string) {
		const cell = this.#view.cells.find((c) => c.where === context && c.state === "running");
		await (cell ? this.interrupt(cell.id) : box.interrupt(this.sandbox, context));
	}

	/** interrupt interrupts the code of a cell, or takes back the turn for which it waits. A stream that is silent afterwards ends. */
	async interrupt(id: string) {
		const cell = this.#view.cells.find((c) => c.id === id);
		if (!cell || queue.drop(id)) return;
		const run = this.#running.get(id);
		// The context may run the code of another program meanwhile.
		if (cell.state === "waiting") return run?.stop.abort("It was interrupted before it began.");
		const { lines } = run ?? {};
		setTimeout(() => run?.lines === lines && run?.stop.abort("The server did not say how the code ended."), interruptMost);
		await box.interrupt(this.sandbox, cell.where);
	}

	/** note adds what an event of the stream of a cell brings. */
	#note(id: string, e: CodeEvent) {
		switch (e.type) {
			case "started":
				this.change(id, (c) => ({ state: "running", outputs: e.restarted ? [...c.outputs, { kind: "note", text: "The interpreter was started again: variables of earlier cells are gone." }] : c.outputs }));
				void this.readContexts().catch(() => undefined);
				break;
			case "stdout":
			case "stderr": {
				const { type, text } = e;
				this.change(id, (c) => ({ outputs: withText(c.outputs, type, text ?? "") }));
				break;
			}
			case "result":
				if (e.result) this.#show(id, e.result, e.update ?? false);
				break;
			case "error":
				if (e.error) this.#add(id, { kind: "error", error: e.error });
				break;
			case "end":
				this.change(id, { state: (e.status as CellState | undefined) ?? "ok", ...(e.execution_count ? { count: e.execution_count } : {}), ...(e.duration_ms === undefined ? {} : { ms: e.duration_ms }) });
				if (e.limit_exceeded) this.#add(id, { kind: "note", text: `The code exceeded its limit: ${e.limit_exceeded}.` });
				if (e.truncated) this.#add(id, { kind: "note", text: "There was more output than 16 MiB; the rest was dropped." });
				break;
			case "failure":
				this.change(id, { state: "lost" });
				this.#add(id, { kind: "note", text: e.message ?? "The run failed." });
		}
	}

	#add(id: string, output: Output) {
		this.change(id, (c) => ({ outputs: [...c.outputs, output].slice(-outputsMost) }));
	}

	/** show adds a value to a cell, or replaces the value of the same display id wherever it is. */
	#show(id: string, value: CodeOutput, update: boolean) {
		const fits = (o: Output) => o.kind === "value" && Boolean(value.display_id) && o.value.display_id === value.display_id;
		if (update && this.#view.cells.some((c) => c.outputs.some(fits))) {
			this.#publish({ cells: this.#view.cells.map((c) => (c.outputs.some(fits) ? { ...c, outputs: c.outputs.map((o) => (fits(o) ? { kind: "value", value } : o)) } : c)) });
		} else if (!update) {
			this.#add(id, { kind: "value", value });
		}
	}
}

/** keep reports whether the browser's session has room for the cells. */
function keep(key: string, cells: readonly Cell[]): boolean {
	try {
		sessionStorage.setItem(key, JSON.stringify(cells));
		return true;
	} catch {
		return false;
	}
}

/** trim drops the outputs of cells in the browser's session, and reports whether that made room. */
function trim(key: string): boolean {
	const was = sessionStorage.getItem(key) ?? "";
	try {
		const least = withoutOutputs(JSON.parse(was) as Cell[]);
		return JSON.stringify(least).length < was.length && keep(key, least);
	} catch {
		return false; // it has no cells
	}
}

/** restored marks values that come from the browser's session: HTML among them is shown on request only. */
const restored = (outputs: readonly Output[]): Output[] => outputs.map((o) => (o.kind === "value" ? { ...o, restored: true } : o));

/** withText adds text to the outputs: to the last of them if that is of the same stream. */
function withText(outputs: readonly Output[], stream: "stdout" | "stderr", text: string): Output[] {
	const last = outputs.at(-1);
	const added = text.slice(-textMost);
	if (last?.kind !== "text" || last.stream !== stream) return [...outputs, { kind: "text" as const, stream, text: plain(added) }].slice(-outputsMost);
	const end = last.text.lastIndexOf("\n") + 1; // the lines before are plain
	return [...outputs.slice(0, -1), { kind: "text", stream, text: (last.text.slice(0, end) + plain(last.text.slice(end) + added)).slice(-textMost) }];
}

/** plain returns text without escape sequences, and of lines that were written over only the last. It takes a time in proportion to the text. */
export function plain(text: string): string {
	return text.replace(/\x1b\[[0-9;?]*[A-Za-z]/g, "").replace(/(?<![^\n])[^\n]*\r(?=[^\n])/g, "").replaceAll("\r\n", "\n");
}
