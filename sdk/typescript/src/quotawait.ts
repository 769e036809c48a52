import { ModboxError } from "./errors.js";
import { maxWaitSeconds } from "./limits.js";

/** Tolerance for the difference between the server's clock and this clock. */
const earlyMs = 5_000;

/**
 * Makes a request that may wait for quota for a number of seconds; undefined does not wait. A wait that
 * exceeds the limit of a request is divided into several requests; each joins the queue at its end.
 */
export async function waitForQuota<T>(seconds: number | undefined, ask: (seconds: number | undefined) => Promise<T>): Promise<T> {
  let left = seconds;
  while (left !== undefined && left > maxWaitSeconds) {
    const began = Date.now();
    try {
      return await ask(maxWaitSeconds);
    } catch (err) {
      // An early refusal is final: waiting does not help.
      const early = Date.now() - began < maxWaitSeconds * 1_000 - earlyMs;
      if (early || !(err instanceof ModboxError) || err.code !== "quota_exceeded") throw err;
    }
    left -= maxWaitSeconds;
  }
  return ask(left);
}
