import * as schemas from "./schemas.js";
import { ModboxError, newError } from "./errors.js";
import { callMembers, checkMembers } from "./known.js";
import type { HTTP } from "./http.js";
import { segment } from "./path.js";
import { waitForQuota } from "./quotawait.js";
import type { BuiltSnapshot } from "./snapshots.js";
import type { CallOptions } from "./types.js";
import type * as wire from "./wire.js";
import type { BuildSnapshotOptions, Snapshot } from "./schemas.js";

/** The progress of the build of a snapshot. */
export interface SnapshotBuildProgress {
  /** `begun`, `waiting`, `pulling`, `fetching`, `downloading`, `installing`, `setup`, `writing`, and at last `done` or `failed`, among others. */
  phase: string;
  /** A description of the phase, for people; of `failed` the reason. */
  message: string;
  /** Counts up to `total`. */
  done: number;
  /** It may grow; undefined when it is not known. */
  total: number | undefined;
}

/** Something that happened in the build of a snapshot, or a line that one of its tools wrote. */
export interface SnapshotBuildLine {
  time: string;
  /** As of {@link SnapshotBuildProgress}. */
  phase: string;
  message: string;
  /** Lines before it are lost: the server keeps the last 1000, and 64 KiB. */
  truncated: boolean;
}

/** A report of the build of a snapshot; the last report is `done`. */
export type SnapshotBuildEvent =
  /** The build has an id, for its log. It is the first event, unless nothing is to be built. */
  | { type: "begun"; id: string }
  /** Only of the phases in between, among them `uploading`. */
  | ({ type: "progress" } & SnapshotBuildProgress)
  | ({ type: "line" } & SnapshotBuildLine)
  | ({ type: "done" } & BuiltSnapshot);

/** How often a build is asked what it is at. */
const pauseMs = 1_000;

/** The part of Snapshots that is about building them. */
export class SnapshotBuilds {
  constructor(private readonly http: HTTP) {}

  async build(runtime: string, options: BuildSnapshotOptions): Promise<BuiltSnapshot> {
    const { id, snapshot } = await this.begin(runtime, options);
    if (snapshot !== undefined) return { snapshot: schemas.snapshot(snapshot), unchanged: true };
    try {
      await this.upload(id!, options);
      return { snapshot: await this.finish(id!, options), unchanged: false };
    } catch (err) {
      throw named(err, id!);
    }
  }

  async *stream(runtime: string, options: BuildSnapshotOptions): AsyncGenerator<SnapshotBuildEvent, void, undefined> {
    const { id, snapshot } = await this.begin(runtime, options);
    if (snapshot !== undefined) {
      yield { type: "done", snapshot: schemas.snapshot(snapshot), unchanged: true };
      return;
    }
    yield { type: "begun", id: id! };
    if (options.files !== undefined) yield { type: "progress", phase: "uploading", message: "its files", done: 0, total: undefined };
    try {
      await this.upload(id!, options);
      yield* this.made(id!, options);
    } catch (err) {
      throw named(err, id!);
    }
  }

  async *log(id: string, options: CallOptions & { follow?: boolean | undefined }): AsyncGenerator<SnapshotBuildLine, void, undefined> {
    checkMembers("the options of this log", options, { ...callMembers, follow: true });
    for (const reporter = new Reporter(); ; ) {
      const log = await this.fetchLog(id, options.signal);
      yield* reporter.lines(log);
      if (!options.follow || log.ended) return;
      await pause(options.signal);
    }
  }

  async progress(id: string, { signal }: CallOptions): Promise<SnapshotBuildProgress> {
    const w = await this.http.json<wire.SnapshotBuildProgress>({ method: "GET", path: `${buildPath(id)}/progress`, signal, repeatable: true });
    return { phase: w.phase, message: w.detail ?? "", done: w.done ?? 0, total: w.total || undefined };
  }

  /** Finishes a build, and reports its events until its end. */
  private async *made(id: string, options: BuildSnapshotOptions): AsyncGenerator<SnapshotBuildEvent, void, undefined> {
    const left = new AbortController();
    const { signal } = left;
    const forward = () => left.abort(options.signal?.reason);
    if (options.signal?.aborted) forward();
    else options.signal?.addEventListener("abort", forward, { once: true });
    const reporter = new Reporter();
    const answer = this.finish(id, { ...options, signal }).then(
      (snapshot): End => ({ snapshot }),
      (err: unknown): End => ({ err }),
    );
    try {
      for (;;) {
        const end = await Promise.race([answer, pause(signal)]);
        if (unanswered(end?.err)) return yield* this.rejoin(id, reporter, end.err, signal);
        // Progress that cannot be read is omitted: the answer has the reason.
        yield* (await this.newEvents(id, reporter, signal).catch(() => undefined))?.events ?? [];
        // eslint-disable-next-line @typescript-eslint/only-throw-error -- finish threw it
        if (end?.err !== undefined) throw end.err;
        if (end?.snapshot !== undefined) return yield { type: "done", snapshot: end.snapshot, unchanged: false };
      }
    } finally {
      options.signal?.removeEventListener("abort", forward);
      left.abort(); // whoever leaves the loop waits for no answer
    }
  }

