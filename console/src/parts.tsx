// Small parts of all pages.
import { Check, CircleAlert, Copy, Save, X } from "lucide-react";
import { AlertDialog, Dialog } from "radix-ui";
import { createContext, type ReactNode, useCallback, useContext, useEffect, useId, useRef, useState } from "react";
import type { SandboxState } from "./api.ts";
import { message } from "./api.ts";
import { tones } from "./format.ts";
import { stops } from "./hooks.ts";

export function Logo() {
	return (
		<span className="logo">
			<img src="/icon.svg" alt="" width="22" height="22" />
			Modbox
		</span>
	);
}

/** State shows the state of a sandbox, and whether it is paused without its memory. */
export function State({ state, filesOnly }: { state: SandboxState; filesOnly?: boolean | undefined }) {
	if (!filesOnly) return <span className="state" data-tone={tones[state]}>{state}</span>;
	return <span className="state" data-tone={tones[state]} title="Paused without its memory: a resume starts it anew with its files">{state}<Save size={12} role="img" aria-label="without memory" /></span>;
}

export function CopyButton({ text, label, children }: { text: string; label: string; children?: ReactNode }) {
	const [copied, setCopied] = useState(false);
	return (
		<button
			type="button" className={children ? "button quiet small" : "icon-button small"} aria-label={label} title={label}
			onClick={() => {
				void navigator.clipboard.writeText(text).then(() => {
					setCopied(true);
					setTimeout(() => setCopied(false), 1500);
				});
			}}
		>
			{copied ? <Check size={14} /> : <Copy size={14} />}
			{children && (copied ? "Copied" : children)}
		</button>
	);
}

export function Field({ label, hint, error, children }: { label: string; hint?: string; error?: string | undefined; children: (p: { id: string; "aria-describedby"?: string; "aria-invalid"?: boolean }) => ReactNode }) {
	const id = useId();
	const note = error ?? hint;
	return (
		<div className="field">
			<label htmlFor={id}>{label}</label>
			{children({ id, ...(note ? { "aria-describedby": `${id}-note` } : {}), ...(error ? { "aria-invalid": true } : {}) })}
			{note && <p id={`${id}-note`} className={error ? "note bad" : "note"}>{note}</p>}
		</div>
	);
}

/** Fold hides fields that few need, until somebody opens it or one of them is wrong. */
export function Fold({ name, wrong, children }: { name: string; wrong: boolean; children: ReactNode }) {
	const [open, setOpen] = useState(false);
	return <details className="fold" open={open || wrong} onToggle={(e) => setOpen(e.currentTarget.open)}><summary>{name}</summary>{children}</details>;
}

/** Pending keeps a dialog open while a call is under way: what the call returns would be lost with the dialog. After pendingMost it can be given up. */
export interface Pending {
	busy: boolean;
	/** stop gives the call up; undefined as long as that is not possible. */
	stop: (() => void) | undefined;
	/** during makes a call, and returns when it has ended or was given up, which is an error. It makes no second call at the same time. */
	during: (call: (signal: AbortSignal) => Promise<unknown>) => Promise<void>;
}

/** pendingMost is how long a dialog waits for its call, in milliseconds, before the user can close it. */
const pendingMost = 10_000;

const DialogPending = createContext<(pending: Pick<Pending, "busy" | "stop">) => void>(() => {});

function useCalls(): Pending {
	const [busy, setBusy] = useState(false);
	const [stop, setStop] = useState<() => void>();
	const running = useRef(false);
	const during = useCallback(async (call: (signal: AbortSignal) => Promise<unknown>) => {
		if (running.current) return;
		running.current = true;
		const given = new AbortController();
		const up = new Promise<never>((_, reject) => given.signal.addEventListener("abort", () => reject(new Error("You stopped waiting. The call may have taken effect: look before you send it again."))));
		const timer = setTimeout(() => setStop(() => () => {
			given.abort();
			stops.dispatchEvent(new Event("stop"));
		}), pendingMost);
		setBusy(true);
		try {
			await Promise.race([up, call(given.signal)]);
		} finally {
			clearTimeout(timer);
			running.current = false;
			setStop(undefined);
			setBusy(false);
		}
	}, []);
	return { busy, stop, during };
}

/** usePending keeps the dialog around open during calls. */
export function usePending(): Pending {
	const pending = useContext(DialogPending);
	const calls = useCalls();
	const { busy, stop } = calls;
	useEffect(() => {
		pending({ busy, stop });
		return () => pending({ busy: false, stop: undefined });
	}, [pending, busy, stop]);
	return calls;
}

