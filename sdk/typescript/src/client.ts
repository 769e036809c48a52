import { Images, Tokens } from "./account.js";
import { newError } from "./errors.js";
import { Executions } from "./executions.js";
import { HTTP } from "./http.js";
import {
  Platform,
  type DestroySandboxParams,
  type DestroySandboxResult,
  type ListSandboxesParams,
  type ListSandboxesResult,
  type ProvisionSandboxParams,
  type ProvisionSandboxResult,
  type SandboxDetail,
  type SandboxImageDetail,
  type WaitForSandboxParams,
  type WaitForSandboxResult,
} from "./platform.js";
import { Sandboxes } from "./sandboxes.js";
import type { WebSocketConstructor } from "./session.js";
import { Snapshots } from "./snapshots.js";
import { Streams } from "./streams.js";
import type { CallOptions, Identity, ServerVersion } from "./types.js";
import { Workspaces } from "./workspaces.js";
import type * as wire from "./wire.js";

/** How a {@link ModboxClient} is made. */
export interface ModboxClientOptions {
  /** An API token, `mbx_…`; default the environment's MODBOX_API_TOKEN. */
  token?: string | undefined;
  /** The server; default the environment's MODBOX_URL, else http://127.0.0.1:7070. */
  baseUrl?: string | undefined;
  /** One of the token user's workspaces; default the token's own. */
  workspaceId?: string | undefined;
  /** Milliseconds until a request is given up, waits and commands excepted; default 60000. */
  timeoutMs?: number | undefined;
  /** How often a request that may be repeated is tried again; default 3. */
  maxRetries?: number | undefined;
  /** Sends the requests; default the runtime's own fetch. */
  fetch?: typeof globalThis.fetch | undefined;
  /** Carries terminals; default the runtime's own. Node before 22 has none: pass that of the package `ws`. */
  WebSocket?: WebSocketConstructor | undefined;
}

/**
 * Calls one Modbox server in the name of one token.
 *
 * The methods of the client itself are those of the Modbox platform; the
 * complete API is under {@link sandboxes}, {@link executions}, {@link streams},
 * {@link snapshots}, {@link images}, {@link tokens} and {@link workspaces}.
 * All throw a ModboxError, or the signal's reason when it is aborted. Safe for
 * concurrent use; there is nothing to close.
 */
export class ModboxClient {
  readonly sandboxes: Sandboxes;
  readonly executions: Executions;
  readonly streams: Streams;
  readonly snapshots: Snapshots;
  readonly images: Images;
  readonly tokens: Tokens;
  readonly workspaces: Workspaces;
  private readonly platform: Platform;
  private readonly http: HTTP;

  constructor(options: ModboxClientOptions = {}) {
    const token = options.token ?? environment("MODBOX_API_TOKEN");
    if (!token) throw newError({ code: "unauthenticated", message: "no token: pass { token } or set MODBOX_API_TOKEN" });
    const baseUrl = options.baseUrl ?? environment("MODBOX_URL") ?? "http://127.0.0.1:7070";
    this.http = new HTTP({
      baseUrl: baseUrl.replace(/\/+$/, ""),
      token,
      workspaceId: options.workspaceId,
      timeoutMs: options.timeoutMs ?? 60_000,
      maxRetries: options.maxRetries ?? 3,
      // Called through a closure: browsers and workers refuse a detached fetch.
      fetch: options.fetch ?? ((input, init) => globalThis.fetch(input, init)),
      WebSocket: options.WebSocket,
    });
    this.sandboxes = new Sandboxes(this.http);
    this.streams = new Streams(this.http);
    this.executions = new Executions(this.http, this.streams);
    this.snapshots = new Snapshots(this.http);
    this.images = new Images(this.http);
    this.tokens = new Tokens(this.http);
    this.workspaces = new Workspaces(this.http);
    this.platform = new Platform(this.http);
  }

  /**
   * Asks for a sandbox and returns at once. The same request for a live task
   * returns the sandbox that is there; a different one throws a ConflictError.
   */
  provisionSandbox(params: ProvisionSandboxParams): Promise<ProvisionSandboxResult> {
    return this.platform.provision(params);
  }

  /** Waits until the sandbox is running, or has ended, or the time has passed: look at `ready`. */
  waitForSandbox(params: WaitForSandboxParams): Promise<WaitForSandboxResult> {
    return this.platform.wait(params);
  }

  /** Returns a sandbox by its id or its task id. */
  getSandbox(idOrTaskId: string, options: CallOptions = {}): Promise<SandboxDetail> {
    return this.platform.get(idOrTaskId, options);
  }

  /** Ends a sandbox and frees everything it held. A task without one is no error: look at `success`. */
  destroySandbox(params: DestroySandboxParams): Promise<DestroySandboxResult> {
    return this.platform.destroy(params);
  }

  /** Lists sandboxes, all or those of one status. */
  listSandboxes(params: ListSandboxesParams = {}): Promise<ListSandboxesResult> {
    return this.platform.list(params);
  }

  /** Lists the images that `imageId` may name. */
  listSandboxImages(options: CallOptions = {}): Promise<SandboxImageDetail[]> {
    return this.platform.images(options);
  }

  /** Says who the token speaks for. */
  async whoami(options: CallOptions = {}): Promise<Identity> {
    const w = await this.http.json<wire.Whoami>({ method: "GET", path: "/v1/whoami", signal: options.signal, repeatable: true });
    return {
      userId: w.user_id,
      workspaceId: w.workspace_id,
      tokenId: w.token_id,
      role: w.role,
      administrator: w.administrator,
      permissions: w.permissions ?? [],
    };
  }

  /** Says what the server is. */
  async version(options: CallOptions = {}): Promise<ServerVersion> {
    const w = await this.http.json<wire.Version>({ method: "GET", path: "/v1/version", signal: options.signal, repeatable: true });
    return { version: w.version, driver: w.driver };
  }
}

/** Reads an environment variable where the runtime has such; empty counts as unset. */
function environment(name: string): string | undefined {
  const { process } = globalThis as { process?: { env?: Record<string, string | undefined> } };
  return process?.env?.[name] || undefined;
}
