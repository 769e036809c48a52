// Forms in dialogs.
import type { FormEvent, ReactNode } from "react";
import { FormError, type Faults, useFaults } from "../faults.tsx";
import { CopyButton, FormFoot, usePending } from "../parts.tsx";

/** DialogForm calls run when it is sent, and shows why that was refused: its content at the fields that it asks about with fault, the form the rest. The dialog stays open until the call has ended or was given up. */
export function DialogForm({ action, ready = true, onClose, run, children }: { action: string; ready?: boolean; onClose: () => void; run: (signal: AbortSignal) => Promise<unknown>; children: (fault: Faults["fault"]) => ReactNode }) {
	const { form, setError, fault, rest } = useFaults();
	const pending = usePending();
	const submit = async (e: FormEvent) => {
		e.preventDefault();
		setError(undefined);
		try {
			await pending.during(run);
		} catch (err) {
			setError(err);
		}
	};
	return (
		<form className="ask" ref={form} onSubmit={(e) => void submit(e)}>
			{children(fault)}
			<FormError rest={rest} />
			<FormFoot pending={pending} action={action} ready={ready} onClose={onClose} />
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
