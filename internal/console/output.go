package console

import "net/http"

// outputPath is the page in which the notebook shows HTML that code in a sandbox has made. The console
// frames it and gives it the HTML as a message.
const outputPath = "/output.html"

// outputPolicy is the content security policy of that page, and of the frame in it that has the HTML. The HTML has no
// origin, so that it has no cookie and no access to the console's pages or to the page around it; it makes no request,
// its frame and frames in it go to no host, and it opens no window. Scripts and styles of the HTML may do all else to
// the frame in which they are.
const outputPolicy = "sandbox allow-scripts; default-src 'none'; frame-src 'none'; script-src 'unsafe-inline' 'unsafe-eval'; style-src 'unsafe-inline'; " +
	"img-src data:; font-src data:; media-src data:; frame-ancestors 'self'; base-uri 'none'; form-action 'none'"

// protectOutput sets the headers of that page in place of the headers of [protect]. Connection-Allowlist is for WebRTC and
// hints to connect, which the content security policy does not concern. Newer versions of Chromium know that header, and end a
// page that uses WebRTC nevertheless; no other browser knows it. Chromium does not know the directive webrtc.
func protectOutput(h http.Header) {
	h.Set("Content-Security-Policy", outputPolicy)
	h.Set("Connection-Allowlist", "()")
	h.Set("X-Frame-Options", "SAMEORIGIN")
}
