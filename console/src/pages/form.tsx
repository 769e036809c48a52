// Forms in dialogs.
import { type FormEvent, type ReactNode, useState } from "react";
import { ApiError, message } from "../api.ts";
import { CopyButton, FormFoot, useHold } from "../parts.tsx";

/** DialogForm calls run when it is sent, shows why that was refused, and gives the mistake of each field to its content. The dialog stays open until the call has ended or was given up. */
export function DialogForm({ action, ready = true, onClose, run, children }: { action: string; ready?: boolean; onClose: () => void; run: (signal: AbortSignal) => Promise<unknown>; children: (fields: Record<string, string>) => ReactNode }) {
	const [error, setError] = useState("");
	const [fields, setFields] = useState<Record<string, string>>({});
	const hold = useHold();
	const submit = async (e: FormEvent) => {
		e.preventDefault();
		setError("");
		setFields({});
		try {
			await hold.during(run);
		} catch (err) {
			setError(message(err));
			if (err instanceof ApiError) setFields(err.fields);
		}
	};
	return (
		<form className="ask" onSubmit={(e) => void submit(e)}>
			{children(fields)}
			{error && <p role="alert" className="alert">{error}</p>}
			<FormFoot hold={hold} action={action} ready={ready} onClose={onClose} />
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
