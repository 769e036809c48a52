// The types of the API. Made from api/openapi.yaml by tools/schemas.mjs; run make gen.

import type { ExecutionCommand } from "./executions.js";
import { checkMembers, type Members } from "./known.js";
import type { components } from "./openapi.js";
import type { CallOptions, FileContent, NewFile } from "./types.js";

type Wire = components["schemas"];

/** Where it is in its life. */
export type SandboxState = "provisioning" | "running" | "pausing" | "paused" | "resuming" | "destroying" | "destroyed" | "failed";

/** The credential for the management routes on its own URL; the workspace and the server may demand more. */
export type URLAccess = "open" | "key";

/** public: the URL suffices. private: visitors need an API token or a signed link as well. */
export type PortAccess = "public" | "private";

/** Where it is in its life; the last four are for good. */
export type ExecutionState = "queued" | "running" | "completed" | "failed" | "timeout" | "cancelled";

/** What it may do. */
export type Role = "owner" | "admin" | "member" | "viewer";

/** Whether code is scanned before it runs: warn adds findings to answers and the audit log; with block code with findings, and code that cannot be scanned, does not run. */
export type CodeScanMode = "off" | "warn" | "block";

/** pending: waits for an attempt. delivered: the receiver has accepted it. failed: no attempt follows. cancelled: the webhook was disabled before. */
export type WebhookDeliveryState = "pending" | "delivered" | "failed" | "cancelled";

/** connected: the server has a connection to it. away: its sandboxes are unavailable until it is back. lost: it was away for longer than worker.lost_after, and its sandboxes were given up; it joins again when it is back. */
export type WorkerState = "connected" | "away" | "lost";

/** Limits in Kubernetes notation. */
export interface Resources {
  /** Memory. */
  memory?: string | undefined;
  /** Cores, or thousandths of a core with the suffix m. */
  cpu?: string | undefined;
  /** What may be written to its file system. */
  disk?: string | undefined;
}

export function resources(w: Wire["Resources"]): Resources {
  return {
    memory: w.memory,
    cpu: w.cpu,
    disk: w.disk,
  };
}

export const resourcesMembers: Members<Resources> = { memory: true, cpu: true, disk: true };

export function encodeResources(o: Resources): Wire["Resources"] {
  checkMembers("Resources", o, resourcesMembers);
  return {
    memory: o.memory,
    cpu: o.cpu,
    disk: o.disk,
  };
}

/** Limits of one command and all its processes. A limit that is omitted or 0 is none. A command that exceeds one is killed with its processes. */
export interface ExecLimits {
  /** The sum of the resident memory of its processes: 16Mi to the sandbox's memory. */
  memory?: string | undefined;
  /** The sum of the processor time of its processes. */
  cpuSeconds?: number | undefined;
  /** The size of each file that it writes: at most the sandbox's disk. */
  fileSize?: string | undefined;
  /** Its processes at a time, itself included; threads do not count. */
  processes?: number | undefined;
}

export function execLimits(w: Wire["ExecLimits"]): ExecLimits {
  return {
    memory: w.memory,
    cpuSeconds: w.cpu_seconds,
    fileSize: w.file_size,
    processes: w.processes,
  };
}

export const execLimitsMembers: Members<ExecLimits> = { memory: true, cpuSeconds: true, fileSize: true, processes: true };

export function encodeExecLimits(o: ExecLimits): Wire["ExecLimits"] {
  checkMembers("ExecLimits", o, execLimitsMembers);
  return {
    memory: o.memory,
    cpu_seconds: o.cpuSeconds,
    file_size: o.fileSize,
    processes: o.processes,
  };
}

/** The clocks of a sandbox beside its ttl. */
export interface Timeouts {
  /** How long it may run without being used: by a call into it, an open connection or a running command. 10 seconds at least; 0: no limit. */
  idleSeconds?: number | undefined;
  /** What happens then; destroy when omitted. pause_without_memory ends its processes and saves its files alone. */
  onIdle?: "destroy" | "pause" | "pause_without_memory" | undefined;
  /** How long it may stay paused before it is destroyed, 10 seconds at least; 0: no limit. */
  pausedSeconds?: number | undefined;
  /** The timeout of commands that name none; 0: the server's default. */
  executionSeconds?: number | undefined;
}

export function timeouts(w: Wire["Timeouts"]): Timeouts {
  return {
    idleSeconds: w.idle_seconds,
    onIdle: w.on_idle,
    pausedSeconds: w.paused_seconds,
    executionSeconds: w.execution_seconds,
  };
}

export const timeoutsMembers: Members<Timeouts> = { idleSeconds: true, onIdle: true, pausedSeconds: true, executionSeconds: true };

export function encodeTimeouts(o: Timeouts): Wire["Timeouts"] {
  checkMembers("Timeouts", o, timeoutsMembers);
  return {
    idle_seconds: o.idleSeconds,
    on_idle: o.onIdle,
    paused_seconds: o.pausedSeconds,
    execution_seconds: o.executionSeconds,
  };
}

/** The requested network of a sandbox. */
export interface NetworkOptions {
  /** Whether it reaches the internet. Closed all the same: the server's host, private, link-local and metadata addresses. */
  enabled?: boolean | undefined;
  /** Ports it publishes, each 1 to 65535; each gets a public URL of its own, and the sandbox's URL leads to the first. */
  ports?: readonly number[] | undefined;
  /** Destinations it may reach: IPv4 addresses, ranges, and names such as example.com or *.example.com (all names beneath it). They win over deny_out. Without deny_out, everything else is denied. */
  allowOut?: readonly string[] | undefined;
  /** IPv4 addresses and ranges it may not reach. Names in allow_out need 0.0.0.0/0 here. */
  denyOut?: readonly string[] | undefined;
  /** The host that its servers see in requests to its ports (the header Host), with a port or without; ${PORT} in it stands for the port of the request. The host of the URL when omitted. */
  requestHost?: string | undefined;
  /** Ports whose servers speak HTTPS, each 1 to 65535: requests to them are sent by TLS, and any certificate is accepted. The URLs stay the same. */
  httpsPorts?: readonly number[] | undefined;
}

export const networkOptionsMembers: Members<NetworkOptions> = { enabled: true, ports: true, allowOut: true, denyOut: true, requestHost: true, httpsPorts: true };

export function encodeNetworkOptions(o: NetworkOptions): Wire["Network"] {
  checkMembers("NetworkOptions", o, networkOptionsMembers);
  return {
    enabled: o.enabled,
    ports: o.ports && [...o.ports],
    allow_out: o.allowOut && [...o.allowOut],
    deny_out: o.denyOut && [...o.denyOut],
    request_host: o.requestHost,
    https_ports: o.httpsPorts && [...o.httpsPorts],
  };
}

/** The limits of a workspace. A limit of 0 is none, except for the limits of a single sandbox, which the server limits in any case. */
export interface Quota {
  /** Sandboxes that may run at the same time; paused sandboxes do not count. */
  sandboxes?: number | undefined;
  /** Sum of the memory limits of running sandboxes. */
  memory?: string | undefined;
  /** Sum of the CPU limits of running sandboxes. */
  cpu?: string | undefined;
  /** Disk: the disk limits of running sandboxes, and the disk use of paused sandboxes, checkpoints, snapshots, output of executions and files of builds. */
  disk?: string | undefined;
  /** Size of the states of archived sandboxes in the object store. The state of a sandbox that was resumed or has ended counts until it is removed. */
  archive?: string | undefined;
  /** Sandboxes that may be made in a minute, forks included. */
  createsPerMinute?: number | undefined;
  /** The most memory that one sandbox may ask for. */
  sandboxMemory?: string | undefined;
  /** The most CPU that one sandbox may ask for. */
  sandboxCpu?: string | undefined;
  /** The most disk that one sandbox may ask for. */
  sandboxDisk?: string | undefined;
}

export function quota(w: Wire["Quota"]): Quota {
  return {
    sandboxes: w.sandboxes,
    memory: w.memory,
    cpu: w.cpu,
    disk: w.disk,
    archive: w.archive,
    createsPerMinute: w.creates_per_minute,
    sandboxMemory: w.sandbox_memory,
    sandboxCpu: w.sandbox_cpu,
    sandboxDisk: w.sandbox_disk,
  };
}

export const quotaMembers: Members<Quota> = { sandboxes: true, memory: true, cpu: true, disk: true, archive: true, createsPerMinute: true, sandboxMemory: true, sandboxCpu: true, sandboxDisk: true };

export function encodeQuota(o: Quota): Wire["Quota"] {
  checkMembers("Quota", o, quotaMembers);
  return {
    sandboxes: o.sandboxes,
    memory: o.memory,
    cpu: o.cpu,
    disk: o.disk,
    archive: o.archive,
    creates_per_minute: o.createsPerMinute,
    sandbox_memory: o.sandboxMemory,
    sandbox_cpu: o.sandboxCpu,
    sandbox_disk: o.sandboxDisk,
  };
}

/** The reason of a sandbox's end. */
export interface Cause {
  /** For programs. */
  code: "destroyed" | "replaced" | "ttl" | "idle" | "paused_ttl" | "completed" | "image" | "start" | "not_ready" | "oom" | "exited" | "disk_full" | "host_restart" | "worker_lost" | "internal";
  /** For people. */
  message: string;
}

export function cause(w: Wire["Cause"]): Cause {
  return {
    code: w.code,
    message: w.message,
  };
}

/** A port of a sandbox and where it is reached. */
export interface PublishedPort {
  /** The port in the sandbox. */
  port: number;
  /** The URL of the port. It leads to this port and to nothing else of the sandbox, and is as safe to share as the server on the port. Empty for callers who may only read. */
  url: string;
  /** public: the URL suffices. private: visitors need an API token or a signed link as well. */
  access: PortAccess;
  /** When the URL was made. */
  createdAt: string;
}

export function publishedPort(w: Wire["PublishedPort"]): PublishedPort {
  return {
    port: w.port,
    url: w.url,
    access: w.access,
    createdAt: w.created_at,
  };
}

/** A signed link to a private port. */
export interface PortLink {
  /** The link, for a browser. It is a secret. */
  url: string;
  /** What is signed of it; programs send it in the header X-Modbox-Token to the port's own URL. */
  token: string;
  /** When it stops working. */
  expiresAt: string;
}

export function portLink(w: Wire["PortLink"]): PortLink {
  return {
    url: w.url,
    token: w.token,
    expiresAt: w.expires_at,
  };
}

/** The network of a sandbox. */
export interface SandboxNetwork {
  /** Whether it reaches the internet. */
  enabled: boolean;
  /** The ports it publishes, in the order asked for. */
  ports: PublishedPort[];
  /** Destinations it may reach even if deny_out contains them. */
  allowOut: string[];
  /** Addresses and ranges it may not reach. */
  denyOut: string[];
  /** The host that its servers see in requests; empty for the host of the URL. */
  requestHost: string;
  /** Ports whose servers speak HTTPS. */
  httpsPorts: number[];
}

export function sandboxNetwork(w: Wire["SandboxNetwork"]): SandboxNetwork {
  return {
    enabled: w.enabled,
    ports: w.ports.map(publishedPort),
    allowOut: w.allow_out,
    denyOut: w.deny_out,
    requestHost: w.request_host,
    httpsPorts: w.https_ports,
  };
}

