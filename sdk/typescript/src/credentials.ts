import type { HTTP } from "./http.js";
import type { CallOptions } from "./types.js";
import type * as wire from "./wire.js";

/** How long before its end an access token is not used any more. */
const marginMs = 30_000;

/** The tokens of somebody who has signed in. Times are ISO 8601 strings. */
export interface UserSession {
  accessToken: string;
  /** Gets the next tokens, once: using one twice ends the session. */
  refreshToken: string;
  /** Of the access token. */
  expiresAt: string;
  /** Of the refresh token. */
  refreshExpiresAt: string;
}

/**
 * Called with the tokens that a session has from now on. They are used by nobody before it has ended; it must
 * not wait for calls of the same client, which wait for it. When it fails so does the call that needs the tokens,
 * and it is called with them again at the next one.
 */
export type OnSession = (session: UserSession) => void | Promise<void>;

export function session(w: wire.SessionTokens): UserSession {
  const after = (seconds: number) => new Date(Date.now() + seconds * 1_000).toISOString();
  return {
    accessToken: w.access_token,
    refreshToken: w.refresh_token,
    expiresAt: after(w.expires_in),
    refreshExpiresAt: after(w.refresh_expires_in),
  };
}

/** Whether the access token must not be used any more. */
function ends(session: UserSession): boolean {
  return Date.parse(session.expiresAt) - Date.now() <= marginMs;
}

/**
 * In whose name requests are made: a token's, or a session's, whose tokens are renewed when they must. Objects that a program prints
 * refer to it: its members are private to the language, so that no token is in what console.log and JSON.stringify show.
 */
export class Credentials {
  readonly #apiToken: string | undefined;
  readonly #onSession: OnSession | undefined;
  #current: UserSession | undefined;
  #refreshing: Promise<UserSession> | undefined;
  /** The session that the server gave and onSession has not taken yet. */
  #untold: UserSession | undefined;

  constructor(apiToken: string | undefined, current: UserSession | undefined, onSession: OnSession | undefined) {
    this.#apiToken = apiToken;
    this.#current = current;
    this.#onSession = onSession;
  }

  get session(): UserSession | undefined {
    return this.#current;
  }

  /** The token of a request that is made now. */
  async token(http: HTTP): Promise<string | undefined> {
    if (this.#current === undefined) return this.#apiToken;
    // After it has given new tokens the server takes the old tokens no more, also if the new tokens are not kept yet.
    if (this.#untold === undefined && !ends(this.#current)) return this.#current.accessToken;
    return (await this.refresh(http, this.#current)).accessToken;
  }

  /** Renews the tokens, once for all who ask at the same time. */
  refresh(http: HTTP, current: UserSession): Promise<UserSession> {
    this.#refreshing ??= this.renew(http, current).finally(() => (this.#refreshing = undefined));
    return this.#refreshing;
  }

  private async renew(http: HTTP, current: UserSession): Promise<UserSession> {
    if (this.#untold === undefined || ends(this.#untold)) {
      const json: wire.Refresh = { refresh_token: (this.#untold ?? current).refreshToken };
      // Never sent twice, and not ended by a caller's signal: others wait for it.
      const w = await http.json<wire.SessionTokens>({ method: "POST", path: "/v1/auth/refresh", json, anonymous: true, repeatable: false });
      this.#untold = session(w);
    }
    const next = this.#untold;
    await this.#onSession?.(next);
    this.#untold = undefined;
    return (this.#current = next);
  }
}

/** Signs in, by what the path wants. */
export async function signIn(http: HTTP, path: string, json: wire.Login | wire.AcceptInvitation, options: CallOptions): Promise<UserSession> {
  return session(await http.json<wire.SessionTokens>({ method: "POST", path, json, signal: options.signal, anonymous: true, repeatable: false }));
}
