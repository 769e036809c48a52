import * as schemas from "./schemas.js";
import type { HTTP } from "./http.js";
import { callMembers, checkMembers, type Members } from "./known.js";
import { pages, type PagePromise } from "./page.js";
import { sandboxPath, segment } from "./path.js";
import type { CallOptions, PageOptions } from "./types.js";
import type * as wire from "./wire.js";
import type { DesktopScreen, DesktopWindow, Point, Recording, RecordOptions } from "./schemas.js";

/** A page size with which a page has all windows of a screen. */
const allWindows = 1000;

/** The part of the screen that a picture shows; the whole screen when omitted. */
export interface ScreenshotOptions extends CallOptions {
  x?: number | undefined;
  y?: number | undefined;
  width?: number | undefined;
  height?: number | undefined;
  /** Show the mouse pointer. */
  pointer?: boolean | undefined;
}

/** A button of the mouse. */
export type MouseButton = "left" | "middle" | "right";

/** A use of the mouse or the keyboard. */
export interface DesktopAction {
  type: "move" | "click" | "mouse_down" | "mouse_up" | "drag" | "scroll" | "type" | "key" | "key_down" | "key_up" | "wait";
  /** `move`, `drag`: the position, required. `click`, `mouse_down`, `mouse_up`, `scroll`: the pointer moves there first. */
  at?: Point | undefined;
  /** `drag`: where the button is released. */
  to?: Point | undefined;
  /** `click`, `mouse_down`, `mouse_up`, `drag`; default `left`. */
  button?: MouseButton | undefined;
  /** `click`: 2 for a double click; default 1. */
  clicks?: number | undefined;
  /** `scroll`; default `down`. */
  direction?: "up" | "down" | "left" | "right" | undefined;
  /** `scroll`: steps of the wheel; default 3. */
  amount?: number | undefined;
  /** `type`: the text. */
  text?: string | undefined;
  /** `key`, `key_down`, `key_up`: keys pressed together, such as `ctrl+l`; several combinations are separated by spaces. */
  keys?: string | undefined;
  /** `click`, `drag`, `scroll`: keys that are held down meanwhile. */
  hold?: readonly string[] | undefined;
  /** `wait`: milliseconds, at most 10,000; default 500. */
  durationMs?: number | undefined;
}

/** How to click. */
export interface ClickOptions extends CallOptions {
  /** Default `left`. */
  button?: MouseButton | undefined;
  /** 2 for a double click; default 1. */
  clicks?: number | undefined;
  /** Keys that are held down meanwhile, such as `shift`. */
  hold?: readonly string[] | undefined;
}

/** How to drag. */
export interface DragOptions extends CallOptions {
  /** Default `left`. */
  button?: MouseButton | undefined;
  /** Keys that are held down meanwhile. */
  hold?: readonly string[] | undefined;
}

/** How to scroll. */
export interface ScrollOptions extends CallOptions {
  /** Default `down`. */
  direction?: "up" | "down" | "left" | "right" | undefined;
  /** Steps of the wheel; default 3. */
  amount?: number | undefined;
  /** Keys that are held down meanwhile. */
  hold?: readonly string[] | undefined;
}

const screenshotMembers: Members<ScreenshotOptions> = { ...callMembers, x: true, y: true, width: true, height: true, pointer: true };
const clickMembers: Members<ClickOptions> = { ...callMembers, button: true, clicks: true, hold: true };
const dragMembers: Members<DragOptions> = { ...callMembers, button: true, hold: true };
const scrollMembers: Members<ScrollOptions> = { ...callMembers, direction: true, amount: true, hold: true };
const actionMembers: Members<DesktopAction> = {
  type: true, at: true, to: true, button: true, clicks: true, direction: true, amount: true, text: true, keys: true, hold: true, durationMs: true,
};

/**
 * The screen of a sandbox, used as a person would. The image `modbox/sandbox` has a desktop; for a sandbox without one all calls
 * throw code `unsupported`. Programs take a moment to react: take a screenshot after what you do. Safe for concurrent use.
 */
export class Desktop {
  /** @internal */
  constructor(
    private readonly http: HTTP,
    private readonly ref: string,
  ) {}

  /** Returns the size of the screen and the position of the pointer. */
  async screen(options: CallOptions = {}): Promise<DesktopScreen> {
    checkMembers("CallOptions", options, callMembers);
    const w = await this.http.json<wire.Desktop>({ method: "GET", path: this.path(""), signal: options.signal, repeatable: true });
    return schemas.desktop(w);
  }

  /** Changes the size of the screen. */
  async resize(width: number, height: number, options: CallOptions = {}): Promise<DesktopScreen> {
    checkMembers("CallOptions", options, callMembers);
    const json: wire.ResizeDesktop = { width, height };
    const w = await this.http.json<wire.Desktop>({ method: "PATCH", path: this.path(""), json, signal: options.signal, repeatable: true });
    return schemas.desktop(w);
  }

  /** Takes a picture of the screen or a part of it, a PNG. */
  async screenshot(options: ScreenshotOptions = {}): Promise<Uint8Array> {
    checkMembers("ScreenshotOptions", options, screenshotMembers);
    const { signal, ...query } = options;
    const response = await this.http.raw({ method: "GET", path: this.path("/screenshot"), query, signal, repeatable: true });
    return new Uint8Array(await response.arrayBuffer());
  }

  /** Performs actions, one after the other; never sent twice. */
  async act(actions: readonly DesktopAction[], options: CallOptions = {}): Promise<void> {
    checkMembers("CallOptions", options, callMembers);
    for (const action of actions) checkMembers("DesktopAction", action, actionMembers);
    const json = { actions: actions.map(({ durationMs, ...action }) => ({ ...action, duration_ms: durationMs })) };
    await this.http.done({ method: "POST", path: this.path("/actions"), json, signal: options.signal, timeoutMs: 0, repeatable: false });
  }

