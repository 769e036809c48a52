import { toBase64 } from "./base64.js";
import * as schemas from "./schemas.js";
import { newError, type ErrorCode, type ModboxError } from "./errors.js";
import type { HTTP } from "./http.js";
import { callMembers, checkMembers, pageMembers, type Members } from "./known.js";
import { readLines } from "./lines.js";
import { pages, type PagePromise } from "./page.js";
import { sandboxPath } from "./path.js";
import type { ArchiveFormat, CallOptions, DiffOptions, FileContent, FileEvent, PageOptions, MkdirOptions, NewFile, UploadArchiveOptions, WatchFilesOptions, WriteFileOptions } from "./types.js";
import type * as wire from "./wire.js";
import type { FileChange, FileInfo } from "./schemas.js";

const writeMembers: Members<WriteFileOptions> = { ...callMembers, mode: true, parents: true, user: true, metadata: true };
const mkdirMembers: Members<MkdirOptions> = { ...callMembers, mode: true, parents: true, user: true };
const newFileMembers: Members<NewFile> = { path: true, content: true, mode: true };
const uploadMembers: Members<UploadArchiveOptions> = { ...callMembers, format: true, keepLinks: true };
const diffMembers: Members<DiffOptions> = { ...pageMembers, path: true };
const watchMembers: Members<WatchFilesOptions> = { ...callMembers, recursive: true };

/**
 * Files of a sandbox. `ref` is the sandbox's id or name. Paths that are not
 * absolute begin at the image's working directory. A missing file throws a
 * FileNotFoundError, a missing sandbox another NotFoundError. Safe for concurrent use.
 */
export class Files {
  constructor(private readonly http: HTTP) {}

  /** Reads a whole file into memory. */
  async read(ref: string, path: string, options: CallOptions = {}): Promise<Uint8Array> {
    checkMembers("CallOptions", options, callMembers);
    const response = await this.open(ref, path, options);
    return new Uint8Array(await response.arrayBuffer());
  }

  /** Reads a whole file as UTF-8. */
  async readText(ref: string, path: string, options: CallOptions = {}): Promise<string> {
    checkMembers("CallOptions", options, callMembers);
    const response = await this.open(ref, path, options);
    return response.text();
  }

  /** Reads a file of any size as it comes. */
  async readStream(ref: string, path: string, options: CallOptions = {}): Promise<ReadableStream<Uint8Array>> {
    checkMembers("CallOptions", options, callMembers);
    const response = await this.open(ref, path, options);
    return response.body ?? new Blob([]).stream();
  }

  /**
   * Writes a file of any size, all or nothing: no reader ever sees a part of it.
   * Throws code `disk_full` at the sandbox's disk limit.
   */
  async write(ref: string, path: string, content: FileContent, options: WriteFileOptions = {}): Promise<FileInfo> {
    checkMembers("WriteFileOptions", options, writeMembers);
    const w = await this.http.json<wire.FileInfo>({
      method: "PUT",
      path: filesPath(ref),
      query: { path, mode: options.mode, parents: options.parents, user: options.user, metadata: options.metadata && JSON.stringify(options.metadata) },
      headers: { "content-type": "application/octet-stream" },
      body: content,
      signal: options.signal,
      timeoutMs: 0,
      // A stream can be read only once.
      repeatable: !(content instanceof ReadableStream),
    });
    return schemas.fileInfo(w);
  }

  /** Lists a directory, sorted by name. */
  list(ref: string, path: string, options: PageOptions = {}): PagePromise<FileInfo> {
    return pages(this.http, options, () => ({ path: filesPath(ref, "/list"), query: { path } }), schemas.fileInfo);
  }

  /** Describes a path, not following a last symlink. */
  async stat(ref: string, path: string, options: CallOptions = {}): Promise<FileInfo> {
    checkMembers("CallOptions", options, callMembers);
    const w = await this.http.json<wire.FileInfo>({
      method: "GET",
      path: filesPath(ref, "/stat"),
      query: { path },
      signal: options.signal,
      repeatable: true,
    });
    return schemas.fileInfo(w);
  }

  /**
   * Lists what a running or paused sandbox has written at a path and below, by default everything, since it was made from
   * its image or snapshot. A running sandbox stands still while a page of it is made.
   */
  diff(ref: string, options: DiffOptions = {}): PagePromise<FileChange> {
    const { path } = options;
    return pages(this.http, options, () => ({ path: sandboxPath(ref, "/diff"), query: { path } }), schemas.fileChange, diffMembers);
  }

  /** Reads a file of up to 16 MiB of the image or snapshot that the sandbox was made from. */
  async original(ref: string, path: string, options: CallOptions = {}): Promise<Uint8Array> {
    checkMembers("CallOptions", options, callMembers);
    const query = { path };
    const response = await this.http.raw({ method: "GET", path: sandboxPath(ref, "/diff/original"), query, signal: options.signal, repeatable: true });
    return new Uint8Array(await response.arrayBuffer());
  }

  /** Makes a directory. */
  async mkdir(ref: string, path: string, options: MkdirOptions = {}): Promise<FileInfo> {
    checkMembers("MkdirOptions", options, mkdirMembers);
    const json: wire.Mkdir = { path, mode: options.mode, parents: options.parents, user: options.user };
    return this.post(filesPath(ref, "/mkdir"), json, options);
  }

  /** Renames a path; throws a ConflictError when `to` exists, unless `overwrite` is set. */
  async move(ref: string, from: string, to: string, options: CallOptions & { overwrite?: boolean | undefined } = {}): Promise<FileInfo> {
    checkMembers("the options of this move", options, { ...callMembers, overwrite: true });
    const json: wire.Move = { from, to, overwrite: options.overwrite };
    return this.post(filesPath(ref, "/move"), json, options);
  }

