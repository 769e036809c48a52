import type { ModboxError } from "./errors.js";
import type { ExecutionCommand } from "./executions.js";
import type { PublishedPort } from "./ports.js";

/** Where a sandbox is in its life, in this order; `failed` instead of `destroyed` when an error ended it. */
export type SandboxState = "provisioning" | "running" | "pausing" | "paused" | "resuming" | "destroying" | "destroyed" | "failed";

/** Why a sandbox ended. */
export interface Cause {
  /** `destroyed`, `replaced`, `ttl`, `idle`, `paused_ttl`, `completed`, `image`, `start`, `not_ready`, `oom`, `exited`, `disk_full`, `host_restart` or `internal`. */
  code: string;
  message: string;
}

/** Limits in Kubernetes notation: memory `512Mi`, cpu `500m` or `2`, disk `2Gi`. */
export interface Resources {
  memory?: string;
  cpu?: string;
  disk?: string;
}

/** The clocks of a sandbox beside its ttl; undefined and 0 mean none. */
export interface Timeouts {
  /** How long it may run without being used. */
  idleSeconds?: number | undefined;
  /** What happens then; default `destroy`. */
  onIdle?: "destroy" | "pause" | undefined;
  /** How long it may stay paused before it is destroyed. */
  pausedSeconds?: number | undefined;
  /** The timeout of commands that name none. */
  executionSeconds?: number | undefined;
}

/**
 * What the management routes on a sandbox's own URL (`/modbox/api/…`, `/execute`) ask a caller for: the
 * sandbox's `SANDBOX_API_KEY` or an API token (`key`), or the `SANDBOX_API_KEY` of a sandbox that has one
 * and nothing of others (`open`).
 */
export type URLAccess = "open" | "key";

/** A sandbox's access to the internet, and the ports it publishes. */
export interface SandboxNetwork {
  enabled: boolean;
  ports: PublishedPort[];
}

/** What network to ask for; off, and no ports, where it says nothing. */
export interface NetworkOptions {
  /** Access to the internet. */
  enabled?: boolean | undefined;
  /** At most 32; the sandbox's URL leads to the first. */
  ports?: readonly number[] | undefined;
}

/** A sandbox as the server saw it when it answered. Times are ISO 8601 strings. */
export interface Sandbox {
  id: string;
  name: string;
  state: SandboxState;
  /**
   * The URL of its HTTP server, and of its management routes and all its ports: keep it to yourself, and
   * share the URLs of published ports. Empty for a caller who may only read.
   */
  url: string;
  /** What the management routes on `url` ask for; its workspace and the server may ask for more. */
  urlAccess: URLAccess;
  image: string;
  /** Empty until the reference is resolved. */
  imageDigest: string;
  labels: Record<string, string>;
  resources: Resources;
  /** What had to answer before it counted as running. Its URL leads to the first published port, this one, or 8080. */
  readinessPort: number | undefined;
  network: SandboxNetwork;
  /** Debian packages that were installed in it. */
  aptPackages: string[];
  /** npm packages that were installed in it. */
  npmPackages: string[];
  /** Seconds it may live from `createdAt`; 0 is no limit. */
  ttlSeconds: number;
  /** When its ttl ends it; null without one. */
  deadline: string | null;
  timeouts: Timeouts;
  /** Seconds between its automatic checkpoints; 0 is none. */
  checkpointIntervalSeconds: number;
  /** When its automatic checkpoint was made; null without one. */
  lastCheckpointAt: string | null;
  lastActivityAt: string | null;
  /** When its idle timeout ends it; null without one, or when it does not run. */
  idleDeadline: string | null;
  /** Null unless it is paused. */
  pausedAt: string | null;
  /** When its paused timeout ends it; null without one, or when it is not paused. */
  pausedDeadline: string | null;
  /** Why its last resume started it anew with its files; undefined when its memory came back. */
  memoryLostReason: string | undefined;
  /** What it was forked from. */
  parentId: string | undefined;
  /** What it was made from; undefined for an image. */
  snapshotId: string | undefined;
  description: string;
  metadata: Record<string, string>;
  /** Why it ended; null while it lives. */
  cause: Cause | null;
  createdBy: string;
  workspaceId: string;
  createdAt: string;
  updatedAt: string;
  startedAt: string | null;
  endedAt: string | null;
}

