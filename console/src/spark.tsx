// A small curve without axes, beside words that say the same.
interface Props {
	values: readonly number[];
	/** The value at the upper edge, or more when a value is higher. */
	top: number;
	/** How many values fill the width. */
	room: number;
	label: string;
}

const width = 100;
const height = 20;

export function Spark({ values, top, room, label }: Props) {
	const highest = Math.max(top, ...values) || 1;
	const step = width / (room - 1);
	const from = width - (values.length - 1) * step;
	const points = values.map((v, i) => `${(from + i * step).toFixed(1)},${(height - 1 - (v / highest) * (height - 2)).toFixed(1)}`).join(" ");
	return (
		<svg className="spark" viewBox={`0 0 ${width} ${height}`} preserveAspectRatio="none" role="img" aria-label={label}>
			<title>{label}</title>
			{values.length > 1 && <polyline points={points} />}
		</svg>
	);
}
