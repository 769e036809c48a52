import { Modbox } from "./client.js";
import { CodeSandbox, restoreClean, type CleanSandbox, type SandboxConfig } from "./codesandbox.js";
import { ModboxError, newError } from "./errors.js";

/** A sandbox of a pool. */
interface Member extends CleanSandbox {
  /** It was given out since it was in its clean state. */
  used: boolean;
}

/** How many sandboxes a pool has. */
export interface PoolStatus {
  total: number;
  available: number;
  /** Given out, or being cleaned. */
  inUse: number;
}

/**
 * Sandboxes that are made in advance, and that are clean again for each user.
 *
 * `release` takes a sandbox back to a checkpoint of its state before its first use: files, processes, environment, memory and
 * published ports of its user are gone. Safe for concurrent use. `with` deletes the sandboxes at the end of a function, `await using` at the
 * end of a scope.
 */
export class SandboxPool {
  private config: SandboxConfig | undefined;
  private available: Member[] = [];
  private readonly lent = new Map<CodeSandbox, Member>();
  private closed = false;

  /** `client` defaults to the client of MODBOX_URL and MODBOX_API_TOKEN. */
  constructor(
    /** How many sandboxes the pool has. */
    readonly poolSize = 3,
    private readonly client = new Modbox(),
  ) {
    if (!Number.isInteger(poolSize) || poolSize < 1) throw new RangeError(`poolSize is ${poolSize}; it must be a whole number of at least 1`);
  }

  /** Calls a function with a pool, and closes the pool when the function has ended, also by an error. Returns the function's value. */
  static async with<T>(poolSize: number, use: (pool: SandboxPool) => T | Promise<T>, client?: Modbox): Promise<T> {
    const pool = new SandboxPool(poolSize, client);
    try {
      return await use(pool);
    } finally {
      await pool.close();
    }
  }

  /** Makes the sandboxes, and returns when all of them run. If that fails, the pool is closed. */
  async initialize(config: SandboxConfig = {}): Promise<void> {
    if (this.config || this.closed) throw newError({ code: "conflict", message: "this SandboxPool was initialized or closed before: make another" });
    this.config = config;
    const made = Array.from({ length: this.poolSize }, async () => this.keep(await this.make()));
    const failed = (await Promise.allSettled(made)).find((r) => r.status === "rejected");
    if (!failed) return;
    await this.close();
    throw failed.reason;
  }

  /**
   * Returns a clean sandbox for the caller alone, or undefined when all of them are in use. The sandbox lives for `ttlSeconds` from now
   * at least. A sandbox that has ended meanwhile is replaced.
   */
  async acquire(): Promise<CodeSandbox | undefined> {
    const config = this.config;
    let member = this.available.shift();
    if (!member || !config) return undefined;
    try {
      if (member.used || !(await lives(member, config.ttlSeconds))) {
        await drop(member);
        member = await this.make();
      }
    } catch (err) {
      await this.keep(member);
      throw err;
    }
    if (this.closed) {
      await drop(member);
      return undefined;
    }
    const { sandbox, checkpoint } = member;
    const handle = new CodeSandbox(config, this.client, { sandbox, checkpoint });
    member.used = true;
    this.lent.set(handle, member);
    return handle;
  }

  /**
   * Takes a sandbox back, cleans it, and returns when others can acquire it. The object that was acquired cannot be used any more. A
   * sandbox that cannot be cleaned is replaced. Throws code `conflict` for an object that this pool has not given out, or that was
   * released before.
   */
  async release(handle: CodeSandbox): Promise<void> {
    let member = this.lent.get(handle);
    if (!member) throw newError({ code: "conflict", message: "this pool has not given out that sandbox, or it was released before" });
    this.lent.delete(handle);
    handle.retire();
    try {
      await restoreClean(member, this.config ?? {});
      member.used = false;
    } catch (err) {
      if (!(err instanceof ModboxError)) throw err;
      await drop(member);
      member = await this.make();
    } finally {
      await this.keep(member); // acquire replaces a sandbox that is not clean
    }
  }

  /** How many sandboxes there are. */
  status(): PoolStatus {
    const available = this.available.length;
    return { total: this.poolSize, available, inUse: this.poolSize - available };
  }

  /** Deletes all sandboxes, also those in use. Then `acquire` returns undefined. */
  async close(): Promise<void> {
    this.closed = true;
    const members = [...this.available, ...this.lent.values()];
    for (const handle of this.lent.keys()) handle.retire();
    this.available = [];
    this.lent.clear();
    await Promise.all(members.map(drop));
  }

  /** Deletes all sandboxes at the end of the scope of `await using`. */
  async [Symbol.asyncDispose](): Promise<void> {
    await this.close();
  }

  private async make(): Promise<Member> {
    return { ...(await new CodeSandbox(this.config, this.client).clean()), used: false };
  }

  /** Makes a sandbox available, or deletes it if the pool is closed. */
  private async keep(member: Member): Promise<void> {
    if (this.closed) await drop(member);
    else this.available.push(member);
  }
}

/** Gives a sandbox its time to live anew, and returns whether it has not ended. */
async function lives(member: Member, ttlSeconds = 900): Promise<boolean> {
  try {
    await member.sandbox.setTimeout(ttlSeconds);
    return true;
  } catch (err) {
    if (err instanceof ModboxError && ["ended", "not_found", "conflict"].includes(err.code)) return false;
    throw err;
  }
}

/** Deletes a sandbox, which may have ended; a sandbox that cannot be deleted ends by its ttl. */
async function drop(member: Member): Promise<void> {
  await member.sandbox.delete().catch(() => undefined);
}