/** What every call accepts. */
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

/** What sandbox to make; the empty object is the default image with default limits. */
export interface CreateSandboxOptions extends CallOptions {
  /**
   * Your own identifier, unique among the live sandboxes of the workspace. The same create with the
   * name of a live sandbox answers that one; a different one throws a {@link ConflictError}.
   */
  name?: string | undefined;
  /** A reference such as `modbox/code-exec`. */
  image?: string | undefined;
  /** Wins over `image`. */
  imageId?: string | undefined;
  /** Instead of an image: an id, `name`, `name:tag` or `@workspace/name:tag`. */
  snapshot?: string | undefined;
  env?: Record<string, string> | undefined;
  labels?: Record<string, string> | undefined;
  /** Seconds until it is destroyed, 60 to 86400; undefined is the image's default or no limit. */
  ttlSeconds?: number | undefined;
  resources?: Resources | undefined;
  network?: NetworkOptions | undefined;
  /** What the management routes on its own URL ask for; default `key`. */
  urlAccess?: URLAccess | undefined;
  /** The clocks beside the ttl. */
  timeouts?: Timeouts | undefined;
  /**
   * Seconds between automatic checkpoints, 60 to 86400; undefined or 0 is none. When the host loses the
   * sandbox's processes, it goes on from its last automatic checkpoint.
   */
  checkpointIntervalSeconds?: number | undefined;
  /** Debian packages to have installed before it runs, such as `curl=8.14*`; kept for the next sandbox with the same ones. */
  aptPackages?: readonly string[] | undefined;
  /** npm packages to have installed globally before it runs, such as `typescript@5`. */
  npmPackages?: readonly string[] | undefined;
  /** Your own words about it. */
  description?: string | undefined;
  metadata?: Record<string, string> | undefined;
  /** Started as an execution as soon as the sandbox runs. */
  command?: ExecutionCommand | undefined;
  /** `oneshot`: the sandbox ends with its command. */
  mode?: "interactive" | "oneshot" | undefined;
  /** End a live sandbox of the same name, whose place in the quota the new one may have. */
  replace?: boolean | undefined;
  /** Answer only when it runs or has ended, or after this many seconds (at most 240); 0 answers at once. */
  waitSeconds?: number | undefined;
  /**
   * Wait for room in the workspace's quota, and on the server, at most this long; undefined throws `quota_exceeded` at once.
   * More than 240 is several requests, of which each takes its place at the end of the line.
   */
  waitForQuotaSeconds?: number | undefined;
  /** Makes repeated creates one within 24 hours; undefined is a new key for this call. */
  idempotencyKey?: string | undefined;
}

/** Which sandboxes to list; the empty object is all that have not ended. */
export interface ListSandboxesOptions extends PageOptions {
  states?: readonly SandboxState[] | undefined;
  name?: string | undefined;
  labels?: Record<string, string> | undefined;
  /** What they were made from. */
  snapshotId?: string | undefined;
}

export interface WaitOptions extends CallOptions {
  /** The state to wait for; default `running`. */
  state?: "running" | "paused" | "destroyed" | "failed" | undefined;
  /** Default 60. There is no upper bound: long waits are several requests. */
  timeoutSeconds?: number | undefined;
}