/** One sandbox. */
export interface SandboxInfo {
  /** Its identifier. */
  id: string;
  /** The caller's identifier. */
  name: string;
  /** Where it is in its life. */
  state: SandboxState;
  /** The URL of its HTTP server, its management routes and all its ports that are not private. It is a secret; share the URLs of published ports. Empty for callers who may only read. */
  url: string;
  /** The image reference it was made from. */
  image: string;
  /** The content the reference resolved to; empty until resolved. */
  imageDigest: string;
  /** The id of the image, or of the catalogue's entry that was asked for; absent when it was made from a snapshot. */
  imageId: string | undefined;
  /** Debian packages that were installed in it. */
  aptPackages: string[];
  /** npm packages that were installed in it. */
  npmPackages: string[];
  /** Python packages that were installed in it. */
  pipPackages: string[];
  /** Its labels. */
  labels: Record<string, string>;
  /** Its limits. */
  resources: Resources;
  /** The port that had to answer before it counted as running. Its URL leads to the first published port, else to this one, else to 8080. */
  readinessPort: number | undefined;
  /** Its network. */
  network: SandboxNetwork;
  /** The credential for the management routes on its own URL; the workspace and the server may demand more. */
  urlAccess: URLAccess;
  /** How long it may live, counted from created_at or from the last change of the ttl; 0 means no limit. See deadline. */
  ttlSeconds: number;
  /** When its ttl ends it; absent without one. */
  deadline: string | undefined;
  /** Its clocks beside the ttl. */
  timeouts: Timeouts;
  /** Time between its automatic checkpoints; 0: it has none. */
  checkpointIntervalSeconds: number;
  /** Time of its automatic checkpoint; absent without one. */
  lastCheckpointAt: string | undefined;
  /** When something last used it. */
  lastActivityAt: string | undefined;
  /** When its idle timeout is over if nothing uses it before; absent without one, and unless it runs. */
  idleDeadline: string | undefined;
  /** When it was paused; absent unless it is paused. */
  pausedAt: string | undefined;
  /** When its saved state was moved to the object store; absent while it is on the disk of the server. A resume fetches it, which takes longer. */
  archivedAt: string | undefined;
  /** Its files are saved without its memory, so that a resume starts it anew; absent when its memory is saved, and unless it is paused. */
  pausedWithoutMemory: boolean;
  /** When its paused timeout ends it; absent without one, and unless it is paused. */
  pausedDeadline: string | undefined;
  /** Why its last resume started it anew with its files; absent when its memory was brought back. */
  memoryLostReason: string | undefined;
  /** The sandbox it was forked from; absent without one. */
  parentId: string | undefined;
  /** The snapshot it was made from; absent without one. */
  snapshotId: string | undefined;
  /** The caller's own words about it. */
  description: string;
  /** The caller's own entries about it. */
  metadata: Record<string, string>;
  /** The name of the worker that it is on; only for administrators of the installation. Absent while it is on none, and if sandboxes run on the server's machine. */
  worker: string | undefined;
  /** Why it ended; absent while it lives. */
  cause: Cause | undefined;
  /** The user who made it. */
  createdBy: string;
  /** The workspace it belongs to. */
  workspaceId: string;
  /** When it was asked for. */
  createdAt: string;
  /** When it last changed. */
  updatedAt: string;
  /** When it first ran; absent until then. */
  startedAt: string | undefined;
  /** When it ended; absent while it lives. */
  endedAt: string | undefined;
}

export function sandbox(w: Wire["Sandbox"]): SandboxInfo {
  return {
    id: w.id,
    name: w.name,
    state: w.state,
    url: w.url,
    image: w.image,
    imageDigest: w.image_digest,
    imageId: w.image_id,
    aptPackages: w.apt_packages ?? [],
    npmPackages: w.npm_packages ?? [],
    pipPackages: w.pip_packages ?? [],
    labels: w.labels,
    resources: resources(w.resources),
    readinessPort: w.readiness_port,
    network: sandboxNetwork(w.network),
    urlAccess: w.url_access,
    ttlSeconds: w.ttl_seconds,
    deadline: w.deadline,
    timeouts: timeouts(w.timeouts),
    checkpointIntervalSeconds: w.checkpoint_interval_seconds,
    lastCheckpointAt: w.last_checkpoint_at,
    lastActivityAt: w.last_activity_at,
    idleDeadline: w.idle_deadline,
    pausedAt: w.paused_at,
    archivedAt: w.archived_at,
    pausedWithoutMemory: w.paused_without_memory ?? false,
    pausedDeadline: w.paused_deadline,
    memoryLostReason: w.memory_lost_reason,
    parentId: w.parent_id,
    snapshotId: w.snapshot_id,
    description: w.description ?? "",
    metadata: w.metadata ?? {},
    worker: w.worker,
    cause: w.cause && cause(w.cause),
    createdBy: w.created_by,
    workspaceId: w.workspace_id,
    createdAt: w.created_at,
    updatedAt: w.updated_at,
    startedAt: w.started_at,
    endedAt: w.ended_at,
  };
}

/** Describes a path in a sandbox, not following a last symlink. */
export interface FileInfo {
  /** Last element of the path. */
  name: string;
  /** Absolute path. */
  path: string;
  /** What it is. */
  type: "file" | "directory" | "symlink" | "other";
  /** Bytes. */
  sizeBytes: number;
  /** Permission bits in octal, as for chmod. */
  mode: string;
  /** Owner's user id. */
  uid: number;
  /** Owner's group id. */
  gid: number;
  /** When its content last changed. */
  modTime: string;
  /** Where a symlink points, as written. */
  target: string | undefined;
  /** Of a file or a directory: its extended attributes user.KEY, by KEY, as far as they are text, 64 of them at most with 4096 bytes. */
  metadata: Record<string, string>;
}

export function fileInfo(w: Wire["FileInfo"]): FileInfo {
  return {
    name: w.name,
    path: w.path,
    type: w.type,
    sizeBytes: w.size_bytes,
    mode: w.mode,
    uid: w.uid,
    gid: w.gid,
    modTime: w.mod_time,
    target: w.target,
    metadata: w.metadata ?? {},
  };
}

/** A name in the image of a sandbox. */
export interface OriginalFile {
  /** What it was. */
  type: "file" | "directory" | "symlink" | "other";
  /** Bytes of a file. */
  sizeBytes: number;
  /** Permission bits in octal. */
  mode: string;
  /** Owner's user id. */
  uid: number;
  /** Owner's group id. */
  gid: number;
  /** When its content last changed. */
  modTime: string;
  /** Where a symlink pointed, as written. */
  target: string | undefined;
}

export function originalFile(w: Wire["OriginalFile"]): OriginalFile {
  return {
    type: w.type,
    sizeBytes: w.size_bytes,
    mode: w.mode,
    uid: w.uid,
    gid: w.gid,
    modTime: w.mod_time,
    target: w.target,
  };
}

/** A name that differs between a sandbox and the image or snapshot that it was made from. */
export interface FileChange {
  /** Absolute path. */
  path: string;
  /** What happened to it. Of a removed directory there is only the directory itself. */
  change: "added" | "changed" | "removed";
  /** What it is; of a removed name, what it was. */
  type: "file" | "directory" | "symlink" | "other";
  /** Bytes of a file. */
  sizeBytes: number;
  /** Permission bits in octal, as for chmod. */
  mode: string;
  /** Owner's user id. */
  uid: number;
  /** Owner's group id. */
  gid: number;
  /** When its content last changed. */
  modTime: string;
  /** Where a symlink points, as written. */
  target: string | undefined;
  /** What a changed name was in the image. */
  before: OriginalFile | undefined;
}

export function fileChange(w: Wire["FileChange"]): FileChange {
  return {
    path: w.path,
    change: w.change,
    type: w.type,
    sizeBytes: w.size_bytes,
    mode: w.mode,
    uid: w.uid,
    gid: w.gid,
    modTime: w.mod_time,
    target: w.target,
    before: w.before && originalFile(w.before),
  };
}

/** A name in a snapshot. */
export interface SnapshotFile extends FileInfo {
  /** Of what a file holds, when asked for; absent for a file of more than 64 MiB. */
  sha256: string | undefined;
}

/** An address of files of a snapshot. */
export interface SnapshotDownload {
  /** Address of the download, relative to the server's. It is a secret: it needs no token. */
  url: string;
  /** Until when a download may begin. It ends earlier when the snapshot is deleted or the server restarted. */
  expiresAt: string;
}

export function snapshotDownload(w: Wire["SnapshotDownload"]): SnapshotDownload {
  return {
    url: w.url,
    expiresAt: w.expires_at,
  };
}

/** An event of a sandbox. */
export interface SandboxEvent {
  /** Grows with time; pass the last one as after_seq to list what happens afterwards. */
  seq: number;
  /** The sandbox. */
  sandboxId: string;
  /** The sandbox's name. */
  sandboxName: string;
  /** When. */
  time: string;
  /** What, for programs: created, running, image_building, pausing, paused, pause_failed, resuming, resumed, resumed_from_files, resume_failed, checkpoint_created, checkpoint_restored, checkpoint_deleted, checkpoint_failed, checkpoint_interval, rolled_back, forked, ttl, network, snapshot_created, snapshot_tagged, snapshot_deleted, destroying, destroyed, failed, recovered, exec. */
  type: string;
  /** What, for people. */
  message: string;
  /** The facts. */
  data: Record<string, string>;
}

export function event(w: Wire["Event"]): SandboxEvent {
  return {
    seq: w.seq,
    sandboxId: w.sandbox_id,
    sandboxName: w.sandbox_name,
    time: w.time,
    type: w.type,
    message: w.message,
    data: w.data ?? {},
  };
}

/** A moment's use of a sandbox. */
export interface Stats {
  /** When it was measured. */
  time: string;
  /** Memory in use. */
  memoryBytes: number;
  /** Its memory limit. */
  memoryLimitBytes: number;
  /** CPU time used since it started. */
  cpuNanoseconds: number;
  /** Its CPU limit in thousandths of a core. */
  cpuLimitMillicores: number;
  /** What it has written, as far as can be told. */
  diskBytes: number;
  /** Its disk limit. */
  diskLimitBytes: number;
  /** Processes inside. */
  processes: number;
  /** Proportional memory of its host processes; absent when unknown. */
  hostPssBytes: number | undefined;
  /** What it has sent to the internet since this server began to serve it. */
  sentBytes: number;
  /** What it has received from the internet since this server began to serve it. */
  receivedBytes: number;
}

export function stats(w: Wire["Stats"]): Stats {
  return {
    time: w.time,
    memoryBytes: w.memory_bytes,
    memoryLimitBytes: w.memory_limit_bytes,
    cpuNanoseconds: w.cpu_nanoseconds,
    cpuLimitMillicores: w.cpu_limit_millicores,
    diskBytes: w.disk_bytes,
    diskLimitBytes: w.disk_limit_bytes,
    processes: w.processes,
    hostPssBytes: w.host_pss_bytes,
    sentBytes: w.sent_bytes,
    receivedBytes: w.received_bytes,
  };
}

/** The use of a sandbox since it was made. */
export interface Usage {
  /** When it was measured last; absent before it first ran. */
  at: string | undefined;
  /** How long it ran, pauses excluded. */
  runningSeconds: number;
  /** Processor time of all cores together. */
  cpuSeconds: number;
  /** Memory in use, added up over the time it ran. */
  memoryByteSeconds: number;
  /** Bytes it sent over its network interface. */
  networkSentBytes: number;
  /** Bytes it received over its network interface. */
  networkReceivedBytes: number;
}

export function usage(w: Wire["Usage"]): Usage {
  return {
    at: w.at,
    runningSeconds: w.running_seconds,
    cpuSeconds: w.cpu_seconds,
    memoryByteSeconds: w.memory_byte_seconds,
    networkSentBytes: w.network_sent_bytes,
    networkReceivedBytes: w.network_received_bytes,
  };
}

/** A position on a screen. */
export interface Point {
  /** Pixels from the left. */
  x: number;
  /** Pixels from the top. */
  y: number;
}

export function point(w: Wire["Point"]): Point {
  return {
    x: w.x,
    y: w.y,
  };
}

/** The screen of a sandbox. */
export interface DesktopScreen {
  /** Width of the screen in pixels. */
  width: number;
  /** Height of the screen in pixels. */
  height: number;
  /** The position of the mouse pointer. */
  cursor: Point;
}

export function desktop(w: Wire["Desktop"]): DesktopScreen {
  return {
    width: w.width,
    height: w.height,
    cursor: point(w.cursor),
  };
}

