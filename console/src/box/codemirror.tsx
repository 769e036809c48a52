// CodeMirror with the colours of the console. Loaded when an editor is shown.
import { defaultKeymap, history, historyKeymap, indentWithTab } from "@codemirror/commands";
import { bracketMatching, indentOnInput, syntaxHighlighting } from "@codemirror/language";
import { highlightSelectionMatches, search, searchKeymap } from "@codemirror/search";
import { Compartment, EditorState, Transaction } from "@codemirror/state";
import { drawSelection, EditorView, highlightActiveLine, keymap, lineNumbers } from "@codemirror/view";
import { useEffect, useRef } from "react";
import { nonce } from "../nonce.ts";
import { colours, look } from "./codelook.ts";
import { language } from "./languages.ts";

interface Props {
	/** The name of the file, which says its language. */
	name: string;
	/** The content at the start; a later change of it replaces what is in the editor. */
	text: string;
	label: string;
	readOnly?: boolean;
	/** No line numbers and as high as the text, for a cell of a notebook. */
	small?: boolean;
	onChange?: (text: string) => void;
	onSave?: () => void;
	/** Called to run the code; on says to go on to the next cell. */
	onRun?: (on: boolean) => void;
}

export default function CodeMirror({ name, text, label, readOnly = false, small = false, onChange, onSave, onRun }: Props) {
	const place = useRef<HTMLDivElement>(null);
	const editor = useRef<EditorView>(null);
	const calls = useRef({ onChange, onSave, onRun });
	useEffect(() => {
		calls.current = { onChange, onSave, onRun };
	});
	useEffect(() => {
		if (!place.current) return;
		const highlighting = new Compartment();
		const save = () => {
			calls.current.onSave?.();
			return Boolean(calls.current.onSave);
		};
		const run = (on: boolean) => () => {
			calls.current.onRun?.(on);
			return Boolean(calls.current.onRun);
		};
		const view = new EditorView({
			parent: place.current,
			state: EditorState.create({
				doc: "",
				extensions: [
					EditorView.cspNonce.of(nonce),
					small ? [] : [lineNumbers(), highlightActiveLine(), search(), highlightSelectionMatches()],
					history(), drawSelection(), indentOnInput(), bracketMatching(), syntaxHighlighting(colours), look, EditorView.lineWrapping,
					highlighting.of([]),
					EditorState.readOnly.of(readOnly),
					EditorView.contentAttributes.of({ "aria-label": label }),
					keymap.of([
						{ key: "Mod-s", run: save, preventDefault: true },
						{ key: "Mod-Enter", run: run(false) },
						{ key: "Shift-Enter", run: run(true) },
						...defaultKeymap, ...historyKeymap, ...(small ? [] : searchKeymap), indentWithTab,
					]),
					EditorView.updateListener.of((u) => {
						if (u.docChanged && !u.transactions.some((tr) => tr.isUserEvent("load"))) calls.current.onChange?.(u.state.doc.toString());
					}),
				],
			}),
		});
		editor.current = view;
		let gone = false;
		void language(name).then((found) => {
			if (!gone) view.dispatch({ effects: highlighting.reconfigure(found) });
		});
		return () => {
			gone = true;
			view.destroy();
		};
	}, [name, label, readOnly, small]);
	useEffect(() => {
		const view = editor.current;
		if (view && view.state.doc.toString() !== text) view.dispatch({ changes: { from: 0, to: view.state.doc.length, insert: text }, userEvent: "load", annotations: Transaction.addToHistory.of(false) });
	}, [text, name, label, readOnly, small]);
	return <div ref={place} className={small ? "editor small" : "editor"} data-language={name} />;
}
