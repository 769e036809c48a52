// Forms in dialogs.
import { type FormEvent, type ReactNode, useState } from "react";
import { ApiError, message } from "../api.ts";
import { CopyButton, useHold } from "../parts.tsx";

/** DialogForm calls run when it is sent, shows why that was refused, and gives the mistake of each field to its content. The dialog stays open until the call has ended. */
export function DialogForm({ action, ready = true, onClose, run, children }: { action: string; ready?: boolean; onClose: () => void; run: () => Promise<unknown>; children: (fields: Record<string, string>) => ReactNode }) {
	const [busy, setBusy] = useState(false);
	const [error, setError] = useState("");
	const [fields, setFields] = useState<Record<string, string>>({});
	const hold = useHold();
	const submit = async (e: FormEvent) => {
		e.preventDefault();
		setBusy(true);
		hold(true);
		setError("");
		setFields({});
		try {
			await run();
		} catch (err) {
			setError(message(err));
			if (err instanceof ApiError) setFields(err.fields);
		}
		setBusy(false);
		hold(false);
	};
	return (
		<form className="ask" onSubmit={(e) => void submit(e)}>
			{children(fields)}
			{error && <p role="alert" className="alert">{error}</p>}
			<footer className="dialog-foot">
				<button type="button" className="button" disabled={busy} onClick={onClose}>Cancel</button>
				<button type="submit" className="button primary" disabled={busy || !ready}>{busy ? "Working…" : action}</button>
			</footer>
		</form>
	);
}

/** Shown shows a secret, which is never shown again. */
export function Shown({ label, text, lead, onClose }: { label: string; text: string; lead: ReactNode; onClose: () => void }) {
	return (
		<div className="ask">
			<p>{lead}</p>
			<div className="secret">
				<input readOnly aria-label={label} className="mono" value={text} autoFocus onFocus={(e) => e.target.select()} />
				<CopyButton text={text} label={`Copy: ${label}`}>Copy</CopyButton>
				<small className="muted">It is shown only now.</small>
			</div>
			<footer className="dialog-foot"><button type="button" className="button primary" onClick={onClose}>Done</button></footer>
		</div>
	);
}
