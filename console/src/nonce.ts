// The content security policy permits style elements with the nonce of the page only. Libraries that
// make such elements (the dialogs' scroll lock, the terminal, the editor) get them with the nonce.
export const nonce = document.querySelector<HTMLScriptElement>("script[nonce]")?.nonce ?? "";
const create = document.createElement.bind(document);

document.createElement = (name: string, options?: ElementCreationOptions) => {
	const element = create(name, options);
	if (element instanceof HTMLStyleElement) element.nonce = nonce;
	return element;
};
