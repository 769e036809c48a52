import type { Checkpoint } from "./checkpoints.js";
import { newError, type ErrorCode } from "./errors.js";
import type { Execution, OutputStream } from "./executions.js";
import type { PublishedPort } from "./ports.js";
import type { Snapshot } from "./snapshots.js";
import type * as wire from "./wire.js";
import type { FileInfo, Forked, Image, NewToken, Runtime, Sandbox, SandboxEvent, SignInSession, Stats, Timeouts, Token, Usage } from "./types.js";

// One function for each shape of the wire. A generic change of names would also
// change the keys of labels, events' data and the like.

export function sandbox(w: wire.Sandbox): Sandbox {
  return {
    id: w.id,
    name: w.name,
    state: w.state,
    url: w.url,
    urlAccess: w.url_access,
    image: w.image,
    imageDigest: w.image_digest,
    labels: w.labels,
    resources: w.resources,
    readinessPort: w.readiness_port,
    network: { enabled: w.network.enabled, ports: w.network.ports.map(publishedPort) },
    aptPackages: w.apt_packages ?? [],
    npmPackages: w.npm_packages ?? [],
    ttlSeconds: w.ttl_seconds,
    deadline: w.deadline,
    timeouts: timeouts(w.timeouts),
    checkpointIntervalSeconds: w.checkpoint_interval_seconds,
    lastCheckpointAt: w.last_checkpoint_at,
    lastActivityAt: w.last_activity_at,
    idleDeadline: w.idle_deadline,
    pausedAt: w.paused_at,
    pausedDeadline: w.paused_deadline,
    memoryLostReason: w.memory_lost_reason,
    parentId: w.parent_id,
    snapshotId: w.snapshot_id,
    description: w.description ?? "",
    metadata: w.metadata ?? {},
    cause: w.cause,
    createdBy: w.created_by,
    workspaceId: w.workspace_id,
    createdAt: w.created_at,
    updatedAt: w.updated_at,
    startedAt: w.started_at,
    endedAt: w.ended_at,
  };
}

function timeouts(w: wire.Timeouts): Timeouts {
  return {
    idleSeconds: w.idle_seconds,
    onIdle: w.on_idle,
    pausedSeconds: w.paused_seconds,
    executionSeconds: w.execution_seconds,
  };
}

export function publishedPort(w: wire.PublishedPort): PublishedPort {
  return { port: w.port, url: w.url, access: w.access, createdAt: w.created_at };
}

export function checkpoint(w: wire.Checkpoint): Checkpoint {
  return { id: w.id, name: w.name, sandboxId: w.sandbox_id, sizeBytes: w.size_bytes, createdBy: w.created_by, createdAt: w.created_at };
}

export function forked(w: wire.ForkList["forks"][number]): Forked {
  return {
    sandbox: w.sandbox && sandbox(w.sandbox),
    error: w.error && newError({ code: w.error.code as ErrorCode, message: w.error.detail }),
  };
}

export function snapshot(w: wire.Snapshot): Snapshot {
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

export function execution(w: wire.Execution): Execution {
  return {
    id: w.id,
    sandboxId: w.sandbox_id,
    kind: w.kind,
    command: w.command,
    state: w.state,
    exitCode: w.exit_code,
    error: w.error || undefined,
    tty: w.tty,
    oneShot: w.one_shot,
    cancelling: w.cancelling,
    stdinStreamId: w.stdin_stream_id || undefined,
    stdout: outputStream(w.stdout),
    stderr: outputStream(w.stderr),
    createdBy: w.created_by,
    createdAt: w.created_at,
    startedAt: w.started_at,
    endedAt: w.ended_at,
    durationMs: w.duration_ms,
  };
}

function outputStream(w: wire.OutputStream): OutputStream {
  return { streamId: w.stream_id, bytes: w.bytes, truncated: w.truncated };
}

export function fileInfo(w: wire.FileInfo): FileInfo {
  return {
    name: w.name,
    path: w.path,
    type: w.type,
    size: w.size,
    mode: w.mode,
    uid: w.uid,
    gid: w.gid,
    modTime: w.mod_time,
    target: w.target,
  };
}

export function event(w: wire.Event): SandboxEvent {
  return { seq: w.seq, sandboxId: w.sandbox_id, time: w.time, type: w.type, message: w.message, data: w.data ?? {} };
}

export function stats(w: wire.Stats): Stats {
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
  };
}

export function usage(w: wire.Usage): Usage {
  return {
    at: w.at,
    runningSeconds: w.running_seconds,
    cpuSeconds: w.cpu_seconds,
    memoryByteSeconds: w.memory_byte_seconds,
    networkSentBytes: w.network_sent_bytes,
    networkReceivedBytes: w.network_received_bytes,
  };
}

export function image(w: wire.Image): Image {
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
  };
}

export function runtime(w: wire.Runtime): Runtime {
  return {
    id: w.id,
    name: w.name,
    image: w.image,
    description: w.description,
    iconUrl: w.icon_url,
    color: w.color,
    url: w.url,
    tags: w.tags,
    requirements: w.requirements,
    readme: w.readme,
    built: w.built,
    digest: w.digest,
    sizeBytes: w.size_bytes,
    createdAt: w.created_at,
  };
}

export function token(w: wire.Token): Token {
  return {
    id: w.id,
    description: w.description,
    workspaceId: w.workspace_id,
    workspaceOnly: w.workspace_only,
    scopes: w.scopes ?? [],
    createdAt: w.created_at,
    lastUsedAt: w.last_used_at,
    expiresAt: w.expires_at,
  };
}

export function signInSession(w: wire.SignInSession): SignInSession {
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

export function newToken(w: wire.NewToken): NewToken {
  return { ...token(w), token: w.token };
}
