import type { HTTP } from "./http.js";
import { pages, type PagePromise } from "./page.js";
import { segment } from "./path.js";
import type { CallOptions, PageOptions } from "./types.js";
import type * as wire from "./wire.js";

/** How a workspace signs in to a container registry, without the password. */
export interface Registry {
  id: string;
  name: string;
  /** Its host, such as `ghcr.io`. */
  server: string;
  username: string;
  email: string | undefined;
  /** False: images are pulled without it. */
  enabled: boolean;
  createdAt: string;
  updatedAt: string;
}

/** How to sign in. */
export interface CreateRegistryOptions extends CallOptions {
  name: string;
  server: string;
  username: string;
  password: string;
  email?: string | undefined;
  enabled?: boolean | undefined;
  /** Ask the registry first whether it accepts them, and record nothing when it does not: a ValidationError names `password`. */
  verify?: boolean | undefined;
}

/** What to change; the password stays, too, when it is undefined. */
export type UpdateRegistryOptions = Partial<CreateRegistryOptions>;

/** The registries of the workspace. Safe for concurrent use. */
export class Registries {
  constructor(private readonly http: HTTP) {}

  /** Adds a registry: images of its host are pulled with it from then on. Never sent twice. */
  async create(options: CreateRegistryOptions): Promise<Registry> {
    const { signal, ...json } = options;
    return registry(await this.http.json({ method: "POST", path: "/v1/registries", json, signal, repeatable: false }));
  }

  /** Lists them, the oldest first. */
  list(options: PageOptions = {}): PagePromise<Registry> {
    return pages(this.http, options, () => ({ path: "/v1/registries" }), registry);
  }

  async get(id: string, options: CallOptions = {}): Promise<Registry> {
    return registry(await this.http.json({ method: "GET", path: at(id), signal: options.signal, repeatable: true }));
  }

  /** Changes what is given. */
  async update(id: string, options: UpdateRegistryOptions): Promise<Registry> {
    const { signal, ...json } = options;
    return registry(await this.http.json({ method: "PATCH", path: at(id), json, signal, repeatable: true }));
  }

  /** Removes a registry: images that need it cannot be pulled any more. */
  async delete(id: string, options: CallOptions = {}): Promise<void> {
    await this.http.done({ method: "DELETE", path: at(id), signal: options.signal, repeatable: false });
  }
}

function at(id: string): string {
  return `/v1/registries/${segment(id)}`;
}

function registry(w: wire.Registry): Registry {
  return {
    id: w.id,
    name: w.name,
    server: w.server,
    username: w.username,
    email: w.email || undefined,
    enabled: w.enabled,
    createdAt: w.created_at,
    updatedAt: w.updated_at,
  };
}
