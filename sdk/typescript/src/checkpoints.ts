import * as schemas from "./schemas.js";
import type { HTTP } from "./http.js";
import { callMembers, checkMembers } from "./known.js";
import { pages, type PagePromise } from "./page.js";
import { sandboxPath, segment } from "./path.js";
import type { CallOptions, PageOptions } from "./types.js";
import type * as wire from "./wire.js";
import type { Checkpoint, SandboxInfo } from "./schemas.js";

/** The checkpoints of a sandbox; one is named by its id or name. Safe for concurrent use. */
export class Checkpoints {
  constructor(private readonly http: HTTP) {}

  /** Saves the state of a running or paused sandbox, which goes on. Without a name one is made up. Never sent twice. */
  async create(ref: string, options: CallOptions & { name?: string | undefined } = {}): Promise<Checkpoint> {
    checkMembers("the options of this checkpoint", options, { ...callMembers, name: true });
    const json: wire.CreateCheckpoint = { name: options.name };
    const path = sandboxPath(ref, "/checkpoints");
    const w = await this.http.json<wire.Checkpoint>({ method: "POST", path, json, signal: options.signal, timeoutMs: 0, repeatable: false });
    return schemas.checkpoint(w);
  }

  /** Lists them, oldest first. */
  list(ref: string, options: PageOptions = {}): PagePromise<Checkpoint> {
    return pages(this.http, options, () => ({ path: sandboxPath(ref, "/checkpoints") }), schemas.checkpoint);
  }

  /** Takes the sandbox back and returns when it runs. Its changes since then are lost; the checkpoint stays. */
  async restore(ref: string, checkpoint: string, options: CallOptions = {}): Promise<SandboxInfo> {
    checkMembers("CallOptions", options, callMembers);
    const path = `${checkpointPath(ref, checkpoint)}/restore`;
    const w = await this.http.json<wire.Sandbox>({ method: "POST", path, signal: options.signal, timeoutMs: 0, repeatable: false });
    return schemas.sandbox(w);
  }

  async delete(ref: string, checkpoint: string, options: CallOptions = {}): Promise<void> {
    checkMembers("CallOptions", options, callMembers);
    const path = checkpointPath(ref, checkpoint);
    const response = await this.http.raw({ method: "DELETE", path, signal: options.signal, repeatable: false });
    await response.arrayBuffer();
  }
}

function checkpointPath(ref: string, checkpoint: string): string {
  return sandboxPath(ref, `/checkpoints/${segment(checkpoint)}`);
}
