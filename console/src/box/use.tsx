// What a sandbox uses, as curves that grow.
import "../styles/use.css";
import { ChartLine } from "lucide-react";
import { type KeyboardEvent, type PointerEvent, useState } from "react";
import { bytes, moment, quantity, span } from "../format.ts";
import type { TabProps } from "../pages/sandbox.tsx";
import { Empty } from "../parts.tsx";
import type { Sample } from "../use.ts";

/** shortest and longest are the times that the width of a plot stands for, in milliseconds: it grows with what has been measured. */
const shortest = 60_000;
const longest = 10 * 60_000;

const cores = (n: number) => `${n < 0.1 ? n.toFixed(3) : n.toFixed(2)} ${n === 1 ? "core" : "cores"}`;
const rate = (n: number) => `${bytes(Math.round(n))}/s`;

interface Curve {
	name: string;
	of: (s: Sample) => number | undefined;
}

interface PlotProps {
	title: string;
	samples: readonly Sample[];
	curves: Curve[];
	/** The limit of the sandbox. */
	limit?: number | undefined;
	/** The least value at the upper edge. */
	least: number;
	write: (n: number) => string;
}

export default function UsePage({ sb, use }: TabProps) {
	if (use.length === 0) {
		return sb.state === "running"
			? <Empty icon={<ChartLine size={22} />} title="Measuring" text="The curves begin with the second measurement, some seconds after the page opens." />
			: <Empty icon={<ChartLine size={22} />} title="Nothing is in use" text={`The sandbox is ${sb.state}. Only a running sandbox uses processors and memory; its use is shown from the moment it runs.`} />;
	}
	const one = (name: string, of: Curve["of"]): Curve[] => [{ name, of }];
	return (
		<div className="plots">
			<Plot title="CPU" samples={use} curves={one("CPU", (s) => s.cpu)} limit={quantity(sb.resources.cpu)} least={0.1} write={cores} />
			<Plot title="Memory" samples={use} curves={one("Memory", (s) => s.memory)} limit={quantity(sb.resources.memory)} least={1 << 20} write={bytes} />
			<Plot title="Disk" samples={use} curves={one("Disk", (s) => s.disk)} limit={quantity(sb.resources.disk)} least={1 << 20} write={bytes} />
			<Plot title="Internet" samples={use} curves={[{ name: "received", of: (s) => s.received }, { name: "sent", of: (s) => s.sent }]} least={1024} write={rate} />
			<Plot title="Processes" samples={use} curves={one("Processes", (s) => s.processes)} least={4} write={(n) => String(Math.round(n))} />
		</div>
	);
}

const right = 600;
const height = 120;

/** Plot shows curves of the last minutes, up to ten. The value at a moment is read with the pointer or the arrow keys. */
function Plot({ title, samples, curves, limit, least, write }: PlotProps) {
	const [back, setBack] = useState<number | null>(null); // how many samples before the last one is read
	const end = samples.at(-1)!.at;
	const shown = samples.filter((s) => s.at >= end - longest);
	const width = Math.max(shortest, end - shown[0]!.at);
	const highest = Math.max(0, ...curves.flatMap((c) => shown.map((s) => c.of(s) ?? 0)));
	const top = Math.min(limit ?? Infinity, Math.max(least, highest * 1.5));
	const x = (s: Sample) => right - ((end - s.at) / width) * right;
	const y = (v: number) => height - Math.min(1, v / top) * (height - 4);
	const at = back === null ? null : shown[Math.max(0, shown.length - 1 - back)];
	const read = at ?? shown.at(-1)!;
	const values = (s: Sample) => curves.map((c) => `${curves.length > 1 ? `${c.name} ` : ""}${write(c.of(s) ?? 0)}`).join(", ");
	const point = (e: PointerEvent<SVGSVGElement>) => {
		const box = e.currentTarget.getBoundingClientRect();
		const when = end - (1 - (e.clientX - box.left) / box.width) * width;
		let nearest = 0;
		for (const [i, s] of shown.entries()) if (Math.abs(s.at - when) < Math.abs(shown[nearest]!.at - when)) nearest = i;
		setBack(shown.length - 1 - nearest);
	};
	const key = (e: KeyboardEvent) => {
		const step = e.key === "ArrowLeft" ? 1 : e.key === "ArrowRight" ? -1 : 0;
		if (!step) return;
		e.preventDefault();
		setBack((was) => Math.min(shown.length - 1, Math.max(0, (was ?? 0) + step)));
	};
	const now = values(shown.at(-1)!);
	return (
		<figure className="card plot" data-top={write(top)}>
			<figcaption><h2>{title}</h2><span className="grow" /><span className="plot-value">{values(read)}{limit !== undefined && <small className="muted"> of {write(limit)}</small>}</span></figcaption>
			<svg
				viewBox={`0 0 ${right} ${height}`} preserveAspectRatio="none" role="img" tabIndex={0}
				aria-label={`${title}: now ${now}${limit === undefined ? "" : ` of ${write(limit)}`}, at most ${write(highest)} in the last ${span(width / 1000)}${at ? `. At ${moment(new Date(at.at).toISOString())}: ${values(at)}` : ""}`}
				onPointerMove={point} onPointerLeave={() => setBack(null)} onKeyDown={key} onBlur={() => setBack(null)}
			>
				{[0.25, 0.5, 0.75].map((part) => <line key={part} className="plot-grid" x1="0" x2={right} y1={height * part} y2={height * part} />)}
				{curves.map((c, i) => {
					const line = shown.filter((s) => c.of(s) !== undefined).map((s) => `${x(s).toFixed(1)},${y(c.of(s)!).toFixed(1)}`);
					const first = shown.find((s) => c.of(s) !== undefined);
					return first && (
						<g key={c.name} className="plot-curve" data-curve={i}>
							<polygon points={`${x(first).toFixed(1)},${height} ${line.join(" ")} ${right},${height}`} />
							<polyline points={line.join(" ")} />
						</g>
					);
				})}
				{at && <line className="plot-at" x1={x(at)} x2={x(at)} y1="0" y2={height} />}
			</svg>
			<p className="plot-foot muted">
				<span>{span(width / 1000)} ago</span>
				{curves.length > 1 && curves.map((c, i) => <span key={c.name} className="plot-key" data-curve={i}>{c.name}</span>)}
				<span>{at ? new Date(at.at).toLocaleTimeString() : "now"}</span>
			</p>
		</figure>
	);
}
