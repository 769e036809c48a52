/** textMost is the size of the largest file that is shown as text. */
export const textMost = 2 << 20;

/** asText returns content as text; null for what is not text. */
export function asText(content: Uint8Array): string | null {
	if (content.length > textMost) return null;
	try {
		const text = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(content);
		return text.includes("\0") ? null : text;
	} catch {
		return null;
	}
}
