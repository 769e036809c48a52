import { ModboxError } from "./errors.js";
import { maxWaitSeconds } from "./limits.js";

/** By how much an answer may seem to have come early: the server's clock is not this one. */
const earlyMs = 5_000;

/**
 * Asks for what may wait so many seconds for room in a quota; undefined is none. A wait that is longer than
 * one request may be is several, of which each begins at the end of the line.
 */
export async function waitForRoom<T>(seconds: number | undefined, ask: (seconds: number | undefined) => Promise<T>): Promise<T> {
  let left = seconds;
  while (left !== undefined && left > maxWaitSeconds) {
    const began = Date.now();
    try {
      return await ask(maxWaitSeconds);
    } catch (err) {
      // What is refused before its time is over does not get in by waiting.
      const early = Date.now() - began < maxWaitSeconds * 1_000 - earlyMs;
      if (early || !(err instanceof ModboxError) || err.code !== "quota_exceeded") throw err;
    }
    left -= maxWaitSeconds;
  }
  return ask(left);
}
