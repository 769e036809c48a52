import * as schemas from "./schemas.js";
import { callMembers, checkMembers } from "./known.js";
import type { HTTP, HTTPRequest } from "./http.js";
import { pages, type PagePromise } from "./page.js";
import { sandboxPath } from "./path.js";
import type { CallOptions, PageOptions } from "./types.js";
import type * as wire from "./wire.js";
import type { PortLink, PortLinkOptions, PublishPortOptions, PublishedPort } from "./schemas.js";

/**
 * The published ports of a sandbox; `ref` is its id or name. A sandbox or a port that is not there
 * throws a NotFoundError, a change of a sandbox that has ended an EndedError. Safe for concurrent use.
 */
export class Ports {
  constructor(private readonly http: HTTP) {}

  /** Lists the published ports, by number. */
  list(ref: string, options: PageOptions = {}): PagePromise<PublishedPort> {
    return pages(this.http, options, () => ({ path: sandboxPath(ref, "/ports") }), schemas.publishedPort);
  }

  /**
   * Gives a port a URL of its own, or changes the access of a port that has one; a change cuts off all
   * visitors. Throws a ValidationError for a port outside 1 to 65535 and for 49983, which the agent uses,
   * and an error of code `quota_exceeded` for a 33rd port.
   */
  async publish(ref: string, port: number, options: PublishPortOptions = {}): Promise<PublishedPort> {
    const json: wire.PublishPort = schemas.encodePublishPortOptions(options);
    return this.port({ method: "PUT", path: portPath(ref, port), json, signal: options.signal, repeatable: true });
  }

  /** Unpublishes a port: its URL and all links to it stop working at once, and open connections are cut off. */
  async unpublish(ref: string, port: number, options: CallOptions = {}): Promise<void> {
    checkMembers("CallOptions", options, callMembers);
    await this.http.done({ method: "DELETE", path: portPath(ref, port), signal: options.signal, repeatable: false });
  }

  /** Gives a published port another URL: the old URL and all links to it stop working at once, and open connections are cut off. */
  async rotate(ref: string, port: number, options: CallOptions = {}): Promise<PublishedPort> {
    checkMembers("CallOptions", options, callMembers);
    return this.port({ method: "POST", path: portPath(ref, port, "/rotate"), signal: options.signal, repeatable: false });
  }

  /**
   * Makes a signed link to a private port. Throws a ValidationError for a lifetime out of range, an
   * AuthError when the link would outlive the client's own token, and a ConflictError for a public port.
   */
  async createLink(ref: string, port: number, options: PortLinkOptions = {}): Promise<PortLink> {
    const json: wire.CreatePortLink = schemas.encodePortLinkOptions(options);
    const path = portPath(ref, port, "/links");
    const w = await this.http.json<wire.PortLink>({ method: "POST", path, json, signal: options.signal, repeatable: false });
    return schemas.portLink(w);
  }

  private async port(request: HTTPRequest): Promise<PublishedPort> {
    return schemas.publishedPort(await this.http.json<wire.PublishedPort>(request));
  }
}

function portPath(ref: string, port: number, call = ""): string {
  return sandboxPath(ref, `/ports/${encodeURIComponent(port)}${call}`);
}
