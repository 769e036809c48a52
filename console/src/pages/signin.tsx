import { KeyRound, LogIn, Ticket } from "lucide-react";
import { type FormEvent, useEffect, useState } from "react";
import { ApiError, api, message } from "../api.ts";
import { useTitle } from "../hooks.ts";
import { Field, Logo } from "../parts.tsx";

type Way = "password" | "token" | "code";

/** returned says why a sign-in through another service did not succeed: its code is in the address. */
function returned(): string {
	switch (new URLSearchParams(location.search).get("sign_in")) {
		case null:
			return "";
		case "forbidden":
			return "Your account at the other service may not sign in here. Ask an administrator to invite its e-mail address.";
		default:
			return "The sign-in at the other service did not succeed. Begin again.";
	}
}

export function SignInPage({ ended, onDone }: { ended: boolean; onDone: () => void }) {
	useTitle("Sign in");
	const [way, setWay] = useState<Way>("password");
	const [providers, setProviders] = useState<string[]>([]);
	const [error, setError] = useState(returned);
	const [fields, setFields] = useState<Record<string, string>>({});
	const [busy, setBusy] = useState(false);
	useEffect(() => {
		api.providers().then(setProviders, () => {}); // a server that does not answer says so at the sign-in
	}, []);

	const submit = async (e: FormEvent<HTMLFormElement>) => {
		e.preventDefault();
		const form = new FormData(e.currentTarget);
		const text = (name: string) => (form.get(name) ?? "") as string;
		setBusy(true);
		setError("");
		setFields({});
		try {
			if (way === "password") await api.signIn(text("username"), text("password"));
			else if (way === "token") await api.signInByToken(text("token"));
			else await api.acceptCode(text("code").trim(), text("name"), text("password"));
			if (!(await api.session())) {
				setError("The browser did not keep the session. Browsers keep the console's cookie only over HTTPS, or on their own machine; see docs/console.md.");
			} else {
				history.replaceState(null, "", location.pathname);
				onDone();
			}
		} catch (err) {
			setError(message(err));
			if (err instanceof ApiError) setFields(err.fields);
		}
		setBusy(false);
	};
	const change = (to: Way) => {
		setWay(to);
		setError("");
		setFields({});
	};

	return (
		<main className="blank">
			<div className="sign-in">
				<Logo />
				<h1>Sign in</h1>
				{ended && !error && <p role="status" className="alert info">Your session has ended: it expired, or you signed out elsewhere. Sign in again to go on where you were.</p>}
				{error && <p role="alert" className="alert">{error}</p>}
				<form key={way} onSubmit={submit}>
					{way === "password" && (
						<>
							<Field label="Name or e-mail address" error={fields.username}>{(p) => <input {...p} name="username" autoComplete="username" autoCapitalize="none" spellCheck={false} required autoFocus />}</Field>
							<Field label="Password" error={fields.password}>{(p) => <input {...p} name="password" type="password" autoComplete="current-password" required />}</Field>
						</>
					)}
					{way === "token" && (
						<Field label="API token" hint="The console acts with the token's permissions, until you sign out here." error={fields.token}>
							{(p) => <input {...p} name="token" type="password" autoComplete="off" placeholder="mbx_…" required autoFocus />}
						</Field>
					)}
					{way === "code" && (
						<>
							<Field label="Code" hint="Of an invitation, or of a new or reset password." error={fields.code}>{(p) => <input {...p} name="code" autoComplete="off" spellCheck={false} required autoFocus />}</Field>
							<Field label="Your name" hint="Only for an invitation to a new account." error={fields.name}>{(p) => <input {...p} name="name" autoComplete="username" autoCapitalize="none" spellCheck={false} />}</Field>
							<Field label="New password" error={fields.password}>{(p) => <input {...p} name="password" type="password" autoComplete="new-password" required />}</Field>
						</>
					)}
					<button type="submit" className="button primary full" disabled={busy}>{busy ? "Signing in…" : "Sign in"}</button>
				</form>
				<div className="or"><span>or</span></div>
				<div className="ways">
					{providers.map((name) => <a key={name} className="button full" href={`/session/providers/${encodeURIComponent(name)}`}><LogIn size={15} aria-hidden="true" />Continue with {name}</a>)}
					{way !== "password" && <button type="button" className="button full" onClick={() => change("password")}><LogIn size={15} aria-hidden="true" />Use a password</button>}
					{way !== "token" && <button type="button" className="button full" onClick={() => change("token")}><KeyRound size={15} aria-hidden="true" />Use an API token</button>}
					{way !== "code" && <button type="button" className="button full" onClick={() => change("code")}><Ticket size={15} aria-hidden="true" />Use a code</button>}
				</div>
			</div>
		</main>
	);
}
