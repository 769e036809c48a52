import * as decode from "./decode.js";
import type { HTTP } from "./http.js";
import { sandboxPath } from "./path.js";
import type { CallOptions, FileContent, FileInfo, FileList, MkdirOptions, WriteFileOptions } from "./types.js";
import type * as wire from "./wire.js";

/**
 * Files of a sandbox. `ref` is the sandbox's id or name. Paths that are not
 * absolute begin at the image's working directory. What is missing throws a
 * NotFoundError; safe for concurrent use.
 */
export class Files {
  constructor(private readonly http: HTTP) {}

  /** Reads a whole file into memory. */
  async read(ref: string, path: string, options: CallOptions = {}): Promise<Uint8Array> {
    const response = await this.open(ref, path, options);
    return new Uint8Array(await response.arrayBuffer());
  }

  /** Reads a whole file as UTF-8. */
  async readText(ref: string, path: string, options: CallOptions = {}): Promise<string> {
    const response = await this.open(ref, path, options);
    return response.text();
  }

  /** Reads a file of any size as it comes. */
  async readStream(ref: string, path: string, options: CallOptions = {}): Promise<ReadableStream<Uint8Array>> {
    const response = await this.open(ref, path, options);
    return response.body ?? new Blob([]).stream();
  }

  /**
   * Writes a file of any size, all or nothing: no reader ever sees a part of it.
   * Throws code `disk_full` at the sandbox's disk limit.
   */
  async write(ref: string, path: string, content: FileContent, options: WriteFileOptions = {}): Promise<FileInfo> {
    const w = await this.http.json<wire.FileInfo>({
      method: "PUT",
      path: filesPath(ref),
      query: { path, mode: options.mode, parents: options.parents, user: options.user },
      headers: { "content-type": "application/octet-stream" },
      body: content,
      signal: options.signal,
      timeoutMs: 0,
      // A stream can be read only once.
      repeatable: !(content instanceof ReadableStream),
    });
    return decode.fileInfo(w);
  }

  /** Lists a directory. */
  async list(ref: string, path: string, options: CallOptions & { limit?: number | undefined } = {}): Promise<FileList> {
    const w = await this.http.json<wire.FileList>({
      method: "GET",
      path: filesPath(ref, "/list"),
      query: { path, limit: options.limit },
      signal: options.signal,
      repeatable: true,
    });
    return { items: w.items.map(decode.fileInfo), truncated: w.truncated };
  }

  /** Describes a path, not following a last symlink. */
  async stat(ref: string, path: string, options: CallOptions = {}): Promise<FileInfo> {
    const w = await this.http.json<wire.FileInfo>({
      method: "GET",
      path: filesPath(ref, "/stat"),
      query: { path },
      signal: options.signal,
      repeatable: true,
    });
    return decode.fileInfo(w);
  }

  /** Makes a directory. */
  async mkdir(ref: string, path: string, options: MkdirOptions = {}): Promise<FileInfo> {
    const json: wire.Mkdir = { path, mode: options.mode, parents: options.parents, user: options.user };
    return this.post(filesPath(ref, "/mkdir"), json, options);
  }

  /** Renames a path; throws a ConflictError when `to` exists, unless `overwrite` is set. */
  async move(ref: string, from: string, to: string, options: CallOptions & { overwrite?: boolean | undefined } = {}): Promise<FileInfo> {
    const json: wire.Move = { from, to, overwrite: options.overwrite };
    return this.post(filesPath(ref, "/move"), json, options);
  }

  /** Deletes a file or an empty directory; with `recursive` everything below, too. */
  async remove(ref: string, path: string, options: CallOptions & { recursive?: boolean | undefined } = {}): Promise<void> {
    const response = await this.http.raw({
      method: "DELETE",
      path: filesPath(ref),
      query: { path, recursive: options.recursive },
      signal: options.signal,
      repeatable: false, // as in post
    });
    await response.arrayBuffer();
  }

  private open(ref: string, path: string, options: CallOptions): Promise<Response> {
    return this.http.raw({ method: "GET", path: filesPath(ref), query: { path }, signal: options.signal, repeatable: true });
  }

  /** Not repeatable: a second try could find its own work and fail. */
  private async post(path: string, json: wire.Mkdir | wire.Move, options: CallOptions): Promise<FileInfo> {
    const w = await this.http.json<wire.FileInfo>({ method: "POST", path, json, signal: options.signal, repeatable: false });
    return decode.fileInfo(w);
  }
}

function filesPath(ref: string, call = ""): string {
  return sandboxPath(ref, `/files${call}`);
}
