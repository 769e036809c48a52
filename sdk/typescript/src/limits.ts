/**
 * The longest wait asked for in one request. The server allows 600, but fetch of
 * Node gives up after 300 s without an answer; longer waits are several requests.
 */
export const maxWaitSeconds = 240;

/** How much longer than a wait the client waits for its answer. */
export const waitSlackMs = 15_000;
