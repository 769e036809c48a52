// The colours of code in the console.
import "../styles/code.css";
import { HighlightStyle } from "@codemirror/language";
import { EditorView } from "@codemirror/view";
import { tags as t } from "@lezer/highlight";

export const colours = HighlightStyle.define([
	{ tag: [t.keyword, t.modifier, t.operatorKeyword, t.controlKeyword], color: "var(--code-keyword)" },
	{ tag: [t.string, t.special(t.string), t.regexp], color: "var(--code-string)" },
	{ tag: [t.number, t.bool, t.null, t.atom], color: "var(--code-number)" },
	{ tag: [t.comment, t.meta], color: "var(--muted)", fontStyle: "italic" },
	{ tag: [t.function(t.variableName), t.function(t.propertyName), t.definition(t.function(t.variableName))], color: "var(--code-function)" },
	{ tag: [t.typeName, t.className, t.tagName, t.heading], color: "var(--code-type)" },
	{ tag: [t.propertyName, t.attributeName], color: "var(--code-property)" },
	{ tag: t.heading, fontWeight: "600" },
	{ tag: t.link, textDecoration: "underline" },
]);

export const look = EditorView.theme({
	"&": { height: "100%", fontSize: "13px", color: "var(--text)", backgroundColor: "var(--surface)" },
	"&.cm-focused": { outline: "none" },
	".cm-scroller": { fontFamily: "var(--mono)", lineHeight: "1.55" },
	".cm-content": { caretColor: "var(--accent-text)", padding: "10px 0" },
	".cm-gutters": { backgroundColor: "var(--surface)", color: "var(--muted)", border: "none", paddingLeft: "6px" },
	".cm-activeLine, .cm-activeLineGutter": { backgroundColor: "color-mix(in srgb, var(--hover) 70%, transparent)" },
	".cm-cursor": { borderLeftColor: "var(--accent-text)", borderLeftWidth: "2px" },
	"&.cm-focused > .cm-scroller > .cm-selectionLayer .cm-selectionBackground, .cm-selectionBackground": { backgroundColor: "var(--accent-soft)" },
	".cm-selectionMatch": { backgroundColor: "var(--warn-soft)" },
	".cm-panels": { backgroundColor: "var(--ground)", color: "var(--text)", borderTop: "1px solid var(--line)" },
	".cm-changedLine, .cm-insertedLine": { backgroundColor: "var(--good-soft) !important" },
	".cm-deletedChunk": { backgroundColor: "var(--bad-soft) !important", paddingLeft: "6px" },
	".cm-deletedText, .cm-changedText": { background: "none !important", textDecoration: "underline", textDecorationThickness: "2px", textUnderlineOffset: "2px" },
	".cm-changedLine *, .cm-insertedLine *, .cm-deletedChunk *": { color: "var(--text) !important" },
	".cm-changeGutter": { width: "3px", paddingLeft: "0" },
	".cm-changedLineGutter": { background: "var(--good)" },
	".cm-deletedLineGutter": { background: "var(--bad)" },
	".cm-collapsedLines::before, .cm-collapsedLines::after": { content: "none !important" },
	".cm-collapsedLines": { color: "var(--muted)", background: "var(--ground)", borderBlock: "1px solid var(--line)", padding: "3px 10px" },
	".cm-panels input, .cm-panels button": { height: "28px", width: "auto" },
});
