// The languages that the editor highlights; each is loaded when a file needs it.
import type { Extension } from "@codemirror/state";

const legacy = async (load: () => Promise<unknown>, name: string): Promise<Extension> => {
	const [{ StreamLanguage }, modes] = await Promise.all([import("@codemirror/language"), load()]);
	return StreamLanguage.define((modes as Record<string, Parameters<typeof StreamLanguage.define>[0]>)[name]!);
};
const script = (jsx: boolean, typescript: boolean) => async () => (await import("@codemirror/lang-javascript")).javascript({ jsx, typescript });
const shell = () => legacy(() => import("@codemirror/legacy-modes/mode/shell"), "shell");
const clike = (name: string) => () => legacy(() => import("@codemirror/legacy-modes/mode/clike"), name);

const byExtension: Record<string, () => Promise<Extension>> = {
	py: async () => (await import("@codemirror/lang-python")).python(),
	js: script(true, false), mjs: script(true, false), cjs: script(true, false), jsx: script(true, false), ts: script(false, true), tsx: script(true, true),
	json: async () => (await import("@codemirror/lang-json")).json(),
	md: async () => (await import("@codemirror/lang-markdown")).markdown(),
	html: async () => (await import("@codemirror/lang-html")).html(),
	css: async () => (await import("@codemirror/lang-css")).css(),
	yaml: async () => (await import("@codemirror/lang-yaml")).yaml(),
	sh: shell, bash: shell, bashrc: shell, profile: shell,
	go: () => legacy(() => import("@codemirror/legacy-modes/mode/go"), "go"),
	rs: () => legacy(() => import("@codemirror/legacy-modes/mode/rust"), "rust"),
	rb: () => legacy(() => import("@codemirror/legacy-modes/mode/ruby"), "ruby"),
	r: () => legacy(() => import("@codemirror/legacy-modes/mode/r"), "r"),
	toml: () => legacy(() => import("@codemirror/legacy-modes/mode/toml"), "toml"),
	dockerfile: () => legacy(() => import("@codemirror/legacy-modes/mode/dockerfile"), "dockerFile"),
	c: clike("c"), h: clike("c"), cpp: clike("cpp"), cc: clike("cpp"), java: clike("java"), kt: clike("kotlin"),
	sql: () => legacy(() => import("@codemirror/legacy-modes/mode/sql"), "standardSQL"),
};
byExtension.yml = byExtension.yaml!;
byExtension.htm = byExtension.html!;
byExtension.svg = byExtension.html!;
byExtension.xml = byExtension.html!;
byExtension.markdown = byExtension.md!;

/** language returns the highlighting of a file by its name, or none. */
export async function language(name: string): Promise<Extension> {
	const ext = name.toLowerCase().split("/").pop()!.split(".").pop()!;
	return (await byExtension[ext]?.()) ?? [];
}
