// The turns of cells to run. The server would queue the code of a context as well, but each cell that waits there has
// a connection of its own, of which a browser has six to a host.

/** streamsMost is how many cells run at a time in a browser tab. The pages need the other connections. */
const streamsMost = 2;

interface Waiting {
	cell: string;
	context: string;
	begin: (its: boolean) => void;
}

/** Turns lets the cells of a context run one after another, and few at a time. */
export class Turns {
	#running = new Set<string>();
	#waiting: Waiting[] = [];

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

	/** drop reports whether the cell was waiting; it waits no longer. */
	drop(cell: string): boolean {
		const at = this.#waiting.findIndex((w) => w.cell === cell);
		const [found] = at < 0 ? [] : this.#waiting.splice(at, 1);
		found?.begin(false);
		return found !== undefined;
	}

	#next() {
		while (this.#running.size < streamsMost) {
			const at = this.#waiting.findIndex((w) => !this.#running.has(w.context));
			const [next] = at < 0 ? [] : this.#waiting.splice(at, 1);
			if (!next) return;
			this.#running.add(next.context);
			next.begin(true);
		}
	}
}
