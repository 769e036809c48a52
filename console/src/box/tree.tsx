// The files of a directory as a tree. A directory is read when it is opened.
import { ChevronRight, File, Folder, Link2 } from "lucide-react";
import { type DragEvent, type KeyboardEvent, useCallback, useEffect, useMemo, useRef, useState } from "react";
import { message } from "../api.ts";
import { box, type FileInfo } from "../calls/box.ts";
import type { Changes } from "../calls/diff.ts";
import { bytes } from "../format.ts";
import { Mark } from "./changes.tsx";

type Content = FileInfo[] | { error: string };

export interface Node {
	info: FileInfo;
	level: number;
}

/** useTree keeps what directories hold, and which are open. */
export function useTree(id: string, root: string) {
	const [content, setContent] = useState<ReadonlyMap<string, Content>>(new Map());
	const [open, setOpen] = useState<ReadonlySet<string>>(new Set());
	const read = useCallback(async (dir: string) => {
		let now: Content;
		try {
			now = await box.files(id, dir);
			now.sort((a, b) => Number(b.type === "directory") - Number(a.type === "directory") || a.name.localeCompare(b.name));
		} catch (err) {
			now = { error: message(err) };
		}
		setContent((was) => new Map(was).set(dir, now));
	}, [id]);
	useEffect(() => void read(root), [read, root]);
	const toggle = (dir: string, to = !open.has(dir)) => {
		if (to) void read(dir);
		setOpen((was) => {
			const next = new Set(was);
			if (to) next.add(dir);
			else next.delete(dir);
			return next;
		});
	};
	const nodes = useMemo(() => {
		const out: Node[] = [];
		const add = (dir: string, level: number) => {
			const inside = content.get(dir);
			if (!Array.isArray(inside)) return;
			for (const info of inside) {
				out.push({ info, level });
				if (open.has(info.path)) add(info.path, level + 1);
			}
		};
		add(root, 1);
		return out;
	}, [content, open, root]);
	return { nodes, open, toggle, read, top: content.get(root), errorOf: (dir: string) => {
		const c = content.get(dir);
		return c && !Array.isArray(c) ? c.error : "";
	} };
}

const icon = (type: FileInfo["type"]) => (type === "directory" ? <Folder size={14} aria-hidden="true" /> : type === "symlink" ? <Link2 size={14} aria-hidden="true" /> : <File size={14} aria-hidden="true" />);

interface Props {
	tree: ReturnType<typeof useTree>;
	chosen: string;
	choose: (info: FileInfo) => void;
	drop: (dir: string, e: DragEvent) => void;
	/** What differs from the image, once that was read. */
	changes: Changes | undefined;
}

export function Tree({ tree, chosen, choose, drop, changes }: Props) {
	const { nodes, open, toggle, errorOf } = tree;
	const list = useRef<HTMLUListElement>(null);
	const [at, setAt] = useState("");
	const [over, setOver] = useState("");
	const current = nodes.some((n) => n.info.path === at) ? at : (nodes.find((n) => n.info.path === chosen) ?? nodes[0])?.info.path;
	const focus = (i: number) => {
		const node = nodes[Math.min(nodes.length - 1, Math.max(0, i))];
		if (!node) return;
		setAt(node.info.path);
		list.current?.querySelector<HTMLElement>(`[data-path="${CSS.escape(node.info.path)}"]`)?.focus();
	};
	const press = (e: KeyboardEvent, node: Node, i: number) => {
		const isDir = node.info.type === "directory";
		switch (e.key) {
			case "ArrowDown": focus(i + 1); break;
			case "ArrowUp": focus(i - 1); break;
			case "Home": focus(0); break;
			case "End": focus(nodes.length - 1); break;
			case "ArrowRight":
				if (isDir && !open.has(node.info.path)) toggle(node.info.path, true);
				else if (isDir) focus(i + 1);
				break;
			case "ArrowLeft":
				if (isDir && open.has(node.info.path)) toggle(node.info.path, false);
				else focus(nodes.findLastIndex((n, j) => j < i && n.level < node.level));
				break;
			case "Enter": case " ": act(node); break;
			default: return;
		}
		e.preventDefault();
		e.stopPropagation();
	};
	const act = (node: Node) => {
		setAt(node.info.path);
		if (node.info.type === "directory") toggle(node.info.path);
		choose(node.info);
	};
	return (
		<ul role="tree" aria-label="Files" className="tree" ref={list}>
			{nodes.map((node, i) => {
				const { info, level } = node;
				const isDir = info.type === "directory";
				const change = changes?.byPath.get(info.path);
				return (
					<li
						key={info.path} role="treeitem" aria-level={level} aria-selected={info.path === chosen} aria-expanded={isDir ? open.has(info.path) : undefined}
						data-path={info.path} style={{ paddingLeft: 6 + (Math.min(level, 16) - 1) * 14 }} data-over={over === info.path} tabIndex={info.path === current ? 0 : -1} title={info.target ? `${info.path} → ${info.target}` : info.path}
						onClick={() => act(node)} onKeyDown={(e) => press(e, node, i)}
						onDragOver={isDir ? (e) => { e.preventDefault(); setOver(info.path); } : undefined} onDragLeave={() => setOver("")}
						onDrop={isDir ? (e) => { setOver(""); drop(info.path, e); } : undefined}
					>
						<ChevronRight size={13} aria-hidden="true" className="chevron" data-shown={isDir} />
						{icon(info.type)}
						<span className="clip grow">{info.name}</span>
						{change ? <Mark change={change.change} /> : isDir && changes?.around.has(info.path) && <span className="change-mark" title="Something in it has changed"><span aria-hidden="true">•</span><span className="visually-hidden">has changes</span></span>}
						{isDir ? errorOf(info.path) && <small className="note bad clip">{errorOf(info.path)}</small> : info.type === "file" && <small>{bytes(info.size_bytes)}</small>}
					</li>
				);
			})}
		</ul>
	);
}
