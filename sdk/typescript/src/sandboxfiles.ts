import { FileNotFoundError } from "./errors.js";
import { callMembers, checkMembers } from "./known.js";
import type { Files } from "./files.js";
import type { PagePromise } from "./page.js";
import type {
  ArchiveFormat,
  CallOptions,
  DiffOptions,
  FileContent,
  FileEvent,
  MkdirOptions,
  NewFile,
  PageOptions,
  UploadArchiveOptions,
  WatchFilesOptions,
  WriteFileOptions,
} from "./types.js";
import type { FileChange, FileInfo } from "./schemas.js";

/**
 * The files of one sandbox. Paths that are not absolute begin at the image's working directory. A missing file throws a
 * FileNotFoundError, a sandbox that has ended an EndedError. Safe for concurrent use.
 */
export class SandboxFiles {
  /** @internal */
  constructor(
    private readonly files: Files,
    private readonly id: string,
  ) {}

  /** Reads a whole file as UTF-8 text. */
  read(path: string, options: CallOptions = {}): Promise<string> {
    return this.files.readText(this.id, path, options);
  }

  /** Reads a whole file as bytes. */
  readBytes(path: string, options: CallOptions = {}): Promise<Uint8Array> {
    return this.files.read(this.id, path, options);
  }

  /** Reads a file of any size as a stream of bytes. */
  readStream(path: string, options: CallOptions = {}): Promise<ReadableStream<Uint8Array>> {
    return this.files.readStream(this.id, path, options);
  }

  /**
   * Writes a file of any size, all or nothing: no reader ever sees a part of it. Text is written as UTF-8. Makes missing parent
   * directories unless `parents` is false. Throws code `disk_full` at the sandbox's disk limit.
   */
  write(path: string, content: FileContent, options: WriteFileOptions = {}): Promise<FileInfo> {
    return this.files.write(this.id, path, content, { parents: true, ...options });
  }

  /** Writes up to 1000 files with 32 MiB together, in their order, each all or nothing, with missing parent directories. An error names its file; files before it are written. */
  writeMany(files: readonly NewFile[], options: CallOptions = {}): Promise<void> {
    return this.files.writeMany(this.id, files, options);
  }

  /** Lists a directory, sorted by name: `for await` walks over all entries, `.all()` returns them as an array. */
  list(path: string, options: PageOptions = {}): PagePromise<FileInfo> {
    return this.files.list(this.id, path, options);
  }

  /**
   * Lists what the sandbox has written at a path and below, by default everything, since it was made from its image or
   * snapshot. A running sandbox stands still while a page of it is made.
   */
  diff(options: DiffOptions = {}): PagePromise<FileChange> {
    return this.files.diff(this.id, options);
  }

  /** Reads a file of up to 16 MiB of the image or snapshot that the sandbox was made from. */
  original(path: string, options: CallOptions = {}): Promise<Uint8Array> {
    return this.files.original(this.id, path, options);
  }

  /** Describes a path, not following a last symlink. */
  stat(path: string, options: CallOptions = {}): Promise<FileInfo> {
    return this.files.stat(this.id, path, options);
  }

  /** Returns whether a path exists; a symlink exists whatever it points to. */
  async exists(path: string, options: CallOptions = {}): Promise<boolean> {
    checkMembers("CallOptions", options, callMembers);
    try {
      await this.files.stat(this.id, path, options);
      return true;
    } catch (err) {
      if (err instanceof FileNotFoundError) return false;
      throw err;
    }
  }

  /** Makes a directory and its missing parents. One that exists is no error, unless `parents` is false. */
  mkdir(path: string, options: MkdirOptions = {}): Promise<FileInfo> {
    return this.files.mkdir(this.id, path, { parents: true, ...options });
  }

  /** Renames a path; throws a ConflictError if `to` exists, unless `overwrite` is set. */
  move(from: string, to: string, options: CallOptions & { overwrite?: boolean | undefined } = {}): Promise<FileInfo> {
    return this.files.move(this.id, from, to, options);
  }

  /** Removes a file or an empty directory; with `recursive` also everything below a directory. */
  remove(path: string, options: CallOptions & { recursive?: boolean | undefined } = {}): Promise<void> {
    return this.files.delete(this.id, path, options);
  }

  /**
   * Watches a directory or a file. Everything that happens after the promise resolves is reported. The iteration ends when the
   * directory is gone, and throws when the watch breaks off. Leaving the loop ends the watch.
   */
  watch(path: string, options: WatchFilesOptions = {}): Promise<AsyncGenerator<FileEvent, void, undefined>> {
    return this.files.watch(this.id, path, options);
  }

  /** Unpacks an archive of any size below a directory, which is made when it is missing. A damaged or hostile archive throws a ValidationError. */
  uploadArchive(path: string, archive: FileContent, options: UploadArchiveOptions = {}): Promise<void> {
    return this.files.uploadArchive(this.id, path, archive, options);
  }

  /** Packs a directory or file as it is read, by default as `tar.gz`; reading throws when the archive breaks off. */
  downloadArchive(path: string, options: CallOptions & { format?: ArchiveFormat | undefined } = {}): Promise<ReadableStream<Uint8Array>> {
    return this.files.downloadArchive(this.id, path, options);
  }
}
