import type { Checkpoints } from "./checkpoints.js";
import { callMembers, checkMembers } from "./known.js";
import type { Contexts, CreateContextOptions } from "./code.js";
import type { PagePromise } from "./page.js";
import type { Ports } from "./ports.js";
import type { CallOptions, PageOptions } from "./types.js";
import type { Checkpoint, CodeContext, PortLink, PortLinkOptions, PublishedPort, PublishPortOptions, SandboxInfo } from "./schemas.js";

// Calls of the API for one sandbox, whose id they add.

/** The saved states of one sandbox: memory, processes and files. A checkpoint is named by its id or name. Safe for concurrent use. */
export class SandboxCheckpoints {
  /** @internal */
  constructor(
    private readonly checkpoints: Checkpoints,
    private readonly id: string,
    private readonly changed: (info: SandboxInfo) => SandboxInfo,
  ) {}

  /** Saves the state of the sandbox, which continues. Without a name the server makes up one. Never sent twice. */
  create(options: CallOptions & { name?: string | undefined } = {}): Promise<Checkpoint> {
    return this.checkpoints.create(this.id, options);
  }

  /** Lists the checkpoints, oldest first. */
  list(options: PageOptions = {}): PagePromise<Checkpoint> {
    return this.checkpoints.list(this.id, options);
  }

  /** Takes the sandbox back to a checkpoint and returns when it runs. Everything since then is lost; the checkpoint stays. */
  async restore(checkpoint: string, options: CallOptions = {}): Promise<SandboxInfo> {
    checkMembers("CallOptions", options, callMembers);
    return this.changed(await this.checkpoints.restore(this.id, checkpoint, options));
  }

  /** Deletes a checkpoint. */
  delete(checkpoint: string, options: CallOptions = {}): Promise<void> {
    return this.checkpoints.delete(this.id, checkpoint, options);
  }
}

/** The contexts of one sandbox: interpreters that keep their state between runs of code. Safe for concurrent use. */
export class SandboxContexts {
  /** @internal */
  constructor(
    private readonly contexts: Contexts,
    private readonly id: string,
  ) {}

  /** Makes a context, for the option `context` of `runCode`. Throws code `unsupported` if the sandbox does not have the language. */
  create(options: CreateContextOptions = {}): Promise<CodeContext> {
    return this.contexts.create(this.id, options);
  }

  /** Lists the contexts, the oldest first. */
  list(options: PageOptions = {}): PagePromise<CodeContext> {
    return this.contexts.list(this.id, options);
  }

  /** Interrupts the code that runs in a context; its run ends with status `interrupted`. The context keeps its state. */
  interrupt(context: string | CodeContext, options: CallOptions = {}): Promise<void> {
    return this.contexts.interrupt(this.id, contextId(context), options);
  }

  /** Starts the interpreter of a context again, without its state. */
  restart(context: string | CodeContext, options: CallOptions = {}): Promise<CodeContext> {
    return this.contexts.restart(this.id, contextId(context), options);
  }

  /** Ends a context and the code that runs in it. */
  delete(context: string | CodeContext, options: CallOptions = {}): Promise<void> {
    return this.contexts.delete(this.id, contextId(context), options);
  }
}

/** The id of a context that a caller names. */
export function contextId(context: string | CodeContext): string {
  return typeof context === "string" ? context : context.id;
}

/** The published ports of one sandbox. Safe for concurrent use. */
export class SandboxPorts {
  /** @internal */
  constructor(
    private readonly ports: Ports,
    private readonly id: string,
  ) {}

  /** Lists the published ports, by number. */
  list(options: PageOptions = {}): PagePromise<PublishedPort> {
    return this.ports.list(this.id, options);
  }

  /** Gives a port a URL of its own, or changes its access, which is `public` by default; a change of access cuts off all visitors. */
  publish(port: number, options: PublishPortOptions = {}): Promise<PublishedPort> {
    return this.ports.publish(this.id, port, options);
  }

  /** Unpublishes a port: its URL and all links to it stop working at once. */
  unpublish(port: number, options: CallOptions = {}): Promise<void> {
    return this.ports.unpublish(this.id, port, options);
  }

  /** Gives a port another URL: the old URL and all links to it stop working at once. */
  rotate(port: number, options: CallOptions = {}): Promise<PublishedPort> {
    return this.ports.rotate(this.id, port, options);
  }

  /** Makes a signed link to a private port, by default for an hour. Throws a ConflictError for a public port. */
  createLink(port: number, options: PortLinkOptions = {}): Promise<PortLink> {
    return this.ports.createLink(this.id, port, options);
  }
}
