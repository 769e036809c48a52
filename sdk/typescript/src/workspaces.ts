import * as schemas from "./schemas.js";
import type { HTTP, HTTPRequest } from "./http.js";
import { callMembers, checkMembers, type Members } from "./known.js";
import { pages, type PagePromise } from "./page.js";
import { segment } from "./path.js";
import type { CallOptions, PageOptions } from "./types.js";
import type * as wire from "./wire.js";
import type { AddedMember, CodeScanMode, Finding, Invitation, Member, Quota, QuotaReport, Role, URLAccess, Workspace, WorkspaceDetail } from "./schemas.js";

/** The names of a workspace. */
export interface WorkspaceOptions extends CallOptions {
  name?: string | undefined;
  slug?: string | undefined;
  description?: string | undefined;
}

/** The settings of a workspace to change. */
export interface UpdateWorkspaceOptions extends WorkspaceOptions {
  /** The least credential that the management routes on the URLs of its sandboxes ask for; with `open` each sandbox decides. */
  urlAccess?: URLAccess | undefined;
  /** Whether code is scanned before it runs: `warn` adds the findings to answers, with `block` code with findings does not run. */
  codeScan?: CodeScanMode | undefined;
  /** The rules that count; an empty list is all. */
  codeScanRules?: readonly Finding["rule"][] | undefined;
  /** Whether the audit log records the beginning of the output of commands and code. */
  auditOutput?: boolean | undefined;
}

const workspaceMembers: Members<WorkspaceOptions> = { ...callMembers, name: true, slug: true, description: true };
const updateMembers: Members<UpdateWorkspaceOptions> = { ...workspaceMembers, urlAccess: true, codeScan: true, codeScanRules: true, auditOutput: true };

/** The workspaces that the caller is a member of. Safe for concurrent use. */
export class Workspaces {
  constructor(private readonly http: HTTP) {}

  /** Makes a workspace that the caller owns. Never sent twice. */
  async create(name: string, options: Omit<WorkspaceOptions, "name"> = {}): Promise<WorkspaceDetail> {
    checkMembers("WorkspaceOptions", options, workspaceMembers);
    const { signal, ...rest } = options;
    return schemas.workspaceDetail(await this.send({ method: "POST", path: "/v1/workspaces", json: { ...rest, name }, signal, repeatable: false }));
  }

  /** Lists them, by name. */
  list(options: PageOptions = {}): PagePromise<Workspace> {
    return pages(this.http, options, () => ({ path: "/v1/workspaces" }), schemas.workspace);
  }

  async get(id: string, options: CallOptions = {}): Promise<WorkspaceDetail> {
    checkMembers("CallOptions", options, callMembers);
    return schemas.workspaceDetail(await this.send({ method: "GET", path: at(id), signal: options.signal, repeatable: true }));
  }

  /** Changes the given settings. */
  async update(id: string, options: UpdateWorkspaceOptions): Promise<WorkspaceDetail> {
    checkMembers("UpdateWorkspaceOptions", options, updateMembers);
    const { signal, urlAccess, codeScan, codeScanRules, auditOutput, ...rest } = options;
    const json = { ...rest, url_access: urlAccess, code_scan: codeScan, code_scan_rules: codeScanRules && [...codeScanRules], audit_output: auditOutput };
    return schemas.workspaceDetail(await this.send({ method: "PATCH", path: at(id), json, signal, repeatable: true }));
  }

  /** Deletes a workspace with everything in it; its sandboxes end in the background. */
  async delete(id: string, options: CallOptions = {}): Promise<void> {
    checkMembers("CallOptions", options, callMembers);
    await this.remove(at(id), options);
  }

  /** Adds the user of an e-mail address or a name. An address that is nobody's is invited. Never sent twice. */
  async addMember(id: string, who: { email: string } | { name: string }, role: Role, options: CallOptions = {}): Promise<AddedMember> {
    checkMembers("CallOptions", options, callMembers);
    const json: wire.AddMember = { ...who, role };
    const path = at(id, "/members");
    const w = await this.send<wire.AddedMember>({ method: "POST", path, json, signal: options.signal, repeatable: false });
    return schemas.addedMember(w);
  }

  /** Changes a member's role; throws a ConflictError when no owner would be left. */
  async setRole(id: string, userId: string, role: Role, options: CallOptions = {}): Promise<Member> {
    checkMembers("CallOptions", options, callMembers);
    const path = at(id, `/members/${segment(userId)}`);
    return schemas.member(await this.send({ method: "PUT", path, json: { role }, signal: options.signal, repeatable: true }));
  }

  /** Deletes a membership; all users may delete their own. */
  async deleteMember(id: string, userId: string, options: CallOptions = {}): Promise<void> {
    checkMembers("CallOptions", options, callMembers);
    await this.remove(at(id, `/members/${segment(userId)}`), options);
  }

  /** Lists the members, in the order they came. */
  members(id: string, options: PageOptions = {}): PagePromise<Member> {
    return pages(this.http, options, () => ({ path: at(id, "/members") }), schemas.member);
  }

  /** Lists the open invitations, newest first. */
  invitations(id: string, options: PageOptions = {}): PagePromise<Invitation> {
    return pages(this.http, options, () => ({ path: at(id, "/invitations") }), schemas.invitation);
  }

  /** Deletes an invitation: its code stops working. */
  async deleteInvitation(id: string, invitationId: string, options: CallOptions = {}): Promise<void> {
    checkMembers("CallOptions", options, callMembers);
    await this.remove(at(id, `/invitations/${segment(invitationId)}`), options);
  }

  /** The workspace's quota and its use. */
  async quota(id: string, options: CallOptions = {}): Promise<QuotaReport> {
    checkMembers("CallOptions", options, callMembers);
    return schemas.quotaReport(await this.send({ method: "GET", path: at(id, "/quota"), signal: options.signal, repeatable: true }));
  }

  /** Replaces the quota set for the workspace. For administrators. */
  async setQuota(id: string, quota: Quota, options: CallOptions = {}): Promise<QuotaReport> {
    checkMembers("CallOptions", options, callMembers);
    const path = at(id, "/quota");
    return schemas.quotaReport(await this.send({ method: "PUT", path, json: schemas.encodeQuota(quota), signal: options.signal, repeatable: true }));
  }

  private send<T>(request: HTTPRequest): Promise<T> {
    return this.http.json<T>(request);
  }

  private async remove(path: string, options: CallOptions): Promise<void> {
    await this.http.done({ method: "DELETE", path, signal: options.signal, repeatable: false });
  }
}

function at(id: string, call = ""): string {
  return `/v1/workspaces/${segment(id)}${call}`;
}
