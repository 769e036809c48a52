import { newError } from "./errors.js";
import type { HTTP } from "./http.js";
import { maxWaitSeconds, waitSlackMs } from "./limits.js";
import { segment } from "./path.js";
import type { CallOptions } from "./types.js";

/** Where a sandbox is in its life, as the Modbox platform names it. */
export type SandboxStatus = "provisioning" | "running" | "destroyed" | (string & {});

export interface ProvisionSandboxParams extends CallOptions {
  /** Your own identifier for the sandbox. */
  taskId: string;
  /** The default image when neither `imageId` nor `image` is given. */
  imageId?: string | undefined;
  /** A reference such as `modbox/code-exec`. */
  image?: string | undefined;
  /** Seconds until it is destroyed, 60 to 86400. */
  ttlSeconds?: number | undefined;
  /** Environment of every process in the sandbox. */
  envVars?: Record<string, string> | undefined;
  /** End a live sandbox of the same task first. */
  replace?: boolean | undefined;
}

export interface ProvisionSandboxResult {
  sandboxId: string;
  /** Empty until the server knows it. */
  sandboxUrl: string;
  status: SandboxStatus;
}

export interface WaitForSandboxParams extends CallOptions {
  taskId: string;
  /** Seconds; default 120. */
  timeout?: number | undefined;
}

export interface WaitForSandboxResult {
  /** False when the time passed or the sandbox ended. */
  ready: boolean;
  elapsedSeconds: number;
}

/** A sandbox in detail. Times are ISO 8601 strings. */
export interface SandboxDetail {
  id: string;
  /** The task id. */
  name: string;
  status: SandboxStatus;
  /** Empty unless it is running. */
  sandboxUrl: string;
  image: string | null;
  createdBy: string;
  createdAt: string;
  updatedAt: string;
  destroyedAt: string | null;
}

export interface ListSandboxesParams extends CallOptions {
  status?: SandboxStatus | undefined;
}

export interface ListSandboxesResult {
  sandboxes: SandboxDetail[];
  total: number;
}

export interface DestroySandboxParams extends CallOptions {
  taskId: string;
}

export interface DestroySandboxResult {
  /** False when there is no sandbox of that task. */
  success: boolean;
  error: string | null;
}

/** An image that sandboxes can be made from. */
export interface SandboxImageDetail {
  id: string;
  name: string;
  image: string;
  tag: string;
  description: string | null;
  enabled: boolean;
  isDefault: boolean;
  memoryMb: number;
  readinessPort: number | null;
  ttlSeconds: number | null;
  createdAt: string;
  updatedAt: string;
}

interface Outcome {
  success: boolean;
  error?: string | null;
}

interface DetailWire {
  id: string;
  name: string;
  status: string;
  sandbox_url: string | null;
  image: string | null;
  created_by: string;
  created_at: string;
  updated_at: string;
  destroyed_at: string | null;
}

interface ImageWire {
  id: string;
  name: string;
  image: string;
  tag: string;
  description: string | null;
  enabled: boolean;
  is_default: boolean;
  memory_mb: number;
  readiness_port: number | null;
  ttl_seconds: number | null;
  created_at: string;
  updated_at: string;
}

/** The calls of the Modbox platform's API, without a version in their paths. */
export class Platform {
  constructor(private readonly http: HTTP) {}

  async provision(p: ProvisionSandboxParams): Promise<ProvisionSandboxResult> {
    const w = await this.http.json<Outcome & { sandbox_id: string | null; sandbox_url: string | null; status: string }>({
      method: "POST",
      path: "/sandboxes/provision",
      json: {
        task_id: p.taskId,
        image_id: p.imageId,
        image: p.image,
        ttl_seconds: p.ttlSeconds,
        env_vars: p.envVars,
        replace: p.replace,
      },
      signal: p.signal,
      // The same request for a live task answers the sandbox that is there.
      repeatable: true,
    });
    // This API may say no in an answer whose status is a success.
    if (!w.success) throw newError({ code: "conflict", message: `provision ${p.taskId}: ${w.error ?? "the server gave no reason"}`, status: 200 });
    return { sandboxId: w.sandbox_id ?? "", sandboxUrl: w.sandbox_url ?? "", status: w.status };
  }

  async wait(p: WaitForSandboxParams): Promise<WaitForSandboxResult> {
    const started = Date.now();
    const whole = p.timeout ?? 120;
    // The first request carries the caller's number as it is, for the server to judge.
    for (let left = whole; ; left = Math.ceil(whole - elapsedSeconds(started))) {
      const timeout = Math.min(maxWaitSeconds, left);
      const w = await this.http.json<{ ready: boolean; status?: string }>({
        method: "POST",
        path: "/sandboxes/wait",
        json: { task_id: p.taskId, timeout },
        signal: p.signal,
        timeoutMs: Math.max(0, timeout) * 1_000 + waitSlackMs,
        repeatable: true,
      });
      const ended = w.status !== undefined && w.status !== "provisioning";
      const elapsed = elapsedSeconds(started);
      if (w.ready || ended || elapsed >= whole) return { ready: w.ready, elapsedSeconds: elapsed };
    }
  }

  async get(idOrTaskId: string, options: CallOptions): Promise<SandboxDetail> {
    const w = await this.http.json<DetailWire>({
      method: "GET",
      path: `/sandboxes/detail/${segment(idOrTaskId)}`,
      signal: options.signal,
      repeatable: true,
    });
    return detail(w);
  }

  async list(p: ListSandboxesParams): Promise<ListSandboxesResult> {
    const w = await this.http.json<{ sandboxes: DetailWire[]; total: number }>({
      method: "GET",
      path: "/sandboxes",
      query: { status: p.status },
      signal: p.signal,
      repeatable: true,
    });
    return { sandboxes: w.sandboxes.map(detail), total: w.total };
  }

  async destroy(p: DestroySandboxParams): Promise<DestroySandboxResult> {
    const w = await this.http.json<Outcome>({
      method: "POST",
      path: "/sandboxes/destroy",
      json: { task_id: p.taskId },
      signal: p.signal,
      repeatable: true,
    });
    return { success: w.success, error: w.error ?? null };
  }

  async images(options: CallOptions): Promise<SandboxImageDetail[]> {
    const w = await this.http.json<{ images: ImageWire[] }>({
      method: "GET",
      path: "/sandbox-images",
      signal: options.signal,
      repeatable: true,
    });
    return w.images.map(image);
  }
}

function elapsedSeconds(started: number): number {
  return (Date.now() - started) / 1_000;
}

function detail(w: DetailWire): SandboxDetail {
  return {
    id: w.id,
    name: w.name,
    status: w.status,
    sandboxUrl: w.sandbox_url ?? "",
    image: w.image,
    createdBy: w.created_by,
    createdAt: w.created_at,
    updatedAt: w.updated_at,
    destroyedAt: w.destroyed_at,
  };
}

function image(w: ImageWire): SandboxImageDetail {
  return {
    id: w.id,
    name: w.name,
    image: w.image,
    tag: w.tag,
    description: w.description,
    enabled: w.enabled,
    isDefault: w.is_default,
    memoryMb: w.memory_mb,
    readinessPort: w.readiness_port,
    ttlSeconds: w.ttl_seconds,
    createdAt: w.created_at,
    updatedAt: w.updated_at,
  };
}
