export { ModboxClient, type ModboxClientOptions } from "./client.js";
export type {
  DestroySandboxParams,
  DestroySandboxResult,
  ListSandboxesParams,
  ListSandboxesResult,
  ProvisionSandboxParams,
  ProvisionSandboxResult,
  SandboxDetail,
  SandboxImageDetail,
  SandboxStatus,
  WaitForSandboxParams,
  WaitForSandboxResult,
} from "./platform.js";
export {
  AuthError,
  ConflictError,
  ConnectionError,
  EndedError,
  ModboxError,
  NotFoundError,
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
export type { ReadStreamOptions, Streams } from "./streams.js";
export type { BuildSnapshotOptions, BuiltSnapshot, CreateSnapshotOptions, ListSnapshotsOptions, Snapshot, SnapshotPage, Snapshots } from "./snapshots.js";
export type { Files } from "./files.js";
export type { Sandboxes } from "./sandboxes.js";
export type { CreateTokenOptions, DependencyChecks, Images, Tokens } from "./account.js";
export type { AddedMember, Invitation, Member, Role, Workspace, WorkspaceDetail, WorkspaceOptions, Workspaces } from "./workspaces.js";
export type * from "./types.js";
