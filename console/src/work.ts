/** width is how many requests of one action are under way at a time. */
const width = 4;

/** inTurn calls work for each item, some at a time, and returns the errors. After an abort it begins with no further item; the items left count as errors. */
export async function inTurn<T>(items: readonly T[], work: (item: T) => Promise<void>, signal?: AbortSignal): Promise<unknown[]> {
	const waiting = [...items];
	const errors: unknown[] = [];
	const worker = async () => {
		for (let item = waiting.shift(); item !== undefined; item = waiting.shift()) {
			try {
				if (signal?.aborted) throw new Error("You stopped before its turn.");
				await work(item);
			} catch (err) {
				errors.push(err);
			}
		}
	};
	await Promise.all(Array.from({ length: width }, worker));
	return errors;
}
