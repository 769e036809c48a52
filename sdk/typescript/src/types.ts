import type { ModboxError } from "./errors.js";
import type { CodeScan, CommandOptions, SandboxInfo, SandboxState } from "./schemas.js";

/** The options of every call. */
export interface CallOptions {
  /** Ends the call. */
  signal?: AbortSignal | undefined;
}

/** Which page of a list; the empty object is the first one. */
export interface PageOptions extends CallOptions {
  /** Items on a page, 1 to 1000, default 100; iterating over a list fetches as many pages as are read. */
  limit?: number | undefined;
  /** `nextCursor` of the page before. */
  cursor?: string | undefined;
}

/** Which sandboxes to list; the empty object is all that have not ended. */
export interface ListSandboxesOptions extends PageOptions {
  states?: readonly SandboxState[] | undefined;
  name?: string | undefined;
  labels?: Record<string, string> | undefined;
  /** The snapshot that they were made from. */
  snapshotId?: string | undefined;
}

export interface WaitOptions extends CallOptions {
  /** The state to wait for; default `running`. */
  state?: "running" | "paused" | "destroyed" | "failed" | undefined;
  /** Default 60. There is no upper bound: long waits are several requests. */
  timeoutSeconds?: number | undefined;
}

/** The outcome of one child: it runs when `error` is undefined. */
export interface Forked {
  /** Also set for a child that was recorded and then failed. */
  sandbox: SandboxInfo | undefined;
  error: ModboxError | undefined;
}

/** A program that the server writes to a file, and runs by the interpreter of its language. */
export interface Program {
  code: string;
  /** The absolute path of its file. Missing parent directories are made; programs import from its directory. */
  path: string;
  /** Default `python`. */
  language?: "python" | "javascript" | "bash" | undefined;
  /** The packages that the program itself may import: their top-level names; default all. It is no boundary. Not for `bash`. */
  allowedImports?: readonly string[] | undefined;
}

/** A command that may be a program: exactly one of `command`, `shell` and `program`. */
export interface ProgramOptions extends CommandOptions {
  program?: Program | undefined;
}

export interface ExecOptions extends ProgramOptions, CallOptions {
  /** Bytes kept of each of stdout and stderr; default 1 MiB, at most 16 MiB. More is dropped, and the command goes on. */
  maxOutputBytes?: number | undefined;
  /** `bytes` gives output as it is; `text` (default) replaces bytes that are not UTF-8. */
  output?: "text" | "bytes" | undefined;
}

/** A limit of a command. */
export type LimitName = "memory" | "cpu" | "file_size" | "processes";

/** How a command ended, and its output. */
export interface ExecResult<Output = string> {
  /** 128 + signal when a signal ended it. */
  exitCode: number;
  /** The signal's number; 0 when it exited by itself. */
  signal: number;
  timedOut: boolean;
  /** The limit of the request that it exceeded, and that ended it. */
  limitExceeded?: LimitName;
  stdout: Output;
  stderr: Output;
  /** There was more than `maxOutputBytes`. */
  stdoutTruncated: boolean;
  stderrTruncated: boolean;
  durationMs: number;
  /** The findings of the scan that the policy of the workspace (`code_scan`) demands. */
  scan?: CodeScan;
}

/** How a command ended, and its output as text. */
export type CommandResult = Omit<ExecResult, "signal">;

/** A report of a command under way: `started` first, `exit` last. */
export type ExecEvent =
  | { type: "started"; pid: number; scan?: CodeScan }
  | { type: "stdout"; data: Uint8Array }
  | { type: "stderr"; data: Uint8Array }
  | { type: "exit"; exitCode: number; signal: number; timedOut: boolean; limitExceeded?: LimitName; durationMs: number };

/** The content of a file. A stream is sent as it is read. */
export type FileContent = string | Uint8Array<ArrayBuffer> | Blob | ReadableStream<Uint8Array>;

export interface WriteFileOptions extends CallOptions {
  /** Permission bits in octal; a new file gets `0644`. */
  mode?: string | undefined;
  /** Make missing parent directories. */
  parents?: boolean | undefined;
  /** Owner of a new file. */
  user?: string | undefined;
  /** Metadata of the file, at most 64 entries with 4096 bytes; a file that is replaced loses its own. */
  metadata?: Record<string, string> | undefined;
}

/** A file to write. */
export interface NewFile {
  path: string;
  /** Text is written as UTF-8. */
  content: string | Uint8Array;
  /** Permission bits in octal; a new file gets `0644`. */
  mode?: string | undefined;
}

/** Which changes of a sandbox are listed. */
export interface DiffOptions extends PageOptions {
  /** Changes of this absolute path and below it; all when it is undefined. */
  path?: string | undefined;
}

/** How an archive is packed. */
export type ArchiveFormat = "tar.gz" | "zip" | "tar";

export interface UploadArchiveOptions extends CallOptions {
  /** Found out from the archive when it is undefined. */
  format?: ArchiveFormat | undefined;
  /** Keep symlinks that lead out of the directory, which are refused otherwise. */
  keepLinks?: boolean | undefined;
}

export interface WatchFilesOptions extends CallOptions {
  /** Also all directories below, now and later. */
  recursive?: boolean | undefined;
}

/**
 * What happened to a file; a rename is `moved_from` and `moved_to`. `limit` says that the directory, and
 * maybe others, is not watched because there are too many; `overflow` that events were lost.
 */
export type FileEvent =
  | { type: "created" | "modified" | "attributes" | "removed" | "moved_from" | "moved_to" | "limit"; path: string; directory: boolean }
  | { type: "overflow" };

export interface MkdirOptions extends CallOptions {
  mode?: string | undefined;
  /** Make missing parents too, and accept a directory that exists. */
  parents?: boolean | undefined;
  user?: string | undefined;
}

export interface EventsOptions extends PageOptions {
  /** Only events with a larger `seq`. */
  afterSeq?: number | undefined;
  /** Default `asc`. */
  order?: "asc" | "desc" | undefined;
}

