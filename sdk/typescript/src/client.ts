import * as schemas from "./schemas.js";
import { Account, Tokens } from "./account.js";
import { Audit } from "./audit.js";
import { Credentials, signIn, type OnSession, type UserSession } from "./credentials.js";
import { newError } from "./errors.js";
import { Executions } from "./executions.js";
import { HTTP } from "./http.js";
import { Images, SandboxImages } from "./images.js";
import {
  Platform,
  type AddedWorkspaceMember,
  type AddWorkspaceMemberParams,
  type CreateRegistryParams,
  type CreateSandboxImageParams,
  type CreateWorkspaceParams,
  type DestroySandboxParams,
  type DestroySandboxResult,
  type ListSandboxesParams,
  type ListSandboxesResult,
  type PlatformWorkspace,
  type ProvisionSandboxParams,
  type ProvisionSandboxResult,
  type RegistryCredentialDetail,
  type SandboxDetail,
  type SandboxImageDetail,
  type UpdateSandboxImageParams,
  type WaitForSandboxParams,
  type WaitForSandboxResult,
} from "./platform.js";
import { Registries } from "./registries.js";
import { Sandboxes } from "./sandboxes.js";
import type { WebSocketConstructor } from "./session.js";
import { Snapshots } from "./snapshots.js";
import { Streams } from "./streams.js";
import type { CallOptions } from "./types.js";
import { Users } from "./users.js";
import { Workspaces } from "./workspaces.js";
import type * as wire from "./wire.js";
import type { Identity, ServerVersion } from "./schemas.js";

/** How a {@link ModboxClient} is made. */
export interface ModboxClientOptions {
  /** An API token, `mbx_…`; default the environment's MODBOX_API_TOKEN. */
  token?: string | undefined;
  /** Instead of a token: the tokens of a sign-in, such as `account.session` of another client. They are renewed when they must. */
  session?: UserSession | undefined;
  /** Told the session's new tokens whenever they were renewed, to keep them. */
  onSession?: OnSession | undefined;
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

/** Who signs in, and how the client is made. */
export interface LoginOptions extends Omit<ModboxClientOptions, "token" | "session">, CallOptions {
  /** The user's name or e-mail address. */
  username: string;
  password: string;
}

/** A code, what its user chooses, and how the client is made. */
export interface AcceptInvitationOptions extends Omit<ModboxClientOptions, "token" | "session">, CallOptions {
  /** Of an invitation, a new user, or a password that is to be chosen. */
  code: string;
  /** What a new user signs in as. */
  name?: string | undefined;
  /** At least 8 characters. */
  password: string;
}

/**
 * Calls one Modbox server in the name of one token, or of somebody who has signed in.
 *
 * The methods of the client itself are those of the Modbox platform; the
 * complete API is under {@link sandboxes}, {@link executions}, {@link streams},
 * {@link snapshots}, {@link images}, {@link sandboxImages}, {@link registries}, {@link account},
 * {@link tokens}, {@link workspaces}, {@link users} and {@link audit}.
 * All throw a ModboxError, or the signal's reason when it is aborted. Safe for
 * concurrent use; there is nothing to close.
 */
export class ModboxClient {
  readonly sandboxes: Sandboxes;
  readonly executions: Executions;
  readonly streams: Streams;
  readonly snapshots: Snapshots;
  readonly images: Images;
  readonly sandboxImages: SandboxImages;
  readonly registries: Registries;
  readonly account: Account;
  readonly tokens: Tokens;
  readonly workspaces: Workspaces;
  readonly users: Users;
  readonly audit: Audit;
  private readonly platform: Platform;
  private readonly http: HTTP;

  constructor(options: ModboxClientOptions = {}) {
    const token = options.session ? undefined : (options.token ?? environment("MODBOX_API_TOKEN"));
    if (!token && !options.session) throw newError({ code: "unauthenticated", message: "no token: pass { token } or set MODBOX_API_TOKEN" });
    const credentials = new Credentials(token, options.session, options.onSession);
    this.http = connection(options, credentials);
    this.account = new Account(this.http, credentials);
    this.sandboxes = new Sandboxes(this.http);
    this.streams = new Streams(this.http);
    this.executions = new Executions(this.http, this.streams);
    this.snapshots = new Snapshots(this.http);
    this.images = new Images(this.http);
    this.sandboxImages = new SandboxImages(this.http);
    this.registries = new Registries(this.http);
    this.tokens = new Tokens(this.http);
    this.workspaces = new Workspaces(this.http);
    this.users = new Users(this.http);
    this.audit = new Audit(this.http);
    this.platform = new Platform(this.http);
  }

