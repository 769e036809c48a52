import * as schemas from "./schemas.js";
import type { HTTP } from "./http.js";
import { callMembers, checkMembers, pageMembers, type Members } from "./known.js";
import { pages, type PagePromise } from "./page.js";
import { sandboxPath, segment } from "./path.js";
import { SnapshotBuilds, type SnapshotBuildEvent, type SnapshotBuildLine, type SnapshotBuildProgress } from "./snapshotbuilds.js";
import type { CallOptions, PageOptions } from "./types.js";
import type * as wire from "./wire.js";
import type { BuildSnapshotOptions, CreateSnapshotOptions, Snapshot, SnapshotDownload, SnapshotFile } from "./schemas.js";

/** The result of a build. */
export interface BuiltSnapshot {
  snapshot: Snapshot;
  /** It was there already. */
  unchanged: boolean;
}

/** Which snapshots to list; the empty object is all of the workspace, newest first. */
export interface ListSnapshotsOptions extends PageOptions {
  /** List the public snapshots of all workspaces instead. */
  public?: boolean | undefined;
  sandboxId?: string | undefined;
  name?: string | undefined;
  tag?: string | undefined;
  /** Default `created`. */
  sort?: "created" | "name" | "size" | "files" | undefined;
  /** Default `desc`. */
  order?: "asc" | "desc" | undefined;
}

/** Which files of a snapshot to list; the empty object lists its root directory. */
export interface SnapshotFilesOptions extends PageOptions {
  /** A directory, or a file alone. */
  path?: string | undefined;
  /** All below. */
  recursive?: boolean | undefined;
  /** With hashes; pages may be shorter then. */
  sha256?: boolean | undefined;
}

const listMembers: Members<ListSnapshotsOptions> = { ...pageMembers, public: true, sandboxId: true, name: true, tag: true, sort: true, order: true };
const filesMembers: Members<SnapshotFilesOptions> = { ...pageMembers, path: true, recursive: true, sha256: true };

/** Snapshots; `snapshot` is an id, `name`, `name:tag` or `@workspace/name:tag`. Safe for concurrent use. */
export class Snapshots {
  private readonly builds: SnapshotBuilds;

  constructor(private readonly http: HTTP) {
    this.builds = new SnapshotBuilds(http);
  }

  /** Saves the files of a running or paused sandbox, and returns when sandboxes can be made from them. Never sent twice. */
  async create(ref: string, options: CreateSnapshotOptions = {}): Promise<Snapshot> {
    const { signal } = options;
    const json: wire.CreateSnapshot = schemas.encodeCreateSnapshotOptions(options);
    const path = sandboxPath(ref, "/snapshots");
    const w = await this.http.json<wire.Snapshot>({ method: "POST", path, json, signal, timeoutMs: 0, repeatable: false });
    return schemas.snapshot(w);
  }

  /**
   * Builds a snapshot on an image, and returns when sandboxes can be made from it. Never sent twice. Errors begin with the id of
   * the build, whose log has the reason.
   */
  async build(runtime: string, options: BuildSnapshotOptions = {}): Promise<BuiltSnapshot> {
    return this.builds.build(runtime, options);
  }

  /**
   * As {@link build}, and reports progress. The last event is `done`, or an error is thrown. A connection that breaks
   * while the build is made does not end it. Leaving the loop at `begun` or `uploading` makes nothing; later, the build goes on.
   */
  buildStream(runtime: string, options: BuildSnapshotOptions = {}): AsyncGenerator<SnapshotBuildEvent, void, undefined> {
    return this.builds.stream(runtime, options);
  }

  /**
   * Reads what happened in a build, by its id, while it is made and until an hour after it was begun. `follow` waits for more
   * until the build is over, in whatever way: the last line's phase is `done` or `failed`.
   */
  buildLog(
    id: string,
    options: CallOptions & { follow?: boolean | undefined } = {},
  ): AsyncGenerator<SnapshotBuildLine, void, undefined> {
    return this.builds.log(id, options);
  }