/** A window on the screen of a sandbox. */
export interface DesktopWindow {
  /** The window's id. */
  id: string;
  /** Its title. */
  title: string;
  /** Its class, by which window managers know the program. */
  wmClass: string;
  /** The process that it says it belongs to; 0 if it does not say. */
  pid: number;
  /** Left edge in pixels. */
  x: number;
  /** Top edge in pixels. */
  y: number;
  /** Width in pixels. */
  width: number;
  /** Height in pixels. */
  height: number;
  /** It has the keyboard. */
  active: boolean;
}

export function desktopWindow(w: Wire["DesktopWindow"]): DesktopWindow {
  return {
    id: w.id,
    title: w.title,
    wmClass: w.wm_class,
    pid: w.pid,
    x: w.x,
    y: w.y,
    width: w.width,
    height: w.height,
    active: w.active,
  };
}

/** A recording of a screen. */
export interface Recording {
  /** Its id, which is also the id of an execution. */
  id: string;
  /** The file in the sandbox, an MP4. */
  path: string;
  /** done: the file is complete. failed: its program ended with an error, or with the sandbox. */
  state: "recording" | "done" | "failed";
  /** failed: what the program said. */
  error: string | undefined;
  /** When it was requested. */
  createdAt: string;
  /** When it ended. */
  endedAt: string | undefined;
  /** The size of the file in bytes, in lists of a sandbox that runs. Absent without a file. */
  sizeBytes: number | undefined;
}

export function recording(w: Wire["Recording"]): Recording {
  return {
    id: w.id,
    path: w.path,
    state: w.state,
    error: w.error,
    createdAt: w.created_at,
    endedAt: w.ended_at,
    sizeBytes: w.size_bytes,
  };
}

/** A step in the making of an image. */
export interface ImageLayer {
  /** Of the compressed layer; absent for a step that changed no file. */
  digest: string | undefined;
  /** Size of the compressed layer. */
  sizeBytes: number;
  /** The instruction that made it, at most 1000 characters of it; absent when the image does not say. */
  createdBy: string | undefined;
  /** When, as the image says. */
  createdAt: string | undefined;
  /** It belongs to base. */
  base: boolean;
}

export function imageLayer(w: Wire["ImageLayer"]): ImageLayer {
  return {
    digest: w.digest,
    sizeBytes: w.size_bytes,
    createdBy: w.created_by,
    createdAt: w.created_at,
    base: w.base,
  };
}

/** An image that sandboxes can be made from. */
export interface Image {
  /** Its identifier. */
  id: string;
  /** Its name. */
  name: string;
  /** Its tag. */
  tag: string;
  /** Name and tag, as passed to create. */
  ref: string;
  /** Content address of its root file system; empty when it is not built yet. */
  digest: string;
  /** What is in it. */
  description: string;
  /** Comes with Modbox; in every workspace. */
  builtin: boolean;
  /** Used when a request names no image. */
  isDefault: boolean;
  /** Size of its root file system. */
  sizeBytes: number;
  /** Default memory limit. */
  memory: string;
  /** Default readiness port; absent without one. */
  readinessPort: number | undefined;
  /** Default ttl; 0 means no limit. */
  ttlSeconds: number;
  /** When it was registered. */
  createdAt: string;
  /** When it last changed. */
  updatedAt: string;
  /** The image of the workspace whose layers are the first of its layers; absent in lists, and if there is none. */
  base: string | undefined;
  /** What it was made of, the lowest first; absent in lists, and until it is built. Its root file system is a single file: its size is not the sum of theirs. */
  layers: ImageLayer[];
}

export function image(w: Wire["Image"]): Image {
  return {
    id: w.id,
    name: w.name,
    tag: w.tag,
    ref: w.ref,
    digest: w.digest,
    description: w.description,
    builtin: w.builtin,
    isDefault: w.is_default,
    sizeBytes: w.size_bytes,
    memory: w.memory,
    readinessPort: w.readiness_port,
    ttlSeconds: w.ttl_seconds,
    createdAt: w.created_at,
    updatedAt: w.updated_at,
    base: w.base,
    layers: w.layers?.map(imageLayer) ?? [],
  };
}

/** An image of a workspace's catalogue. */
export interface SandboxImage {
  /** Its identifier, for image_id. */
  id: string;
  /** What it is called. */
  name: string;
  /** The image reference without its tag, or with its digest. */
  image: string;
  /** The tag; empty for an image by digest. */
  tag: string;
  /** Words about it. */
  description: string;
  /** Comes with Modbox: it is in every workspace and cannot be deleted. */
  builtin: boolean;
  /** Whether sandboxes may be made from it. */
  enabled: boolean;
  /** Used when a request names no image. */
  isDefault: boolean;
  /** Memory limit of its sandboxes in MiB. */
  memoryMb: number;
  /** The port that must answer; absent without one: then a sandbox is ready when its agent is. */
  readinessPort: number | undefined;
  /** How long its sandboxes live unless they say; absent: no limit. */
  ttlSeconds: number | undefined;
  /** The registry it is pulled with; absent: whichever the workspace has for the host. */
  registryId: string | undefined;
  /** That registry's name; absent when it was deleted. */
  registryName: string | undefined;
  /** The workspace it belongs to; absent for a built-in one. */
  workspaceId: string | undefined;
  /** When it was made. */
  createdAt: string;
  /** When it last changed. */
  updatedAt: string;
}

export function sandboxImage(w: Wire["SandboxImage"]): SandboxImage {
  return {
    id: w.id,
    name: w.name,
    image: w.image,
    tag: w.tag,
    description: w.description ?? "",
    builtin: w.builtin,
    enabled: w.enabled,
    isDefault: w.is_default,
    memoryMb: w.memory_mb,
    readinessPort: w.readiness_port,
    ttlSeconds: w.ttl_seconds,
    registryId: w.registry_id,
    registryName: w.registry_name,
    workspaceId: w.workspace_id,
    createdAt: w.created_at,
    updatedAt: w.updated_at,
  };
}

/** An image that was removed. */
export interface PrunedImage {
  /** The name that it had; absent without one, and for one of another workspace. */
  ref: string | undefined;
  /** Content address of its root file system. */
  digest: string;
  /** Size of its root file system. If another image shares the file system, it stays. */
  sizeBytes: number;
  /** The workspace that built it; absent for a pulled or built-in image. */
  workspaceId: string | undefined;
}

export function prunedImage(w: Wire["PrunedImage"]): PrunedImage {
  return {
    ref: w.ref,
    digest: w.digest,
    sizeBytes: w.size_bytes,
    workspaceId: w.workspace_id,
  };
}

/** Images that were removed, or would be. */
export interface PrunedImages {
  /** What was removed. */
  images: PrunedImage[];
  /** How much less is on the disk. With all, remains of interrupted pulls and builds count, which a dry run does not see. */
  freedBytes: number;
  /** Whether it only would be. */
  dryRun: boolean;
}

export function prunedImages(w: Wire["PrunedImages"]): PrunedImages {
  return {
    images: w.images.map(prunedImage),
    freedBytes: w.freed_bytes,
    dryRun: w.dry_run,
  };
}

/** The least resources for a useful sandbox of a runtime. */
export interface Requirements {
  /** Memory. */
  memory: string | undefined;
  /** CPU. */
  cpu: string | undefined;
  /** What it may write. */
  disk: string | undefined;
  /** It is of little use without a network. */
  network: boolean;
}

export function requirements(w: Wire["Requirements"]): Requirements {
  return {
    memory: w.memory,
    cpu: w.cpu,
    disk: w.disk,
    network: w.network,
  };
}

/** A built-in image with a description for people. */
export interface Runtime {
  /** Identifier of its image. */
  id: string;
  /** Passed to create as image. */
  name: string;
  /** Whole reference of its image. */
  image: string;
  /** What is in it. */
  description: string;
  /** Address of the project's icon. */
  iconUrl: string | undefined;
  /** The project's colour. */
  color: string | undefined;
  /** Address of the project. */
  url: string | undefined;
  /** What it is good for. */
  tags: string[];
  /** What a sandbox needs to be of use. */
  requirements: Requirements;
  /** More about it, in Markdown. */
  readme: string | undefined;
  /** It is here. Otherwise its first use builds it, which takes a minute or so, or pulls it. */
  built: boolean;
  /** The reference in a registry from which its first use pulls it; absent for a runtime that is built here. */
  source: string | undefined;
  /** What keeps the server from having it; absent when nothing is known before its first use. */
  missing: string | undefined;
  /** Content address of its root file system; absent when it is not built. */
  digest: string | undefined;
  /** Size of its root file system; 0 when it is not built. */
  sizeBytes: number;
  /** When it was first built; absent when it is not. */
  createdAt: string | undefined;
}

export function runtime(w: Wire["Runtime"]): Runtime {
  return {
    id: w.id,
    name: w.name,
    image: w.image,
    description: w.description,
    iconUrl: w.icon_url,
    color: w.color,
    url: w.url,
    tags: w.tags,
    requirements: requirements(w.requirements),
    readme: w.readme,
    built: w.built,
    source: w.source,
    missing: w.missing,
    digest: w.digest,
    sizeBytes: w.size_bytes,
    createdAt: w.created_at,
  };
}

/** A Debian package that cannot be installed. */
export interface InvalidAptPackage {
  /** The package as it was asked for. */
  name: string;
  /** Why not. */
  reason: string;
  /** The versions there are, when only the version is wrong. */
  versions: string[];
}

export function invalidAptPackage(w: Wire["InvalidAptPackage"]): InvalidAptPackage {
  return {
    name: w.name,
    reason: w.reason,
    versions: w.versions ?? [],
  };
}

/** Says which can be installed. */
export interface AptPackageChecks {
  /** Those that can. */
  valid: string[];
  /** Those that cannot. */
  invalid: InvalidAptPackage[];
}

export function validatedAptPackages(w: Wire["ValidatedAptPackages"]): AptPackageChecks {
  return {
    valid: w.valid,
    invalid: w.invalid.map(invalidAptPackage),
  };
}

/** The stream of an execution's output. */
export interface OutputStream {
  /** GET /v1/streams/{stream} reads it. The id is a secret: it permits reading. Empty for an ignored output. */
  streamId: string;
  /** The number of bytes stored so far. */
  sizeBytes: number;
  /** Further bytes were dropped. */
  truncated: boolean;
}

export function outputStream(w: Wire["OutputStream"]): OutputStream {
  return {
    streamId: w.stream_id,
    sizeBytes: w.size_bytes,
    truncated: w.truncated,
  };
}

/** A command in a sandbox, kept after its end with its output. */
export interface Execution {
  /** Its identifier. */
  id: string;
  /** The sandbox it runs in. */
  sandboxId: string;
  /** How its end is judged. main: the image's own command, which starts with the sandbox; it is completed with any exit code. */
  kind: "exec" | "job" | "main";
  /** Program and arguments, up to 4096 bytes; the last argument kept of a longer command ends with an ellipsis (U+2026). */
  command: string[];
  /** Where it is in its life; the last four are for good. */
  state: ExecutionState;
  /** Its exit code, 128 + signal when a signal ended it; absent as long as it is not known, for good when it cannot be known. */
  exitCode: number | undefined;
  /** The limit of the request that it exceeded; it has failed then, unless its exit code is 0. Absent when there was none. */
  limitExceeded: "memory" | "cpu" | "file_size" | "processes" | undefined;
  /** Why it failed, when not by its exit code. */
  error: string | undefined;
  /** It runs on a terminal. */
  tty: boolean;
  /** Its sandbox ends with it. */
  oneShot: boolean;
  /** It was asked to end. */
  cancelling: boolean;
  /** The stream it reads. The id is a secret: it permits writing. */
  stdinStreamId: string | undefined;
  /** Its standard output. */
  stdout: OutputStream;
  /** Its standard error; the same stream as stdout with a terminal, or when combined. */
  stderr: OutputStream;
  /** The user who started it. */
  createdBy: string;
  /** When it was asked for. */
  createdAt: string;
  /** When it started; absent until then. */
  startedAt: string | undefined;
  /** When it ended; absent until then. */
  endedAt: string | undefined;
  /** Milliseconds from its start to its end, as measured in the sandbox. */
  durationMs: number;
  /** In the answer to its start: what the scan found that the policy of the workspace (code_scan) demands; absent without such a policy, and for a request without code. */
  scan: CodeScan | undefined;
}

