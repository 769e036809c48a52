import * as schemas from "./schemas.js";
import type { HTTP } from "./http.js";
import { callMembers, checkMembers } from "./known.js";
import { pages, type PagePromise } from "./page.js";
import { segment } from "./path.js";
import type { CallOptions, PageOptions } from "./types.js";
import type { UpdateWorkerOptions, Worker } from "./schemas.js";

export interface DeleteWorkerOptions extends CallOptions {
  /** Remove it also if it has sandboxes: they end, or go back to their last checkpoint. */
  force?: boolean | undefined;
}

/** The workers of the server, for administrators; `worker` is an id or a name. Safe for concurrent use. */
export class Workers {
  constructor(private readonly http: HTTP) {}

  /** Lists the workers, the first that joined first; none if the server runs sandboxes on its own machine. */
  list(options: PageOptions = {}): PagePromise<Worker> {
    return pages(this.http, options, () => ({ path: "/v1/workers" }), schemas.worker);
  }

  async get(worker: string, options: CallOptions = {}): Promise<Worker> {
    checkMembers("CallOptions", options, callMembers);
    return schemas.worker(await this.http.json({ method: "GET", path: at(worker), signal: options.signal, repeatable: true }));
  }

  /** Drains a worker, or ends that: a worker that is being drained gets no new sandboxes. */
  async update(worker: string, options: UpdateWorkerOptions): Promise<Worker> {
    const { signal } = options;
    const json = schemas.encodeUpdateWorkerOptions(options);
    return schemas.worker(await this.http.json({ method: "PATCH", path: at(worker), json, signal, repeatable: true }));
  }

  /** Removes a worker for good; one with sandboxes only with `force`. */
  async delete(worker: string, options: DeleteWorkerOptions = {}): Promise<void> {
    checkMembers("DeleteWorkerOptions", options, { ...callMembers, force: true });
    const { force, signal } = options;
    await this.http.done({ method: "DELETE", path: at(worker), query: { force }, signal, repeatable: false });
  }
}

function at(worker: string): string {
  return `/v1/workers/${segment(worker)}`;
}
