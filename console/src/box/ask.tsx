import { type FormEvent, useState } from "react";
import { message } from "../api.ts";
import { Field, Modal } from "../parts.tsx";

interface Props {
	open: boolean;
	onClose: () => void;
	title: string;
	label: string;
	hint?: string;
	action: string;
	/** Whether nothing may be entered. */
	optional?: boolean;
	run: (text: string) => Promise<unknown>;
}

/** Ask is a dialog with one line of text; it shows why the call with the text was refused. */
export function Ask(props: Props) {
	return <Modal open={props.open} onClose={props.onClose} title={props.title}><Form {...props} /></Modal>;
}

function Form({ onClose, label, hint, action, optional, run }: Props) {
	const [text, setText] = useState("");
	const [busy, setBusy] = useState(false);
	const [error, setError] = useState("");
	const submit = async (e: FormEvent) => {
		e.preventDefault();
		setBusy(true);
		try {
			await run(text.trim());
			onClose();
		} catch (err) {
			setError(message(err));
		}
		setBusy(false);
	};
	return (
		<form className="ask" onSubmit={(e) => void submit(e)}>
			<Field label={label} {...(hint ? { hint } : {})} error={error || undefined}>{(p) => <input {...p} value={text} autoFocus spellCheck={false} autoComplete="off" onChange={(e) => setText(e.target.value)} />}</Field>
			<footer className="dialog-foot">
				<button type="button" className="button" onClick={onClose}>Cancel</button>
				<button type="submit" className="button primary" disabled={busy || (!optional && !text.trim())}>{busy ? "Working…" : action}</button>
			</footer>
		</form>
	);
}