  /** Deletes a file or an empty directory; with `recursive` also everything below. */
  async delete(ref: string, path: string, options: CallOptions & { recursive?: boolean | undefined } = {}): Promise<void> {
    checkMembers("the options of this deletion", options, { ...callMembers, recursive: true });
    const response = await this.http.raw({
      method: "DELETE",
      path: filesPath(ref),
      query: { path, recursive: options.recursive },
      signal: options.signal,
      repeatable: false, // as in post
    });
    await response.arrayBuffer();
  }

  /**
   * Writes files in their order, each all or nothing, with the parent directories they miss: at most
   * 1000 with 32 MiB together. An error names its file; those before it are written.
   */
  async writeMany(ref: string, files: readonly NewFile[], options: CallOptions = {}): Promise<void> {
    checkMembers("CallOptions", options, callMembers);
    for (const file of files) checkMembers("NewFile", file, newFileMembers);
    const json: wire.WriteFiles = {
      files: files.map((f) => ({ path: f.path, content: toBase64(f.content), mode: f.mode })),
    };
    await this.http.json<wire.WrittenFiles>({
      method: "POST",
      path: filesPath(ref, "/batch"),
      json,
      signal: options.signal,
      repeatable: true,
    });
  }

  /**
   * Unpacks an archive of any size below a directory, which is made when it is missing. An archive that
   * is damaged or hostile (names or links that lead out of the directory, devices, bombs) throws a ValidationError.
   */
  async uploadArchive(ref: string, path: string, archive: FileContent, options: UploadArchiveOptions = {}): Promise<void> {
    checkMembers("UploadArchiveOptions", options, uploadMembers);
    const response = await this.http.raw({
      method: "PUT",
      path: filesPath(ref, "/archive"),
      query: { path, format: options.format, keep_links: options.keepLinks },
      headers: { "content-type": "application/octet-stream" },
      body: archive,
      signal: options.signal,
      timeoutMs: 0,
      repeatable: !(archive instanceof ReadableStream), // which can be read only once
    });
    await response.arrayBuffer();
  }

  /** Packs a directory or file while it is read, by default as `tar.gz`. Reading throws when the archive is incomplete. */
  async downloadArchive(
    ref: string,
    path: string,
    options: CallOptions & { format?: ArchiveFormat | undefined } = {},
  ): Promise<ReadableStream<Uint8Array>> {
    checkMembers("the options of this download", options, { ...callMembers, format: true });
    const response = await this.http.raw({
      method: "GET",
      path: filesPath(ref, "/archive"),
      query: { path, format: options.format },
      signal: options.signal,
      repeatable: true,
    });
    return response.body ?? new Blob([]).stream();
  }

  /**
   * Reports changes in a directory, or of a file, from the moment when the promise resolves. The iteration
   * ends when the directory is gone, and throws when the watch breaks
   * off. Leaving the loop ends the watch; `signal` does too, with its reason thrown.
   */
  async watch(ref: string, path: string, options: WatchFilesOptions = {}): Promise<AsyncGenerator<FileEvent, void, undefined>> {
    checkMembers("WatchFilesOptions", options, watchMembers);
    const response = await this.http.raw({
      method: "GET",
      path: filesPath(ref, "/watch"),
      query: { path, recursive: options.recursive },
      signal: options.signal,
      repeatable: true,
    });
    const lines = watchLines(response.body ?? new Blob([]).stream(), options.signal);
    const first = await lines.next(); // ready
    if (first.done) throw watchCut();
    return fileEvents(lines);
  }

  private open(ref: string, path: string, options: CallOptions): Promise<Response> {
    return this.http.raw({ method: "GET", path: filesPath(ref), query: { path }, signal: options.signal, repeatable: true });
  }

  /** Not repeatable: a second try could find its own work and fail. */
  private async post(path: string, json: wire.Mkdir | wire.Move, options: CallOptions): Promise<FileInfo> {
    const w = await this.http.json<wire.FileInfo>({ method: "POST", path, json, signal: options.signal, repeatable: false });
    return schemas.fileInfo(w);
  }
}

function filesPath(ref: string, call = ""): string {
  return sandboxPath(ref, `/files${call}`);
}

/** Leaves out unknown members: a newer server may send more. */
async function* fileEvents(lines: AsyncGenerator<wire.FileEvent, void, undefined>): AsyncGenerator<FileEvent, void, undefined> {
  for await (const w of lines) {
    switch (w.type) {
      case "created":
      case "modified":
      case "attributes":
      case "removed":
      case "moved_from":
      case "moved_to":
      case "limit":
        yield { type: w.type, path: w.path ?? "", directory: w.directory ?? false };
        break;
      case "overflow":
        yield { type: "overflow" };
    }
  }
}

/** Reads the lines of a watch; it ends after `ended` and throws the server's error, or that the watch broke off. */
async function* watchLines(body: ReadableStream<Uint8Array>, signal?: AbortSignal): AsyncGenerator<wire.FileEvent, void, undefined> {
  for await (const w of readLines<wire.FileEvent>(body, watchCut, signal)) {
    if (w.type === "ended") return;
    if (w.type === "error") throw newError({ code: (w.code as ErrorCode) ?? "internal", message: w.message ?? "the server gave no reason" });
    yield w;
  }
}

function watchCut(cause?: unknown): ModboxError {
  return newError({ code: "connection", message: "the connection broke while the watch was under way", cause });
}
