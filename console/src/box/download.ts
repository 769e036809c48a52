/** download gives an answer to the browser as a file. */
export async function download(res: Response, name: string): Promise<void> {
	const link = document.createElement("a");
	link.href = URL.createObjectURL(await res.blob());
	link.download = name;
	link.click();
	setTimeout(() => URL.revokeObjectURL(link.href), 60_000); // the browser reads it meanwhile
}
