export { Sandbox, type ClientOptions, type CodeOptions, type ConnectOptions, type SandboxListOptions, type SandboxOptions } from "./sandbox.js";
export { Command, type Commands, type OutputChunk, type RunOptions, type SignalName, type StartCommandOptions, type WaitCommandOptions } from "./commands.js";
export { CodeSandbox, type ExecutionResult, type SandboxConfig } from "./codesandbox.js";
export { SandboxPool, type PoolStatus } from "./sandboxpool.js";
export type { TextCallback } from "./output.js";
export type { SandboxFiles } from "./sandboxfiles.js";
export type { SandboxCheckpoints, SandboxContexts, SandboxPorts } from "./bound.js";
export { CodeOutput, CodeResult, type Chart, type CodeEvent, type CodeStatus, type Contexts, type CreateContextOptions, type RunCodeOptions, type ScanCodeOptions, type Table } from "./code.js";
export { Modbox, type AcceptInvitationOptions, type LoginOptions, type ModboxOptions, type ModboxOptions as ModboxClientOptions } from "./client.js";
export { ModboxClient } from "./modboxclient.js";
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
  CodeBlockedError,
  CommandError,
  ConflictError,
  ConnectionError,
  EndedError,
  FileNotFoundError,
  ModboxError,
  NotFoundError,
  ProgramNotFoundError,
  QuotaError,
  SandboxFailedError,
  TimeoutError,
  ValidationError,
  type ErrorCode,
  type FieldError,
} from "./errors.js";
export type { Checkpoints } from "./checkpoints.js";
export type { ClickOptions, Desktop, DesktopAction, DragOptions, MouseButton, ScreenshotOptions, ScrollOptions } from "./desktop.js";
export type { ExecutionCommand, Executions, LogsOptions, StartExecutionOptions } from "./executions.js";
export type { Session, TerminalSize, WebSocketConstructor, WebSocketLike } from "./session.js";
export type { Ports } from "./ports.js";
export type { ReadStreamOptions, Streams } from "./streams.js";
export type { BuiltSnapshot, ListSnapshotsOptions, SnapshotFilesOptions, Snapshots } from "./snapshots.js";
export type { SnapshotBuildEvent, SnapshotBuildLine, SnapshotBuildProgress } from "./snapshotbuilds.js";
export { Page, PagePromise } from "./page.js";
export type { Files } from "./files.js";
export type { Sandboxes } from "./sandboxes.js";
export type { Audit, AuditFilter, ListAuditOptions, ListInstallationAuditOptions } from "./audit.js";
export type { BuildEvent } from "./builds.js";
export type { EventFilter, Events, FollowEventsOptions, ListEventsOptions } from "./events.js";
export type { Account, SSHKeys, Tokens } from "./account.js";
export type { Images, PullEvent, SandboxImages } from "./images.js";
export type { Registries, UpdateRegistryOptions } from "./registries.js";
export type { GetDeliveryOptions, ListDeliveriesOptions, RotateWebhookOptions, UpdateWebhookOptions, Webhooks } from "./webhooks.js";
export { verifyWebhook, WebhookError } from "./verifywebhook.js";
export type { WebhookHeaders, WebhookMessage } from "./verifywebhook.js";
export type { Users } from "./users.js";
export type { DeleteWorkerOptions, Workers } from "./workers.js";
export type { UpdateWorkspaceOptions, WorkspaceOptions, Workspaces } from "./workspaces.js";
export type {
  AddedMember,
  AptPackageChecks,
  AuditEntry,
  AuditRecord,
  AuditReport,
  BuildImageOptions,
  BuildSnapshotOptions,
  Cause,
  Checkpoint,
  CodeContext,
  CodeScan,
  CodeScanMode,
  CodeError,
  CommandOptions,
  CreateRegistryOptions,
  CreateSandboxOptions,
  CreateSnapshotOptions,
  CreateTokenOptions,
  CreateUserOptions,
  CreateWebhookOptions,
  DesktopScreen,
  DesktopWindow,
  DiskUse,
  ExecLimits,
  Execution,
  ExecutionOptions,
  ExecutionState,
  FileChange,
  FileInfo,
  Finding,
  ForkOptions,
  Host,
  HostImages,
  HostOperation,
  HostPool,
  HostResource,
  HostSandboxes,
  HostTemplates,
  HostWaiting,
  Identity,
  Image,
  ImageLayer,
  InvalidAptPackage,
  Invitation,
  Member,
  NetworkOptions,
  NewInvitation,
  NewToken,
  NewUser,
  NewWebhook,
  OriginalFile,
  OutputStream,
  Point,
  PortAccess,
  PortLink,
  PortLinkOptions,
  PrunedImage,
  PrunedImages,
  PruneOptions,
  PublishedPort,
  PublishPortOptions,
  Quota,
  QuotaReport,
  QuotaUsed,
  Recording,
  RecordOptions,
  Registry,
  Requirements,
  Resources,
  PauseOptions,
  ResumeOptions,
  Role,
  Runtime,
  SandboxEvent,
  SandboxImage,
  SandboxImageOptions,
  SandboxInfo,
  SandboxNetwork,
  SandboxState,
  ServerVersion,
  SignInSession,
  Snapshot,
  SnapshotDownload,
  SnapshotFile,
  SSHKey,
  SSHKeyOptions,
  Stats,
  Timeouts,
  Token,
  UpdateWorkerOptions,
  URLAccess,
  Usage,
  User,
  Webhook,
  WebhookDelivery,
  WebhookDeliveryState,
  Worker,
  WorkerState,
  Workspace,
  WorkspaceDetail,
} from "./schemas.js";
export type * from "./types.js";
