import type { components } from "./openapi.js";

// The shapes of /v1 on the wire, by name. openapi.ts is generated from api/openapi.yaml.

type Schemas = components["schemas"];

export type CreateSandbox = Schemas["CreateSandbox"];
export type Sandbox = Schemas["Sandbox"];
export type SandboxList = Schemas["SandboxList"];
export type Exec = Schemas["Exec"];
export type ExecResult = Schemas["ExecResult"];
export type StreamMessage = Schemas["StreamMessage"];
export type FileInfo = Schemas["FileInfo"];
export type FileList = Schemas["FileList"];
export type Mkdir = Schemas["Mkdir"];
export type Move = Schemas["Move"];
export type WriteFiles = Schemas["WriteFiles"];
export type WrittenFiles = Schemas["WrittenFiles"];
export type FileEvent = Schemas["FileEvent"];
export type Event = Schemas["Event"];
export type EventList = Schemas["EventList"];
export type Stats = Schemas["Stats"];
export type Usage = Schemas["Usage"];
export type ChangeNetwork = Schemas["ChangeNetwork"];
export type Image = Schemas["Image"];
export type ImageList = Schemas["ImageList"];
export type Runtime = Schemas["Runtime"];
export type RuntimeList = Schemas["RuntimeList"];
export type CreateSnapshot = Schemas["CreateSnapshot"];
export type Snapshot = Schemas["Snapshot"];
export type SnapshotList = Schemas["SnapshotList"];
export type Lineage = Schemas["Lineage"];
export type CreateToken = Schemas["CreateToken"];
export type Token = Schemas["Token"];
export type NewToken = Schemas["NewToken"];
export type TokenList = Schemas["TokenList"];
export type Whoami = Schemas["Whoami"];
export type Version = Schemas["Version"];