export function execution(w: Wire["Execution"]): Execution {
  return {
    id: w.id,
    sandboxId: w.sandbox_id,
    kind: w.kind,
    command: w.command,
    state: w.state,
    exitCode: w.exit_code,
    limitExceeded: w.limit_exceeded,
    error: w.error,
    tty: w.tty,
    oneShot: w.one_shot,
    cancelling: w.cancelling,
    stdinStreamId: w.stdin_stream_id,
    stdout: outputStream(w.stdout),
    stderr: outputStream(w.stderr),
    createdBy: w.created_by,
    createdAt: w.created_at,
    startedAt: w.started_at,
    endedAt: w.ended_at,
    durationMs: w.duration_ms,
    scan: w.scan && codeScan(w.scan),
  };
}

/** An interpreter that keeps its state between runs of code. */
export interface CodeContext {
  /** The context's id, unique in its sandbox. A fork of the sandbox has contexts with the same ids. */
  id: string;
  /** The language. */
  language: string;
  /** The directory in which the interpreter was started. */
  cwd: string;
  /** busy while code runs; ended if the interpreter ended by itself: the next run starts it again, without its state. */
  state: "idle" | "busy" | "ended";
  /** When it was made. */
  createdAt: string;
  /** How often its interpreter was started again. */
  restarts: number;
  /** The limits for code that has none of its own; absent when there are none. */
  limits: ExecLimits | undefined;
}

export function context(w: Wire["Context"]): CodeContext {
  return {
    id: w.id,
    language: w.language,
    cwd: w.cwd,
    state: w.state,
    createdAt: w.created_at,
    restarts: w.restarts,
    limits: w.limits && execLimits(w.limits),
  };
}

/** An error of code. */
export interface CodeError {
  /** The error's type, such as ZeroDivisionError. In Bash ExitStatus. */
  name: string;
  /** The error's message. In Bash the exit status. */
  value: string;
  /** The traceback; lines may have escape sequences for colours. */
  traceback: string[];
}

export function codeError(w: Wire["CodeError"]): CodeError {
  return {
    name: w.name,
    value: w.value,
    traceback: w.traceback,
  };
}

/** A construct in code that deserves a look. */
export interface Finding {
  /** Its line, from 1. */
  line: number;
  /** Its column, from 1. */
  column: number;
  /** What it does. import: it imports a package that is not allowed. syntax: the code cannot be parsed, and was not scanned. */
  rule: "process" | "network" | "file_delete" | "eval" | "native" | "environment" | "import" | "syntax";
  /** How much harm the rule's constructs can do. */
  severity: "high" | "medium" | "low";
  /** What was found, for people. */
  reason: string;
}

export function finding(w: Wire["Finding"]): Finding {
  return {
    line: w.line,
    column: w.column,
    rule: w.rule,
    severity: w.severity,
    reason: w.reason,
  };
}

/** The result of a scan of code. */
export interface CodeScan {
  /** The constructs that deserve a look, by their places in the code; 200 at most. */
  findings: Finding[];
  /** There are more findings. */
  truncated: boolean;
  /** Why the code was not scanned, in the answer of a call that ran it all the same; absent when it was scanned. */
  notScanned: string | undefined;
}

export function codeScan(w: Wire["CodeScan"]): CodeScan {
  return {
    findings: w.findings.map(finding),
    truncated: w.truncated,
    notScanned: w.not_scanned,
  };
}

/** A saved state of a sandbox. */
export interface Checkpoint {
  /** Its identifier. */
  id: string;
  /** Its name, unique within the sandbox. */
  name: string;
  /** The sandbox it is a state of. */
  sandboxId: string;
  /** The checkpoint of the sandbox that was made or restored last before it; absent without one. */
  parentId: string | undefined;
  /** What it takes on the server's disk. */
  sizeBytes: number;
  /** The user who made it. */
  createdBy: string;
  /** When it was made. */
  createdAt: string;
  /** When it was copied to the object store of the server; absent while it is on the server's disk alone. */
  copiedAt: string | undefined;
}

export function checkpoint(w: Wire["Checkpoint"]): Checkpoint {
  return {
    id: w.id,
    name: w.name,
    sandboxId: w.sandbox_id,
    parentId: w.parent_id,
    sizeBytes: w.size_bytes,
    createdBy: w.created_by,
    createdAt: w.created_at,
    copiedAt: w.copied_at,
  };
}

/** The saved filesystem of a sandbox or of a build. */
export interface Snapshot {
  /** Its identifier. */
  id: string;
  /** Its name. */
  name: string;
  /** Its tag; absent when another snapshot of the name has taken it. */
  tag: string | undefined;
  /** How other workspaces name it when it is public. */
  fullName: string;
  /** The caller's own words about it. */
  description: string;
  /** The caller's own words about this version. */
  message: string;
  /** The caller's own entries about it. */
  metadata: Record<string, string>;
  /** The snapshot that came before it; absent without one. */
  parentId: string | undefined;
  /** The sandbox it was taken of; absent for a build. */
  sandboxId: string | undefined;
  /** Reference of the image at the bottom. */
  image: string;
  /** The root file system it was laid on. */
  baseDigest: string | undefined;
  /** Its root file system. */
  digest: string | undefined;
  /** What its root file system takes on disk. */
  sizeBytes: number;
  /** What was written beyond its base, compressed. */
  layerBytes: number;
  /** Names in its root file system. */
  fileCount: number;
  /** Every workspace may read it and make sandboxes from it. */
  public: boolean;
  /** What a build was made of; absent for others. */
  contentHash: string | undefined;
  /** The user who made it; absent for a snapshot of another workspace. */
  createdBy: string | undefined;
  /** When it was made. */
  createdAt: string;
  /** When it was deleted; only lineages include deleted snapshots. */
  deletedAt: string | undefined;
}

export function snapshot(w: Wire["Snapshot"]): Snapshot {
  return {
    id: w.id,
    name: w.name,
    tag: w.tag,
    fullName: w.full_name,
    description: w.description ?? "",
    message: w.message ?? "",
    metadata: w.metadata ?? {},
    parentId: w.parent_id,
    sandboxId: w.sandbox_id,
    image: w.image,
    baseDigest: w.base_digest,
    digest: w.digest,
    sizeBytes: w.size_bytes,
    layerBytes: w.layer_bytes,
    fileCount: w.file_count,
    public: w.public,
    contentHash: w.content_hash,
    createdBy: w.created_by,
    createdAt: w.created_at,
    deletedAt: w.deleted_at,
  };
}

/** How a workspace signs in to a registry, without the password. */
export interface Registry {
  /** Its identifier. */
  id: string;
  /** Its name. */
  name: string;
  /** The registry, as it was written. */
  server: string;
  /** Who signs in. */
  username: string;
  /** As it was given. */
  email: string | undefined;
  /** Whether it is used. */
  enabled: boolean;
  /** When it was made. */
  createdAt: string;
  /** When it last changed. */
  updatedAt: string;
}

export function registry(w: Wire["Registry"]): Registry {
  return {
    id: w.id,
    name: w.name,
    server: w.server,
    username: w.username,
    email: w.email,
    enabled: w.enabled,
    createdAt: w.created_at,
    updatedAt: w.updated_at,
  };
}

/** An API token, without its text. */
export interface Token {
  /** Its identifier. */
  id: string;
  /** What it is for. */
  description: string;
  /** The workspace its requests act in. */
  workspaceId: string;
  /** It keeps out of its user's other workspaces. */
  workspaceOnly: boolean;
  /** What it may do; all that its user may when empty. */
  scopes: string[];
  /** When it was made. */
  createdAt: string;
  /** When it was last used, within a few minutes; absent when never. */
  lastUsedAt: string | undefined;
  /** When it stops working; absent for never. */
  expiresAt: string | undefined;
}

export function token(w: Wire["Token"]): Token {
  return {
    id: w.id,
    description: w.description,
    workspaceId: w.workspace_id,
    workspaceOnly: w.workspace_only,
    scopes: w.scopes,
    createdAt: w.created_at,
    lastUsedAt: w.last_used_at,
    expiresAt: w.expires_at,
  };
}

/** A new token with its secret. */
export interface NewToken extends Token {
  /** The token's text. It is shown only now. */
  token: string;
}

export function newToken(w: Wire["NewToken"]): NewToken {
  return {
    ...token(w),
    token: w.token,
  };
}

/** A public key by which its user logs in over SSH. */
export interface SSHKey {
  /** Its identifier. */
  id: string;
  /** Its name; empty for none. */
  name: string;
  /** Its type. */
  type: string;
  /** The fingerprint that ssh-keygen -l shows. */
  fingerprint: string;
  /** Type and key, as in authorized_keys. */
  publicKey: string;
  /** The only workspace in which it works; absent for all workspaces of the user. */
  workspaceId: string | undefined;
  /** When it was added. */
  createdAt: string;
  /** When it was last used, within a few minutes; absent when never. */
  lastUsedAt: string | undefined;
  /** When it stops working; absent for never. */
  expiresAt: string | undefined;
}

export function sshKey(w: Wire["SSHKey"]): SSHKey {
  return {
    id: w.id,
    name: w.name,
    type: w.type,
    fingerprint: w.fingerprint,
    publicKey: w.public_key,
    workspaceId: w.workspace_id,
    createdAt: w.created_at,
    lastUsedAt: w.last_used_at,
    expiresAt: w.expires_at,
  };
}

/** An active sign-in, without its tokens. */
export interface SignInSession {
  /** Its identifier. */
  id: string;
  /** How the user signed in: password, invitation, or the name of another service. */
  method: string;
  /** The IP address from which the user signed in. */
  address: string;
  /** The request was made with its access token. */
  current: boolean;
  /** When the user signed in. */
  createdAt: string;
  /** When it last got tokens; one in use gets them every 5 minutes. */
  refreshedAt: string;
  /** When it ends unless it is refreshed before. */
  expiresAt: string;
}

export function signInSession(w: Wire["SignInSession"]): SignInSession {
  return {
    id: w.id,
    method: w.method,
    address: w.address,
    current: w.current,
    createdAt: w.created_at,
    refreshedAt: w.refreshed_at,
    expiresAt: w.expires_at,
  };
}

/** Says who the caller is. */
export interface Identity {
  /** The user. */
  userId: string;
  /** What it signs in as. */
  name: string;
  /** Its e-mail address; empty without one. */
  email: string | undefined;
  /** The workspace requests act in. */
  workspaceId: string;
  /** The API token presented; empty for a session. */
  tokenId: string;
  /** The user's role in the workspace. */
  role: string;
  /** The user looks after the installation. */
  administrator: boolean;
  /** What the caller may do in the workspace. */
  permissions: string[];
}

export function whoami(w: Wire["Whoami"]): Identity {
  return {
    userId: w.user_id,
    name: w.name,
    email: w.email || undefined,
    workspaceId: w.workspace_id,
    tokenId: w.token_id,
    role: w.role,
    administrator: w.administrator,
    permissions: w.permissions,
  };
}

/** Says what the server is. */
export interface ServerVersion {
  /** Version of the server. */
  version: string;
  /** What runs its sandboxes. */
  driver: string;
}

export function version(w: Wire["Version"]): ServerVersion {
  return {
    version: w.version,
    driver: w.driver,
  };
}

