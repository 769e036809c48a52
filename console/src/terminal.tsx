// A terminal in a sandbox: xterm.js over the WebSocket of exec/attach. Loaded when it is shown.
import "@xterm/xterm/css/xterm.css";
import { FitAddon } from "@xterm/addon-fit";
import { Terminal as Xterm } from "@xterm/xterm";
import { RotateCcw } from "lucide-react";
import { useEffect, useRef, useState } from "react";
import { path, type Sandbox } from "./api.ts";

/** shell begins the best shell that the image has. */
const shell = 'if command -v bash >/dev/null 2>&1; then exec bash -il; else exec sh -il; fi';
const stdin = 0;

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

type Status = { name: "connecting" } | { name: "open" } | { name: "ended"; text: string };

export default function Terminal({ sb: { id } }: { sb: Sandbox }) {
	const place = useRef<HTMLDivElement>(null);
	const [status, setStatus] = useState<Status>({ name: "connecting" });
	const [turn, setTurn] = useState(0);
	useEffect(() => {
		if (!place.current) return;
		setStatus({ name: "connecting" });
		return run(place.current, id, setStatus);
	}, [id, turn]);
	return (
		<div className="terminal-page">
			<div className="shell" ref={place} data-status={status.name} />
			<p className="terminal-foot" role="status">
				{status.name === "connecting" && "Connecting…"}
				{status.name === "open" && "Connected. The shell ends when you leave this tab."}
				{status.name === "ended" && (
					<>
						{status.text}
						<button type="button" className="button small" onClick={() => setTurn((n) => n + 1)}><RotateCcw size={14} aria-hidden="true" />Start again</button>
					</>
				)}
			</p>
		</div>
	);
}

/** run shows a shell of the sandbox in place until the returned function is called. */
function run(place: HTMLElement, id: string, report: (s: Status) => void): () => void {
	const term = new Xterm({ fontFamily: '"JetBrains Mono Variable", ui-monospace, monospace', fontSize: 13, lineHeight: 1.2, cursorBlink: true, theme: colours, scrollback: 10_000, screenReaderMode: false });
	const fit = new FitAddon();
	term.loadAddon(fit);
	term.open(place);
	fit.fit();
	term.focus();
	const socket = new WebSocket(`${location.origin.replace(/^http/, "ws")}${path(`/sandboxes/${encodeURIComponent(id)}/exec/attach`)}`);
	socket.binaryType = "arraybuffer";
	let ended = false;
	const end = (text: string) => {
		if (ended) return;
		ended = true;
		report({ name: "ended", text });
	};
	const send = (m: unknown) => socket.readyState === WebSocket.OPEN && socket.send(JSON.stringify(m));
	socket.onopen = () => send({ shell, tty: { rows: term.rows, cols: term.cols }, stdin: true, env: { TERM: "xterm-256color", COLORTERM: "truecolor" } });
	socket.onmessage = (m: MessageEvent<ArrayBuffer | string>) => {
		if (typeof m.data !== "string") {
			term.write(new Uint8Array(m.data, 1));
			return;
		}
		const said = JSON.parse(m.data) as Message;
		if (said.type === "started") report({ name: "open" });
		if (said.type === "exit") end(`The shell ended with exit code ${said.exit_code ?? 0}.`);
		if (said.type === "error") end(said.message ?? "The shell ended by an error.");
	};
	socket.onclose = () => end("The connection is closed: the sandbox was paused or has ended, or the session has.");
	const encoder = new TextEncoder();
	const type = (bytes: Uint8Array) => {
		if (socket.readyState !== WebSocket.OPEN) return;
		const frame = new Uint8Array(bytes.length + 1);
		frame[0] = stdin;
		frame.set(bytes, 1);
		socket.send(frame);
	};
	term.onData((text) => type(encoder.encode(text)));
	term.onBinary((text) => type(Uint8Array.from(text, (c) => c.charCodeAt(0))));
	term.onResize(({ rows, cols }) => send({ type: "resize", rows, cols }));
	const observer = new ResizeObserver(() => fit.fit());
	observer.observe(place);
	return () => {
		ended = true;
		observer.disconnect();
		socket.close();
		term.dispose();
	};
}