  /** Returns the progress of a build, by its id; known for as long as its log. */
  async buildProgress(id: string, options: CallOptions = {}): Promise<SnapshotBuildProgress> {
    checkMembers("CallOptions", options, callMembers);
    return this.builds.progress(id, options);
  }

  async get(snapshot: string, options: CallOptions = {}): Promise<Snapshot> {
    checkMembers("CallOptions", options, callMembers);
    const path = snapshotPath(snapshot);
    const w = await this.http.json<wire.Snapshot>({ method: "GET", path, signal: options.signal, repeatable: true });
    return schemas.snapshot(w);
  }

  /** Lists snapshots. */
  list(options: ListSnapshotsOptions = {}): PagePromise<Snapshot> {
    const { public: everybody, sandboxId, name, tag, sort, order } = options;
    const query = { public: everybody, sandbox_id: sandboxId, name, tag, sort, order };
    return pages(this.http, options, () => ({ path: "/v1/snapshots", query }), schemas.snapshot, listMembers);
  }

  /** Sets the tag of a snapshot and removes the tag from the other snapshot of the same name; null removes the tag. */
  async tag(snapshot: string, tag: string | null, options: CallOptions = {}): Promise<Snapshot> {
    checkMembers("CallOptions", options, callMembers);
    const json: wire.TagSnapshot = { tag };
    const path = snapshotPath(snapshot);
    const w = await this.http.json<wire.Snapshot>({ method: "PATCH", path, json, signal: options.signal, repeatable: false });
    return schemas.snapshot(w);
  }

  /** Deletes a snapshot; sandboxes made from it go on. */
  async delete(snapshot: string, options: CallOptions = {}): Promise<void> {
    checkMembers("CallOptions", options, callMembers);
    await this.http.done({ method: "DELETE", path: snapshotPath(snapshot), signal: options.signal, repeatable: false });
  }

  /** Lists files of a snapshot, its image's included: a directory before its entries, else sorted by name. */
  files(snapshot: string, options: SnapshotFilesOptions = {}): PagePromise<SnapshotFile> {
    const { path, recursive, sha256 } = options;
    const query = { path, recursive, sha256 };
    return pages(this.http, options, () => ({ path: `${snapshotPath(snapshot)}/files`, query }), snapshotFile, filesMembers);
  }

  /** Opens a directory or file of a snapshot, default its root, as an archive, default `tar.gz`. It is packed while it is read. */
  async download(
    snapshot: string,
    options: CallOptions & { path?: string | undefined; format?: "tar.gz" | "tar" | undefined } = {},
  ): Promise<ReadableStream<Uint8Array>> {
    checkMembers("the options of this download", options, { ...callMembers, path: true, format: true });
    const { signal, ...query } = options;
    const response = await this.http.raw({ method: "GET", path: `${snapshotPath(snapshot)}/archive`, query, signal, repeatable: true });
    return response.body ?? new Blob([]).stream();
  }

  /** Makes an address under which a directory or file of a snapshot, default its root, can be downloaded without a token, for an hour. */
  async share(snapshot: string, options: CallOptions & { path?: string | undefined } = {}): Promise<SnapshotDownload> {
    checkMembers("the options of this share", options, { ...callMembers, path: true });
    const { signal, ...query } = options;
    const path = `${snapshotPath(snapshot)}/download`;
    const w = await this.http.json<wire.SnapshotDownload>({ method: "POST", path, query, signal, repeatable: false });
    return { ...schemas.snapshotDownload(w), url: this.http.address(w.url) };
  }

  /** Lists a snapshot and the snapshots that it came from, newest first, including deleted snapshots. */
  lineage(snapshot: string, options: PageOptions = {}): PagePromise<Snapshot> {
    return pages(this.http, options, () => ({ path: `${snapshotPath(snapshot)}/lineage` }), schemas.snapshot);
  }
}

function snapshotFile(w: wire.SnapshotFile): SnapshotFile {
  return { ...schemas.fileInfo({ ...w, name: w.path.slice(w.path.lastIndexOf("/") + 1) }), sha256: w.sha256 };
}

function snapshotPath(snapshot: string): string {
  return `/v1/snapshots/${segment(snapshot)}`;
}
