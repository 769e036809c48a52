import type * as wire from "./wire.js";
import type { FileInfo, Image, NewToken, Runtime, Sandbox, SandboxEvent, Snapshot, Stats, Token, Usage } from "./types.js";

// One function for each shape of the wire. A generic change of names would also
// change the keys of labels, events' data and the like.

export function sandbox(w: wire.Sandbox): Sandbox {
  return {
    id: w.id,
    name: w.name,
    state: w.state,
    url: w.url,
    image: w.image,
    imageDigest: w.image_digest,
    labels: w.labels,
    resources: w.resources,
    readinessPort: w.readiness_port,
    network: w.network,
    dependencies: w.dependencies ?? [],
    packages: w.packages ?? [],
    ttlSeconds: w.ttl_seconds,
    deadline: w.deadline,
    cause: w.cause,
    createdBy: w.created_by,
    workspaceId: w.workspace_id,
    createdAt: w.created_at,
    updatedAt: w.updated_at,
    startedAt: w.started_at,
    endedAt: w.ended_at,
  };
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
    createdAt: w.created_at,
    lastUsedAt: w.last_used_at,
    expiresAt: w.expires_at,
  };
}

export function newToken(w: wire.NewToken): NewToken {
  return { ...token(w), token: w.token };
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
    sizeBytes: w.size_bytes,
    layerBytes: w.layer_bytes,
    fileCount: w.file_count,
    public: w.public,
    createdAt: w.created_at,
    deletedAt: w.deleted_at,
  };
}
