// Archives of files, as builds of images take them (ustar).
const encode = (text: string) => new TextEncoder().encode(text);

export interface TarFile {
	/** The name in the archive, with slashes. */
	name: string;
	content: File;
}

/** split returns a name as the two fields of a header: the directory, when the name is too long for one. */
function split(name: string): [prefix: string, name: string] {
	if (encode(name).length <= 100) return ["", name];
	for (let at = name.indexOf("/"); at >= 0; at = name.indexOf("/", at + 1)) {
		if (encode(name.slice(at + 1)).length <= 100 && encode(name.slice(0, at)).length <= 155) return [name.slice(0, at), name.slice(at + 1)];
	}
	throw new Error(`The name ${name.slice(0, 60)}… is too long for an archive. Rename it, or upload an archive that you have made.`);
}

function header({ name, content }: TarFile): Uint8Array<ArrayBuffer> {
	const block = new Uint8Array(512);
	const put = (at: number, text: string) => block.set(encode(text), at);
	const octal = (at: number, length: number, n: number) => put(at, `${n.toString(8).padStart(length - 1, "0")}\0`);
	const [prefix, base] = split(name);
	put(0, base);
	octal(100, 8, 0o644);
	octal(108, 8, 0);
	octal(116, 8, 0);
	octal(124, 12, content.size);
	octal(136, 12, Math.max(0, Math.floor(content.lastModified / 1000)));
	put(148, "        "); // the sum is made with blanks in its place
	put(156, "0");
	put(257, "ustar\x0000");
	put(345, prefix);
	octal(148, 7, block.reduce((sum, byte) => sum + byte, 0));
	return block;
}

/** tar packs files, whose content is read when the archive is sent. */
export function tar(files: TarFile[]): Blob {
	const parts: BlobPart[] = [];
	for (const file of files) parts.push(header(file), file.content, new Uint8Array((512 - (file.content.size % 512)) % 512));
	return new Blob([...parts, new Uint8Array(1024)], { type: "application/x-tar" });
}
