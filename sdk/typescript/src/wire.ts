/** The shapes of /v1 on the wire. */

export interface CreateSandbox {
  name?: string | undefined;
  image?: string | undefined;
  image_id?: string | undefined;
  env?: Record<string, string> | undefined;
  labels?: Record<string, string> | undefined;
  ttl_seconds?: number | undefined;
  resources?: Resources | undefined;
  replace?: boolean | undefined;
  wait_seconds?: number | undefined;
}
export interface Resources {
  memory?: string;
  cpu?: string;
  disk?: string;
}
export interface Sandbox {
  id: string;
  name: string;
  state: "provisioning" | "running" | "destroying" | "destroyed" | "failed";
  url: string;
  image: string;
  image_digest: string;
  labels: Record<string, string>;
  resources: Resources;
  readiness_port?: number;
  ttl_seconds: number;
  deadline: string | null;
  cause: { code: string; message: string } | null;
  created_by: string;
  workspace_id: string;
  created_at: string;
  updated_at: string;
  started_at: string | null;
  ended_at: string | null;
}
export interface SandboxList {
  items: Sandbox[];
  next_cursor?: string;
}
export interface Exec {
  command?: string[] | undefined;
  shell?: string | undefined;
  cwd?: string | undefined;
  env?: Record<string, string> | undefined;
  user?: string | undefined;
  stdin?: string | undefined;
  timeout_seconds?: number | undefined;
  max_output_bytes?: number | undefined;
  encoding?: "utf8" | "base64" | undefined;
}
export interface ExecResult {
  exit_code: number;
  signal?: number;
  timed_out: boolean;
  stdout: string;
  stderr: string;
  stdout_truncated: boolean;
  stderr_truncated: boolean;
  duration_ms: number;
}
export interface StreamMessage {
  type: "started" | "stdout" | "stderr" | "exit" | "error";
  data?: string;
  pid?: number;
  exit_code?: number;
  signal?: number;
  timed_out?: boolean;
  duration_ms?: number;
  code?: string;
  message?: string;
}
export interface FileInfo {
  name: string;
  path: string;
  type: "file" | "directory" | "symlink" | "other";
  size: number;
  mode: string;
  uid: number;
  gid: number;
  mod_time: string;
  target?: string;
}
export interface FileList {
  items: FileInfo[];
  truncated: boolean;
}
export interface Mkdir {
  path: string;
  mode?: string | undefined;
  parents?: boolean | undefined;
  user?: string | undefined;
}
export interface Move {
  from: string;
  to: string;
  overwrite?: boolean | undefined;
}
export interface Event {
  seq: number;
  sandbox_id: string;
  time: string;
  type: string;
  message: string;
  data?: Record<string, string>;
}
export interface EventList {
  items: Event[];
}
export interface Stats {
  time: string;
  memory_bytes: number;
  memory_limit_bytes: number;
  cpu_nanoseconds: number;
  cpu_limit_millicores: number;
  disk_bytes: number;
  disk_limit_bytes: number;
  processes: number;
  host_pss_bytes?: number;
}
export interface Image {
  id: string;
  name: string;
  tag: string;
  ref: string;
  digest: string;
  description: string;
  builtin: boolean;
  is_default: boolean;
  size_bytes: number;
  memory: string;
  readiness_port?: number;
  ttl_seconds: number;
  created_at: string;
  updated_at: string;
}
export interface ImageList {
  items: Image[];
}
export interface CreateToken {
  description?: string | undefined;
  expires_in_seconds?: number | undefined;
}
export interface Token {
  id: string;
  description: string;
  workspace_id: string;
  created_at: string;
  last_used_at: string | null;
  expires_at: string | null;
}
export interface NewToken extends Token {
  token: string;
}
export interface TokenList {
  items: Token[];
}
export interface Whoami {
  user_id: string;
  workspace_id: string;
  token_id: string;
}
export interface Version {
  version: string;
  driver: string;
}
