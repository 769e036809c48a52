import { Compass } from "lucide-react";
import { Link } from "wouter";
import { useTitle } from "../hooks.ts";
import { Empty } from "../parts.tsx";

export function NotFoundPage() {
	useTitle("Not found");
	return <Empty icon={<Compass size={22} />} title="There is no such page" text="The address may be mistyped, or of another version of the console."><Link href="/" className="button">Go to the sandboxes</Link></Empty>;
}
