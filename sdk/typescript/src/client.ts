import * as schemas from "./schemas.js";
import { Account, SSHKeys, Tokens } from "./account.js";
import { Audit } from "./audit.js";
import { Credentials, signIn, type OnSession, type UserSession } from "./credentials.js";
import { newError } from "./errors.js";
import { Events } from "./events.js";
import { Executions } from "./executions.js";
import { HTTP } from "./http.js";
import { Images, SandboxImages } from "./images.js";
import { callMembers, checkMembers, type Members } from "./known.js";
import { Registries } from "./registries.js";
import { Sandboxes } from "./sandboxes.js";
import type { WebSocketConstructor } from "./session.js";
import { Snapshots } from "./snapshots.js";
import { Streams } from "./streams.js";
import type { CallOptions } from "./types.js";
import { Users } from "./users.js";
import { Webhooks } from "./webhooks.js";
import { Workers } from "./workers.js";
import { Workspaces } from "./workspaces.js";
import type * as wire from "./wire.js";
import type { Host, Identity, ServerVersion } from "./schemas.js";

/** The server and the credentials of a {@link Modbox}. */
export interface ModboxOptions {
  /** An API token, `mbx_…`; default the environment's MODBOX_API_TOKEN. */
  token?: string | undefined;
  /** Instead of a token: the tokens of a sign-in, such as `account.session` of another client. The client renews them before they expire. */
  session?: UserSession | undefined;
  /** Called with the session's new tokens after each renewal, so that the program can store them. */
  onSession?: OnSession | undefined;
  /** The server; default the environment's MODBOX_URL, else http://127.0.0.1:7070. */
  baseUrl?: string | undefined;
  /** One of the token user's workspaces; default the token's own. */
  workspaceId?: string | undefined;
  /** Milliseconds until a request fails with a TimeoutError, except waits and commands, which have limits of their own; default 60000. */
  timeoutMs?: number | undefined;
  /** The number of times that a request that may be repeated is sent again; default 3. */
  maxRetries?: number | undefined;
  /** Sends the requests; default the runtime's own fetch. */
  fetch?: typeof globalThis.fetch | undefined;
  /** The class of WebSockets, for terminals; default the runtime's own. Node before 22 has none: pass the class of the package `ws`. */
  WebSocket?: WebSocketConstructor | undefined;
}

const modboxMembers: Members<ModboxOptions> = {
  token: true, session: true, onSession: true, baseUrl: true, workspaceId: true, timeoutMs: true, maxRetries: true, fetch: true, WebSocket: true,
};

/** The user who signs in, and the settings of the client. */
export interface LoginOptions extends Omit<ModboxOptions, "token" | "session">, CallOptions {
  /** The user's name or e-mail address. */
  username: string;
  password: string;
}

/** The code of an invitation, the user's name and password, and the settings of the client. */
export interface AcceptInvitationOptions extends Omit<ModboxOptions, "token" | "session">, CallOptions {
  /** The code of an invitation, of a new user, or of a password reset. */
  code: string;
  /** The name of a new user. */
  name?: string | undefined;
  /** At least 8 characters. */
  password: string;
}

/**
 * The client of one Modbox server, for one API token or signed-in user: the calls of the API, with records as arguments and
 * answers. {@link Sandbox} is built on it; programs that use sandboxes begin there.
 *
 * All calls throw a {@link ModboxError}, or the signal's reason when it is aborted. Safe for concurrent use; nothing has to be closed.
 */
export class Modbox {
  readonly sandboxes: Sandboxes;
  readonly executions: Executions;
  readonly streams: Streams;
  readonly snapshots: Snapshots;
  readonly images: Images;
  readonly sandboxImages: SandboxImages;
  readonly registries: Registries;
  readonly account: Account;
  readonly tokens: Tokens;
  readonly sshKeys: SSHKeys;
  readonly workspaces: Workspaces;
  readonly users: Users;
  readonly workers: Workers;
  readonly audit: Audit;
  readonly events: Events;
  readonly webhooks: Webhooks;
  /** @internal */
  protected readonly http: HTTP;

  constructor(options: ModboxOptions = {}) {
    checkMembers("ModboxOptions", options, modboxMembers);
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
    this.sshKeys = new SSHKeys(this.http);
    this.workspaces = new Workspaces(this.http);
    this.users = new Users(this.http);
    this.workers = new Workers(this.http);
    this.audit = new Audit(this.http);
    this.events = new Events(this.http);
    this.webhooks = new Webhooks(this.http);
  }

  /** Signs in by name and password and returns a client for the session. Throws an AuthError when either is wrong. */
  static async login<C extends Modbox>(this: new (options: ModboxOptions) => C, { username, password, signal, ...options }: LoginOptions): Promise<C> {
    checkMembers("LoginOptions", options, modboxMembers);
    const http = connection(options, new Credentials(undefined, undefined, undefined));
    return new this({ ...options, session: await signIn(http, "/v1/auth/login", { username, password }, { signal }) });
  }

  /** Accepts an invitation by its code, sets the user's password, and returns a client for the session. */
  static async acceptInvitation<C extends Modbox>(
    this: new (options: ModboxOptions) => C,
    { code, name, password, signal, ...options }: AcceptInvitationOptions,
  ): Promise<C> {
    checkMembers("AcceptInvitationOptions", options, modboxMembers);
    const http = connection(options, new Credentials(undefined, undefined, undefined));
    return new this({ ...options, session: await signIn(http, "/v1/auth/accept", { code, name, password }, { signal }) });
  }

  /** Returns the user of the token, and its workspace. */
  async whoami(options: CallOptions = {}): Promise<Identity> {
    checkMembers("CallOptions", options, callMembers);
    const w = await this.http.json<wire.Whoami>({ method: "GET", path: "/v1/whoami", signal: options.signal, repeatable: true });
    return schemas.whoami(w);
  }

  /** Returns the machine of the server: its capacity, pool, images, and how long operations take. For administrators. */
  async host(options: CallOptions = {}): Promise<Host> {
    checkMembers("CallOptions", options, callMembers);
    const w = await this.http.json<wire.Host>({ method: "GET", path: "/v1/host", signal: options.signal, repeatable: true });
    return schemas.host(w);
  }

  /** Returns the version of the server. */
  async version(options: CallOptions = {}): Promise<ServerVersion> {
    checkMembers("CallOptions", options, callMembers);
    const w = await this.http.json<wire.Version>({ method: "GET", path: "/v1/version", signal: options.signal, repeatable: true });
    return schemas.version(w);
  }
}

function connection(options: ModboxOptions, credentials: Credentials): HTTP {
  const baseUrl = options.baseUrl ?? environment("MODBOX_URL") ?? "http://127.0.0.1:7070";
  if (!/^https?:\/\/[^/]/i.test(baseUrl)) {
    const hint = baseUrl && !baseUrl.includes("://") ? `; write http://${baseUrl} or https://${baseUrl}` : "";
    throw newError({ code: "invalid", message: `baseUrl (MODBOX_URL) ${JSON.stringify(baseUrl)} is not an http or https URL${hint}` });
  }
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

/** Reads an environment variable, in runtimes that have them; an empty one counts as unset. */
function environment(name: string): string | undefined {
  const { process } = globalThis as { process?: { env?: Record<string, string | undefined> } };
  return process?.env?.[name] || undefined;
}
