// Calls of the API. The browser adds the session's cookie; no script sees a token.
import type { components } from "../../sdk/typescript/src/openapi.ts";

export type Schemas = components["schemas"];
export type Sandbox = Schemas["Sandbox"];
export type SandboxState = Sandbox["state"];
export type SandboxEvent = Schemas["Event"];
export type Stats = Schemas["Stats"];
export type Whoami = Schemas["Whoami"];
export type Workspace = Schemas["Workspace"];
export type CreateSandbox = Schemas["CreateSandbox"];
type Problem = Schemas["Problem"];

export interface Page<T> {
	items: T[] | null;
	next_cursor?: string;
}

/** ApiError is an error of the API, or of the way to it (code "unreachable"). */
export class ApiError extends Error {
	constructor(
		readonly code: string,
		message: string,
		readonly status: number,
		/** The mistake in each field of the request. */
		readonly fields: Record<string, string> = {},
	) {
		super(message);
	}
}

/** mayPass reports whether the call that failed may work later. */
export const mayPass = (err: unknown) => err instanceof ApiError && (err.status === 0 || err.status === 429 || err.status >= 500);

/** firstPause and longestPause bound the time before what failed is tried again, in milliseconds. */
export const firstPause = 1000, longestPause = 30_000;

/** newer reports whether an answer about a sandbox has a later state than another. A time has only the decimals that are not 0, so its end counts for nothing. */
export const newer = (a: Sandbox, b: Sandbox) => a.updated_at.slice(0, -1) > b.updated_at.slice(0, -1);

/** message returns what to tell people about an error. */
export function message(err: unknown): string {
	return err instanceof Error ? err.message : String(err);
}

/** onSignedOut is called when the server no longer knows the session. */
let onSignedOut = () => {};
export function whenSignedOut(call: () => void) {
	onSignedOut = call;
}

let workspace = "";
/** actIn chooses the workspace of the requests that follow; "" is the user's own. */
export function actIn(id: string) {
	workspace = id;
}

/** path returns the path of a route in the chosen workspace. */
export function path(route: string): string {
	return workspace === "" ? `/v1${route}` : `/w/${encodeURIComponent(workspace)}/v1${route}`;
}

export async function send(method: string, url: string, body?: unknown, signal?: AbortSignal): Promise<Response> {
	const init: RequestInit = { method, signal: signal ?? null };
	if (body instanceof FormData) {
		init.body = body;
	} else if (body instanceof Blob) {
		init.body = body;
		init.headers = { "Content-Type": "application/octet-stream" };
	} else if (body !== undefined) {
		init.body = JSON.stringify(body);
		init.headers = { "Content-Type": "application/json" };
	}
	let res: Response;
	try {
		res = await fetch(url, init);
	} catch (err) {
		if (signal?.aborted) throw err;
		throw new ApiError("unreachable", "The server does not answer. Check the connection, and that it runs.", 0);
	}
	if (res.ok) return res;
	const problem = (await res.json().catch(() => ({}))) as Partial<Problem>;
	const fields: Record<string, string> = {};
	for (const e of problem.errors ?? []) if (e.location) fields[e.location.replace(/^body\./, "")] = e.message ?? "";
	throw new ApiError(problem.code ?? "internal", problem.detail ?? `The server answered ${res.status}.`, res.status, fields);
}

/** request makes a request in the chosen workspace, and returns its answer. */
export async function request(method: string, route: string, body?: unknown, signal?: AbortSignal): Promise<Response> {
	try {
		return await send(method, path(route), body, signal);
	} catch (err) {
		if (err instanceof ApiError && err.status === 401) onSignedOut();
		throw err;
	}
}

export async function call<T>(method: string, route: string, body?: unknown, signal?: AbortSignal): Promise<T> {
	const res = await request(method, route, body, signal);
	return (res.status === 204 ? undefined : await res.json()) as T;
}

/** lines gives each object of an answer of one JSON object a line, as it comes. */
export async function lines<T>(res: Response, onLine: (object: T) => void): Promise<void> {
	const reader = res.body?.pipeThrough(new TextDecoderStream()).getReader();
	let rest = "";
	for (let part = await reader?.read(); part && !part.done; part = await reader?.read()) {
		const whole = (rest + part.value).split("\n");
		rest = whole.pop() ?? "";
		for (const line of whole) if (line) onLine(JSON.parse(line) as T);
	}
}

/** all reads all pages of a list, up to a number of items, and gives each page to onPage. */
export async function all<T>(route: string, most: number, onPage?: (items: T[]) => void, signal?: AbortSignal): Promise<T[]> {
	const items: T[] = [];
	let cursor: string | undefined;
	do {
		// A caller that shows pages as they come shows a short one first.
		const q = new URLSearchParams({ limit: String(Math.min(onPage && !cursor ? 100 : 1000, most)) });
		if (cursor) q.set("cursor", cursor);
		const page = await call<Page<T>>("GET", `${route}${route.includes("?") ? "&" : "?"}${q}`, undefined, signal);
		items.push(...(page.items ?? []));
		onPage?.(page.items ?? []);
		cursor = page.next_cursor;
	} while (cursor && items.length < most);
	return items;
}

