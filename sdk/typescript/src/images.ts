import { encodeBuild, readProgress, type BuildEvent } from "./builds.js";
import * as schemas from "./schemas.js";
import type { HTTP, HTTPRequest } from "./http.js";
import { callMembers, checkMembers } from "./known.js";
import { pages, type PagePromise } from "./page.js";
import { segment } from "./path.js";
import type { CallOptions, FileContent, PageOptions } from "./types.js";
import type * as wire from "./wire.js";
import type { AptPackageChecks, BuildImageOptions, Image, PruneOptions, PrunedImages, Runtime, SandboxImage, SandboxImageOptions } from "./schemas.js";

/** The images that sandboxes can be made from. */
export class Images {
  constructor(private readonly http: HTTP) {}

  /** Lists the images: built-in images, the default first, and then the others, by name. */
  list(options: PageOptions = {}): PagePromise<Image> {
    return pages(this.http, options, () => ({ path: "/v1/images" }), schemas.image);
  }

  /** Returns an image with its layers, by its id or a reference. */
  async get(image: string, options: CallOptions = {}): Promise<Image> {
    checkMembers("CallOptions", options, callMembers);
    const w = await this.http.json<wire.Image>({ method: "GET", path: `/v1/images/${segment(image)}`, signal: options.signal, repeatable: true });
    return schemas.image(w);
  }

  /** Lists the built-in images by their short names, with their contents. The first use of an image that is not built builds it. */
  runtimes(options: PageOptions = {}): PagePromise<Runtime> {
    return pages(this.http, options, () => ({ path: "/v1/runtimes" }), schemas.runtime);
  }

  /** Checks whether Debian packages, written as for a create, can be installed in an image, default modbox/base. May take some seconds. */
  async validateAptPackages(
    packages: readonly string[],
    options: CallOptions & { image?: string | undefined } = {},
  ): Promise<AptPackageChecks> {
    checkMembers("the options of this check", options, { ...callMembers, image: true });
    const w = await this.http.json<wire.ValidatedAptPackages>({
      method: "POST",
      path: "/v1/apt-packages/validate",
      json: { apt_packages: packages, image: options.image },
      signal: options.signal,
      timeoutMs: 0,
      repeatable: true,
    });
    return schemas.validatedAptPackages(w);
  }

  /**
   * Has the server pull what it lacks of an image; creating a sandbox does so by itself. The last event is `done`,
   * or an error is thrown, with the registry's words. After the caller leaves the loop the pull goes on only if others wait for it.
   */
  pull(image: string, options: CallOptions = {}): AsyncGenerator<PullEvent, void, undefined> {
    const json: wire.ImagePull = { image };
    return this.transfer(`pull ${image}`, { method: "POST", path: "/v1/images/pull", json, repeatable: true }, options);
  }

  /** Sends an image that the workspace has built to a registry: to another reference, or to what its name says. Ends as a pull does. */
  push(image: string, options: CallOptions & { to?: string | undefined } = {}): AsyncGenerator<PullEvent, void, undefined> {
    checkMembers("the options of this push", options, { ...callMembers, to: true });
    const json: wire.ImagePush = { image, to: options.to };
    return this.transfer(`push ${image}`, { method: "POST", path: "/v1/images/push", json, repeatable: false }, options);
  }

  /**
   * Builds an image from a Dockerfile and the files beside it, a tar, plain or compressed. The last event is `done`;
   * an instruction that fails throws a BuildError. Leaving the loop ends the build. Never sent twice.
   */
  async *build(files: FileContent, options: BuildImageOptions = {}): AsyncGenerator<BuildEvent, void, undefined> {
    const { signal } = options;
    const { body, contentType } = encodeBuild(files, options);
    const headers = { "content-type": contentType };
    const response = await this.http.raw({ method: "POST", path: "/v1/images/build", body, headers, signal, timeoutMs: 0, repeatable: false });
    yield* readProgress("build", response.body ?? new Blob([]).stream(), signal);
  }

