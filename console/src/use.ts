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

/** part is how many measurements are recorded at a time. */
const part = 1000;

const none: readonly Sample[] = [];

export class Use {
	#last = new Map<string, SandboxUse & { at: number }>();
	#samples = new Map<string, readonly Sample[]>();
	#listeners = new Set<() => void>();
	#noting = Promise.resolve();

	/** most is how many samples of a sandbox are kept. */
	constructor(private readonly most: number) {}

	subscribe = (call: () => void) => {
		this.#listeners.add(call);
		return () => void this.#listeners.delete(call);
	};
	of = (id: string): readonly Sample[] => this.#samples.get(id) ?? none;

	/** note records the measurements of a message: thousands of them in parts, between which the page answers to its user. */
	note = (list: SandboxUse[]) => {
		this.#noting = this.#noting.then(async () => {
			for (let at = 0; at < list.length; at += part) {
				if (at > 0) await new Promise((done) => setTimeout(done));
				for (const now of list.slice(at, at + part)) this.#take(now);
			}
			for (const call of this.#listeners) call();
		});
	};

	#take(now: SandboxUse) {
		const was = this.#last.get(now.sandbox_id);
		const at = Date.parse(now.time);
		this.#last.set(now.sandbox_id, { ...now, at });
		const seconds = was ? (at - was.at) / 1000 : 0;
		// Counters begin again when the sandbox does; a sandbox that was never measured has no memory yet.
		if (!was || seconds <= 0 || now.cpu_nanoseconds < was.cpu_nanoseconds || now.memory_bytes === 0) return;
		const rate = (later: number, earlier: number) => Math.max(0, later - earlier) / seconds;
		const known = this.of(now.sandbox_id);
		const samples = known.slice(Math.max(0, known.length + 1 - this.most));
		samples.push({
			at, cpu: rate(now.cpu_nanoseconds, was.cpu_nanoseconds) / 1e9, memory: now.memory_bytes,
			sent: rate(now.sent_bytes, was.sent_bytes), received: rate(now.received_bytes, was.received_bytes), disk: now.disk_bytes, processes: now.processes,
		});
		this.#samples.set(now.sandbox_id, samples);
	}

	/** keep forgets all sandboxes but those. */
	keep(has: (id: string) => boolean) {
		for (const id of this.#last.keys()) {
			if (has(id)) continue;
			this.#last.delete(id);
			this.#samples.delete(id);
		}
	}
}
