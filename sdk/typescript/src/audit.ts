import * as schemas from "./schemas.js";
import type { HTTP } from "./http.js";
import { callMembers, checkMembers, pageMembers, type Members } from "./known.js";
import { pages, type PagePromise } from "./page.js";
import type { CallOptions, PageOptions } from "./types.js";
import type * as wire from "./wire.js";
import type { AuditEntry, AuditReport } from "./schemas.js";

/** The records to list; the empty object is all of the workspace. */
export interface AuditFilter {
  since?: Date | string | undefined;
  until?: Date | string | undefined;
  /** An id. */
  user?: string | undefined;
  /** An id or a name. */
  object?: string | undefined;
  action?: string | undefined;
  outcome?: string | undefined;
  /** Words that the records have in their object, command, details or outputs, or that words of theirs begin with. */
  search?: string | undefined;
  /** Default `desc`, the newest first. */
  order?: "asc" | "desc" | undefined;
  /** Only records with a greater number. */
  afterSeq?: number | undefined;
}

export interface ListAuditOptions extends AuditFilter, PageOptions {}

export interface ListInstallationAuditOptions extends AuditFilter, PageOptions {
  /** Only records of this workspace, by its id. */
  workspace?: string | undefined;
}

const listMembers: Members<ListInstallationAuditOptions> = {
  ...pageMembers, since: true, until: true, user: true, object: true, action: true, outcome: true, search: true, order: true, afterSeq: true, workspace: true,
};

/** The audit log. Safe for concurrent use. */
export class Audit {
  constructor(private readonly http: HTTP) {}

  /** Lists the records of the workspace. For owners and admins. */
  list(options: ListAuditOptions = {}): PagePromise<AuditEntry> {
    return this.records("/v1/audit", options);
  }

  /** Lists the records of all workspaces, and of no workspace. For administrators. */
  listInstallation(options: ListInstallationAuditOptions = {}): PagePromise<AuditEntry> {
    return this.records("/v1/audit/installation", options);
  }

  /** Has the server check the chain of the whole log. For administrators. */
  async verify(options: CallOptions = {}): Promise<AuditReport> {
    checkMembers("CallOptions", options, callMembers);
    const request = { method: "GET", path: "/v1/audit/verify", signal: options.signal, timeoutMs: 0, repeatable: true } as const;
    const w = await this.http.json<wire.AuditReport>(request);
    return schemas.auditReport(w);
  }

  private records(path: string, options: ListInstallationAuditOptions): PagePromise<AuditEntry> {
    const { user, object, action, outcome, search, order, workspace, since, until, afterSeq } = options;
    const query = { user, object, action, outcome, search, order, workspace, since: instant(since), until: instant(until), after_seq: afterSeq };
    return pages(this.http, options, () => ({ path, query }), schemas.auditEntry, listMembers);
  }
}

function instant(at: Date | string | undefined): string | undefined {
  return at instanceof Date ? at.toISOString() : at;
}
