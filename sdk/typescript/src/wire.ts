import type { components } from "./openapi.js";

// The shapes of /v1 on the wire, by name. openapi.ts is generated from api/openapi.yaml.

type Schemas = components["schemas"];

/** A part of a list. */
export interface Page<T> {
  items: T[];
  next_cursor?: string;
}

export type CreateSandbox = Schemas["CreateSandbox"];
export type Sandbox = Schemas["Sandbox"];
export type Checkpoint = Schemas["Checkpoint"];
export type CreateCheckpoint = Schemas["CreateCheckpoint"];
export type ResumeSandbox = Schemas["ResumeSandbox"];
export type Fork = Schemas["Fork"];
export type ForkList = Schemas["ForkList"];
export type Env = Schemas["Env"];
export type Snapshot = Schemas["Snapshot"];
export type SnapshotFile = Schemas["SnapshotFile"];
export type SnapshotDownload = Schemas["SnapshotDownload"];
export type CreateSnapshot = Schemas["CreateSnapshot"];
export type BeginSnapshotBuild = Schemas["BeginSnapshotBuild"];
export type SnapshotBuild = Schemas["SnapshotBuild"];
export type SnapshotBuildProgress = Schemas["SnapshotBuildProgress"];
export type SnapshotBuildLine = Schemas["SnapshotBuildLine"];
export type SnapshotBuildLog = Schemas["SnapshotBuildLog"];
export type FinishSnapshotBuild = Schemas["FinishSnapshotBuild"];
export type ValidatedAptPackages = Schemas["ValidatedAptPackages"];
export type TagSnapshot = Schemas["TagSnapshot"];
export type StartExecution = Schemas["StartExecution"];
export type ExecutionCommand = Schemas["ExecutionCommand"];
export type Execution = Schemas["Execution"];
export type Stream = Schemas["Stream"];
export type Exec = Schemas["Exec"];
export type ExecResult = Schemas["ExecResult"];
export type StreamMessage = Schemas["StreamMessage"];
export type RunCode = Schemas["RunCode"];
export type CodeResult = Schemas["CodeResult"];
export type CodeOutput = Schemas["CodeOutput"];
export type CodeEvent = Schemas["CodeEvent"];
export type ScanCode = Schemas["ScanCode"];
export type CodeScan = Schemas["CodeScan"];
export type CreateContext = Schemas["CreateContext"];
export type Context = Schemas["Context"];
export type FileInfo = Schemas["FileInfo"];
export type Mkdir = Schemas["Mkdir"];
export type Move = Schemas["Move"];
export type WriteFiles = Schemas["WriteFiles"];
export type WrittenFiles = Schemas["WrittenFiles"];
export type FileEvent = Schemas["FileEvent"];
export type Stats = Schemas["Stats"];
export type Usage = Schemas["Usage"];
export type PublishedPort = Schemas["PublishedPort"];
export type PublishPort = Schemas["PublishPort"];
export type CreatePortLink = Schemas["CreatePortLink"];
export type PortLink = Schemas["PortLink"];
export type UpdateSandbox = Schemas["UpdateSandbox"];
export type ChangeNetwork = Schemas["ChangeNetwork"];
export type ImagePull = Schemas["ImagePull"];
export type ImagePush = Schemas["ImagePush"];
export type PruneImages = Schemas["PruneImages"];
export type PrunedImages = Schemas["PrunedImages"];
export type ImageBuild = Schemas["ImageBuild"];
export type ImageBuildMessage = Schemas["ImageBuildMessage"];
export type CreateSandboxImage = Schemas["CreateSandboxImage"];
export type UpdateSandboxImage = Schemas["UpdateSandboxImage"];
export type CreateToken = Schemas["CreateToken"];
export type NewToken = Schemas["NewToken"];
export type AddSSHKey = Schemas["AddSSHKey"];
export type SSHKey = Schemas["SSHKey"];
export type AddMember = Schemas["AddMember"];
export type AddedMember = Schemas["AddedMember"];
export type NewUser = Schemas["NewUser"];
export type CreateUser = Schemas["CreateUser"];
export type Code = Schemas["Code"];
export type Login = Schemas["Login"];
export type AcceptInvitation = Schemas["AcceptInvitation"];
export type Refresh = Schemas["Refresh"];
export type SessionTokens = Schemas["SessionTokens"];
export type SetPassword = Schemas["SetPassword"];
export type AuditReport = Schemas["AuditReport"];
export type Event = Schemas["Event"];
export type Problem = Schemas["Problem"];
export type Whoami = Schemas["Whoami"];
export type Version = Schemas["Version"];
