// What the code of a cell writes and shows: text, pictures, tables, HTML in a frame, errors.
import { Download } from "lucide-react";
import { useEffect, useRef, useState } from "react";
import { Boundary } from "../../boundary.tsx";
import type { CodeOutput } from "../../calls/box.ts";
import { download } from "../download.ts";
import { type Output, plain, textMost } from "./state.ts";
import { Table, tableOf } from "./table.tsx";

/** OutputView shows an output. One that cannot be shown leaves the others as they are. */
export function OutputView({ output }: { output: Output }) {
	return <Boundary at={output} instead={() => <p role="alert" className="out-note">This output cannot be shown: its data does not have the form that its format requires. Have the code print it as text, or show it in another format.</p>}><Shown output={output} /></Boundary>;
}

function Shown({ output }: { output: Output }) {
	switch (output.kind) {
		case "text":
			return <pre tabIndex={0} className="out-text" data-stream={output.stream}>{output.text}</pre>;
		case "note":
			return <p className="out-note">{output.text}</p>;
		case "error":
			return (
				<div className="out-error" role="alert">
					<p><b>{output.error.name}</b>{output.error.value && `: ${plain(output.error.value.slice(0, textMost))}`}</p>
					{output.error.traceback.length > 0 && <pre tabIndex={0} aria-label="Traceback">{plain(output.error.traceback.join("\n").slice(-textMost))}</pre>}
				</div>
			);
		case "value":
			return <Value value={output.value} restored={output.restored ?? false} />;
	}
}

/** pictures are the formats that are shown as pictures, the best first. A picture runs no script. */
const pictures = ["image/svg+xml", "image/png", "image/jpeg"];
const tableType = "application/vnd.dataresource+json";
const chartType = "application/vnd.modbox.chart+json";

/** Value shows the best format of a value. */
function Value({ value: { data, omitted }, restored }: { value: CodeOutput; restored: boolean }) {
	const text = (type: string) => (typeof data[type] === "string" ? data[type] : undefined);
	const note = omitted?.length ? <p className="out-note">Too large to be shown: {omitted.join(", ")}.</p> : null;
	const picture = pictures.find((t) => text(t) !== undefined);
	const table = tableOf(data[tableType]);
	const json = Object.keys(data).find((t) => t.endsWith("json") && t !== chartType);
	const pdf = text("application/pdf");
	let shown;
	if (picture) shown = <Picture type={picture} content={text(picture)!} alt={nameOf(data)} />;
	else if (table) shown = <Table table={table} />;
	else if (text("text/html") !== undefined) shown = restored ? <Asked key={text("text/html")} html={text("text/html")!} /> : <Frame key={text("text/html")} html={text("text/html")!} />;
	else if (pdf !== undefined) shown = <Pdf content={pdf} />;
	else {
		const words = text("text/markdown") ?? text("text/latex") ?? (json && JSON.stringify(data[json], null, 2)) ?? text("text/plain");
		shown = words === undefined ? !note && <p className="out-note">A value in a format that is not shown: {Object.keys(data).join(", ") || "none"}.</p> : <Words text={words} />;
	}
	return <>{shown}{note}</>;
}

/** Asked shows HTML of an earlier load of the page on request: its scripts run anew. */
function Asked({ html }: { html: string }) {
	const [asked, setAsked] = useState(false);
	if (asked) return <Frame html={html} />;
	return <p className="out-note">The code showed HTML before the page was loaded again. Its scripts run when it is shown.<button type="button" className="button small" onClick={() => setAsked(true)}>Show</button></p>;
}

function Pdf({ content }: { content: string }) {
	const [wrong, setWrong] = useState(false);
	if (wrong) return <p role="alert" className="out-note">The PDF cannot be read: its data is not base64.</p>;
	const save = () => {
		try {
			void download(new Response(Uint8Array.from(atob(content), (c) => c.charCodeAt(0))), "output.pdf");
		} catch {
			setWrong(true);
		}
	};
	return <button type="button" className="button small" onClick={save}><Download size={14} aria-hidden="true" />Download the PDF</button>;
}

function Words({ text }: { text: string }) {
	return (
		<>
			<pre tabIndex={0} className="out-text">{plain(text.slice(0, textMost))}</pre>
			{text.length > textMost && <p className="out-note">The first {textMost.toLocaleString()} of {text.length.toLocaleString()} characters are shown.</p>}
		</>
	);
}

/** nameOf says in words what a picture shows. */
function nameOf(data: CodeOutput["data"]): string {
	const chart = data[chartType] as { type?: string; title?: string } | undefined;
	if (chart?.type) return `Plot${chart.title ? ` “${chart.title}”` : ""} (${chart.type})`;
	return typeof data["text/plain"] === "string" ? data["text/plain"] : "Picture";
}

function Picture({ type, content, alt }: { type: string; content: string; alt: string }) {
	const src = type === "image/svg+xml" ? `data:${type};charset=utf-8,${encodeURIComponent(content.replace(/\p{Surrogate}/gu, "\ufffd"))}` : `data:${type};base64,${content.replace(/\s/g, "")}`;
	return <img className="out-picture" src={src} alt={alt} />;
}

/** highest bounds the height of a frame, in pixels; a higher content scrolls in it. */
const highest = 600;

/** Frame shows HTML in a page without an origin, whose scripts reach nothing (internal/console/output.go). */
function Frame({ html }: { html: string }) {
	const frame = useRef<HTMLIFrameElement>(null);
	const given = useRef<Window>(null);
	const [height, setHeight] = useState(40);
	useEffect(() => {
		const hear = (m: MessageEvent<{ height?: number } | undefined>) => {
			const wanted = m.source === frame.current?.contentWindow ? Number(m.data?.height) : 0;
			if (wanted > 0) setHeight(Math.min(highest, Math.ceil(wanted)));
		};
		addEventListener("message", hear);
		const theme = new MutationObserver(() => frame.current?.contentWindow?.postMessage({ theme: document.documentElement.dataset.theme }, "*"));
		theme.observe(document.documentElement, { attributeFilter: ["data-theme"] });
		return () => {
			removeEventListener("message", hear);
			theme.disconnect();
		};
	}, []);
	/** give gives the HTML to the first page of the frame only: a page to which that page leads does not receive it. A frame that is moved has a new window. */
	const give = () => {
		const to = frame.current?.contentWindow;
		if (!to || to === given.current) return;
		given.current = to;
		to.postMessage({ html, theme: document.documentElement.dataset.theme }, "*");
	};
	return <iframe ref={frame} className="out-frame" src="/output.html" sandbox="allow-scripts" title="HTML that the code shows" style={{ height }} onLoad={give} />;
}
