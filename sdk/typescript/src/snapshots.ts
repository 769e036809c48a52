import * as decode from "./decode.js";
import type { HTTP } from "./http.js";
import { sandboxPath, segment } from "./path.js";
import type { CallOptions, CreateSnapshotOptions, ListSnapshotsOptions, Snapshot } from "./types.js";
import type * as wire from "./wire.js";

/** Taking a snapshot takes as long as the sandbox has written much. */
const createMs = 600_000;

/**
 * The snapshots of a workspace. `ref` is an id, a name, which is its latest,
 * `name:tag`, or `@workspace/name:tag`; what does not exist throws a NotFoundError.
 */
export class Snapshots {
  constructor(private readonly http: HTTP) {}

  /** Saves the files of a running or paused sandbox, and returns when sandboxes can be made from them. */
  async create(sandbox: string, options: CreateSnapshotOptions = {}): Promise<Snapshot> {
    const { signal, ...json } = options;
    const path = sandboxPath(sandbox, "/snapshots");
    // Not repeatable: a second try would take a second one.
    return decode.snapshot(await this.http.json<wire.Snapshot>({ method: "POST", path, json, signal, timeoutMs: createMs, repeatable: false }));
  }

  async get(ref: string, options: CallOptions = {}): Promise<Snapshot> {
    const w = await this.http.json<wire.Snapshot>({ method: "GET", path: at(ref), signal: options.signal, repeatable: true });
    return decode.snapshot(w);
  }

  /** Lists them, the newest first. */
  async list(options: ListSnapshotsOptions = {}): Promise<Snapshot[]> {
    const w = await this.http.json<wire.SnapshotList>({
      method: "GET",
      path: "/v1/snapshots",
      query: {
        public: options.public ? "true" : undefined,
        sandbox_id: options.sandboxId,
        name: options.name,
        tag: options.tag,
        limit: options.limit,
        offset: options.offset,
      },
      signal: options.signal,
      repeatable: true,
    });
    return w.items.map(decode.snapshot);
  }

  /** Gives it a tag, which leaves the snapshot of the same name that has it; null takes its tag away. */
  async tag(ref: string, tag: string | null, options: CallOptions = {}): Promise<Snapshot> {
    const request = { method: "PATCH", path: at(ref), json: { tag }, signal: options.signal, repeatable: false } as const;
    return decode.snapshot(await this.http.json<wire.Snapshot>(request));
  }

  /** Deletes it; sandboxes made from it go on. */
  async delete(ref: string, options: CallOptions = {}): Promise<void> {
    const response = await this.http.raw({ method: "DELETE", path: at(ref), signal: options.signal, repeatable: false });
    await response.arrayBuffer();
  }

  /** A snapshot and those it came from, the newest first, deleted ones included. */
  async lineage(ref: string, options: CallOptions = {}): Promise<Snapshot[]> {
    const w = await this.http.json<wire.Lineage>({ method: "GET", path: `${at(ref)}/lineage`, signal: options.signal, repeatable: true });
    return w.items.map(decode.snapshot);
  }
}

function at(ref: string): string {
  return `/v1/snapshots/${segment(ref)}`;
}
