// Errors in the code of the console: what failed is replaced by a message, and the rest of the page stays.
import { CircleAlert } from "lucide-react";
import { Component, type ReactNode } from "react";
import { importAgain } from "./late.ts";
import { Empty } from "./parts.tsx";

interface Props {
	/** The part is shown again when this changes. */
	at: unknown;
	/** What is shown when the part has failed; the function shows the part again. */
	instead: (again: () => void) => ReactNode;
	children: ReactNode;
}

/** Boundary shows something else instead of its children when they fail. */
export class Boundary extends Component<Props, { failed: boolean }> {
	override state = { failed: false };

	static getDerivedStateFromError = () => ({ failed: true });

	override componentDidUpdate(was: Props) {
		if (this.state.failed && was.at !== this.props.at) this.#again();
	}

	override componentWillUnmount() {
		if (this.state.failed) importAgain();
	}

	#again = () => {
		importAgain();
		this.setState({ failed: false });
	};

	override render() {
		return this.state.failed ? this.props.instead(this.#again) : this.props.children;
	}
}

/** PageBoundary is for a page, or for a tab of it. */
export function PageBoundary({ at, children }: { at: string; children: ReactNode }) {
	return (
		<Boundary
			at={at}
			instead={(again) => (
				<div role="alert">
					<Empty icon={<CircleAlert size={22} />} title="This page failed" text="Sandboxes and their programs go on. Load the console again: it may be older than the server. If the page fails again, tell the administrator what the browser's console says.">
						<div className="buttons">
							<button type="button" className="button primary" onClick={() => location.reload()}>Load the console again</button>
							<button type="button" className="button" onClick={again}>Show the page again</button>
						</div>
					</Empty>
				</div>
			)}
		>
			{children}
		</Boundary>
	);
}