/** A person who signs in. */
export interface User {
  /** Its identifier. */
  id: string;
  /** What it signs in as. */
  name: string;
  /** Its e-mail address; empty when not known. */
  email: string | undefined;
  /** It looks after the installation. */
  administrator: boolean;
  /** Its own workspace. */
  workspaceId: string | undefined;
  /** When it was made. */
  createdAt: string;
  /** When it was disabled; absent when it is not. */
  disabledAt: string | undefined;
}

export function user(w: Wire["User"]): User {
  return {
    id: w.id,
    name: w.name,
    email: w.email || undefined,
    administrator: w.administrator,
    workspaceId: w.workspace_id || undefined,
    createdAt: w.created_at,
    disabledAt: w.disabled_at,
  };
}

/** A new user. */
export interface NewUser extends User {
  /** By which the user chooses its password, once. It is shown only now. */
  code: string | undefined;
}

export function newUser(w: Wire["NewUser"]): NewUser {
  return {
    ...user(w),
    code: w.code,
  };
}

/** A user of a workspace. */
export interface Member {
  /** The user. */
  userId: string;
  /** What it signs in as. */
  name: string;
  /** Its e-mail address, when known. */
  email: string;
  /** What it may do. */
  role: Role;
  /** When it became a member. */
  createdAt: string;
}

export function member(w: Wire["Member"]): Member {
  return {
    userId: w.user_id,
    name: w.name,
    email: w.email ?? "",
    role: w.role,
    createdAt: w.created_at,
  };
}

/** A tenant. It owns sandboxes, snapshots and what else there is. */
export interface Workspace {
  /** Its identifier. */
  id: string;
  /** What people call it. */
  name: string;
  /** Names it in references. */
  slug: string;
  /** What it is for. */
  description: string;
  /** The caller's role. */
  role: Role;
  /** The user who made it. */
  createdBy: string;
  /** When it was made. */
  createdAt: string;
  /** When it was last changed. */
  updatedAt: string;
  /** The least credential for the management routes on the URLs of its sandboxes (/modbox/api/…, /execute): with open, each sandbox decides; with key, callers need the sandbox's SANDBOX_API_KEY or an API token. The server may demand more. */
  urlAccess: URLAccess;
  /** Whether code is scanned before it runs: warn adds findings to answers and the audit log; with block code with findings, and code that cannot be scanned, does not run. */
  codeScan: CodeScanMode;
  /** The rules that count; all when empty. */
  codeScanRules: ("process" | "network" | "file_delete" | "eval" | "native" | "environment" | "import" | "syntax")[];
  /** Whether the audit log has the beginning of the output of commands and code. */
  auditOutput: boolean;
}

export function workspace(w: Wire["Workspace"]): Workspace {
  return {
    id: w.id,
    name: w.name,
    slug: w.slug,
    description: w.description,
    role: w.role,
    createdBy: w.created_by,
    createdAt: w.created_at,
    updatedAt: w.updated_at,
    urlAccess: w.url_access,
    codeScan: w.code_scan,
    codeScanRules: w.code_scan_rules,
    auditOutput: w.audit_output,
  };
}

/** A workspace with its members. */
export interface WorkspaceDetail extends Workspace {
  /** Its members, in the order they came. */
  members: Member[];
}

export function workspaceDetail(w: Wire["WorkspaceDetail"]): WorkspaceDetail {
  return {
    ...workspace(w),
    members: w.members.map(member),
  };
}

/** An open invitation to a workspace, without its code. */
export interface Invitation {
  /** Its identifier. */
  id: string;
  /** Whom it is for. */
  email: string;
  /** What the member will be allowed to do. */
  role: string;
  /** The user who made it. */
  createdBy: string;
  /** When it was made. */
  createdAt: string;
  /** Until when it can be accepted. */
  expiresAt: string;
}

export function invitation(w: Wire["Invitation"]): Invitation {
  return {
    id: w.id,
    email: w.email,
    role: w.role,
    createdBy: w.created_by,
    createdAt: w.created_at,
    expiresAt: w.expires_at,
  };
}

/** A new invitation. */
export interface NewInvitation extends Invitation {
  /** What the invited accepts it with, once. It is shown only now. */
  code: string;
}

export function newInvitation(w: Wire["NewInvitation"]): NewInvitation {
  return {
    ...invitation(w),
    code: w.code,
  };
}

/** The result for an added member: one of the two is there. */
export interface AddedMember {
  /** The member, when it was a user. */
  member: Member | undefined;
  /** The invitation, when it was not. */
  invitation: NewInvitation | undefined;
}

export function addedMember(w: Wire["AddedMember"]): AddedMember {
  return {
    member: w.member && member(w.member),
    invitation: w.invitation && newInvitation(w.invitation),
  };
}

/** The bytes of a workspace on the server's disk. */
export interface DiskUse {
  /** What sandboxes that are not paused may write: their limits. */
  sandboxBytes: number;
  /** What paused sandboxes take, with their memory. */
  pausedBytes: number;
  /** What checkpoints take. */
  checkpointBytes: number;
  /** What snapshots take: the sum of what each adds to its base. Pulled and imported images, deleted snapshots and snapshots of others that lie below them count too, each once. */
  snapshotBytes: number;
  /** What output and input of executions took when it was last measured, which is every minute. */
  streamBytes: number;
  /** What the boxes of builds and installs that are under way may write: their limits. */
  buildBytes: number;
  /** What the files of builds take that are not finished. */
  uploadBytes: number;
  /** What the images take that the workspace has built: their root filesystems, and their layers as a registry gets them. */
  imageBytes: number;
  /** Build cache: cached layers, images that lost their names, and installed packages that the workspace has used. It is removed when the space is needed, the oldest first, except images in use or used within ten minutes. */
  buildCacheBytes: number;
}

export function diskUse(w: Wire["DiskUse"]): DiskUse {
  return {
    sandboxBytes: w.sandbox_bytes,
    pausedBytes: w.paused_bytes,
    checkpointBytes: w.checkpoint_bytes,
    snapshotBytes: w.snapshot_bytes,
    streamBytes: w.stream_bytes,
    buildBytes: w.build_bytes,
    uploadBytes: w.upload_bytes,
    imageBytes: w.image_bytes,
    buildCacheBytes: w.build_cache_bytes,
  };
}

/** The part of a quota that a workspace uses. */
export interface QuotaUsed {
  /** Sandboxes that are being made, run, or are being paused or resumed. */
  sandboxes: number;
  /** Memory of sandboxes and builds. */
  memory: string;
  /** CPU of sandboxes and builds. */
  cpu: string;
  /** The sum of disk_by. */
  disk: string;
  /** States of archived sandboxes in the object store. */
  archive: string;
  /** What the disk is used for, in bytes. */
  diskBy: DiskUse;
}

export function quotaUsed(w: Wire["QuotaUsed"]): QuotaUsed {
  return {
    sandboxes: w.sandboxes,
    memory: w.memory,
    cpu: w.cpu,
    disk: w.disk,
    archive: w.archive,
    diskBy: diskUse(w.disk_by),
  };
}

/** The quota of a workspace and its use. */
export interface QuotaReport {
  /** The workspace. */
  workspaceId: string;
  /** The limits that count, all of them; 0 is none. */
  limits: Quota;
  /** Those of them that an administrator has set for this workspace; the others are the server's defaults. */
  set: Quota;
  /** What is used. */
  used: QuotaUsed;
}

export function quotaReport(w: Wire["QuotaReport"]): QuotaReport {
  return {
    workspaceId: w.workspace_id,
    limits: quota(w.limits),
    set: quota(w.set),
    used: quotaUsed(w.used),
  };
}

/** The content of a record of the audit log. */
export interface AuditRecord {
  /** Its number, without gaps in the whole log. */
  seq: number;
  /** When it was made. */
  time: string;
  /** What was asked for: the operation of this document, or the name of an action of the server. */
  action: string;
  /** ok, started, cancelled, interrupted, failed, or the code of the error. */
  outcome: string;
  /** The HTTP status; absent when there was no request. */
  status: number | undefined;
  /** Milliseconds that it took. */
  durationMs: number;
  /** The id of the request, as in the header X-Request-Id. */
  requestId: string | undefined;
  /** The route of the request. */
  route: string | undefined;
  /** The permission that the route needs. */
  permission: string | undefined;
  /** The user who asked. */
  userId: string | undefined;
  /** The API token that was presented. */
  tokenId: string | undefined;
  /** The session that was presented. */
  sessionId: string | undefined;
  /** The user's role in the workspace. */
  role: string | undefined;
  /** The user acted as an administrator of the installation. */
  administrator: boolean;
  /** How a request without a user came, such as through a sandbox's own URL. */
  via: string | undefined;
  /** The IP address of the client. */
  address: string | undefined;
  /** The program of the client, as it calls itself. */
  userAgent: string | undefined;
  /** The workspace of the object. */
  workspaceId: string | undefined;
  /** The kind of the object. */
  objectKind: string | undefined;
  /** The id of the object. */
  objectId: string | undefined;
  /** The name of the object. */
  objectName: string | undefined;
  /** The program and its arguments, without secrets. */
  command: string[];
  /** The command had more arguments or bytes. */
  commandTruncated: boolean;
  /** The beginning of the command's standard output, without secrets, if the workspace has audit_output. */
  stdout: string | undefined;
  /** The beginning of its standard error, likewise. */
  stderr: string | undefined;
  /** There was more output. */
  outputTruncated: boolean;
  /** Other facts, by name. */
  details: Record<string, string>;
}

export function auditRecord(w: Wire["AuditRecord"]): AuditRecord {
  return {
    seq: w.seq,
    time: w.time,
    action: w.action,
    outcome: w.outcome,
    status: w.status,
    durationMs: w.duration_ms,
    requestId: w.request_id,
    route: w.route,
    permission: w.permission,
    userId: w.user_id,
    tokenId: w.token_id,
    sessionId: w.session_id,
    role: w.role,
    administrator: w.administrator ?? false,
    via: w.via,
    address: w.address,
    userAgent: w.user_agent,
    workspaceId: w.workspace_id,
    objectKind: w.object_kind,
    objectId: w.object_id,
    objectName: w.object_name,
    command: w.command ?? [],
    commandTruncated: w.command_truncated ?? false,
    stdout: w.stdout,
    stderr: w.stderr,
    outputTruncated: w.output_truncated ?? false,
    details: w.details ?? {},
  };
}

/** A record of the audit log with its place in the chain. */
export interface AuditEntry {
  /** Its number, without gaps in the whole log. */
  seq: number;
  /** The hash of the record before, in hexadecimal; zeros before the first. */
  prev: string;
  /** SHA-256, in hexadecimal, over the 32 bytes of prev and the bytes of record as they are here. */
  hash: string;
  record: AuditRecord;
}

export function auditEntry(w: Wire["AuditEntry"]): AuditEntry {
  return {
    seq: w.seq,
    prev: w.prev,
    hash: w.hash,
    record: auditRecord(w.record),
  };
}

/** The answer to GET /v1/audit/verify. */
export interface AuditReport {
  /** Whether every stored record is unchanged. */
  ok: boolean;
  /** What is wrong first; empty when nothing is. */
  problem: string;
  /** Records that were checked. */
  records: number;
  /** The newest record that retention removed; 0 when none was. */
  anchorSeq: number;
  /** The hash of the newest record that retention removed, in hexadecimal; zeros when none was. */
  anchorHash: string;
  /** The newest record. A copy of its hash elsewhere proves later that the log was not rewritten. */
  headSeq: number;
  /** The hash of the newest record, in hexadecimal. */
  headHash: string;
}

export function auditReport(w: Wire["AuditReport"]): AuditReport {
  return {
    ok: w.ok,
    problem: w.problem,
    records: w.records,
    anchorSeq: w.anchor_seq,
    anchorHash: w.anchor_hash,
    headSeq: w.head_seq,
    headHash: w.head_hash,
  };
}

