import type * as wire from "./wire.js";

/** Limits of a workspace, sizes in Kubernetes notation; 0 is none, undefined the server's default. */
export interface Quota {
  /** That run at the same time. */
  sandboxes?: number | undefined;
  /** Of those together. */
  memory?: string | undefined;
  cpu?: string | undefined;
  /** Of everything the workspace keeps. */
  disk?: string | undefined;
  createsPerMinute?: number | undefined;
  /** The most that one sandbox may ask for. */
  sandboxMemory?: string | undefined;
  sandboxCpu?: string | undefined;
  sandboxDisk?: string | undefined;
}

/** The quota of a workspace and what is used of it. */
export interface QuotaReport {
  workspaceId: string;
  /** Those that count, all of them. */
  limits: Quota;
  /** Those of them that were set for the workspace. */
  set: Quota;
  used: {
    sandboxes: number;
    memory: string;
    cpu: string;
    /** The sum of `diskBy`. */
    disk: string;
    /** Bytes. */
    diskBy: {
      sandboxes: number;
      paused: number;
      checkpoints: number;
      snapshots: number;
      streams: number;
      /** The limits of builds and installs that are under way. */
      builds: number;
      uploads: number;
      /** Those that were built. */
      images: number;
      /** What builds have left, which goes when something needs the room. */
      buildCache: number;
    };
  };
}

export function encodeQuota(q: Quota): wire.Quota {
  return {
    sandboxes: q.sandboxes,
    memory: q.memory,
    cpu: q.cpu,
    disk: q.disk,
    creates_per_minute: q.createsPerMinute,
    sandbox_memory: q.sandboxMemory,
    sandbox_cpu: q.sandboxCpu,
    sandbox_disk: q.sandboxDisk,
  };
}

export function quotaReport(w: wire.QuotaReport): QuotaReport {
  const { disk_by, ...used } = w.used;
  const { build_cache, ...diskBy } = disk_by;
  return { workspaceId: w.workspace_id, limits: quota(w.limits), set: quota(w.set), used: { ...used, diskBy: { ...diskBy, buildCache: build_cache } } };
}

function quota(w: wire.Quota): Quota {
  return {
    sandboxes: w.sandboxes,
    memory: w.memory,
    cpu: w.cpu,
    disk: w.disk,
    createsPerMinute: w.creates_per_minute,
    sandboxMemory: w.sandbox_memory,
    sandboxCpu: w.sandbox_cpu,
    sandboxDisk: w.sandbox_disk,
  };
}