/** What children to make; the empty object is one. */
export interface ForkOptions extends CallOptions {
  /** At most 100. */
  count?: number | undefined;
  /** Of the first children; the others get one made up. */
  names?: readonly string[] | undefined;
  /** Added to the parent's. */
  env?: Record<string, string> | undefined;
  labels?: Record<string, string> | undefined;
  /** Counts from the fork; undefined is the parent's. */
  ttlSeconds?: number | undefined;
  /** Instead of the parent's. */
  timeouts?: Timeouts | undefined;
  /** Wait for room for all children in the workspace's quota, and on the server, at most this long, see {@link CreateSandboxOptions.waitForQuotaSeconds}. */
  waitForQuotaSeconds?: number | undefined;
}

/** How a paused sandbox is brought back. */
export interface ResumeOptions extends CallOptions {
  /** What to do about its memory; undefined is `prefer`. */
  memory?: "prefer" | "require" | "discard" | undefined;
  /** Wait for room in the workspace's quota, and on the server, at most this long, see {@link CreateSandboxOptions.waitForQuotaSeconds}. */
  waitForQuotaSeconds?: number | undefined;
}

/** What became of one child: it runs when `error` is undefined. */
export interface Forked {
  /** Also set for a child that was recorded and then failed. */
  sandbox: Sandbox | undefined;
  error: ModboxError | undefined;
}

/** A command: exactly one of `command` and `shell`. */
export interface Command {
  /** Program and arguments, run without a shell. */
  command?: readonly string[] | undefined;
  /** A script for bash, or sh where there is no bash. */
  shell?: string | undefined;
  cwd?: string | undefined;
  /** In addition to the sandbox's environment. */
  env?: Record<string, string> | undefined;
  /** name, uid, name:group or uid:gid. */
  user?: string | undefined;
  stdin?: string | undefined;
  /** The command is ended after this; default 60, at most 3600. Node's fetch gives up on `exec` after 300: use `execStream`. */
  timeoutSeconds?: number | undefined;
}

export interface ExecOptions extends Command, CallOptions {
  /** Bytes kept of each of stdout and stderr; default 1 MiB, at most 16 MiB. More is dropped, and the command goes on. */
  maxOutputBytes?: number | undefined;
  /** `bytes` gives output as it is; `text` (default) replaces what is not UTF-8. */
  output?: "text" | "bytes" | undefined;
}

/** How a command ended, and its output. */
export interface ExecResult<Output = string> {
  /** 128 + signal when a signal ended it. */
  exitCode: number;
  /** The signal's number; 0 when it exited by itself. */
  signal: number;
  timedOut: boolean;
  stdout: Output;
  stderr: Output;
  /** There was more than `maxOutputBytes`. */
  stdoutTruncated: boolean;
  stderrTruncated: boolean;
  durationMs: number;
}

/** What a command under way reports: `started` first, `exit` last. */
export type ExecEvent =
  | { type: "started"; pid: number }
  | { type: "stdout"; data: Uint8Array }
  | { type: "stderr"; data: Uint8Array }
  | { type: "exit"; exitCode: number; signal: number; timedOut: boolean; durationMs: number };

/** A path in a sandbox, not following a last symlink. */
export interface FileInfo {
  name: string;
  /** Absolute. */
  path: string;
  type: "file" | "directory" | "symlink" | "other";
  size: number;
  /** Permission bits in octal, e.g. `0644`. */
  mode: string;
  uid: number;
  gid: number;
  modTime: string;
  /** Where a symlink points, as written. */
  target: string | undefined;
}

/** What a file's content may be given as. A stream is sent as it is read. */
export type FileContent = string | Uint8Array<ArrayBuffer> | Blob | ReadableStream<Uint8Array>;

export interface WriteFileOptions extends CallOptions {
  /** Permission bits in octal; a new file gets `0644`. */
  mode?: string | undefined;
  /** Make missing parent directories. */
  parents?: boolean | undefined;
  /** Owner of a new file. */
  user?: string | undefined;
}

