import { newError } from "./errors.js";
import type { HTTP } from "./http.js";
import { maxWaitSeconds, waitSlackMs } from "./limits.js";
import { segment } from "./path.js";
import type { CallOptions } from "./types.js";
import type { Role } from "./schemas.js";

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
  registryId: string | null;
  registryName: string | null;
  /** Null for an image that every workspace has. */
  workspaceId: string | null;
  createdAt: string;
  updatedAt: string;
}

export interface CreateSandboxImageParams extends CallOptions {
  name: string;
  image: string;
  /** Default `latest`. */
  tag?: string | undefined;
  description?: string | undefined;
  enabled?: boolean | undefined;
  /** Whether `provisionSandbox` uses it without an image. */
  isDefault?: boolean | undefined;
  /** 256 to 8192. */
  memoryMb?: number | undefined;
  /** 0 is none. */
  readinessPort?: number | undefined;
  /** 60 to 86400; 0 is no limit. */
  ttlSeconds?: number | undefined;
  registryId?: string | undefined;
}

export type UpdateSandboxImageParams = Partial<CreateSandboxImageParams>;

export interface CreateRegistryParams extends CallOptions {
  name: string;
  server: string;
  username: string;
  password: string;
  email?: string | undefined;
  enabled?: boolean | undefined;
}

/** How the workspace signs in to a registry, without the password. */
export interface RegistryCredentialDetail {
  id: string;
  name: string;
  server: string;
  username: string;
  email: string | null;
  enabled: boolean;
  createdAt: string;
  updatedAt: string;
}

export interface CreateWorkspaceParams extends CallOptions {
  name: string;
  description?: string | undefined;
}

/** A member, as the platform names its fields. */
export interface WorkspaceMember {
  user_id: string;
  role: Role;
  name: string;
  email: string | null;
  created_at: string;
}

/** A workspace; `members` is empty in lists. */
export interface PlatformWorkspace {
  id: string;
  name: string;
  description: string | null;
  realm: string;
  createdBy: string;
  createdAt: string;
  updatedAt: string;
  members: WorkspaceMember[];
}

export interface AddWorkspaceMemberParams extends CallOptions {
  email: string;
  role: Role;
}

/** The added member, or, for an address that is nobody's, an invitation whose code is shown only now. */
export type AddedWorkspaceMember =
  | ({ invited: false } & WorkspaceMember)
  | { invited: true; email: string; role: Role; code: string; expiresAt: string };

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
  registry_id: string | null;
  registry_name: string | null;
  workspace_id: string | null;
  created_at: string;
  updated_at: string;
}

interface RegistryWire {
  id: string;
  name: string;
  server: string;
  username: string;
  email: string | null;
  enabled: boolean;
  created_at: string;
  updated_at: string;
}

interface WorkspaceWire {
  id: string;
  name: string;
  description: string | null;
  realm: string;
  created_by: string;
  created_at: string;
  updated_at: string;
  members: WorkspaceMember[];
}

type AddedWire = WorkspaceMember | { invited: true; email: string; role: Role; code: string; expires_at: string };

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

  async createImage(p: CreateSandboxImageParams): Promise<SandboxImageDetail> {
    const json = imageFields(p);
    return image(await this.http.json({ method: "POST", path: "/sandbox-images", json, signal: p.signal, repeatable: false }));
  }

  async updateImage(imageId: string, p: UpdateSandboxImageParams): Promise<SandboxImageDetail> {
    const path = `/sandbox-images/${segment(imageId)}`;
    return image(await this.http.json({ method: "PUT", path, json: imageFields(p), signal: p.signal, repeatable: true }));
  }

  async createRegistry(p: CreateRegistryParams): Promise<RegistryCredentialDetail> {
    const { signal, ...json } = p;
    const w = await this.http.json<RegistryWire>({ method: "POST", path: "/registries", json, signal, repeatable: false });
    const { created_at, updated_at, ...rest } = w;
    return { ...rest, createdAt: created_at, updatedAt: updated_at };
  }

  async createWorkspace(p: CreateWorkspaceParams): Promise<PlatformWorkspace> {
    const { signal, ...json } = p;
    return workspace(await this.http.json({ method: "POST", path: "/workspaces", json, signal, repeatable: false }));
  }

  async workspaces(options: CallOptions): Promise<PlatformWorkspace[]> {
    const w = await this.http.json<{ workspaces: WorkspaceWire[] }>({
      method: "GET",
      path: "/workspaces",
      signal: options.signal,
      repeatable: true,
    });
    return w.workspaces.map(workspace);
  }

  async workspace(id: string, options: CallOptions): Promise<PlatformWorkspace> {
    const path = `/workspaces/${segment(id)}`;
    return workspace(await this.http.json({ method: "GET", path, signal: options.signal, repeatable: true }));
  }

  async addMember(id: string, p: AddWorkspaceMemberParams): Promise<AddedWorkspaceMember> {
    const { signal, ...json } = p;
    const path = `/workspaces/${segment(id)}/members`;
    const w = await this.http.json<AddedWire>({ method: "POST", path, json, signal, repeatable: false });
    if (!("invited" in w)) return { invited: false, ...w };
    return { invited: true, email: w.email, role: w.role, code: w.code, expiresAt: w.expires_at };
  }
}

function imageFields(p: UpdateSandboxImageParams): Record<string, unknown> {
  return {
    name: p.name,
    image: p.image,
    tag: p.tag,
    description: p.description,
    enabled: p.enabled,
    is_default: p.isDefault,
    memory_mb: p.memoryMb,
    readiness_port: p.readinessPort,
    ttl_seconds: p.ttlSeconds,
    registry_id: p.registryId,
  };
}

function workspace(w: WorkspaceWire): PlatformWorkspace {
  return {
    id: w.id,
    name: w.name,
    description: w.description,
    realm: w.realm,
    createdBy: w.created_by,
    createdAt: w.created_at,
    updatedAt: w.updated_at,
    members: w.members,
  };
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
    registryId: w.registry_id,
    registryName: w.registry_name,
    workspaceId: w.workspace_id,
    createdAt: w.created_at,
    updatedAt: w.updated_at,
  };
}
