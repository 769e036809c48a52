import * as schemas from "./schemas.js";
import { callMembers, checkMembers } from "./known.js";
import type { HTTP } from "./http.js";
import { pages, type PagePromise } from "./page.js";
import { segment } from "./path.js";
import type { CallOptions, PageOptions } from "./types.js";
import type * as wire from "./wire.js";
import type { CreateUserOptions, NewUser, User } from "./schemas.js";

/** The users of the installation, for administrators; `user` is an id, a name or an e-mail address. Safe for concurrent use. */
export class Users {
  constructor(private readonly http: HTTP) {}

  /** Makes a user, with a workspace of its own. Never sent twice. */
  async create(name: string, options: CreateUserOptions = {}): Promise<NewUser> {
    const { signal } = options;
    const json: wire.CreateUser = { ...schemas.encodeCreateUserOptions(options), name };
    const w = await this.http.json<wire.NewUser>({ method: "POST", path: "/v1/users", json, signal, repeatable: false });
    return schemas.newUser(w);
  }

  /** Lists the users, by name. */
  list(options: PageOptions = {}): PagePromise<User> {
    return pages(this.http, options, () => ({ path: "/v1/users" }), schemas.user);
  }

  /** Makes it an administrator or not, or disables it, which ends its sessions and stops its tokens. */
  async update(
    ref: string,
    options: CallOptions & { administrator?: boolean | undefined; disabled?: boolean | undefined },
  ): Promise<User> {
    const { signal, ...json } = options;
    return schemas.user(await this.http.json({ method: "PATCH", path: at(ref), json, signal, repeatable: true }));
  }

  /** Deletes a user with its tokens, and the workspaces that it alone is in. */
  async delete(ref: string, options: CallOptions = {}): Promise<void> {
    checkMembers("CallOptions", options, callMembers);
    await this.http.done({ method: "DELETE", path: at(ref), signal: options.signal, repeatable: false });
  }

  /** Returns a code by which a user chooses a new password; the old one works until then. */
  async resetPassword(ref: string, options: CallOptions = {}): Promise<string> {
    checkMembers("CallOptions", options, callMembers);
    const w = await this.http.json<wire.Code>({ method: "POST", path: at(ref, "/reset"), signal: options.signal, repeatable: false });
    return w.code;
  }
}

function at(ref: string, call = ""): string {
  return `/v1/users/${segment(ref)}${call}`;
}
