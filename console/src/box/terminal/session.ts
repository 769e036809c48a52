// A terminal of a sandbox: xterm.js over the WebSocket of an execution that goes on without it.
import "@xterm/xterm/css/xterm.css";
import { FitAddon } from "@xterm/addon-fit";
import { Terminal as Xterm } from "@xterm/xterm";
import { ApiError } from "../../api.ts";
import { box, type Execution, terminal } from "../../calls/box.ts";

// xterm.js writes the style attribute of its cells, which the content security policy forbids; the same
// through the object model is permitted.
HTMLElement.prototype.setAttribute = function (name: string, value: string) {
	if (name === "style") this.style.cssText = value;
	else Element.prototype.setAttribute.call(this, name, value);
};

const colours = {
	background: "#101216", foreground: "#e4e7ec", cursor: "#a5b0ff", cursorAccent: "#101216", selectionBackground: "#39406a",
	black: "#20242b", red: "#f2777a", green: "#7ec98f", yellow: "#e6c070", blue: "#8fa8ff", magenta: "#cf9bf0", cyan: "#74c7d4", white: "#d4d8df",
	brightBlack: "#7b8494", brightRed: "#ff9a9c", brightGreen: "#9fe0ad", brightYellow: "#f4d591", brightBlue: "#b0c1ff", brightMagenta: "#e1b9fa", brightCyan: "#98dfea", brightWhite: "#ffffff",
};

interface Message {
	type: string;
	exit_code?: number;
	message?: string;
}

export type Status = { name: "connecting" } | { name: "open" } | { name: "lost" } | { name: "ended"; text: string };

const stdin = 0;
const stderr = 2;
/** shownAgain is how much of the earlier output is read when a terminal is shown, in bytes. */
const shownAgain = 256 << 10;
/** longest bounds the pause between two attempts to connect, in milliseconds. */
const longest = 15_000;
/** silence is how long input may stay without output before the page looks whether the server drops the output. */
const silence = 2000;

export interface Options {
	sandbox: string;
	execution: Execution;
	report: (s: Status) => void;
	/** Whether a broken connection is made again by itself: it would resume a paused sandbox. */
	mayConnect: () => boolean;
	/** Called for the key that leaves the terminal. */
	leave: () => void;
}

export class Session {
	#term = new Xterm({ fontFamily: '"JetBrains Mono Variable", ui-monospace, monospace', fontSize: 13, lineHeight: 1.2, cursorBlink: true, theme: colours, scrollback: 10_000 });
	#fit = new FitAddon();
	#observer: ResizeObserver;
	#socket: WebSocket | undefined;
	#timer: ReturnType<typeof setTimeout> | undefined;
	#unanswered: ReturnType<typeof setTimeout> | undefined;
	#pause = 500;
	/** How many bytes of the output have come, counted from its start. */
	#received: number;
	/** How many bytes are output of before, to which the terminal's own answers are not sent. */
	#old: number;
	#over = false;
	#again = () => void this.connect();

	constructor(
		place: HTMLElement,
		private readonly o: Options,
	) {
		const size = o.execution.stdout.size_bytes;
		this.#received = Math.max(0, size - shownAgain);
		this.#old = size - this.#received;
		this.#term.loadAddon(this.#fit);
		this.#term.open(place);
		this.#term.attachCustomKeyEventHandler((e) => {
			if (!(e.ctrlKey && e.shiftKey && e.key === "ArrowUp")) return true;
			if (e.type === "keydown") o.leave();
			return false;
		});
		this.fit();
		const encoder = new TextEncoder();
		this.#term.onData((text) => this.#type(encoder.encode(text)));
		this.#term.onBinary((text) => this.#type(Uint8Array.from(text, (c) => c.charCodeAt(0))));
		this.#term.onResize(() => this.#resize());
		this.#observer = new ResizeObserver(() => this.fit());
		this.#observer.observe(place);
		addEventListener("online", this.#again);
		void this.connect();
	}

	focus() {
		this.#term.focus();
	}

	/** fit makes the terminal as large as its place, if it is shown. */
	fit() {
		if (this.#fit.proposeDimensions()?.cols) this.#fit.fit();
	}

	end() {
		this.#over = true;
		clearTimeout(this.#timer);
		clearTimeout(this.#unanswered);
		removeEventListener("online", this.#again);
		this.#observer.disconnect();
		this.#socket?.close();
		this.#term.dispose();
	}

	/** connect connects to the execution where its output broke off, unless it is connected. */
	connect = async () => {
		clearTimeout(this.#timer);
		if (this.#over || (this.#socket && this.#socket.readyState <= WebSocket.OPEN)) return;
		try {
			await box.peek(this.o.execution.id); // says whether the session and the execution are still there
		} catch (err) {
			if (err instanceof ApiError && err.status === 404) this.#finish("The record of this shell is gone.");
			else this.#broken();
			return;
		}
		if (this.#over || (this.#socket && this.#socket.readyState <= WebSocket.OPEN)) return; // another call was faster
		const socket = (this.#socket = new WebSocket(terminal(this.o.sandbox, this.o.execution.id, this.#received)));
		socket.binaryType = "arraybuffer";
		socket.onmessage = (m: MessageEvent<ArrayBuffer | string>) => (typeof m.data === "string" ? this.#hear(JSON.parse(m.data) as Message) : this.#show(new Uint8Array(m.data)));
		socket.onclose = () => this.#broken();
	};

	#hear(said: Message) {
		if (said.type === "started") {
			this.#pause = 500;
			this.o.report({ name: "open" });
			this.#resize();
		}
		if (said.type === "exit") this.#finish(`The shell ended with exit code ${said.exit_code ?? 0}.`);
		if (said.type === "error") this.#finish(said.message ?? "The shell ended by an error.");
	}

	#show(frame: Uint8Array) {
		clearTimeout(this.#unanswered);
		this.#unanswered = undefined;
		const data = frame.subarray(1);
		if (frame[0] !== stderr) this.#received += data.length;
		this.#term.write(data, () => {
			this.#old = Math.max(0, this.#old - data.length);
		});
	}

	#finish(text: string) {
		if (this.#over) return;
		this.#over = true;
		clearTimeout(this.#timer);
		this.#socket?.close();
		this.o.report({ name: "ended", text });
	}

	#broken() {
		if (this.#over) return;
		this.o.report({ name: "lost" });
		if (!this.o.mayConnect()) return;
		clearTimeout(this.#timer);
		this.#timer = setTimeout(this.#again, this.#pause);
		this.#pause = Math.min(this.#pause * 2, longest);
	}

	#resize() {
		if (this.#socket?.readyState === WebSocket.OPEN) this.#socket.send(JSON.stringify({ type: "resize", rows: this.#term.rows, cols: this.#term.cols }));
	}

	#type(bytes: Uint8Array) {
		if (this.#over || this.#old > 0 || this.#socket?.readyState !== WebSocket.OPEN) return;
		const frame = new Uint8Array(bytes.length + 1);
		frame[0] = stdin;
		frame.set(bytes, 1);
		this.#socket.send(frame);
		this.#unanswered ??= setTimeout(() => void this.#lookWhetherFull(), silence);
	}

	/** lookWhetherFull ends a terminal whose output is dropped: the server keeps only the first bytes of it. */
	async #lookWhetherFull() {
		this.#unanswered = undefined;
		const now = await box.peek(this.o.execution.id).catch(() => null);
		if (now?.stdout.truncated) this.#finish("The server keeps no more of the output of this shell, which goes on unseen. Start a new one.");
	}
}
