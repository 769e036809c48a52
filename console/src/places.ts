// The pages beside the sandboxes, with their places in the navigation; each is loaded when it is shown.
import { Camera, Gauge, Image, KeyRound, type LucideIcon, Server, ScrollText, Users, Warehouse } from "lucide-react";
import type { ComponentType } from "react";
import { late } from "./late.ts";

export interface PageProps {
	/** What follows the path of the page in the address; "" for nothing. */
	part: string;
}

interface Place {
	path: string;
	name: string;
	icon: LucideIcon;
	/** The permission without which the page shows nothing. */
	needs: string;
	Page: ComponentType<PageProps>;
}

export const places: Place[] = [
	{ path: "/images", name: "Images", icon: Image, needs: "images:read", Page: late(() => import("./pages/images.tsx")) },
	{ path: "/snapshots", name: "Snapshots", icon: Camera, needs: "sandboxes:read", Page: late(() => import("./pages/snapshots.tsx")) },
	{ path: "/registries", name: "Registries", icon: Warehouse, needs: "images:read", Page: late(() => import("./pages/registries.tsx")) },
	{ path: "/workspace", name: "Workspace", icon: Users, needs: "workspaces:read", Page: late(() => import("./pages/workspace.tsx")) },
	{ path: "/quota", name: "Quota", icon: Gauge, needs: "workspaces:read", Page: late(() => import("./pages/quota.tsx")) },
	{ path: "/tokens", name: "Tokens", icon: KeyRound, needs: "tokens:read", Page: late(() => import("./pages/tokens.tsx")) },
	{ path: "/audit", name: "Audit log", icon: ScrollText, needs: "audit:read", Page: late(() => import("./pages/audit.tsx")) },
	{ path: "/host", name: "Host", icon: Server, needs: "admin", Page: late(() => import("./pages/host.tsx")) },
];