/** A file to write. */
export interface NewFile {
  path: string;
  /** Text is written as UTF-8. */
  content: string | Uint8Array;
  /** Permission bits in octal; a new file gets `0644`. */
  mode?: string | undefined;
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
  /** All directories below too, also those that come later. */
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

/** Something that happened to a sandbox. */
export interface SandboxEvent {
  /** Grows with time. */
  seq: number;
  sandboxId: string;
  time: string;
  /** Such as `created`, `running`, `paused` or `destroyed`. */
  type: string;
  message: string;
  data: Record<string, string>;
}

export interface EventsOptions extends PageOptions {
  /** Only events with a larger `seq`. */
  afterSeq?: number | undefined;
  /** Default `asc`. */
  order?: "asc" | "desc" | undefined;
}

/** What a sandbox has used since it was made, over pauses and restarts of the server. */
export interface Usage {
  /** When it was measured last; null before it first ran. */
  at: string | null;
  /** Pauses excluded. */
  runningSeconds: number;
  /** Of all cores together. */
  cpuSeconds: number;
  memoryByteSeconds: number;
  networkSentBytes: number;
  networkReceivedBytes: number;
}

/** A moment's use of a sandbox. */
export interface Stats {
  time: string;
  memoryBytes: number;
  memoryLimitBytes: number;
  cpuNanoseconds: number;
  cpuLimitMillicores: number;
  diskBytes: number;
  diskLimitBytes: number;
  processes: number;
  /** Proportional memory of its host processes; undefined when unknown. */
  hostPssBytes: number | undefined;
}

/** An image that sandboxes can be made from. */
export interface Image {
  id: string;
  name: string;
  tag: string;
  /** Name and tag, as passed to create. */
  ref: string;
  /** Empty while it is not built. */
  digest: string;
  description: string;
  builtin: boolean;
  isDefault: boolean;
  sizeBytes: number;
  memory: string;
  readinessPort: number | undefined;
  ttlSeconds: number;
  createdAt: string;
  updatedAt: string;
}

/** A built-in image with what people want to know before they choose it. */
export interface Runtime {
  id: string;
  /** Passed to create as image, such as `node:lts`. */
  name: string;
  /** Whole reference of its image. */
  image: string;
  description: string;
  iconUrl: string | undefined;
  color: string | undefined;
  url: string | undefined;
  tags: string[];
  /** What a sandbox of it needs at least. */
  requirements: { memory?: string; cpu?: string; disk?: string; network: boolean };
  /** Markdown. */
  readme: string | undefined;
  /** Otherwise its first use builds it. */
  built: boolean;
  digest: string | undefined;
  sizeBytes: number;
  createdAt: string | null;
}

/** A sign-in that has not ended, without its tokens. */
export interface SignInSession {
  id: string;
  /** How the user signed in: `password`, `invitation`, or the name of another service. */
  method: string;
  /** The IP address from which the user signed in. */
  address: string;
  /** Whether it is the client's own. */
  current: boolean;
  createdAt: string;
  /** When it last got tokens. */
  refreshedAt: string;
  /** When it ends unless it is refreshed before. */
  expiresAt: string;
}

/** An API token, without its text. */
export interface Token {
  id: string;
  description: string;
  workspaceId: string;
  /** Keeps out of its user's other workspaces. */
  workspaceOnly: boolean;
  /** What it may do; none means all that its user may. */
  scopes: string[];
  createdAt: string;
  lastUsedAt: string | null;
  expiresAt: string | null;
}

/** A token just made. */
export interface NewToken extends Token {
  /** The token's text, `mbx_…`. It is shown only now. */
  token: string;
}

/** Who the client's token speaks for. */
export interface Identity {
  userId: string;
  /** What the user signs in as. */
  name: string;
  email: string | undefined;
  workspaceId: string;
  /** Empty for a session. */
  tokenId: string;
  /** In the workspace. */
  role: string;
  /** Looks after the installation. */
  administrator: boolean;
  /** What the caller may do in the workspace. */
  permissions: string[];
}

/** What the server is. */
export interface ServerVersion {
  version: string;
  driver: string;
}
