// A table that code shows, such as a data frame.
import { useState } from "react";

export interface TableData {
	fields: { name?: unknown; type?: unknown }[];
	rows: Record<string, unknown>[];
	totalRows: number;
	totalColumns: number;
}

const isObject = (value: unknown): value is Record<string, unknown> => typeof value === "object" && value !== null && !Array.isArray(value);

/** tableOf returns what code gave out as a table, or undefined when it does not have the shape of one: code may write anything. */
export function tableOf(value: unknown): TableData | undefined {
	if (!isObject(value) || !isObject(value.schema)) return undefined;
	const { fields } = value.schema;
	const { data, total_rows, total_columns } = value;
	if (!Array.isArray(fields) || !fields.every(isObject) || !Array.isArray(data) || !data.every(isObject)) return undefined;
	const count = (n: unknown, there: number) => (typeof n === "number" ? n : there);
	return { fields, rows: data, totalRows: count(total_rows, data.length), totalColumns: count(total_columns, fields.length) };
}

/** rowsFirst is how many rows of a table are shown at first, rowsMost how many on request. */
const rowsFirst = 20;
const rowsMost = 1000;
const columnsMost = 200;
/** cellMost is how much of the text of a cell is shown, in characters. */
const cellMost = 1000;

function show(value: unknown): string {
	const text = value === null || value === undefined ? "" : typeof value === "string" ? value : JSON.stringify(value);
	return text.length > cellMost ? `${text.slice(0, cellMost)}…` : text;
}

export function Table({ table }: { table: TableData }) {
	const [all, setAll] = useState(false);
	const fields = table.fields.slice(0, columnsMost);
	const there = Math.min(table.rows.length, rowsMost);
	const rows = table.rows.slice(0, all ? there : rowsFirst);
	const cut = [rows.length < table.totalRows && `${rows.length.toLocaleString()} ${rows.length === 1 ? "row" : "rows"}`, fields.length < table.totalColumns && `${fields.length} columns`].filter(Boolean);
	const number = (type: unknown) => type === "integer" || type === "number";
	return (
		<figure className="out-table">
			<div className="out-scroll" tabIndex={0} role="region" aria-label="Data frame">
				<table>
					<thead><tr>{fields.map((f, i) => <th key={i} scope="col" data-number={number(f.type)}>{show(f.name)}</th>)}</tr></thead>
					<tbody>{rows.map((row, i) => <tr key={i}>{fields.map((f, j) => <td key={j} data-number={number(f.type)}>{show(row[String(f.name)])}</td>)}</tr>)}</tbody>
				</table>
			</div>
			<figcaption className="out-note">
				{table.totalRows.toLocaleString()} {table.totalRows === 1 ? "row" : "rows"} × {table.totalColumns.toLocaleString()} {table.totalColumns === 1 ? "column" : "columns"}{cut.length > 0 && `, of which the first ${cut.join(" and ")} are shown`}
				{rows.length < there && <button type="button" className="button small quiet" onClick={() => setAll(true)}>Show {there.toLocaleString()}</button>}
			</figcaption>
		</figure>
	);
}