  /**
   * Removes an image, named by its id or a reference, that the workspace has built or has by signing in to a registry. Sandboxes
   * that were made from it go on. Only administrators may remove an image of all workspaces. Never sent twice.
   */
  async delete(image: string, options: CallOptions = {}): Promise<void> {
    checkMembers("CallOptions", options, callMembers);
    await this.http.done({ method: "DELETE", path: `/v1/images/${segment(image)}`, signal: options.signal, repeatable: false });
  }

  /** Frees the disk of what nothing uses of the workspace: images that were removed or built anew, and what builds left. */
  async prune(options: PruneOptions = {}): Promise<PrunedImages> {
    const { signal } = options;
    const json: wire.PruneImages = schemas.encodePruneOptions(options);
    const w = await this.http.json<wire.PrunedImages>({ method: "POST", path: "/v1/images/prune", json, signal, timeoutMs: 0, repeatable: true });
    return schemas.prunedImages(w);
  }

  private async *transfer(what: string, request: HTTPRequest, { signal }: CallOptions): AsyncGenerator<PullEvent, void, undefined> {
    const response = await this.http.raw({ ...request, signal, timeoutMs: 0 });
    for await (const event of readProgress(what, response.body ?? new Blob([]).stream(), signal)) {
      if (event.type === "progress" || event.type === "done") yield event;
    }
  }
}

/** A report of a pull. */
export type PullEvent =
  /** `done` of `total` bytes while the phase is `pulling`; `total` is undefined when it is not known. */
  | { type: "progress"; phase: string; done: number; total: number | undefined; message: string }
  | { type: "done"; image: Image };

/** The catalogue: the built-in images and the workspace's own. Safe for concurrent use. */
export class SandboxImages {
  constructor(private readonly http: HTTP) {}

  /** Adds an image; nothing is pulled yet. `image` may have the tag, or a digest instead. Never sent twice. */
  async create(name: string, image: string, options: SandboxImageOptions = {}): Promise<SandboxImage> {
    const json: wire.CreateSandboxImage = { ...schemas.encodeSandboxImageOptions(options), name, image };
    const path = "/v1/sandbox-images";
    return schemas.sandboxImage(await this.http.json({ method: "POST", path, json, signal: options.signal, repeatable: false }));
  }

  /** Lists the images: built-in images, the server's default first, and then the workspace's own, the oldest first. */
  list(options: PageOptions & { enabledOnly?: boolean | undefined } = {}): PagePromise<SandboxImage> {
    const query = { enabled_only: options.enabledOnly };
    return pages(this.http, options, () => ({ path: "/v1/sandbox-images", query }), schemas.sandboxImage, { enabledOnly: true });
  }

  async get(id: string, options: CallOptions = {}): Promise<SandboxImage> {
    checkMembers("CallOptions", options, callMembers);
    return schemas.sandboxImage(await this.http.json({ method: "GET", path: at(id), signal: options.signal, repeatable: true }));
  }

  /** Changes the given settings; sandboxes that exist stay as they are. An administrator may change `enabled` of a built-in image. */
  async update(
    id: string,
    options: SandboxImageOptions & { name?: string | undefined; image?: string | undefined },
  ): Promise<SandboxImage> {
    const { name, image, ...rest } = options;
    const json: wire.UpdateSandboxImage = { ...schemas.encodeSandboxImageOptions(rest), name, image };
    return schemas.sandboxImage(await this.http.json({ method: "PATCH", path: at(id), json, signal: options.signal, repeatable: true }));
  }

  /** Removes one of the workspace's own; sandboxes that were made from it go on. */
  async delete(id: string, options: CallOptions = {}): Promise<void> {
    checkMembers("CallOptions", options, callMembers);
    await this.http.done({ method: "DELETE", path: at(id), signal: options.signal, repeatable: false });
  }
}

function at(id: string): string {
  return `/v1/sandbox-images/${segment(id)}`;
}
