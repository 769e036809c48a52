import { Modbox, type ModboxOptions } from "./client.js";
import {
  Platform,
  type AddedWorkspaceMember,
  type AddWorkspaceMemberParams,
  type CreateRegistryParams,
  type CreateSandboxImageParams,
  type CreateWorkspaceParams,
  type DestroySandboxParams,
  type DestroySandboxResult,
  type ListSandboxesParams,
  type ListSandboxesResult,
  type PlatformWorkspace,
  type ProvisionSandboxParams,
  type ProvisionSandboxResult,
  type RegistryCredentialDetail,
  type SandboxDetail,
  type SandboxImageDetail,
  type UpdateSandboxImageParams,
  type WaitForSandboxParams,
  type WaitForSandboxResult,
} from "./platform.js";
import type { CallOptions } from "./types.js";

/**
 * The client of the Modbox platform, for compatibility: programs written for the platform run unchanged against this server. It is a
 * {@link Modbox} with the platform's calls. New programs use {@link Sandbox} and {@link Modbox}.
 */
export class ModboxClient extends Modbox {
  private readonly platform: Platform;

  constructor(options: ModboxOptions = {}) {
    super(options);
    this.platform = new Platform(this.http);
  }

  /**
   * Asks for a sandbox and returns at once. The same request for a live task
   * returns the sandbox that is there; a different one throws a ConflictError.
   */
  provisionSandbox(params: ProvisionSandboxParams): Promise<ProvisionSandboxResult> {
    return this.platform.provision(params);
  }

  /** Waits until the sandbox is running, or has ended, or the time has passed: look at `ready`. */
  waitForSandbox(params: WaitForSandboxParams): Promise<WaitForSandboxResult> {
    return this.platform.wait(params);
  }

  /** Returns a sandbox by its id or its task id. */
  getSandbox(idOrTaskId: string, options: CallOptions = {}): Promise<SandboxDetail> {
    return this.platform.get(idOrTaskId, options);
  }

  /** Ends a sandbox and frees everything it held. A task without one is no error: look at `success`. */
  destroySandbox(params: DestroySandboxParams): Promise<DestroySandboxResult> {
    return this.platform.destroy(params);
  }

  /** Lists sandboxes, all, or all of one status. */
  listSandboxes(params: ListSandboxesParams = {}): Promise<ListSandboxesResult> {
    return this.platform.list(params);
  }

  /** Lists the images that `imageId` may name. */
  listSandboxImages(options: CallOptions = {}): Promise<SandboxImageDetail[]> {
    return this.platform.images(options);
  }

  /** Adds an image to the workspace, for `imageId`. */
  createSandboxImage(params: CreateSandboxImageParams): Promise<SandboxImageDetail> {
    return this.platform.createImage(params);
  }

  /** Changes the given settings of an image. */
  updateSandboxImage(imageId: string, params: UpdateSandboxImageParams): Promise<SandboxImageDetail> {
    return this.platform.updateImage(imageId, params);
  }

  /** Adds a registry to the workspace, whose images are pulled with it. */
  createRegistry(params: CreateRegistryParams): Promise<RegistryCredentialDetail> {
    return this.platform.createRegistry(params);
  }

  /** Makes a workspace that the caller owns. */
  createWorkspace(params: CreateWorkspaceParams): Promise<PlatformWorkspace> {
    return this.platform.createWorkspace(params);
  }

  /** Lists the caller's workspaces, without their members. */
  async listWorkspaces(options: CallOptions = {}): Promise<{ workspaces: PlatformWorkspace[] }> {
    return { workspaces: await this.platform.workspaces(options) };
  }

  /** Returns a workspace with its members. */
  getWorkspace(workspaceId: string, options: CallOptions = {}): Promise<PlatformWorkspace> {
    return this.platform.workspace(workspaceId, options);
  }

  /** Adds the user of an e-mail address to a workspace, or invites it. */
  addWorkspaceMember(workspaceId: string, params: AddWorkspaceMemberParams): Promise<AddedWorkspaceMember> {
    return this.platform.addMember(workspaceId, params);
  }
}
