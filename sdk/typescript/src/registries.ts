import * as schemas from "./schemas.js";
import type { HTTP } from "./http.js";
import { callMembers, checkMembers } from "./known.js";
import { pages, type PagePromise } from "./page.js";
import { segment } from "./path.js";
import type { CallOptions, PageOptions } from "./types.js";
import type { CreateRegistryOptions, Registry } from "./schemas.js";

/** The settings to change; members that are undefined, such as the password, stay. */
export type UpdateRegistryOptions = Partial<CreateRegistryOptions>;

/** The registries of the workspace. Safe for concurrent use. */
export class Registries {
  constructor(private readonly http: HTTP) {}

  /** Adds a registry: images of its host are pulled with it from then on. Never sent twice. */
  async create(options: CreateRegistryOptions): Promise<Registry> {
    const { signal } = options;
    const json = schemas.encodeCreateRegistryOptions(options);
    return schemas.registry(await this.http.json({ method: "POST", path: "/v1/registries", json, signal, repeatable: false }));
  }

  /** Lists them, the oldest first. */
  list(options: PageOptions = {}): PagePromise<Registry> {
    return pages(this.http, options, () => ({ path: "/v1/registries" }), schemas.registry);
  }

  async get(id: string, options: CallOptions = {}): Promise<Registry> {
    checkMembers("CallOptions", options, callMembers);
    return schemas.registry(await this.http.json({ method: "GET", path: at(id), signal: options.signal, repeatable: true }));
  }

  /** Changes the given settings. */
  async update(id: string, options: UpdateRegistryOptions): Promise<Registry> {
    checkMembers("UpdateRegistryOptions", options, schemas.createRegistryOptionsMembers);
    const { signal, ...json } = options;
    return schemas.registry(await this.http.json({ method: "PATCH", path: at(id), json, signal, repeatable: true }));
  }

  /** Removes a registry: images that need it cannot be pulled any more. */
  async delete(id: string, options: CallOptions = {}): Promise<void> {
    checkMembers("CallOptions", options, callMembers);
    await this.http.done({ method: "DELETE", path: at(id), signal: options.signal, repeatable: false });
  }
}

function at(id: string): string {
  return `/v1/registries/${segment(id)}`;
}
