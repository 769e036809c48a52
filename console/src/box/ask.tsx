import { type FormEvent, useState } from "react";
import { message } from "../api.ts";
import { Field, FormFoot, Modal, usePending } from "../parts.tsx";

interface Props {
	open: boolean;
	onClose: () => void;
	title: string;
	label: string;
	hint?: string;
	action: string;
	/** Whether nothing may be entered. */
	optional?: boolean;
	run: (text: string, signal: AbortSignal) => Promise<unknown>;
}

/** Ask is a dialog with one line of text; it shows why the call with the text was refused. */
export function Ask(props: Props) {
	return <Modal open={props.open} onClose={props.onClose} title={props.title}><Form {...props} /></Modal>;
}

function Form({ onClose, label, hint, action, optional, run }: Props) {
	const [text, setText] = useState("");
	const pending = usePending();
	const [error, setError] = useState("");
	const submit = async (e: FormEvent) => {
		e.preventDefault();
		setError("");
		try {
			await pending.during((signal) => run(text.trim(), signal));
			onClose();
		} catch (err) {
			setError(message(err));
		}
	};
	return (
		<form className="ask" onSubmit={(e) => void submit(e)}>
			<Field label={label} {...(hint ? { hint } : {})} error={error || undefined}>{(p) => <input {...p} value={text} autoFocus spellCheck={false} autoComplete="off" onChange={(e) => setText(e.target.value)} />}</Field>
			<FormFoot pending={pending} action={action} ready={Boolean(optional || text.trim())} onClose={onClose} />
		</form>
	);
}