  /** Moves the pointer. */
  move(x: number, y: number, options: CallOptions = {}): Promise<void> {
    return this.act([{ type: "move", at: { x, y } }], options);
  }

  /** Clicks. */
  async click(x: number, y: number, options: ClickOptions = {}): Promise<void> {
    checkMembers("ClickOptions", options, clickMembers);
    const { signal, button, clicks, hold } = options;
    return this.act([{ type: "click", at: { x, y }, button, clicks, hold }], { signal });
  }

  /** Clicks twice. */
  doubleClick(x: number, y: number, options: ClickOptions = {}): Promise<void> {
    return this.click(x, y, { clicks: 2, ...options });
  }

  /** Clicks with the right button. */
  rightClick(x: number, y: number, options: ClickOptions = {}): Promise<void> {
    return this.click(x, y, { button: "right", ...options });
  }

  /** Drags from a position to another. */
  async drag(from: Point, to: Point, options: DragOptions = {}): Promise<void> {
    checkMembers("DragOptions", options, dragMembers);
    const { signal, button, hold } = options;
    return this.act([{ type: "drag", at: from, to, button, hold }], { signal });
  }

  /** Turns the wheel at a position. */
  async scroll(x: number, y: number, options: ScrollOptions = {}): Promise<void> {
    checkMembers("ScrollOptions", options, scrollMembers);
    const { signal, direction, amount, hold } = options;
    return this.act([{ type: "scroll", at: { x, y }, direction, amount, hold }], { signal });
  }

  /** Types a text, any Unicode. */
  type(text: string, options: CallOptions = {}): Promise<void> {
    return this.act([{ type: "type", text }], options);
  }

  /** Presses keys together, such as `ctrl+l` or `Return`; several combinations, one after the other, are separated by spaces. */
  press(keys: string, options: CallOptions = {}): Promise<void> {
    return this.act([{ type: "key", keys }], options);
  }

  /** Returns the windows, in the order of their ids. */
  async windows(options: CallOptions = {}): Promise<DesktopWindow[]> {
    checkMembers("CallOptions", options, callMembers);
    const request = () => ({ path: this.path("/windows") });
    return pages(this.http, { signal: options.signal, limit: allWindows }, request, schemas.desktopWindow).all();
  }

  /** Raises a window, by its id, and gives it the keyboard. */
  async focus(window: string, options: CallOptions = {}): Promise<void> {
    checkMembers("CallOptions", options, callMembers);
    await this.http.done({ method: "POST", path: this.path(`/windows/${segment(window)}/focus`), signal: options.signal, repeatable: false });
  }

  /** Closes a window, by its id: its program is asked to. */
  async close(window: string, options: CallOptions = {}): Promise<void> {
    checkMembers("CallOptions", options, callMembers);
    await this.http.done({ method: "DELETE", path: this.path(`/windows/${segment(window)}`), signal: options.signal, repeatable: false });
  }

  /** Opens a URL, or a file of the sandbox by its absolute path. */
  async open(target: string, options: CallOptions = {}): Promise<void> {
    checkMembers("CallOptions", options, callMembers);
    const json: wire.OpenOnDesktop = { target };
    await this.http.done({ method: "POST", path: this.path("/open"), json, signal: options.signal, repeatable: false });
  }

  /** Starts a program, which goes on. Throws code `program_not_found` for a program that the sandbox does not have. */
  async launch(command: readonly string[], options: CallOptions = {}): Promise<void> {
    checkMembers("CallOptions", options, callMembers);
    const json: wire.OpenOnDesktop = { command: [...command] };
    await this.http.done({ method: "POST", path: this.path("/open"), json, signal: options.signal, repeatable: false });
  }

  /** Begins a recording of the screen to a file in the sandbox, an MP4. Never sent twice. */
  async record(options: RecordOptions = {}): Promise<Recording> {
    const json: wire.StartRecording = schemas.encodeRecordOptions(options);
    const { signal } = options;
    const w = await this.http.json<wire.Recording>({ method: "POST", path: this.path("/recordings"), json, signal, repeatable: false });
    return schemas.recording(w);
  }

  /** Lists the recordings, newest first. A paused sandbox is not resumed; the list then has no sizes. */
  recordings(options: PageOptions = {}): PagePromise<Recording> {
    return pages(this.http, options, () => ({ path: this.path("/recordings") }), schemas.recording);
  }

  /** Returns a recording, by its id. */
  async recording(id: string, options: CallOptions = {}): Promise<Recording> {
    checkMembers("CallOptions", options, callMembers);
    const path = this.path(`/recordings/${segment(id)}`);
    const w = await this.http.json<wire.Recording>({ method: "GET", path, signal: options.signal, repeatable: true });
    return schemas.recording(w);
  }

  /** Ends a recording, by its id, and returns when its file is complete. */
  async stopRecording(id: string, options: CallOptions = {}): Promise<Recording> {
    checkMembers("CallOptions", options, callMembers);
    const path = this.path(`/recordings/${segment(id)}/stop`);
    const w = await this.http.json<wire.Recording>({ method: "POST", path, signal: options.signal, repeatable: true });
    return schemas.recording(w);
  }

  /** Ends a recording, by its id, and deletes its file, unless a later recording has the same path. */
  async deleteRecording(id: string, options: CallOptions = {}): Promise<void> {
    checkMembers("CallOptions", options, callMembers);
    await this.http.done({ method: "DELETE", path: this.path(`/recordings/${segment(id)}`), signal: options.signal, repeatable: false });
  }

  private path(call: string): string {
    return sandboxPath(this.ref, `/desktop${call}`);
  }
}
