// Calls of the API about what is in one sandbox.
import { all, ApiError, at, call, lines, path, request, type Sandbox, type Schemas } from "../api.ts";

export type FileInfo = Schemas["FileInfo"];
export type PublishedPort = Schemas["PublishedPort"];
export type PortLink = Schemas["PortLink"];
export type Checkpoint = Schemas["Checkpoint"];
export type Execution = Schemas["Execution"];
export type Context = Schemas["Context"];
export type CodeEvent = Schemas["CodeEvent"];
export type CodeError = Schemas["CodeError"];
export type CodeOutput = Schemas["CodeOutput"];
export type Snapshot = Schemas["Snapshot"];

/** most bounds the lists of one sandbox. */
const most = 5000;
/** answerMost is how long the answer to code to run may take, in milliseconds: the server may resume the sandbox first. */
const answerMost = 360_000;
/** silenceMost is how long that answer may be silent. The server fills a silence of 15 seconds. */
const silenceMost = 45_000;
const file = (ref: string, name: string, more = "") => `${at(ref)}/files?path=${encodeURIComponent(name)}${more}`;

export const bestShell = "if command -v bash >/dev/null 2>&1; then exec bash -il; else exec sh -il; fi";

export const box = {
	files: (ref: string, dir: string, signal?: AbortSignal) => all<FileInfo>(`${at(ref)}/files/list?path=${encodeURIComponent(dir)}`, most, undefined, signal),
	read: (ref: string, name: string, signal?: AbortSignal) => request("GET", file(ref, name), undefined, signal),
	write: (ref: string, name: string, content: Blob, signal?: AbortSignal) => call<FileInfo>("PUT", file(ref, name), content, signal),
	stat: (ref: string, name: string, signal?: AbortSignal) => call<FileInfo>("GET", `${at(ref)}/files/stat?path=${encodeURIComponent(name)}`, undefined, signal),
	remove: (ref: string, name: string, signal: AbortSignal) => call<void>("DELETE", file(ref, name, "&recursive=true"), undefined, signal),
	mkdir: (ref: string, name: string, signal: AbortSignal) => call<FileInfo>("POST", `${at(ref)}/files/mkdir`, { path: name }, signal),
	move: (ref: string, from: string, to: string) => call<FileInfo>("POST", `${at(ref)}/files/move`, { from, to }),
	archive: (ref: string, dir: string) => request("GET", `${at(ref)}/files/archive?path=${encodeURIComponent(dir)}&format=tar.gz`),

	ports: (ref: string, signal?: AbortSignal) => all<PublishedPort>(`${at(ref)}/ports`, most, undefined, signal),
	publish: (ref: string, port: number, access: PublishedPort["access"]) => call<PublishedPort>("PUT", `${at(ref)}/ports/${port}`, { access }),
	unpublish: (ref: string, port: number, signal: AbortSignal) => call<void>("DELETE", `${at(ref)}/ports/${port}`, undefined, signal),
	rotate: (ref: string, port: number, signal: AbortSignal) => call<PublishedPort>("POST", `${at(ref)}/ports/${port}/rotate`, undefined, signal),
	link: (ref: string, port: number, seconds: number) => call<PortLink>("POST", `${at(ref)}/ports/${port}/links`, { expires_in_seconds: seconds }),
	network: (ref: string, change: Schemas["ChangeNetwork"]) => call<Sandbox>("PATCH", `${at(ref)}/network`, change),

	checkpoints: (ref: string, signal?: AbortSignal) => all<Checkpoint>(`${at(ref)}/checkpoints`, most, undefined, signal),
	save: (ref: string, name: string, signal: AbortSignal) => call<Checkpoint>("POST", `${at(ref)}/checkpoints`, name ? { name } : {}, signal),
	restore: (ref: string, checkpoint: string, signal: AbortSignal) => call<Sandbox>("POST", `${at(ref)}/checkpoints/${encodeURIComponent(checkpoint)}/restore`, undefined, signal),
	forget: (ref: string, checkpoint: string, signal: AbortSignal) => call<void>("DELETE", `${at(ref)}/checkpoints/${encodeURIComponent(checkpoint)}`, undefined, signal),
	fork: (ref: string, count: number, signal: AbortSignal) => call<Schemas["ForkList"]>("POST", `${at(ref)}/fork`, { count }, signal),
	snapshot: (ref: string, name: string, signal: AbortSignal) => call<Snapshot>("POST", `${at(ref)}/snapshots`, name ? { name } : {}, signal),

	/** terminals returns the executions that run on a terminal, the newest first, however many commands were run since. */
	terminals: async (ref: string, signal?: AbortSignal) => (await all<Execution>(`${at(ref)}/executions?kind=exec`, most, undefined, signal)).filter((e) => e.tty && e.state === "running"),
	executions: (ref: string, signal?: AbortSignal) => all<Execution>(`${at(ref)}/executions`, 200, undefined, signal),
	/** execution answers when the execution has ended, or after a minute. */
	execution: (id: string, signal?: AbortSignal) => call<Execution>("GET", `/executions/${encodeURIComponent(id)}?wait_seconds=60`, undefined, signal),
	peek: (id: string, signal?: AbortSignal) => call<Execution>("GET", `/executions/${encodeURIComponent(id)}`, undefined, signal),
	/** shell starts the best shell that the image has, on a terminal. */
	shell: (ref: string) => call<Execution>("POST", `${at(ref)}/executions`, { kind: "exec", shell: bestShell, tty: { rows: 24, cols: 80 }, env: { TERM: "xterm-256color", COLORTERM: "truecolor" } }),
	kill: (id: string) => call<Execution>("POST", `/executions/${encodeURIComponent(id)}/cancel`, { force: true }),
	start: (ref: string, shell: string) => call<Execution>("POST", `${at(ref)}/executions`, { kind: "job", shell }),
	cancel: (id: string) => call<Execution>("POST", `/executions/${encodeURIComponent(id)}/cancel`, {}),
	output: (stream: string, signal: AbortSignal) => request("GET", `/streams/${encodeURIComponent(stream)}?follow=true`, undefined, signal),

	exec: (ref: string, shell: string, signal?: AbortSignal) => call<Schemas["ExecResult"]>("POST", `${at(ref)}/exec`, { shell, timeout_seconds: 60 }, signal),
	contexts: (ref: string, signal?: AbortSignal) => all<Context>(`${at(ref)}/contexts`, most, undefined, signal),
	/** run runs code in a context, or in the default context of a language, and ends when the code does, or when the server is silent. */
	run: async (ref: string, code: string, where: string, isLanguage: boolean, onEvent: (e: CodeEvent) => void, signal: AbortSignal) => {
		const silence = new AbortController();
		const wait = (ms: number) => setTimeout(() => silence.abort(new ApiError("unreachable", `The server said nothing for ${ms / 1000} seconds. The code may still run.`, 0)), ms);
		let timer = wait(answerMost);
		const heard = () => {
			clearTimeout(timer);
			timer = wait(silenceMost);
		};
		try {
			const res = await request("POST", `${at(ref)}/code/stream`, { code, ...(isLanguage ? { language: where } : { context_id: where }) }, AbortSignal.any([signal, silence.signal]));
			heard();
			await lines<CodeEvent>(res, (e) => {
				heard();
				onEvent(e);
			});
		} catch (err) {
			throw signal.aborted ? signal.reason : silence.signal.aborted ? silence.signal.reason : err;
		} finally {
			clearTimeout(timer);
		}
	},
	interrupt: (ref: string, context: string) => call<void>("POST", `${at(ref)}/contexts/${encodeURIComponent(context)}/interrupt`),
	restart: (ref: string, context: string, signal: AbortSignal) => call<Context>("POST", `${at(ref)}/contexts/${encodeURIComponent(context)}/restart`, undefined, signal),
};

/** terminal is the address of the WebSocket of an execution on a terminal, from a byte of its output on. */
export function terminal(ref: string, execution: string, offset: number): string {
	return location.origin.replace(/^http/, "ws") + path(`${at(ref)}/executions/${encodeURIComponent(execution)}/attach?offset=${offset}`);
}