  /** Signs in by name and password and returns a client for the session. Throws an AuthError when either is wrong. */
  static async login({ username, password, ...options }: LoginOptions): Promise<ModboxClient> {
    const http = connection(options, new Credentials(undefined, undefined, undefined));
    return new ModboxClient({ ...options, session: await signIn(http, "/v1/auth/login", { username, password }, options) });
  }

  /** Uses a code up, chooses a password by it, and returns a client for the session. */
  static async acceptInvitation({ code, name, password, ...options }: AcceptInvitationOptions): Promise<ModboxClient> {
    const http = connection(options, new Credentials(undefined, undefined, undefined));
    return new ModboxClient({ ...options, session: await signIn(http, "/v1/auth/accept", { code, name, password }, options) });
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

  /** Adds an image to the workspace, for `imageId`. */
  createSandboxImage(params: CreateSandboxImageParams): Promise<SandboxImageDetail> {
    return this.platform.createImage(params);
  }

  /** Changes what is given of an image. */
  updateSandboxImage(imageId: string, params: UpdateSandboxImageParams): Promise<SandboxImageDetail> {
    return this.platform.updateImage(imageId, params);
  }

  /** Adds a registry to the workspace, whose images are pulled with it. */
  createRegistry(params: CreateRegistryParams): Promise<RegistryCredentialDetail> {
    return this.platform.createRegistry(params);
  }

  /** Makes a workspace that the caller owns. */
  createWorkspace(params: CreateWorkspaceParams): Promise<PlatformWorkspace> {
    return this.platform.createWorkspace(params);
  }

  /** Lists the caller's workspaces, without their members. */
  async listWorkspaces(options: CallOptions = {}): Promise<{ workspaces: PlatformWorkspace[] }> {
    return { workspaces: await this.platform.workspaces(options) };
  }

  /** Returns a workspace with its members. */
  getWorkspace(workspaceId: string, options: CallOptions = {}): Promise<PlatformWorkspace> {
    return this.platform.workspace(workspaceId, options);
  }

  /** Adds the user of an e-mail address to a workspace, or invites it. */
  addWorkspaceMember(workspaceId: string, params: AddWorkspaceMemberParams): Promise<AddedWorkspaceMember> {
    return this.platform.addMember(workspaceId, params);
  }

  /** Says who the token speaks for. */
  async whoami(options: CallOptions = {}): Promise<Identity> {
    const w = await this.http.json<wire.Whoami>({ method: "GET", path: "/v1/whoami", signal: options.signal, repeatable: true });
    return schemas.whoami(w);
  }

  /** Says what the server is. */
  async version(options: CallOptions = {}): Promise<ServerVersion> {
    const w = await this.http.json<wire.Version>({ method: "GET", path: "/v1/version", signal: options.signal, repeatable: true });
    return schemas.version(w);
  }
}

function connection(options: ModboxClientOptions, credentials: Credentials): HTTP {
  const baseUrl = options.baseUrl ?? environment("MODBOX_URL") ?? "http://127.0.0.1:7070";
  return new HTTP({
    baseUrl: baseUrl.replace(/\/+$/, ""),
    credentials,
    workspaceId: options.workspaceId,
    timeoutMs: options.timeoutMs ?? 60_000,
    maxRetries: options.maxRetries ?? 3,
    // Called through a closure: browsers and workers refuse a detached fetch.
    fetch: options.fetch ?? ((input, init) => globalThis.fetch(input, init)),
    WebSocket: options.WebSocket,
  });
}

/** Reads an environment variable where the runtime has such; empty counts as unset. */
function environment(name: string): string | undefined {
  const { process } = globalThis as { process?: { env?: Record<string, string | undefined> } };
  return process?.env?.[name] || undefined;
}
