import * as schemas from "./schemas.js";
import type { HTTP } from "./http.js";
import { callMembers, checkMembers } from "./known.js";
import { waitSlackMs } from "./limits.js";
import { pages, type PagePromise } from "./page.js";
import { segment } from "./path.js";
import type { CreateWebhookOptions, NewWebhook, Webhook, WebhookDelivery, WebhookDeliveryState } from "./schemas.js";
import type { CallOptions, PageOptions } from "./types.js";

/** The settings to change. Empty `types` are all. `enabled: false` cancels the deliveries that wait. */
export type UpdateWebhookOptions = Partial<CreateWebhookOptions>;

export interface RotateWebhookOptions extends CallOptions {
  /** How long the secret before signs as well; a day by default, and at most. */
  overlapSeconds?: number | undefined;
}

export interface ListDeliveriesOptions extends PageOptions {
  state?: WebhookDeliveryState | undefined;
}

export interface GetDeliveryOptions extends CallOptions {
  /** Wait for the end of an attempt that is due or under way, at most this long; 60 at most. */
  waitSeconds?: number | undefined;
}

/** The webhooks of the workspace: addresses to which the server sends events. Safe for concurrent use. */
export class Webhooks {
  constructor(private readonly http: HTTP) {}

  /** Adds a webhook, which gets the events from now on. Keep its secret: no other call returns it. Never sent twice. */
  async create(options: CreateWebhookOptions): Promise<NewWebhook> {
    const { signal } = options;
    const json = schemas.encodeCreateWebhookOptions(options);
    return schemas.newWebhook(await this.http.json({ method: "POST", path: "/v1/webhooks", json, signal, repeatable: false }));
  }

  /** Lists them, the oldest first. */
  list(options: PageOptions = {}): PagePromise<Webhook> {
    return pages(this.http, options, () => ({ path: "/v1/webhooks" }), schemas.webhook);
  }

  async get(id: string, options: CallOptions = {}): Promise<Webhook> {
    checkMembers("CallOptions", options, callMembers);
    return schemas.webhook(await this.http.json({ method: "GET", path: at(id), signal: options.signal, repeatable: true }));
  }

  /** Changes the given settings. */
  async update(id: string, options: UpdateWebhookOptions): Promise<Webhook> {
    checkMembers("UpdateWebhookOptions", options, schemas.createWebhookOptionsMembers);
    const { signal, ...json } = options;
    return schemas.webhook(await this.http.json({ method: "PATCH", path: at(id), json, signal, repeatable: true }));
  }

  /** Deletes a webhook with its deliveries. */
  async delete(id: string, options: CallOptions = {}): Promise<void> {
    checkMembers("CallOptions", options, callMembers);
    await this.http.done({ method: "DELETE", path: at(id), signal: options.signal, repeatable: false });
  }

  /** Gives a webhook another secret, and returns it. The secret before signs as well for a time. Never sent twice. */
  async rotate(id: string, options: RotateWebhookOptions = {}): Promise<NewWebhook> {
    checkMembers("RotateWebhookOptions", options, { ...callMembers, overlapSeconds: true });
    const json = { overlap_seconds: options.overlapSeconds };
    const path = `${at(id)}/rotate`;
    return schemas.newWebhook(await this.http.json({ method: "POST", path, json, signal: options.signal, repeatable: false }));
  }

  /** Sends a delivery of type `ping`. */
  async test(id: string, options: CallOptions = {}): Promise<WebhookDelivery> {
    checkMembers("CallOptions", options, callMembers);
    const path = `${at(id)}/test`;
    return schemas.webhookDelivery(await this.http.json({ method: "POST", path, signal: options.signal, repeatable: false }));
  }

  /** Lists the deliveries of a webhook, the newest first. */
  deliveries(id: string, options: ListDeliveriesOptions = {}): PagePromise<WebhookDelivery> {
    const { state } = options;
    return pages(this.http, options, () => ({ path: `${at(id)}/deliveries`, query: { state } }), schemas.webhookDelivery, { state: true });
  }

  async delivery(id: string, delivery: string, options: GetDeliveryOptions = {}): Promise<WebhookDelivery> {
    checkMembers("GetDeliveryOptions", options, { ...callMembers, waitSeconds: true });
    const { waitSeconds, signal } = options;
    const path = `${at(id)}/deliveries/${segment(delivery)}`;
    const timeoutMs = waitSeconds ? waitSeconds * 1_000 + waitSlackMs : undefined;
    const query = { wait_seconds: waitSeconds };
    return schemas.webhookDelivery(await this.http.json({ method: "GET", path, query, signal, timeoutMs, repeatable: true }));
  }

  /** Sends a delivery again at once, with the same id. */
  async redeliver(id: string, delivery: string, options: CallOptions = {}): Promise<WebhookDelivery> {
    checkMembers("CallOptions", options, callMembers);
    const path = `${at(id)}/deliveries/${segment(delivery)}/redeliver`;
    return schemas.webhookDelivery(await this.http.json({ method: "POST", path, signal: options.signal, repeatable: false }));
  }
}

function at(id: string): string {
  return `/v1/webhooks/${segment(id)}`;
}
