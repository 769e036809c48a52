// Calls of the API about the machine of the server.
import { call, type Schemas } from "../api.ts";

export type Host = Schemas["Host"];
export type HostOperation = Schemas["HostOperation"];

export const host = (signal?: AbortSignal) => call<Host>("GET", "/host", undefined, signal);
