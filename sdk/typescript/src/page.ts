import type { HTTP, HTTPRequest } from "./http.js";
import { checkMembers, pageMembers } from "./known.js";
import type { PageOptions } from "./types.js";
import type * as wire from "./wire.js";

/** A part of a list. Iterating over it walks over its items and the items of all pages that follow. */
export class Page<T> implements AsyncIterable<T> {
  readonly #fetch: (cursor: string) => Promise<Page<T>>;

  constructor(
    readonly items: T[],
    /** The `cursor` of the next page; undefined on the last one. */
    readonly nextCursor: string | undefined,
    fetch: (cursor: string) => Promise<Page<T>>,
  ) {
    this.#fetch = fetch;
  }

  /** Fetches the next page; undefined on the last one. */
  async next(): Promise<Page<T> | undefined> {
    return this.nextCursor === undefined ? undefined : this.#fetch(this.nextCursor);
  }

  async *[Symbol.asyncIterator](): AsyncGenerator<T, void, undefined> {
    yield* this.items;
    for (let page = await this.next(); page !== undefined; page = await page.next()) yield* page.items;
  }
}

/**
 * What a call that lists something returns. Awaited it is a page; in `for await` it walks over the items of all pages,
 * which it fetches as they are needed. The first page is fetched once, when it is first asked for.
 */
export class PagePromise<T> implements Promise<Page<T>>, AsyncIterable<T> {
  readonly [Symbol.toStringTag] = "PagePromise";
  readonly #fetch: () => Promise<Page<T>>;
  #first: Promise<Page<T>> | undefined;

  constructor(fetch: () => Promise<Page<T>>) {
    this.#fetch = fetch;
  }

  then<A = Page<T>, B = never>(
    fulfilled?: ((page: Page<T>) => A | PromiseLike<A>) | null,
    rejected?: ((reason: unknown) => B | PromiseLike<B>) | null,
  ): Promise<A | B> {
    return this.page().then(fulfilled, rejected);
  }

  catch<B = never>(rejected?: ((reason: unknown) => B | PromiseLike<B>) | null): Promise<Page<T> | B> {
    return this.page().catch(rejected);
  }

  finally(done?: (() => void) | null): Promise<Page<T>> {
    return this.page().finally(done);
  }

  /** Fetches all pages and returns their items. */
  async all(): Promise<T[]> {
    const items: T[] = [];
    for await (const item of this) items.push(item);
    return items;
  }

  /**
   * The same list with each item replaced by what `change` makes of it.
   * @internal
   */
  map<U>(change: (item: T) => U): PagePromise<U> {
    const mapped = (page: Page<T>): Page<U> =>
      new Page(page.items.map(change), page.nextCursor, async () => mapped((await page.next()) as Page<T>)); // asked for only with a cursor
    return new PagePromise(async () => mapped(await this.page()));
  }

  async *[Symbol.asyncIterator](): AsyncGenerator<T, void, undefined> {
    yield* await this.page();
  }

  private page(): Promise<Page<T>> {
    return (this.#first ??= this.#fetch());
  }
}

/** The part of a request that differs between lists: the path, and the parameters that select items. */
type ListRequest = Pick<HTTPRequest, "path" | "query" | "anonymous">;

/**
 * Lists the items at the path that request returns; the fetch of the first page calls it. `own` has the members of the options
 * beside the members of PageOptions.
 */
export function pages<W, T>(
  http: HTTP,
  options: PageOptions,
  request: () => ListRequest,
  decode: (w: W) => T,
  own: Readonly<Record<string, true>> = {},
): PagePromise<T> {
  const { signal, limit } = options;
  const fetch = async (cursor: string | undefined): Promise<Page<T>> => {
    const r = request();
    const query = { ...r.query, limit, cursor };
    const w = await http.json<wire.Page<W>>({ ...r, method: "GET", query, signal, repeatable: true });
    return new Page(w.items.map(decode), w.next_cursor ?? undefined, fetch);
  };
  return new PagePromise(async () => {
    checkMembers("the options of this list", options, { ...pageMembers, ...own });
    return fetch(options.cursor);
  });
}
