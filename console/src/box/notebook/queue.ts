// The queue of cells to run. The server would queue the code of a context as well, but each cell that waits there has
// a connection of its own, of which a browser has six to a host.

/** streamsMost is how many cells run at a time in a browser tab. The pages need the other connections. */
const streamsMost = 2;

interface Waiting {
	cell: string;
	context: string;
	begin: (its: boolean) => void;
}

/** CellQueue lets the cells of a context run one after another, and few at a time. */
export class CellQueue {
	/** The cell that has the turn, by its context. */
	#running = new Map<string, string>();
	#waiting: Waiting[] = [];

	/** changed is called when a turn begins or ends. */
	constructor(private readonly changed: () => void) {}

	/** take returns when it is the cell's turn, with true, after which end must be called; or when the cell was dropped, with false. */
	take(cell: string, context: string): Promise<boolean> {
		return new Promise((begin) => {
			this.#waiting.push({ cell, context, begin });
			this.#next();
		});
	}

	/** end ends the turn of a cell of that context. */
	end(context: string) {
		this.#running.delete(context);
		this.#next();
	}

	/** ahead returns the cells that must end before a cell of that context has its turn, with their contexts. */
	ahead(cell: string, context: string): { cell: string; context: string }[] {
		const its = this.#running.get(context);
		if (its === cell) return [];
		return [...this.#running].filter(([c]) => its === undefined || c === context).map(([c, id]) => ({ cell: id, context: c }));
	}

	/** drop reports whether the cell was waiting; it waits no longer. */
	drop(cell: string): boolean {
		const at = this.#waiting.findIndex((w) => w.cell === cell);
		const [found] = at < 0 ? [] : this.#waiting.splice(at, 1);
		found?.begin(false);
		return found !== undefined;
	}

	/** dropContext drops all cells that wait for that context. */
	dropContext(context: string) {
		for (const w of this.#waiting.filter((w) => w.context === context)) this.drop(w.cell);
	}

	#next() {
		while (this.#running.size < streamsMost) {
			const at = this.#waiting.findIndex((w) => !this.#running.has(w.context));
			const [next] = at < 0 ? [] : this.#waiting.splice(at, 1);
			if (!next) break;
			this.#running.set(next.context, next.cell);
			next.begin(true);
		}
		this.changed();
	}
}
