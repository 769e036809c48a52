import * as decode from "./decode.js";
import type { HTTP } from "./http.js";
import { segment } from "./path.js";
import type { CallOptions, Image, NewToken, Runtime, Token } from "./types.js";
import type * as wire from "./wire.js";

/** The images that sandboxes can be made from. */
export class Images {
  constructor(private readonly http: HTTP) {}

  async list(options: CallOptions = {}): Promise<Image[]> {
    const w = await this.http.json<wire.ImageList>({ method: "GET", path: "/v1/images", signal: options.signal, repeatable: true });
    return w.items.map(decode.image);
  }

  /** The built-in images by their short names, with what is in them. One that is not built is built by its first use. */
  async runtimes(options: CallOptions = {}): Promise<Runtime[]> {
    const w = await this.http.json<wire.RuntimeList>({ method: "GET", path: "/v1/runtimes", signal: options.signal, repeatable: true });
    return w.items.map(decode.runtime);
  }

  /** Checks whether Debian packages, written as for a create, can be installed in an image, default modbox/base. May take some seconds. */
  async validateDependencies(
    dependencies: readonly string[],
    options: CallOptions & { image?: string | undefined } = {},
  ): Promise<DependencyChecks> {
    const w = await this.http.json<wire.ValidatedDependencies>({
      method: "POST",
      path: "/v1/dependencies/validate",
      json: { dependencies, image: options.image },
      signal: options.signal,
      timeoutMs: 0,
      repeatable: true,
    });
    return { valid: w.valid, invalid: w.invalid.map((i) => ({ name: i.name, reason: i.reason, versions: i.versions ?? [] })) };
  }
}

/** Which Debian packages can be installed. */
export interface DependencyChecks {
  valid: string[];
  /** With the reason, and the versions there are when only the version is wrong. */
  invalid: { name: string; reason: string; versions: string[] }[];
}

/** What a token may do, and for how long: undefined is all that its maker may, for ever. */
export interface CreateTokenOptions extends CallOptions {
  description?: string | undefined;
  expiresInSeconds?: number | undefined;
  /** Such as `sandboxes:write`; docs/auth.md lists them. */
  scopes?: readonly string[] | undefined;
  /** Keep it out of the user's other workspaces. */
  workspaceOnly?: boolean | undefined;
}

/** The caller's API tokens. */
export class Tokens {
  constructor(private readonly http: HTTP) {}

  /** Makes a token that may do what its maker may, or less. */
  async create(options: CreateTokenOptions = {}): Promise<NewToken> {
    const json: wire.CreateToken = {
      description: options.description,
      expires_in_seconds: options.expiresInSeconds,
      scopes: options.scopes && [...options.scopes],
      workspace_only: options.workspaceOnly,
    };
    // Not repeatable: a second try would leave a token that nobody knows.
    const w = await this.http.json<wire.NewToken>({ method: "POST", path: "/v1/tokens", json, signal: options.signal, repeatable: false });
    return decode.newToken(w);
  }

  /** Lists the tokens, newest first, without their texts. */
  async list(options: CallOptions = {}): Promise<Token[]> {
    const w = await this.http.json<wire.TokenList>({ method: "GET", path: "/v1/tokens", signal: options.signal, repeatable: true });
    return w.items.map(decode.token);
  }

  /** Ends a token; it stops working within seconds. */
  async revoke(id: string, options: CallOptions = {}): Promise<void> {
    const response = await this.http.raw({
      method: "DELETE",
      path: `/v1/tokens/${segment(id)}`,
      signal: options.signal,
      repeatable: false,
    });
    await response.arrayBuffer();
  }
}
