// Small parts of all pages.
import { Check, CircleAlert, Copy, X } from "lucide-react";
import { AlertDialog, Dialog } from "radix-ui";
import { createContext, type ReactNode, useCallback, useContext, useId, useRef, useState } from "react";
import type { SandboxState } from "./api.ts";
import { message } from "./api.ts";
import { tones } from "./format.ts";

export function Logo() {
	return (
		<span className="logo">
			<img src="/icon.svg" alt="" width="22" height="22" />
			Modbox
		</span>
	);
}

export function State({ state }: { state: SandboxState }) {
	return <span className="state" data-tone={tones[state]}>{state}</span>;
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

const Holding = createContext<(hold: boolean) => void>(() => {});

/** useHold returns a function that keeps the dialog around open, or no longer. What a call returns would be lost with the dialog. */
export const useHold = () => useContext(Holding);

export function Modal({ open, onClose, title, wide, children }: { open: boolean; onClose: () => void; title: string; wide?: boolean; children: ReactNode }) {
	const held = useRef(false);
	const hold = useCallback((now: boolean) => {
		held.current = now;
	}, []);
	return (
		<Dialog.Root open={open} onOpenChange={(now) => !now && !held.current && onClose()}>
			<Dialog.Portal>
				<Dialog.Overlay className="overlay" />
				<Dialog.Content className={wide ? "dialog wide" : "dialog"} aria-describedby={undefined}>
					<header className="dialog-head">
						<Dialog.Title>{title}</Dialog.Title>
						<Dialog.Close className="icon-button" aria-label="Close"><X size={16} /></Dialog.Close>
					</header>
					<Holding value={hold}>{children}</Holding>
				</Dialog.Content>
			</Dialog.Portal>
		</Dialog.Root>
	);
}

/** Confirm asks before something that cannot be undone, and shows the error when it fails. */
export function Confirm({ open, onClose, title, text, action, run }: { open: boolean; onClose: () => void; title: string; text: ReactNode; action: string; run: () => Promise<void> }) {
	const [busy, setBusy] = useState(false);
	const [error, setError] = useState("");
	const close = () => {
		setError("");
		onClose();
	};
	return (
		<AlertDialog.Root open={open} onOpenChange={(now) => !now && !busy && close()}>
			<AlertDialog.Portal>
				<AlertDialog.Overlay className="overlay" />
				<AlertDialog.Content className="dialog small">
					<AlertDialog.Title>{title}</AlertDialog.Title>
					<AlertDialog.Description asChild><div className="dialog-text">{text}</div></AlertDialog.Description>
					{error && <p role="alert" className="alert">{error}</p>}
					<footer className="dialog-foot">
						<AlertDialog.Cancel className="button" disabled={busy}>Cancel</AlertDialog.Cancel>
						<button
							type="button" className="button danger" disabled={busy}
							onClick={async () => {
								setBusy(true);
								try {
									await run();
									close();
								} catch (err) {
									setError(message(err));
								}
								setBusy(false);
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
