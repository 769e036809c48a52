package console

import "net/http"

// outputPath is the page in which the notebook shows HTML that code in a sandbox has made. The console
// frames it and gives it the HTML as a message.
const outputPath = "/output.html"

// outputPolicy is the content security policy of that page. The page has no origin, so that
// its HTML has no cookie and no access to the console's pages; it makes no request, and it opens no window. Scripts
// and styles of the HTML may do all else to the frame in which they are.
const outputPolicy = "sandbox allow-scripts; default-src 'none'; script-src 'unsafe-inline' 'unsafe-eval'; style-src 'unsafe-inline'; " +
	"img-src data:; font-src data:; media-src data:; frame-ancestors 'self'; base-uri 'none'; form-action 'none'"

// protectOutput sets the headers of that page in place of the headers of [protect].
func protectOutput(h http.Header) {
	h.Set("Content-Security-Policy", outputPolicy)
	h.Set("X-Frame-Options", "SAMEORIGIN")
}