/** PendingNote says how long a dialog stays open. */
export function PendingNote({ pending: { busy, stop } }: { pending: Pending }) {
	return <p role="status" className="note">{stop ? "There is no answer yet. You can stop waiting." : busy ? "The dialog stays open until the server has answered." : ""}</p>;
}

/** FormFoot is the end of a form in a dialog. */
export function FormFoot({ pending, action, working = "Working…", ready, onClose }: { pending: Pending; action: string; working?: string; ready: boolean; onClose: () => void }) {
	return (
		<>
			<PendingNote pending={pending} />
			<footer className="dialog-foot">
				<button type="button" className="button" disabled={pending.busy && !pending.stop} onClick={pending.stop ?? onClose}>{pending.stop ? "Stop waiting" : "Cancel"}</button>
				<button type="submit" className="button primary" disabled={pending.busy || !ready}>{pending.busy ? working : action}</button>
			</footer>
		</>
	);
}

export function Modal({ open, onClose, title, wide, children }: { open: boolean; onClose: () => void; title: string; wide?: boolean; children: ReactNode }) {
	const [{ busy, stop }, pending] = useState<Pick<Pending, "busy" | "stop">>({ busy: false, stop: undefined });
	const close = stop ?? (busy ? () => {} : onClose);
	return (
		<Dialog.Root open={open} onOpenChange={(now) => !now && close()}>
			<Dialog.Portal>
				<Dialog.Overlay className="overlay" />
				<Dialog.Content className={wide ? "dialog wide" : "dialog"} aria-describedby={undefined}>
					<header className="dialog-head">
						<Dialog.Title>{title}</Dialog.Title>
						<Dialog.Close className="icon-button" aria-label={stop ? "Stop waiting, then close" : "Close"} disabled={busy && !stop}><X size={16} /></Dialog.Close>
					</header>
					<DialogPending value={pending}>{children}</DialogPending>
				</Dialog.Content>
			</Dialog.Portal>
		</Dialog.Root>
	);
}

/** Confirm asks before something that cannot be undone, or, when it is mild, that acts on many, and shows the error when it fails. */
export function Confirm({ open, onClose, title, text, action, mild, run }: { open: boolean; onClose: () => void; title: string; text: ReactNode; action: string; mild?: boolean; run: (signal: AbortSignal) => Promise<void> }) {
	const pending = useCalls();
	const { busy, stop } = pending;
	const [error, setError] = useState("");
	const close = () => {
		setError("");
		onClose();
	};
	return (
		<AlertDialog.Root open={open} onOpenChange={(now) => !now && (stop ? stop() : !busy && close())}>
			<AlertDialog.Portal>
				<AlertDialog.Overlay className="overlay" />
				<AlertDialog.Content className="dialog small">
					<AlertDialog.Title>{title}</AlertDialog.Title>
					<AlertDialog.Description asChild><div className="dialog-text">{text}</div></AlertDialog.Description>
					{error && <p role="alert" className="alert">{error}</p>}
					<PendingNote pending={pending} />
					<footer className="dialog-foot">
						<AlertDialog.Cancel className="button" disabled={busy && !stop}>{stop ? "Stop waiting" : "Cancel"}</AlertDialog.Cancel>
						<button
							type="button" className={mild ? "button primary" : "button danger"} disabled={busy}
							onClick={async () => {
								setError("");
								try {
									await pending.during(run);
									close();
								} catch (err) {
									setError(message(err));
								}
							}}
						>
							{busy ? "Working…" : action}
						</button>
					</footer>
				</AlertDialog.Content>
			</AlertDialog.Portal>
		</AlertDialog.Root>
	);
}

export function Empty({ icon, title, text, children }: { icon: ReactNode; title: string; text: ReactNode; children?: ReactNode }) {
	return (
		<div className="empty">
			<div className="empty-icon" aria-hidden="true">{icon}</div>
			<h2>{title}</h2>
			<p>{text}</p>
			{children}
		</div>
	);
}

/** Failure says why something could not be read, and offers to try again. */
export function Failure({ text, retry }: { text: string; retry?: () => void }) {
	return <p role="alert" className="alert bar"><CircleAlert size={16} aria-hidden="true" /><span>{text}</span>{retry && <button type="button" className="button small" onClick={retry}>Try again</button>}</p>;
}

export function Skeleton({ label, rows = 5 }: { label: string; rows?: number }) {
	return <div className="skeleton" role="status" aria-busy="true"><span className="visually-hidden">{label}</span>{Array.from({ length: rows }, (_, i) => <i key={i} />)}</div>;
}
