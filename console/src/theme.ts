// Dark or light: as the system is, unless the user has chosen.
export type Theme = "system" | "light" | "dark";
const key = "modbox.theme";

export function theme(): Theme {
	const stored = localStorage.getItem(key);
	return stored === "light" || stored === "dark" ? stored : "system";
}

export function applyTheme(chosen: Theme = theme()) {
	if (chosen === "system") localStorage.removeItem(key);
	else localStorage.setItem(key, chosen);
	const dark = chosen === "dark" || (chosen === "system" && matchMedia("(prefers-color-scheme: dark)").matches);
	document.documentElement.dataset.theme = dark ? "dark" : "light";
}

matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => applyTheme());
