// What sandboxes use, as the event stream says: the newest measurements of each.
import type { Schemas } from "./api.ts";

export type SandboxUse = Schemas["SandboxUse"];

/** A Sample is the use of a sandbox between two measurements. */
export interface Sample {
	/** The time of the later measurement, in milliseconds. */
	at: number;
	/** Cores in use. */
	cpu: number;
	/** Bytes in use. */
	memory: number;
	/** Bytes a second to and from the internet. */
	sent: number;
	received: number;
	/** Bytes written, and processes; only of a sandbox that is shown alone. */
	disk: number | undefined;
	processes: number | undefined;
}

const none: readonly Sample[] = [];

export class Use {
	#last = new Map<string, SandboxUse>();
	#samples = new Map<string, readonly Sample[]>();
	#listeners = new Set<() => void>();

	/** most is how many samples of a sandbox are kept. */
	constructor(private readonly most: number) {}

	subscribe = (call: () => void) => {
		this.#listeners.add(call);
		return () => void this.#listeners.delete(call);
	};
	of = (id: string): readonly Sample[] => this.#samples.get(id) ?? none;

	note = (list: SandboxUse[]) => {
		for (const now of list) {
			const was = this.#last.get(now.sandbox_id);
			this.#last.set(now.sandbox_id, now);
			const seconds = was ? (Date.parse(now.time) - Date.parse(was.time)) / 1000 : 0;
			// Counters begin again when the sandbox does; a sandbox that was never measured has no memory yet.
			if (!was || seconds <= 0 || now.cpu_nanoseconds < was.cpu_nanoseconds || now.memory_bytes === 0) continue;
			const rate = (later: number, earlier: number) => Math.max(0, later - earlier) / seconds;
			const sample: Sample = {
				at: Date.parse(now.time), cpu: rate(now.cpu_nanoseconds, was.cpu_nanoseconds) / 1e9, memory: now.memory_bytes,
				sent: rate(now.sent_bytes, was.sent_bytes), received: rate(now.received_bytes, was.received_bytes), disk: now.disk_bytes, processes: now.processes,
			};
			this.#samples.set(now.sandbox_id, [...this.of(now.sandbox_id), sample].slice(-this.most));
		}
		for (const call of this.#listeners) call();
	};

	/** keep forgets all sandboxes but those. */
	keep(has: (id: string) => boolean) {
		for (const id of this.#last.keys()) {
			if (has(id)) continue;
			this.#last.delete(id);
			this.#samples.delete(id);
		}
	}
}