/** at is the route of a sandbox. */
export const at = (ref: string) => `/sandboxes/${encodeURIComponent(ref)}`;

export const api = {
	whoami: () => call<Whoami>("GET", "/whoami"),
	/** session returns the signed-in user, or null. */
	async session(): Promise<Whoami | null> {
		try {
			return (await (await send("GET", "/v1/whoami")).json()) as Whoami;
		} catch (err) {
			if (err instanceof ApiError && err.status === 401) return null;
			throw err;
		}
	},
	async providers(): Promise<string[]> {
		return ((await (await send("GET", "/v1/auth/providers?limit=1000")).json()) as Page<string>).items ?? [];
	},
	signIn: (username: string, password: string) => send("POST", "/session", { username, password }),
	signInByToken: (token: string) => send("POST", "/session/token", { token }),
	acceptCode: (code: string, name: string, password: string) => send("POST", "/session/code", { code, name, password }),
	signOut: () => send("DELETE", "/session"),

	workspaces: () => all<Workspace>("/workspaces", 1000),
	sandboxes: (states: SandboxState[], most: number, onPage?: (items: Sandbox[]) => void, signal?: AbortSignal) =>
		all<Sandbox>(`/sandboxes?${states.map((s) => `state=${s}`).join("&")}`, most, onPage, signal),
	sandbox: (ref: string, signal?: AbortSignal) => call<Sandbox>("GET", at(ref), undefined, signal),
	create: (request: CreateSandbox, signal?: AbortSignal) => call<Sandbox>("POST", "/sandboxes", request, signal),
	pause: (ref: string, signal?: AbortSignal) => call<Sandbox>("POST", `${at(ref)}/pause`, undefined, signal),
	/** pauseFiles saves the files alone. */
	pauseFiles: (ref: string, signal?: AbortSignal) => call<Sandbox>("POST", `${at(ref)}/pause`, { memory: false }, signal),
	resume: (ref: string, signal?: AbortSignal) => call<Sandbox>("POST", `${at(ref)}/resume`, undefined, signal),
	destroy: (ref: string, signal?: AbortSignal) => call<Sandbox>("DELETE", at(ref), undefined, signal),
	stats: (ref: string, signal?: AbortSignal) => call<Stats>("GET", `${at(ref)}/stats`, undefined, signal),
	events: (ref: string, most: number, signal?: AbortSignal) => all<SandboxEvent>(`${at(ref)}/events?order=desc`, most, undefined, signal),
	images: () => all<{ name: string; image: string; tag: string; enabled: boolean; is_default: boolean; description?: string }>("/sandbox-images", 1000),
};

/** statsEvery is the time between two messages with what sandboxes use, in seconds: of all, and of one. */
const statsEvery = { all: 10, one: 2 };

/** listen follows the events of the workspace, or of one sandbox, until the returned function is called.
 * The browser connects again after a break, at the place where it was. Without a place, also at the first
 * connection, lost is called: what happened before must be read. */
export function listen(handlers: { event: (e: SandboxEvent) => void; state: (live: boolean) => void; lost: () => void; use: (list: Schemas["SandboxUse"][]) => void }, sandbox?: string): () => void {
	let source: EventSource | undefined;
	let timer: ReturnType<typeof setTimeout> | undefined;
	let pause = firstPause;
	let ended = false;
	const begin = () => {
		let placed = false;
		source = new EventSource(path("/events/stream") + (sandbox ? `?stats=${statsEvery.one}&sandbox=${encodeURIComponent(sandbox)}` : `?stats=${statsEvery.all}`));
		source.onopen = () => {
			pause = firstPause;
			handlers.state(true);
			if (!placed) handlers.lost();
		};
		source.onmessage = (m: MessageEvent<string>) => {
			placed = true; // a message has it
			if (m.data) handlers.event(JSON.parse(m.data) as SandboxEvent);
		};
		source.addEventListener("stats", (m: MessageEvent<string>) => handlers.use(JSON.parse(m.data) as Schemas["SandboxUse"][]));
		const again = () => {
			source?.close();
			// The place is lost with the EventSource.
			timer = setTimeout(() => {
				if (ended) return;
				api.whoami().then(
					() => {
						if (!ended) begin();
					},
					(err: unknown) => {
						if (!ended && !(err instanceof ApiError && err.status === 401)) again();
					},
				);
			}, pause);
			pause = Math.min(pause * 2, longestPause);
		};
		source.addEventListener("problem", again);
		source.onerror = () => {
			handlers.state(false);
			if (source?.readyState === EventSource.CLOSED) again();
		};
	};
	begin();
	return () => {
		ended = true;
		clearTimeout(timer);
		source?.close();
	};
}
