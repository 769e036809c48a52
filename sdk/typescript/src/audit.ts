import type { HTTP } from "./http.js";
import { pages, type PagePromise } from "./page.js";
import type { CallOptions, PageOptions } from "./types.js";
import type * as wire from "./wire.js";

/** Who did what to which object, from where, and how it ended. What is not known, or does not apply, is undefined. */
export interface AuditRecord {
  /** When the record was made, at the end of what it is about. */
  time: string;
  /** Such as `exec`. */
  action: string;
  /** `ok`, `started`, `cancelled`, `failed`, or the code of an error. */
  outcome: string;
  /** Of HTTP. */
  status: number | undefined;
  durationMs: number | undefined;
  requestId: string | undefined;
  route: string | undefined;
  permission: string | undefined;
  userId: string | undefined;
  tokenId: string | undefined;
  sessionId: string | undefined;
  role: string | undefined;
  administrator: boolean;
  /** `sandbox-url`: somebody who had that. */
  via: string | undefined;
  address: string | undefined;
  userAgent: string | undefined;
  workspaceId: string | undefined;
  objectKind: string | undefined;
  objectId: string | undefined;
  objectName: string | undefined;
  /** Without secrets. */
  command: string[];
  commandTruncated: boolean;
  details: Record<string, string>;
}

/** A record with its place in the log's chain of hashes. */
export interface AuditEntry {
  /** Without gaps in the whole log. */
  seq: number;
  /** The hash of the record before, in hexadecimal. */
  prev: string;
  hash: string;
  record: AuditRecord;
}

/** What to list; the empty object is all of the workspace. */
export interface AuditFilter {
  since?: Date | string | undefined;
  until?: Date | string | undefined;
  /** An id. */
  user?: string | undefined;
  /** An id or a name. */
  object?: string | undefined;
  action?: string | undefined;
  outcome?: string | undefined;
  /** Default `desc`, the newest first. */
  order?: "asc" | "desc" | undefined;
  /** Only records with a greater number. */
  afterSeq?: number | undefined;
}

export interface ListAuditOptions extends AuditFilter, PageOptions {}

export interface ListInstallationAuditOptions extends AuditFilter, PageOptions {
  /** Only what was done in this one, by its id. */
  workspace?: string | undefined;
}

/** Whether the log is what it was. */
export interface AuditReport {
  ok: boolean;
  /** What is wrong first; empty when nothing is. */
  problem: string;
  /** How many were checked. */
  records: number;
  /** The newest record that retention removed; 0 for none. */
  anchorSeq: number;
  anchorHash: string;
  /** The newest record. Who keeps its hash elsewhere can tell later whether the log was made anew. */
  headSeq: number;
  headHash: string;
}

/** The audit log. Safe for concurrent use. */
export class Audit {
  constructor(private readonly http: HTTP) {}

  /** Lists what was done in the workspace. For owners and admins. */
  list(options: ListAuditOptions = {}): PagePromise<AuditEntry> {
    return this.records("/v1/audit", options);
  }

  /** Lists what was done in all workspaces, and in none. For administrators. */
  listInstallation(options: ListInstallationAuditOptions = {}): PagePromise<AuditEntry> {
    return this.records("/v1/audit/installation", options);
  }

  /** Has the server check the chain of the whole log. For administrators. */
  async verify(options: CallOptions = {}): Promise<AuditReport> {
    const request = { method: "GET", path: "/v1/audit/verify", signal: options.signal, timeoutMs: 0, repeatable: true } as const;
    const w = await this.http.json<wire.AuditReport>(request);
    return {
      ok: w.ok,
      problem: w.problem,
      records: w.records,
      anchorSeq: w.anchor_seq,
      anchorHash: w.anchor_hash,
      headSeq: w.head_seq,
      headHash: w.head_hash,
    };
  }

  private records(path: string, options: ListInstallationAuditOptions): PagePromise<AuditEntry> {
    const { user, object, action, outcome, order, workspace, since, until, afterSeq } = options;
    const query = { user, object, action, outcome, order, workspace, since: instant(since), until: instant(until), after_seq: afterSeq };
    return pages(this.http, options, () => ({ path, query }), auditEntry);
  }
}

function auditEntry(w: wire.AuditEntry): AuditEntry {
  const { seq, prev, hash, record } = w;
  return { seq, prev, hash, record: auditRecord(record) };
}

function instant(at: Date | string | undefined): string | undefined {
  return at instanceof Date ? at.toISOString() : at;
}

function auditRecord(w: wire.AuditRecord): AuditRecord {
  return {
    time: w.time,
    action: w.action,
    outcome: w.outcome,
    status: w.status,
    durationMs: w.duration_ms,
    requestId: w.request_id,
    route: w.route,
    permission: w.permission,
    userId: w.user_id,
    tokenId: w.token_id,
    sessionId: w.session_id,
    role: w.role,
    administrator: w.administrator ?? false,
    via: w.via,
    address: w.address,
    userAgent: w.user_agent,
    workspaceId: w.workspace_id,
    objectKind: w.object_kind,
    objectId: w.object_id,
    objectName: w.object_name,
    command: w.command ?? [],
    commandTruncated: w.command_truncated ?? false,
    details: w.details ?? {},
  };
}
