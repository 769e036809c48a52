// The difference of two texts, line by line. Loaded when one is shown.
import { unifiedMergeView } from "@codemirror/merge";
import { lineNumbers, EditorView } from "@codemirror/view";
import { Compartment, EditorState } from "@codemirror/state";
import { syntaxHighlighting } from "@codemirror/language";
import { useEffect, useRef } from "react";
import { nonce } from "../nonce.ts";
import { colours, look } from "./codelook.ts";
import { language } from "./languages.ts";

/** longest is how many milliseconds the search for the shortest difference may take. */
const longest = 500;

export default function Merge({ name, before, after, label }: { name: string; before: string; after: string; label: string }) {
	const place = useRef<HTMLDivElement>(null);
	useEffect(() => {
		if (!place.current) return;
		const highlighting = new Compartment();
		const view = new EditorView({
			parent: place.current,
			state: EditorState.create({
				doc: after,
				extensions: [
					EditorView.cspNonce.of(nonce), lineNumbers(), syntaxHighlighting(colours), look, EditorView.lineWrapping, highlighting.of([]),
					EditorState.readOnly.of(true), EditorView.editable.of(false),
					EditorView.contentAttributes.of({ "aria-label": label, tabindex: "0" }),
					unifiedMergeView({ original: before, mergeControls: false, collapseUnchanged: { margin: 3, minSize: 6 }, diffConfig: { timeout: longest } }),
				],
			}),
		});
		let gone = false;
		void language(name).then((found) => {
			if (!gone) view.dispatch({ effects: highlighting.reconfigure(found) });
		});
		return () => {
			gone = true;
			view.destroy();
		};
	}, [name, before, after, label]);
	return <div ref={place} className="editor merge" />;
}