  /** Reports the events of a build whose finish will not be answered any more; the build continues. */
  private async *rejoin(
    id: string,
    reporter: Reporter,
    broke: ModboxError,
    signal: AbortSignal,
  ): AsyncGenerator<SnapshotBuildEvent, void, undefined> {
    for (;;) {
      const { at, events } = await this.newEvents(id, reporter, signal);
      yield* events;
      if (at.phase === "begun") throw broke; // the server did not receive the finish
      if (at.phase === "failed") throw newError({ code: "internal", message: at.message });
      if (at.phase === "done") return yield { type: "done", snapshot: await this.snapshot(id, signal), unchanged: false };
      await pause(signal);
    }
  }

  private async newEvents(id: string, reporter: Reporter, signal: AbortSignal): Promise<{ at: SnapshotBuildProgress; events: SnapshotBuildEvent[] }> {
    const at = await this.progress(id, { signal }); // first, because the log is complete when a build has ended
    const lines = reporter.lines(await this.fetchLog(id, signal));
    return { at, events: [...lines.map((line) => ({ type: "line" as const, ...line })), ...reporter.progress(at)] };
  }

  private async begin(runtime: string, options: BuildSnapshotOptions): Promise<wire.SnapshotBuild> {
    const { signal } = options;
    const json: wire.BeginSnapshotBuild = { ...schemas.encodeBuildSnapshotOptions(options), runtime };
    return this.http.json({ method: "POST", path: "/v1/snapshot-builds", json, signal, timeoutMs: 0, repeatable: false });
  }

  private async upload(id: string, { files, signal }: BuildSnapshotOptions): Promise<void> {
    if (files === undefined) return;
    const headers = { "content-type": "application/gzip" };
    await this.http.done({ method: "PUT", path: `${buildPath(id)}/files`, body: files, headers, signal, timeoutMs: 0, repeatable: false });
  }

  private async finish(id: string, { aptPackages, npmPackages, pipPackages, env, waitForQuotaSeconds, signal }: BuildSnapshotOptions): Promise<Snapshot> {
    const contents = { apt_packages: aptPackages && [...aptPackages], npm_packages: npmPackages && [...npmPackages], pip_packages: pipPackages && [...pipPackages], env };
    const w = await waitForQuota(waitForQuotaSeconds, (seconds) => {
      const json: wire.FinishSnapshotBuild = { ...contents, wait_for_quota_seconds: seconds };
      return this.http.json<wire.Snapshot>({ method: "POST", path: `${buildPath(id)}/finish`, json, signal, timeoutMs: 0, repeatable: false });
    });
    return schemas.snapshot(w);
  }

  private async fetchLog(id: string, signal: AbortSignal | undefined): Promise<wire.SnapshotBuildLog> {
    return this.http.json({ method: "GET", path: `${buildPath(id)}/log`, signal, repeatable: true });
  }

  private async snapshot(id: string, signal: AbortSignal): Promise<Snapshot> {
    const path = `/v1/snapshots/${segment(id)}`;
    return schemas.snapshot(await this.http.json<wire.Snapshot>({ method: "GET", path, signal, repeatable: true }));
  }
}

/** The result of a finish. */
interface End {
  snapshot?: Snapshot;
  err?: unknown;
}

/** Remembers the reported events of a build, and returns only new events. */
class Reporter {
  private last: wire.SnapshotBuildLine | undefined;
  private at = "";

  lines(log: wire.SnapshotBuildLog): SnapshotBuildLine[] {
    const { last } = this;
    // The server keeps the last lines only, so the position of the last reported line may have changed.
    let next = log.lines.length;
    while (next > 0 && !(last && same(last, log.lines[next - 1]!))) next--;
    const fresh = log.lines.slice(next);
    this.last = fresh.at(-1) ?? last;
    return fresh.map((l, i) => ({ time: l.time, phase: l.phase, message: l.message, truncated: log.truncated && next + i === 0 }));
  }

  progress(at: SnapshotBuildProgress): SnapshotBuildEvent[] {
    const event = { type: "progress" as const, ...at };
    const text = JSON.stringify(event);
    if (text === this.at || ["begun", "done", "failed"].includes(at.phase)) return [];
    this.at = text;
    return [event];
  }
}

/** Consecutive lines differ, and times are in nanoseconds. */
function same(a: wire.SnapshotBuildLine, b: wire.SnapshotBuildLine): boolean {
  return a.time === b.time && a.phase === b.phase && a.message === b.message;
}

/** Whether an error leaves the state of the build open: the connection broke, or a proxy did not wait for the server's answer. */
function unanswered(err: unknown): err is ModboxError {
  if (!(err instanceof ModboxError)) return false;
  return err.code === "connection" || (err.requestId === undefined && (err.status === 502 || err.status === 504));
}

/** Adds the build to the message of an error: the log of the build has details. */
function named(err: unknown, id: string): unknown {
  if (err instanceof ModboxError) err.message = `build ${id}: ${err.message}`;
  return err;
}

/** Waits, at most until the signal aborts; the next call that uses the signal throws. */
function pause(signal: AbortSignal | undefined): Promise<undefined> {
  return new Promise((resolve) => {
    const end = () => {
      clearTimeout(timer);
      signal?.removeEventListener("abort", end);
      resolve(undefined);
    };
    const timer = setTimeout(end, pauseMs);
    if (signal?.aborted) end();
    else signal?.addEventListener("abort", end, { once: true });
  });
}

function buildPath(id: string): string {
  return `/v1/snapshot-builds/${segment(id)}`;
}