/** An address that gets events. */
export interface Webhook {
  /** Its id. */
  id: string;
  /** Where events are sent. */
  url: string;
  /** What it is for. */
  description: string;
  /** The types of the events; empty for all. */
  types: string[];
  /** Whether events are sent. */
  enabled: boolean;
  /** Why the server disabled it. */
  disabledReason: string | undefined;
  /** Deliveries that wait for an attempt. */
  pending: number;
  /** Events that were not sent because too many deliveries waited. */
  dropped: number;
  /** Since when every attempt has failed. */
  failingSince: string | undefined;
  /** The user who made it. */
  createdBy: string;
  /** When it was made. */
  createdAt: string;
  /** When it was last changed. */
  updatedAt: string;
}

export function webhook(w: Wire["Webhook"]): Webhook {
  return {
    id: w.id,
    url: w.url,
    description: w.description ?? "",
    types: w.types,
    enabled: w.enabled,
    disabledReason: w.disabled_reason,
    pending: w.pending,
    dropped: w.dropped,
    failingSince: w.failing_since,
    createdBy: w.created_by,
    createdAt: w.created_at,
    updatedAt: w.updated_at,
  };
}

/** A webhook with its secret, which no other answer has. */
export interface NewWebhook extends Webhook {
  /** The key of its signatures, whsec_…; it cannot be read again. */
  secret: string;
}

export function newWebhook(w: Wire["NewWebhook"]): NewWebhook {
  return {
    ...webhook(w),
    secret: w.secret,
  };
}

/** An event on its way to a webhook. */
export interface WebhookDelivery {
  /** The id of the message, the same in all attempts: the header webhook-id. */
  id: string;
  /** The webhook. */
  webhookId: string;
  /** The type of the event; ping for a test. */
  type: string;
  /** The number of the event. */
  eventSeq: number | undefined;
  /** The sandbox of the event. */
  sandboxId: string | undefined;
  /** pending: waits for an attempt. delivered: the receiver has accepted it. failed: no attempt follows. cancelled: the webhook was disabled before. */
  state: WebhookDeliveryState;
  /** Attempts so far. */
  attempts: number;
  /** When the event happened. */
  createdAt: string;
  /** When the last attempt began. */
  attemptedAt: string | undefined;
  /** When the next attempt is due. */
  nextAttemptAt: string | undefined;
  /** When it was delivered, failed or was cancelled. */
  endedAt: string | undefined;
  /** The HTTP status of the last answer; absent without an answer. */
  status: number | undefined;
  /** Milliseconds of the last attempt. */
  durationMs: number | undefined;
  /** Why the last attempt failed. */
  error: string | undefined;
  /** The first KiB of the last answer. */
  response: string | undefined;
}

export function webhookDelivery(w: Wire["WebhookDelivery"]): WebhookDelivery {
  return {
    id: w.id,
    webhookId: w.webhook_id,
    type: w.type,
    eventSeq: w.event_seq,
    sandboxId: w.sandbox_id,
    state: w.state,
    attempts: w.attempts,
    createdAt: w.created_at,
    attemptedAt: w.attempted_at,
    nextAttemptAt: w.next_attempt_at,
    endedAt: w.ended_at,
    status: w.status,
    durationMs: w.duration_ms,
    error: w.error,
    response: w.response,
  };
}

/** A machine on which sandboxes of the server run. */
export interface Worker {
  /** Its id. */
  id: string;
  /** Its name, which no other worker has. */
  name: string;
  /** connected: the server has a connection to it. away: its sandboxes are unavailable until it is back. lost: it was away for longer than worker.lost_after, and its sandboxes were given up; it joins again when it is back. */
  state: WorkerState;
  /** It gets no new sandboxes. */
  draining: boolean;
  /** Sandboxes on it that run or are being started, boxes of builds, and boxes of the pool. */
  sandboxes: number;
  /** Memory of the machine; 0 if it is not known. */
  memoryBytes: number;
  /** Sum of the memory limits of its sandboxes. */
  memoryPromisedBytes: number;
  /** How much memory may be promised; 0 for no limit. */
  memoryPromisedMaxBytes: number;
  /** Processor cores of the machine; 0 if they are not known. */
  cores: number;
  /** With several active servers, the ranges of the sandboxes of its server, as digits of their ids; its sandboxes are resumed on workers with the same ranges. Absent if a single server is active. */
  shardRanges: string | undefined;
  /** Version of its program. */
  version: string;
  /** Where its last connection came from. */
  address: string;
  /** When the connection began; absent while it is away. */
  connectedAt: string | undefined;
  /** When the server had a connection to it last: now if it has one. */
  seenAt: string;
  /** When it joined. */
  createdAt: string;
}

export function worker(w: Wire["Worker"]): Worker {
  return {
    id: w.id,
    name: w.name,
    state: w.state,
    draining: w.draining,
    sandboxes: w.sandboxes,
    memoryBytes: w.memory_bytes,
    memoryPromisedBytes: w.memory_promised_bytes,
    memoryPromisedMaxBytes: w.memory_promised_max_bytes,
    cores: w.cores,
    shardRanges: w.shard_ranges,
    version: w.version,
    address: w.address,
    connectedAt: w.connected_at,
    seenAt: w.seen_at,
    createdAt: w.created_at,
  };
}

/** The answer to GET /v1/host. */
export interface Host {
  /** Version of the server. */
  version: string;
  /** What runs its sandboxes. */
  driver: string;
  /** What runs the programs of new sandboxes: gVisor's platform, systrap or kvm. */
  platform: string | undefined;
  /** Why this platform was chosen. */
  platformReason: string | undefined;
  /** When the server was started; operations are counted since then. */
  startedAt: string;
  /** Processor cores of the machine. */
  cores: number;
  /** Its memory. */
  memory: HostResource;
  /** The disk of the state directory. */
  disk: HostResource;
  /** The server frees disk, because less than disk.evict_below is free. */
  diskPressure: boolean;
  /** Sandboxes of all workspaces that have not ended, by state. */
  sandboxes: HostSandboxes[];
  /** Root filesystems on the disk, by kind. */
  images: HostImages[];
  /** Boxes that are started before they are asked for; absent when pool.size is 0. */
  pool: HostPool | undefined;
  /** Memory templates, from which new sandboxes are restored; absent when template.max_bytes is 0. */
  templates: HostTemplates | undefined;
  /** What is under way or waits. */
  waiting: HostWaiting;
  /** Size of the database with its log. */
  databaseBytes: number;
  /** How long operations took, the slowest first. */
  operations: HostOperation[];
}

export function host(w: Wire["Host"]): Host {
  return {
    version: w.version,
    driver: w.driver,
    platform: w.platform,
    platformReason: w.platform_reason,
    startedAt: w.started_at,
    cores: w.cores,
    memory: hostResource(w.memory),
    disk: hostResource(w.disk),
    diskPressure: w.disk_pressure,
    sandboxes: w.sandboxes.map(hostSandboxes),
    images: w.images.map(hostImages),
    pool: w.pool && hostPool(w.pool),
    templates: w.templates && hostTemplates(w.templates),
    waiting: hostWaiting(w.waiting),
    databaseBytes: w.database_bytes,
    operations: w.operations.map(hostOperation),
  };
}

/** Says how much of a resource there is, and how much of it is promised and used. */
export interface HostResource {
  /** What the machine has. */
  totalBytes: number;
  /** What is free; absent for memory. */
  freeBytes: number | undefined;
  /** Sum of the limits of all running sandboxes and builds. */
  promisedBytes: number;
  /** How much may be promised; 0 for no limit. */
  promisedMaxBytes: number;
  /** What boxes use of it: memory as last measured. */
  usedBytes: number;
}

export function hostResource(w: Wire["HostResource"]): HostResource {
  return {
    totalBytes: w.total_bytes,
    freeBytes: w.free_bytes,
    promisedBytes: w.promised_bytes,
    promisedMaxBytes: w.promised_max_bytes,
    usedBytes: w.used_bytes,
  };
}

/** The number of sandboxes in a state. */
export interface HostSandboxes {
  /** The state. */
  state: string;
  /** How many there are. */
  count: number;
}

export function hostSandboxes(w: Wire["HostSandboxes"]): HostSandboxes {
  return {
    state: w.state,
    count: w.count,
  };
}

/** The number and size of the root filesystems of a kind. */
export interface HostImages {
  /** built_in, pulled, built, or cache without a name. */
  kind: string;
  /** How many there are. */
  count: number;
  /** Their size. */
  sizeBytes: number;
}

export function hostImages(w: Wire["HostImages"]): HostImages {
  return {
    kind: w.kind,
    count: w.count,
    sizeBytes: w.size_bytes,
  };
}

/** Says how the pool of started boxes does. */
export interface HostPool {
  /** Started boxes that wait for a sandbox. */
  boxes: number;
  /** How many of them fit any image; the others are each of one image. */
  blankBoxes: number;
  /** New sandboxes that got one of them. */
  hits: number;
  /** New sandboxes for which none was there. */
  misses: number;
}

export function hostPool(w: Wire["HostPool"]): HostPool {
  return {
    boxes: w.boxes,
    blankBoxes: w.blank_boxes,
    hits: w.hits,
    misses: w.misses,
  };
}

/** Says how the memory templates do. */
export interface HostTemplates {
  /** Memory templates that are ready. */
  count: number;
  /** Their size. */
  sizeBytes: number;
  /** Sandboxes, and boxes of the pool, that were restored from one. */
  hits: number;
  /** Those of such images that none was there for. */
  misses: number;
  /** Restores that failed; the box was made without. */
  failed: number;
}

export function hostTemplates(w: Wire["HostTemplates"]): HostTemplates {
  return {
    count: w.count,
    sizeBytes: w.size_bytes,
    hits: w.hits,
    misses: w.misses,
    failed: w.failed,
  };
}

/** Counts what is under way or waits. */
export interface HostWaiting {
  /** Requests that wait for a quota or for capacity. */
  requests: number;
  /** Builds of Dockerfiles and pushes. */
  builds: number;
  /** Pulls of images and installs of packages. */
  imageTasks: number;
  /** Commands that outlive their request. */
  executions: number;
}

export function hostWaiting(w: Wire["HostWaiting"]): HostWaiting {
  return {
    requests: w.requests,
    builds: w.builds,
    imageTasks: w.image_tasks,
    executions: w.executions,
  };
}

/** Says how long an operation took since the start of the server. */
export interface HostOperation {
  /** What it is, such as create, pause or exec. */
  operation: string;
  /** The part of it; absent for the whole. */
  phase: string | undefined;
  /** How often it ended. */
  count: number;
  /** How often an error of the server ended it. */
  failed: number;
  /** Mean time. */
  meanSeconds: number;
  /** Half of them took no longer; estimated from the buckets of the metric. */
  p50Seconds: number;
  /** 19 of 20 took no longer; estimated likewise. */
  p95Seconds: number;
}

export function hostOperation(w: Wire["HostOperation"]): HostOperation {
  return {
    operation: w.operation,
    phase: w.phase,
    count: w.count,
    failed: w.failed,
    meanSeconds: w.mean_seconds,
    p50Seconds: w.p50_seconds,
    p95Seconds: w.p95_seconds,
  };
}

/** A command: exactly one of `command` and `shell`. */
export interface CommandOptions {
  /** Program and arguments, run without a shell. */
  command?: readonly string[] | undefined;
  /** A script, run by /bin/bash -c, or by /bin/sh -c in an image without bash. */
  shell?: string | undefined;
  /** Working directory; the image's when omitted. */
  cwd?: string | undefined;
  /** Environment variables in addition to the sandbox's. */
  env?: Record<string, string> | undefined;
  /** User to run as: name, uid, name:group or uid:gid; the image's when omitted. */
  user?: string | undefined;
  /** What the command reads from its standard input; empty when omitted. */
  stdin?: string | undefined;
  /** The command and its children are ended after this; 60 when omitted, 3600 at most, unless the server is set otherwise. */
  timeoutSeconds?: number | undefined;
  /** Limits of this command and its processes, tighter than the sandbox's. */
  limits?: ExecLimits | undefined;
}

