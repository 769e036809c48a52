// Calls of the API about tokens, the workspace with its members and quota, and registries.
import { all, call, type Schemas } from "../api.ts";

export type Token = Schemas["Token"];
export type NewToken = Schemas["NewToken"];
export type Member = Schemas["Member"];
export type Role = Member["role"];
export type Invitation = Schemas["Invitation"];
export type WorkspaceDetail = Schemas["WorkspaceDetail"];
export type Quota = Schemas["Quota"];
export type QuotaReport = Schemas["QuotaReport"];
export type Registry = Schemas["Registry"];
export type Code = { email: string; code: string; expires_at: string };

/** most bounds the lists. */
const most = 5000;
const ws = (id: string, more = "") => `/workspaces/${encodeURIComponent(id)}${more}`;
const registry = (id: string) => `/registries/${encodeURIComponent(id)}`;

export const accounts = {
	tokens: (signal?: AbortSignal) => all<Token>("/tokens", most, undefined, signal),
	createToken: (request: Schemas["CreateToken"], signal?: AbortSignal) => call<NewToken>("POST", "/tokens", request, signal),
	revoke: (id: string, signal: AbortSignal) => call<void>("DELETE", `/tokens/${encodeURIComponent(id)}`, undefined, signal),

	workspace: (id: string, signal?: AbortSignal) => call<WorkspaceDetail>("GET", ws(id), undefined, signal),
	createWorkspace: (request: Schemas["CreateWorkspace"], signal?: AbortSignal) => call<WorkspaceDetail>("POST", "/workspaces", request, signal),
	updateWorkspace: (id: string, change: Schemas["UpdateWorkspace"], signal?: AbortSignal) => call<WorkspaceDetail>("PATCH", ws(id), change, signal),
	deleteWorkspace: (id: string, signal: AbortSignal) => call<void>("DELETE", ws(id), undefined, signal),
	members: (id: string, signal?: AbortSignal) => all<Member>(ws(id, "/members"), most, undefined, signal),
	addMember: (id: string, request: Schemas["AddMember"], signal?: AbortSignal) => call<Schemas["AddedMember"]>("POST", ws(id, "/members"), request, signal),
	setRole: (id: string, user: string, role: Role) => call<Member>("PUT", ws(id, `/members/${encodeURIComponent(user)}`), { role }),
	removeMember: (id: string, user: string, signal: AbortSignal) => call<void>("DELETE", ws(id, `/members/${encodeURIComponent(user)}`), undefined, signal),
	invitations: (id: string, signal?: AbortSignal) => all<Invitation>(ws(id, "/invitations"), most, undefined, signal),
	withdraw: (id: string, invitation: string, signal: AbortSignal) => call<void>("DELETE", ws(id, `/invitations/${encodeURIComponent(invitation)}`), undefined, signal),
	quota: (id: string, signal?: AbortSignal) => call<QuotaReport>("GET", ws(id, "/quota"), undefined, signal),
	setQuota: (id: string, quota: Quota, signal?: AbortSignal) => call<QuotaReport>("PUT", ws(id, "/quota"), quota, signal),

	registries: (signal?: AbortSignal) => all<Registry>("/registries", most, undefined, signal),
	createRegistry: (request: Schemas["CreateRegistry"], signal?: AbortSignal) => call<Registry>("POST", "/registries", request, signal),
	updateRegistry: (id: string, change: Schemas["UpdateRegistry"], signal?: AbortSignal) => call<Registry>("PATCH", registry(id), change, signal),
	deleteRegistry: (id: string, signal: AbortSignal) => call<void>("DELETE", registry(id), undefined, signal),
};
