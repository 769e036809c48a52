export { ModboxClient, type AcceptInvitationOptions, type LoginOptions, type ModboxClientOptions } from "./client.js";
export type { OnSession, UserSession } from "./credentials.js";
export type {
  AddedWorkspaceMember,
  AddWorkspaceMemberParams,
  CreateRegistryParams,
  CreateSandboxImageParams,
  CreateWorkspaceParams,
  DestroySandboxParams,
  DestroySandboxResult,
  ListSandboxesParams,
  ListSandboxesResult,
  PlatformWorkspace,
  ProvisionSandboxParams,
  ProvisionSandboxResult,
  RegistryCredentialDetail,
  SandboxDetail,
  SandboxImageDetail,
  SandboxStatus,
  UpdateSandboxImageParams,
  WaitForSandboxParams,
  WaitForSandboxResult,
  WorkspaceMember,
} from "./platform.js";
export {
  AuthError,
  BuildError,
  ConflictError,
  ConnectionError,
  EndedError,
  FileNotFoundError,
  ModboxError,
  NotFoundError,
  ProgramNotFoundError,
  TimeoutError,
  ValidationError,
  type ErrorCode,
  type FieldError,
} from "./errors.js";
export type { Checkpoint, Checkpoints } from "./checkpoints.js";
export type {
  Execution,
  ExecutionCommand,
  ExecutionOptions,
  Executions,
  ExecutionState,
  LogsOptions,
  OutputStream,
  StartExecutionOptions,
} from "./executions.js";
export type { Session, TerminalSize, WebSocketConstructor, WebSocketLike } from "./session.js";
export type { PortAccess, PortLink, PortLinkOptions, Ports, PublishedPort, PublishPortOptions } from "./ports.js";
export type { ReadStreamOptions, Streams } from "./streams.js";
export type { BuildSnapshotOptions, BuiltSnapshot, CreateSnapshotOptions, ListSnapshotsOptions, Snapshot, SnapshotDownload, SnapshotFile, SnapshotFilesOptions, Snapshots } from "./snapshots.js";
export type { SnapshotBuildEvent, SnapshotBuildLine, SnapshotBuildProgress } from "./snapshotbuilds.js";
export { Page, PagePromise } from "./page.js";
export type { Files } from "./files.js";
export type { Sandboxes } from "./sandboxes.js";
export type { Audit, AuditEntry, AuditFilter, AuditRecord, AuditReport, ListAuditOptions, ListInstallationAuditOptions } from "./audit.js";
export type { BuildEvent, BuildImageOptions } from "./builds.js";
export type { Quota, QuotaReport } from "./quotas.js";
export type { Account, CreateTokenOptions, Tokens } from "./account.js";
export type { AptPackageChecks, Images, PrunedImages, PruneOptions, PullEvent, SandboxImage, SandboxImageOptions, SandboxImages } from "./images.js";
export type { CreateRegistryOptions, Registries, Registry, UpdateRegistryOptions } from "./registries.js";
export type { CreateUserOptions, NewUser, User, Users } from "./users.js";
export type { AddedMember, Invitation, Member, Role, UpdateWorkspaceOptions, Workspace, WorkspaceDetail, WorkspaceOptions, Workspaces } from "./workspaces.js";
export type * from "./types.js";
