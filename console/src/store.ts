// The sandboxes of a workspace, kept current by its event stream: the list is read once, and a
// sandbox again when something has happened to it.
import { ApiError, api, firstPause, listen, longestPause, mayPass, message, newer, type Sandbox, type SandboxEvent } from "./api.ts";
import { hasEnded, live } from "./format.ts";
import { Use } from "./use.ts";
import { inTurn } from "./work.ts";

/** gather is how long events are gathered before their sandboxes are read, in milliseconds. */
const gather = 200;
/** singly is how many sandboxes are read one by one, or a fiftieth of a long list; for more, the list is read again. */
const singly = 20;
/** most bounds the list, so that a page of it never fills the browser's memory. */
export const most = 50_000;

/** sparkRoom is how many measurements of a sandbox the list shows: those of five minutes. */
const sparkRoom = 30;

export interface Snapshot {
	/** The sandboxes that have not ended, the newest first. */
	items: readonly Sandbox[];
	/** Whether the list has been read as a whole. */
	complete: boolean;
	/** Whether events arrive. */
	connected: boolean;
	error: string;
}

export class SandboxStore {
	/** What the running sandboxes use. */
	readonly use = new Use(sparkRoom);
	#byId = new Map<string, Sandbox>();
	#snapshot: Snapshot = { items: [], complete: false, connected: false, error: "" };
	#listeners = new Set<() => void>();
	#waiting = new Set<string>();
	#timer: ReturnType<typeof setTimeout> | undefined;
	#catchingUp = false;
	#reading: AbortController | undefined;
	/** The sandboxes that single answers were about since the list began to be read. */
	#told: Set<string> | undefined;
	#retry: ReturnType<typeof setTimeout> | undefined;
	#pause = firstPause;
	#stop: (() => void) | undefined;

	subscribe = (call: () => void) => {
		this.#listeners.add(call);
		return () => void this.#listeners.delete(call);
	};
	snapshot = () => this.#snapshot;

	/** start follows the workspace until the returned function is called. */
	start(): () => void {
		this.#stop = listen({
			event: (e) => this.#note(e),
			state: (connected) => this.#publish({ connected }),
			lost: () => void this.#read(),
			use: (list) => {
				this.use.keep((id) => this.#byId.has(id));
				this.use.note(list);
			},
		});
		void this.#read();
		return () => {
			this.#stop?.();
			this.#reading?.abort();
			clearTimeout(this.#timer);
			clearTimeout(this.#retry);
		};
	}

	reload = () => void this.#read();

	/** put records what an answer said about a sandbox. */
	put = (sb: Sandbox) => {
		if (this.#take(sb)) this.#publishItems();
	};

	/** take reports whether an answer about a sandbox is newer than what is known. */
	#take(sb: Sandbox): boolean {
		this.#told?.add(sb.id);
		const known = this.#byId.get(sb.id);
		if (known && newer(known, sb)) return false;
		if (hasEnded(sb.state)) this.#byId.delete(sb.id);
		else this.#byId.set(sb.id, sb);
		return true;
	}

	#forget(id: string) {
		this.#told?.add(id);
		this.#byId.delete(id);
	}

	#note(e: SandboxEvent) {
		if (e.type === "exec") return; // changes nothing that is shown
		this.#waiting.add(e.sandbox_id);
		this.#gather();
	}

	/** gather reads what has changed, a moment later and one time after the other. */
	#gather() {
		if (this.#catchingUp) return;
		this.#timer ??= setTimeout(() => {
			this.#timer = undefined;
			this.#catchingUp = true;
			void this.#catchUp().finally(() => {
				this.#catchingUp = false;
				if (this.#waiting.size > 0) this.#gather();
			});
		}, gather);
	}

	async #catchUp() {
		const ids = [...this.#waiting];
		this.#waiting.clear();
		if (ids.length > Math.max(singly, this.#byId.size / 50)) return this.#read();
		const found: Sandbox[] = [];
		await inTurn(ids, async (id) => {
			try {
				found.push(await api.sandbox(id));
			} catch (err) {
				if (err instanceof ApiError && err.status === 404) this.#forget(id);
				else if (!(err instanceof ApiError && err.status === 401)) this.#fail(err);
			}
		});
		for (const sb of found) this.#take(sb);
		this.#publishItems(); // once for all of them
	}

	/** read reads the whole list, and shows each page as it comes the first time. */
	async #read() {
		this.#reading?.abort();
		const reading = (this.#reading = new AbortController());
		const told = (this.#told = new Set());
		const found = new Map<string, Sandbox>();
		try {
			await api.sandboxes(live, most, (page) => {
				for (const sb of page) found.set(sb.id, sb);
				if (this.#snapshot.complete || reading.signal.aborted) return;
				for (const sb of page) if (!told.has(sb.id)) this.#byId.set(sb.id, sb);
				this.#publishItems();
			}, reading.signal);
		} catch (err) {
			if (!reading.signal.aborted && !(err instanceof ApiError && err.status === 401)) this.#fail(err, { complete: true });
			return;
		}
		if (reading.signal.aborted) return;
		this.#told = undefined;
		// What an event has brought since is newer than the list.
		for (const [id, sb] of found) {
			const known = this.#byId.get(id);
			if (known && newer(known, sb)) found.set(id, known);
		}
		for (const id of told) {
			const known = this.#byId.get(id);
			if (!known) found.delete(id); // it has ended
			else if (!found.has(id)) found.set(id, known);
		}
		this.#byId = found;
		this.#pause = firstPause;
		this.#publishItems({ complete: true, error: "" });
	}

	/** fail tells an error, and has the list read again later: no other event may come that would do so. */
	#fail(err: unknown, change: Partial<Snapshot> = {}) {
		this.#publish({ error: message(err), ...change });
		if (this.#retry || !mayPass(err)) return;
		this.#retry = setTimeout(() => {
			this.#retry = undefined;
			void this.#read();
		}, this.#pause);
		this.#pause = Math.min(this.#pause * 2, longestPause);
	}

	#publishItems(change: Partial<Snapshot> = {}) {
		const items = [...this.#byId.values()].sort((a, b) => (a.created_at < b.created_at ? 1 : a.created_at > b.created_at ? -1 : a.id < b.id ? 1 : -1));
		this.#publish({ items, ...change });
	}

	#publish(change: Partial<Snapshot>) {
		this.#snapshot = { ...this.#snapshot, ...change };
		for (const call of this.#listeners) call();
	}
}