export const commandOptionsMembers: Members<CommandOptions> = { command: true, shell: true, cwd: true, env: true, user: true, stdin: true, timeoutSeconds: true, limits: true };

export function encodeCommandOptions(o: CommandOptions) {
  return {
    command: o.command && [...o.command],
    shell: o.shell,
    cwd: o.cwd,
    env: o.env,
    user: o.user,
    stdin: o.stdin,
    timeout_seconds: o.timeoutSeconds,
    limits: o.limits && encodeExecLimits(o.limits),
  };
}

/** How an execution runs, beside its command. */
export interface ExecutionOptions {
  /** exec (when omitted): its exit code is your matter, it is completed with any. job: it failed when its exit code is not 0. */
  kind?: "exec" | "job" | undefined;
  /** Limits of this command and its processes, tighter than the sandbox's. */
  limits?: ExecLimits | undefined;
  /** Make a stream for its standard input; otherwise the input is empty. */
  stdin?: boolean | undefined;
  /** A stream made before by POST /v1/streams that it reads as its standard input. */
  stdinStreamId?: string | undefined;
  /** One stream for stdout and stderr. */
  combined?: boolean | undefined;
  /** ignore keeps nothing of it; keep when omitted. */
  stdout?: "keep" | "ignore" | undefined;
  /** ignore keeps nothing of it; keep when omitted. */
  stderr?: "keep" | "ignore" | undefined;
  /** Files written before it starts. */
  files?: readonly Omit<NewFile, "mode">[] | undefined;
  /** Run it on a terminal of this size. Its output is one stream; its input comes by attaching. */
  tty?: { rows: number; cols: number } | undefined;
}

export const executionOptionsMembers: Members<ExecutionOptions> = { kind: true, limits: true, stdin: true, stdinStreamId: true, combined: true, stdout: true, stderr: true, files: true, tty: true };

export function encodeExecutionOptions(o: ExecutionOptions) {
  return {
    kind: o.kind,
    limits: o.limits && encodeExecLimits(o.limits),
    stdin: o.stdin,
    stdin_stream_id: o.stdinStreamId,
    combined: o.combined,
    stdout: o.stdout,
    stderr: o.stderr,
  };
}

/** What sandbox to make; the empty object is the default image with default limits. */
export interface CreateSandboxOptions extends CallOptions {
  /** Your own identifier, unique among the live sandboxes of the workspace; made up when omitted. It has the characters A-Z, a-z, 0-9, dot, underscore and dash, and begins with a letter or digit. While a sandbox of that name lives, the same request answers it again and a different one is refused with code exists. */
  name?: string | undefined;
  /** Image reference. When neither image nor image_id is given: the default image of the workspace, or of the server. */
  image?: string | undefined;
  /** ID of an image, or of one of the workspace's catalogue (/v1/sandbox-images), whose defaults count then; wins over image. */
  imageId?: string | undefined;
  /** Make it from a snapshot instead of an image: its id, name, name:tag or @workspace/name:tag. */
  snapshot?: string | undefined;
  /** Environment variables of every process in the sandbox. They are never shown again. */
  env?: Record<string, string> | undefined;
  /** Up to 64 labels to find it by. */
  labels?: Record<string, string> | undefined;
  /** It is destroyed this long after the request: 60 to 86400 seconds. 0 or omitted: the image's default, or no limit. */
  ttlSeconds?: number | undefined;
  /** Limits; the image's or the server's defaults for what is omitted. */
  resources?: Resources | undefined;
  /** Clocks beside the ttl; none when omitted. */
  timeouts?: Timeouts | undefined;
  /** Access to the internet, and ports to publish; neither when omitted. */
  network?: NetworkOptions | undefined;
  /** Time between automatic checkpoints, from which it goes on when its processes are lost with the host: 60 to 86400. 0 or omitted: none. */
  checkpointIntervalSeconds?: number | undefined;
  /** Your own words about it. */
  description?: string | undefined;
  /** Your own entries about it, up to 64; they mean nothing to the server. */
  metadata?: Record<string, string> | undefined;
  /** The credential for the management routes on its own URL (/modbox/api/…, /execute): with key, callers need its SANDBOX_API_KEY or an API token; with open, its SANDBOX_API_KEY if it has one, else the URL is enough. key when omitted. */
  urlAccess?: URLAccess | undefined;
  /** oneshot: it ends with its command, with cause completed. interactive when omitted. */
  mode?: "interactive" | "oneshot" | undefined;
  /** End a live sandbox of the same name, whose place in the quota the new one may have. */
  replace?: boolean | undefined;
  /** Answer only when it runs or has ended, or after this many seconds (at most 240); 0 answers at once. */
  waitSeconds?: number | undefined;
  /** Wait for room in the workspace's quota, and on the server, at most this long; undefined throws `quota_exceeded` at once. More than 240 is several requests, of which each takes its place at the end of the line. */
  waitForQuotaSeconds?: number | undefined;
  /** Debian packages to have installed in it, as name, name=version or name=version*, up to 64. They are installed before it runs and cached for the next sandbox with the same packages. */
  aptPackages?: readonly string[] | undefined;
  /** Python packages to have installed in it by pip, for every user, as name, name==version, name==1.2.* or with extras name[extra]; up to 64. */
  pipPackages?: readonly string[] | undefined;
  /** npm packages to have installed globally in it, by npm or, in an image without it, by bun; up to 64. */
  npmPackages?: readonly string[] | undefined;
  /** A command that starts as an execution as soon as it runs. */
  command?: ExecutionCommand | undefined;
  /** Makes repeated creates one within 24 hours; undefined is a new key for this call. */
  idempotencyKey?: string | undefined;
}

export const createSandboxOptionsMembers: Members<CreateSandboxOptions> = { name: true, image: true, imageId: true, snapshot: true, env: true, labels: true, ttlSeconds: true, resources: true, timeouts: true, network: true, checkpointIntervalSeconds: true, description: true, metadata: true, urlAccess: true, mode: true, replace: true, waitSeconds: true, waitForQuotaSeconds: true, aptPackages: true, pipPackages: true, npmPackages: true, command: true, idempotencyKey: true, signal: true };

export function encodeCreateSandboxOptions(o: CreateSandboxOptions) {
  checkMembers("CreateSandboxOptions", o, createSandboxOptionsMembers);
  return {
    name: o.name,
    image: o.image,
    image_id: o.imageId,
    snapshot: o.snapshot,
    env: o.env,
    labels: o.labels,
    ttl_seconds: o.ttlSeconds,
    resources: o.resources && encodeResources(o.resources),
    timeouts: o.timeouts && encodeTimeouts(o.timeouts),
    network: o.network && encodeNetworkOptions(o.network),
    checkpoint_interval_seconds: o.checkpointIntervalSeconds,
    description: o.description,
    metadata: o.metadata,
    url_access: o.urlAccess,
    mode: o.mode,
    replace: o.replace,
    apt_packages: o.aptPackages && [...o.aptPackages],
    pip_packages: o.pipPackages && [...o.pipPackages],
    npm_packages: o.npmPackages && [...o.npmPackages],
  };
}

/** What children to make; the empty object is one. */
export interface ForkOptions extends CallOptions {
  /** How many; 1, or as many as there are names, when omitted. */
  count?: number | undefined;
  /** Names of the first children, as for a create; the server makes up the others. */
  names?: readonly string[] | undefined;
  /** Environment variables in addition to the parent's. */
  env?: Record<string, string> | undefined;
  /** Labels in addition to the parent's. */
  labels?: Record<string, string> | undefined;
  /** Destroyed this long after the fork; the parent's ttl when omitted. */
  ttlSeconds?: number | undefined;
  /** Clocks beside the ttl; the parent's when omitted. */
  timeouts?: Timeouts | undefined;
  /** Wait for room in the workspace's quota, and on the server, at most this long; undefined throws `quota_exceeded` at once. More than 240 is several requests, of which each takes its place at the end of the line. */
  waitForQuotaSeconds?: number | undefined;
}

export const forkOptionsMembers: Members<ForkOptions> = { count: true, names: true, env: true, labels: true, ttlSeconds: true, timeouts: true, waitForQuotaSeconds: true, signal: true };

export function encodeForkOptions(o: ForkOptions) {
  checkMembers("ForkOptions", o, forkOptionsMembers);
  return {
    count: o.count,
    names: o.names && [...o.names],
    env: o.env,
    labels: o.labels,
    ttl_seconds: o.ttlSeconds,
    timeouts: o.timeouts && encodeTimeouts(o.timeouts),
  };
}

/** How a sandbox is paused. */
export interface PauseOptions extends CallOptions {
  /** true, also when omitted: save memory and files. false: end the processes, with SIGTERM and 2 seconds later SIGKILL, and save the files alone; a resume starts the sandbox anew with them. */
  memory?: boolean | undefined;
}

export const pauseOptionsMembers: Members<PauseOptions> = { memory: true, signal: true };

export function encodePauseOptions(o: PauseOptions) {
  checkMembers("PauseOptions", o, pauseOptionsMembers);
  return {
    memory: o.memory,
  };
}

/** How a paused sandbox is brought back. */
export interface ResumeOptions extends CallOptions {
  /** prefer, also when omitted: bring the memory back, and where that cannot be done start anew with the files. require: stay paused then. discard: start anew with the files in any case. */
  memory?: "prefer" | "require" | "discard" | undefined;
  /** Wait for room in the workspace's quota, and on the server, at most this long; undefined throws `quota_exceeded` at once. More than 240 is several requests, of which each takes its place at the end of the line. */
  waitForQuotaSeconds?: number | undefined;
}

export const resumeOptionsMembers: Members<ResumeOptions> = { memory: true, waitForQuotaSeconds: true, signal: true };

export function encodeResumeOptions(o: ResumeOptions) {
  checkMembers("ResumeOptions", o, resumeOptionsMembers);
  return {
    memory: o.memory,
  };
}

/** What a snapshot is called. */
export interface CreateSnapshotOptions extends CallOptions {
  /** Letters, digits, underscores and dashes; made up when omitted. Many snapshots may share a name. */
  name?: string | undefined;
  /** Tag of the snapshot, unique among the snapshots of a name: a new snapshot takes it over. latest when omitted. */
  tag?: string | undefined;
  /** Your own words about it. */
  description?: string | undefined;
  /** Your own words about this version. */
  message?: string | undefined;
  /** Your own entries about it, up to 64; they mean nothing to the server. */
  metadata?: Record<string, string> | undefined;
  /** Every workspace may read it and make sandboxes from it. */
  public?: boolean | undefined;
}

export const createSnapshotOptionsMembers: Members<CreateSnapshotOptions> = { name: true, tag: true, description: true, message: true, metadata: true, public: true, signal: true };

export function encodeCreateSnapshotOptions(o: CreateSnapshotOptions) {
  checkMembers("CreateSnapshotOptions", o, createSnapshotOptionsMembers);
  return {
    name: o.name,
    tag: o.tag,
    description: o.description,
    message: o.message,
    metadata: o.metadata,
    public: o.public,
  };
}

/** What a snapshot is built of, and called. */
export interface BuildSnapshotOptions extends CreateSnapshotOptions {
  /** Identifies everything it is made of. A snapshot of the workspace that has the same is answered instead of a build. */
  contentHash?: string | undefined;
  /** Build although there is a snapshot of the same content. */
  force?: boolean | undefined;
  /** Where the files go; the image's working directory when omitted. */
  dir?: string | undefined;
  /** Debian packages to install. */
  aptPackages?: readonly string[] | undefined;
  /** npm packages to install globally. */
  npmPackages?: readonly string[] | undefined;
  /** Python packages to install with pip, as for a create. */
  pipPackages?: readonly string[] | undefined;
  /** Default environment variables of sandboxes made from it. They are never shown again. */
  env?: Record<string, string> | undefined;
  /** Wait for room in the workspace's quota, and on the server, at most this long; undefined throws `quota_exceeded` at once. More than 240 is several requests, of which each takes its place at the end of the line. */
  waitForQuotaSeconds?: number | undefined;
  /** A tar.gz with names relative to `dir`. */
  files?: FileContent | undefined;
}

