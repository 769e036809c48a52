import { newError } from "./errors.js";
import type { Credentials, UserSession } from "./credentials.js";
import * as schemas from "./schemas.js";
import type { HTTP } from "./http.js";
import { callMembers, checkMembers } from "./known.js";
import { pages, type PagePromise } from "./page.js";
import { segment } from "./path.js";
import type { CallOptions, PageOptions } from "./types.js";
import type * as wire from "./wire.js";
import type { CreateTokenOptions, NewToken, SignInSession, SSHKey, SSHKeyOptions, Token } from "./schemas.js";

/** The account of the client's user, and its session. Safe for concurrent use. */
export class Account {
  constructor(
    private readonly http: HTTP,
    private readonly credentials: Credentials,
  ) {}

  /** The tokens of the client's session, to be kept for another client; undefined for a client that has an API token. */
  get session(): UserSession | undefined {
    return this.credentials.session;
  }

  /** Renews the session's tokens now; calls do so by themselves. Throws an AuthError when the session has ended. */
  refresh(): Promise<UserSession> {
    const { session } = this.credentials;
    if (session === undefined) return Promise.reject(newError({ code: "invalid", message: "an API token has no session to refresh" }));
    return this.credentials.refresh(this.http, session);
  }

  /**
   * Ends the session with all its tokens; for an API token there is `tokens.revoke`. With `everywhere` all sessions of
   * the user end, whatever the client has; API tokens go on.
   */
  async logout(options: CallOptions & { everywhere?: boolean | undefined } = {}): Promise<void> {
    checkMembers("the options of this logout", options, { ...callMembers, everywhere: true });
    const request = options.everywhere
      ? ({ method: "DELETE", path: "/v1/account/sessions" } as const)
      : ({ method: "POST", path: "/v1/auth/logout" } as const);
    await this.http.done({ ...request, signal: options.signal, repeatable: false });
  }

  /** Lists the user's sign-ins that have not ended, the newest first. */
  sessions(options: PageOptions = {}): PagePromise<SignInSession> {
    return pages(this.http, options, () => ({ path: "/v1/account/sessions" }), schemas.signInSession);
  }

  /** Deletes one of the user's sessions; its tokens stop working at once. */
  async deleteSession(id: string, options: CallOptions = {}): Promise<void> {
    checkMembers("CallOptions", options, callMembers);
    await this.http.done({ method: "DELETE", path: `/v1/account/sessions/${segment(id)}`, signal: options.signal, repeatable: false });
  }

  /** Changes the user's password, of at least 8 characters. All its sessions end but this one; its API tokens go on. */
  async setPassword(password: string, options: CallOptions & { currentPassword?: string | undefined } = {}): Promise<void> {
    checkMembers("the options of this call", options, { ...callMembers, currentPassword: true });
    const json: wire.SetPassword = { password, current_password: options.currentPassword };
    await this.http.done({ method: "PUT", path: "/v1/account/password", json, signal: options.signal, repeatable: false });
  }

  /** Lists the services that people may sign in with, in a browser: docs/auth.md says how. */
  providers(options: PageOptions = {}): PagePromise<string> {
    return pages(this.http, options, () => ({ path: "/v1/auth/providers", anonymous: true }), (name: string) => name);
  }
}

/** The caller's API tokens. */
export class Tokens {
  constructor(private readonly http: HTTP) {}

  /** Makes a token that may do what its maker may, or less. */
  async create(options: CreateTokenOptions = {}): Promise<NewToken> {
    const json: wire.CreateToken = schemas.encodeCreateTokenOptions(options);
    // Not repeatable: a second try would leave a token that nobody knows.
    const w = await this.http.json<wire.NewToken>({ method: "POST", path: "/v1/tokens", json, signal: options.signal, repeatable: false });
    return schemas.newToken(w);
  }

  /** Lists the tokens, newest first, without their texts. */
  list(options: PageOptions = {}): PagePromise<Token> {
    return pages(this.http, options, () => ({ path: "/v1/tokens" }), schemas.token);
  }

  /** Ends a token; it stops working within seconds. */
  async revoke(id: string, options: CallOptions = {}): Promise<void> {
    checkMembers("CallOptions", options, callMembers);
    await this.http.done({ method: "DELETE", path: `/v1/tokens/${segment(id)}`, signal: options.signal, repeatable: false });
  }
}

/** The caller's SSH keys, by which `ssh SANDBOX@SERVER` logs in. */
export class SSHKeys {
  constructor(private readonly http: HTTP) {}

  /** Adds a public key, given as the content of its .pub file: ed25519, ecdsa, or rsa with at least 2048 bits. */
  async add(publicKey: string, options: SSHKeyOptions = {}): Promise<SSHKey> {
    const json: wire.AddSSHKey = { ...schemas.encodeSSHKeyOptions(options), public_key: publicKey };
    const w = await this.http.json<wire.SSHKey>({ method: "POST", path: "/v1/ssh-keys", json, signal: options.signal, repeatable: false });
    return schemas.sshKey(w);
  }

  /** Lists the keys that have not expired, newest first. */
  list(options: PageOptions = {}): PagePromise<SSHKey> {
    return pages(this.http, options, () => ({ path: "/v1/ssh-keys" }), schemas.sshKey);
  }

  /** Deletes a key, by id or fingerprint; it stops working at once, and its connections end. */
  async delete(key: string, options: CallOptions = {}): Promise<void> {
    checkMembers("CallOptions", options, callMembers);
    await this.http.done({ method: "DELETE", path: `/v1/ssh-keys/${segment(key)}`, signal: options.signal, repeatable: false });
  }
}
