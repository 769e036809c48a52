/** hosted returns the URL of a sandbox or of a port in the form with a host of its own, or null if it has none: its page
 * can be in a frame only there. A server at a loopback address has both forms. */
export function hosted(url: string): URL | null {
	const u = new URL(url);
	const [, label] = /^\/s\/([a-z0-9-]+)\/?$/.exec(u.pathname) ?? [];
	if (!label) return u;
	if (u.protocol !== "http:" || !/^(localhost|127\.[\d.]+|\[::1\])$/.test(u.hostname)) return null;
	u.hostname = `${label}.localhost`;
	u.pathname = "/";
	return u;
}