export const buildSnapshotOptionsMembers: Members<BuildSnapshotOptions> = { name: true, tag: true, description: true, message: true, metadata: true, public: true, contentHash: true, force: true, dir: true, aptPackages: true, npmPackages: true, pipPackages: true, env: true, waitForQuotaSeconds: true, files: true, signal: true };

export function encodeBuildSnapshotOptions(o: BuildSnapshotOptions) {
  checkMembers("BuildSnapshotOptions", o, buildSnapshotOptionsMembers);
  return {
    name: o.name,
    tag: o.tag,
    description: o.description,
    message: o.message,
    metadata: o.metadata,
    public: o.public,
    content_hash: o.contentHash,
    force: o.force,
    dir: o.dir,
  };
}

/** What image to build from a Dockerfile. */
export interface BuildImageOptions extends CallOptions {
  /** The image's name, as in app, app:v1 or registry.example.com/team/app:v1. Without one it is known by its digest, and kept for an hour unless something uses it. */
  tag?: string | undefined;
  /** Values of ARGs; they are no secrets. */
  buildArgs?: Record<string, string> | undefined;
  /** The stage to build, by name or number; the last when omitted. */
  target?: string | undefined;
  /** Make every layer anew. */
  noCache?: boolean | undefined;
  /** Let RUN reach the network. */
  network?: boolean | undefined;
  /** Push the image to the registry that tag names. */
  push?: boolean | undefined;
  /** Limits of each RUN; the server's for builds where omitted. */
  resources?: Resources | undefined;
  /** How long the build may take, the waiting included; the server's limit when omitted. */
  timeoutSeconds?: number | undefined;
  /** If the quota of the workspace, or the server, is full, wait up to this long, in the workspace's queue. 0: refuse the build at once, with 429. */
  waitForQuotaSeconds?: number | undefined;
  /** The Dockerfile's text, instead of the file at `path`. */
  dockerfile?: string | undefined;
  /** Where the Dockerfile is among the files; default `Dockerfile`. */
  path?: string | undefined;
}

export const buildImageOptionsMembers: Members<BuildImageOptions> = { tag: true, buildArgs: true, target: true, noCache: true, network: true, push: true, resources: true, timeoutSeconds: true, waitForQuotaSeconds: true, dockerfile: true, path: true, signal: true };

export function encodeBuildImageOptions(o: BuildImageOptions) {
  checkMembers("BuildImageOptions", o, buildImageOptionsMembers);
  return {
    tag: o.tag,
    build_args: o.buildArgs,
    target: o.target,
    no_cache: o.noCache,
    network: o.network,
    push: o.push,
    resources: o.resources && encodeResources(o.resources),
    timeout_seconds: o.timeoutSeconds,
    wait_for_quota_seconds: o.waitForQuotaSeconds,
  };
}

/** What can be said of an image of the catalogue. What is undefined is as the image has it, or stays. */
export interface SandboxImageOptions extends CallOptions {
  /** The tag. */
  tag?: string | undefined;
  /** Your own words about it. */
  description?: string | undefined;
  /** false: no sandbox may be made from it. Of a built-in image only this can be changed, by an administrator of the installation. */
  enabled?: boolean | undefined;
  /** Use it when a request names no image. */
  isDefault?: boolean | undefined;
  /** Memory limit of its sandboxes in MiB, 256 to 8192; 0: the image's own, or the server's default. */
  memoryMb?: number | undefined;
  /** The port that must answer; 0: none. */
  readinessPort?: number | undefined;
  /** 60 to 86400; 0: no limit. */
  ttlSeconds?: number | undefined;
  /** The registry to pull it with; empty: whichever the workspace has for the host. */
  registryId?: string | undefined;
}

export const sandboxImageOptionsMembers: Members<SandboxImageOptions> = { tag: true, description: true, enabled: true, isDefault: true, memoryMb: true, readinessPort: true, ttlSeconds: true, registryId: true, signal: true };

export function encodeSandboxImageOptions(o: SandboxImageOptions) {
  checkMembers("SandboxImageOptions", o, sandboxImageOptionsMembers);
  return {
    tag: o.tag,
    description: o.description,
    enabled: o.enabled,
    is_default: o.isDefault,
    memory_mb: o.memoryMb,
    readiness_port: o.readinessPort,
    ttl_seconds: o.ttlSeconds,
    registry_id: o.registryId,
  };
}

/** Which images to prune. */
export interface PruneOptions extends CallOptions {
  /** Images of all workspaces, and unused pulled images; for administrators of the installation. */
  all?: boolean | undefined;
  /** Remove nothing, and say what would be. */
  dryRun?: boolean | undefined;
}

export const pruneOptionsMembers: Members<PruneOptions> = { all: true, dryRun: true, signal: true };

export function encodePruneOptions(o: PruneOptions) {
  checkMembers("PruneOptions", o, pruneOptionsMembers);
  return {
    all: o.all,
    dry_run: o.dryRun,
  };
}

/** How to record a screen. */
export interface RecordOptions extends CallOptions {
  /** The file, absolute, replaced if it exists; a new file in the directory recordings of the working directory when omitted. Must end in .mp4. */
  path?: string | undefined;
  /** Pictures in a second; 10 when omitted. */
  fps?: number | undefined;
  /** It ends by itself after this; 600 when omitted. */
  maxSeconds?: number | undefined;
  /** It ends by itself at this size; 1 GiB when omitted. */
  maxBytes?: number | undefined;
}

export const recordOptionsMembers: Members<RecordOptions> = { path: true, fps: true, maxSeconds: true, maxBytes: true, signal: true };

export function encodeRecordOptions(o: RecordOptions) {
  checkMembers("RecordOptions", o, recordOptionsMembers);
  return {
    path: o.path,
    fps: o.fps,
    max_seconds: o.maxSeconds,
    max_bytes: o.maxBytes,
  };
}

/** How to publish a port. */
export interface PublishPortOptions extends CallOptions {
  /** Who may use its URL; public when omitted. */
  access?: PortAccess | undefined;
}

export const publishPortOptionsMembers: Members<PublishPortOptions> = { access: true, signal: true };

export function encodePublishPortOptions(o: PublishPortOptions) {
  checkMembers("PublishPortOptions", o, publishPortOptionsMembers);
  return {
    access: o.access,
  };
}

/** How to make a signed link. */
export interface PortLinkOptions extends CallOptions {
  /** How long it works, 60 to 604800 seconds; an hour when omitted. */
  expiresInSeconds?: number | undefined;
}

export const portLinkOptionsMembers: Members<PortLinkOptions> = { expiresInSeconds: true, signal: true };

export function encodePortLinkOptions(o: PortLinkOptions) {
  checkMembers("PortLinkOptions", o, portLinkOptionsMembers);
  return {
    expires_in_seconds: o.expiresInSeconds,
  };
}

/** How an SSH key works; the empty object is one that works for ever, for all that its user may. */
export interface SSHKeyOptions extends CallOptions {
  /** Its name; the key's comment when omitted. */
  name?: string | undefined;
  /** How long it works; for ever when omitted. */
  expiresInSeconds?: number | undefined;
  /** Keep it out of its user's other workspaces. */
  workspaceOnly?: boolean | undefined;
}

export const sshKeyOptionsMembers: Members<SSHKeyOptions> = { name: true, expiresInSeconds: true, workspaceOnly: true, signal: true };

export function encodeSSHKeyOptions(o: SSHKeyOptions) {
  checkMembers("SSHKeyOptions", o, sshKeyOptionsMembers);
  return {
    name: o.name,
    expires_in_seconds: o.expiresInSeconds,
    workspace_only: o.workspaceOnly,
  };
}

/** What token to make; the empty object is one that may do all that its user may. */
export interface CreateTokenOptions extends CallOptions {
  /** What the token is for. */
  description?: string | undefined;
  /** How long it works; for ever when omitted. */
  expiresInSeconds?: number | undefined;
  /** What it may do; all that its user may when omitted. A token made with a narrowed one is narrowed as much at least. */
  scopes?: readonly string[] | undefined;
  /** Keep it out of its user's other workspaces. */
  workspaceOnly?: boolean | undefined;
}

export const createTokenOptionsMembers: Members<CreateTokenOptions> = { description: true, expiresInSeconds: true, scopes: true, workspaceOnly: true, signal: true };

export function encodeCreateTokenOptions(o: CreateTokenOptions) {
  checkMembers("CreateTokenOptions", o, createTokenOptionsMembers);
  return {
    description: o.description,
    expires_in_seconds: o.expiresInSeconds,
    scopes: o.scopes && [...o.scopes],
    workspace_only: o.workspaceOnly,
  };
}

/** What user to make. */
export interface CreateUserOptions extends CallOptions {
  /** Its e-mail address, by which it may sign in as well. */
  email?: string | undefined;
  /** At least 8 characters. When omitted, a code is answered by which the user chooses one. */
  password?: string | undefined;
  /** Whether it looks after the installation. */
  administrator?: boolean | undefined;
}

export const createUserOptionsMembers: Members<CreateUserOptions> = { email: true, password: true, administrator: true, signal: true };

export function encodeCreateUserOptions(o: CreateUserOptions) {
  checkMembers("CreateUserOptions", o, createUserOptionsMembers);
  return {
    email: o.email,
    password: o.password,
    administrator: o.administrator,
  };
}

/** How to sign in. */
export interface CreateRegistryOptions extends CallOptions {
  /** Unique in the workspace. */
  name: string;
  /** The registry, as references of its images begin. */
  server: string;
  /** Who signs in. */
  username: string;
  /** Their password or token. It is stored encrypted and never shown. */
  password: string;
  /** Kept and shown. */
  email?: string | undefined;
  /** Whether it is used; true when omitted. */
  enabled?: boolean | undefined;
  /** Ask the registry first whether it accepts the username and password, and record nothing when it does not. */
  verify?: boolean | undefined;
}

export const createRegistryOptionsMembers: Members<CreateRegistryOptions> = { name: true, server: true, username: true, password: true, email: true, enabled: true, verify: true, signal: true };

export function encodeCreateRegistryOptions(o: CreateRegistryOptions) {
  checkMembers("CreateRegistryOptions", o, createRegistryOptionsMembers);
  return {
    name: o.name,
    server: o.server,
    username: o.username,
    password: o.password,
    email: o.email,
    enabled: o.enabled,
    verify: o.verify,
  };
}

/** What to change of a worker. */
export interface UpdateWorkerOptions extends CallOptions {
  /** Whether it gets no new sandboxes. Its sandboxes stay; paused sandboxes are resumed on other workers. */
  draining?: boolean | undefined;
}

export const updateWorkerOptionsMembers: Members<UpdateWorkerOptions> = { draining: true, signal: true };

export function encodeUpdateWorkerOptions(o: UpdateWorkerOptions) {
  checkMembers("UpdateWorkerOptions", o, updateWorkerOptionsMembers);
  return {
    draining: o.draining,
  };
}

/** Which events are sent where. */
export interface CreateWebhookOptions extends CallOptions {
  /** Where events are sent: an address with https. */
  url: string;
  /** What it is for, at most 255 characters. */
  description?: string | undefined;
  /** The types of the events; all when omitted or empty. */
  types?: readonly string[] | undefined;
  /** Whether events are sent; true when omitted. */
  enabled?: boolean | undefined;
}

export const createWebhookOptionsMembers: Members<CreateWebhookOptions> = { url: true, description: true, types: true, enabled: true, signal: true };

export function encodeCreateWebhookOptions(o: CreateWebhookOptions) {
  checkMembers("CreateWebhookOptions", o, createWebhookOptionsMembers);
  return {
    url: o.url,
    description: o.description,
    types: o.types && [...o.types],
    enabled: o.enabled,
  };
}
