package gateway_test

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"mime/multipart"
	"net/http"
	"net/textproto"
	"strings"
	"testing"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"

	filepb "github.com/modbox/modbox/internal/dialect/e2b/envdpb/filesystem"
	pb "github.com/modbox/modbox/internal/dialect/e2b/envdpb/process"
)

// packed returns text compressed with gzip.
func packed(t *testing.T, text string) string {
	t.Helper()
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	if _, err := io.WriteString(z, text); err != nil {
		t.Fatal(err)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// do makes a request to the sandbox, with pairs of names and values of headers.
func (v *visitor) do(method, path string, body io.Reader, headers ...string) (*http.Response, string) {
	v.T.Helper()
	r, err := http.NewRequestWithContext(v.T.Context(), method, v.URL+path, body)
	if err != nil {
		v.T.Fatal(err)
	}
	for i := 0; i+1 < len(headers); i += 2 {
		r.Header.Add(headers[i], headers[i+1])
	}
	resp, err := v.client.Do(r)
	if err != nil {
		v.T.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		v.T.Fatal(err)
	}
	return resp, string(text)
}

// form returns a form with files, and its content type. The names are of the whole paths.
func form(t *testing.T, files ...string) (io.Reader, string) {
	t.Helper()
	var b bytes.Buffer
	w := multipart.NewWriter(&b)
	for i := 0; i+1 < len(files); i += 2 {
		part, err := w.CreatePart(textproto.MIMEHeader{"Content-Disposition": {`form-data; name="file"; filename="` + files[i] + `"`}})
		if err == nil {
			_, err = io.WriteString(part, files[i+1])
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return &b, w.FormDataContentType()
}

// TestUpload uploads files in all forms that the clients have.
func TestUpload(t *testing.T) {
	v := start(t)
	const raw = "application/octet-stream"
	two, twoType := form(t, "/up/dir/one", "1", "/up/two", "2")
	twice, twiceType := form(t, "/up/same", "1", "/up/dir/../same", "2")
	named, namedType := form(t, "ignored", "by path")
	nameless, namelessType := form(t, "", "x")
	for _, tc := range []struct {
		query    string
		body     io.Reader
		kind     string
		encoding string
		status   int
		said     string
	}{
		{"path=/up/raw", strings.NewReader("raw"), raw, "", 200, `"/up/raw"`},
		{"path=/up/raw&username=root", strings.NewReader("as root"), raw, "", 200, `"/up/raw"`},
		{"path=/up/packed", strings.NewReader(packed(t, strings.Repeat("packed ", 1000))), raw, "gzip", 200, `"/up/packed"`},
		{"", two, twoType, "", 200, `"/up/dir/one"`},
		{"path=/up/named", named, namedType, "", 200, `"/up/named"`},
		{"", twice, twiceType, "", 400, "twice"},
		{"", nameless, namelessType, "", 400, "path"},
		{"", strings.NewReader("x"), raw, "", 400, "path"},
		{"path=/up/x", strings.NewReader("x"), "text/plain", "", 400, "Content-Type"},
		{"path=/up/x", strings.NewReader("not packed"), raw, "gzip", 400, "gzip"},
		{"path=/up/cut", strings.NewReader(packed(t, strings.Repeat("cut", 1000))[:20]), raw, "gzip", 400, "gzip"},
		{"path=/up/x", strings.NewReader("x"), raw, "br", 400, "Content-Encoding"},
		{"path=/up/x&username=nobody-here", strings.NewReader("x"), raw, "", 401, "invalid username: 'nobody-here'"},
		{"path=/up", strings.NewReader("x"), raw, "", 400, "directory"},
	} {
		headers := []string{"Content-Type", tc.kind}
		if tc.encoding != "" {
			headers = append(headers, "Content-Encoding", tc.encoding)
		}
		if resp, text := v.do("POST", "/files?"+tc.query, tc.body, headers...); resp.StatusCode != tc.status || !strings.Contains(text, tc.said) {
			t.Errorf("upload of %s to %q = %d %s, want %d and %q", tc.kind, tc.query, resp.StatusCode, text, tc.status, tc.said)
		}
	}
	for path, want := range map[string]string{
		"/up/raw": "as root", "/up/packed": strings.Repeat("packed ", 1000), "/up/dir/one": "1", "/up/two": "2", "/up/named": "by path",
	} {
		if resp, text := v.do("GET", "/files?path="+path, nil); resp.StatusCode != http.StatusOK || text != want {
			t.Errorf("%s = %d %.100q, want %.100q", path, resp.StatusCode, text, want)
		}
	}
	for _, path := range []string{"/up/cut", "/up/x"} {
		if resp, text := v.do("GET", "/files?path="+path, nil); resp.StatusCode != http.StatusNotFound {
			t.Errorf("%s, whose upload was refused = %d %q", path, resp.StatusCode, text)
		}
	}
}

// TestDownload downloads files, compressed for clients that accept it.
func TestDownload(t *testing.T) {
	v := start(t)
	big := strings.Repeat("a line of text\n", 100_000)
	for path, text := range map[string]string{"/down/big": big, "/down/small": "small", "/down/empty": ""} {
		if resp, said := v.do("POST", "/files?path="+path, strings.NewReader(text), "Content-Type", "application/octet-stream"); resp.StatusCode != http.StatusOK {
			t.Fatalf("upload = %d %s", resp.StatusCode, said)
		}
	}
	for _, tc := range []struct {
		path, accepts, part string
		status              int
		encoding, length    string // of the answer; length "" is not compared
		want                string
	}{
		{"/down/big", "gzip, deflate", "", 200, "gzip", "", big},
		{"/down/big", "gzip;q=0", "", 200, "", "1500000", big},
		{"/down/big", "identity", "", 200, "", "1500000", big},
		{"/down/big", "zstd, br", "", 200, "", "1500000", big},
		{"/down/big", "gzip", "bytes=15-28", 206, "", "14", "a line of text"},
		{"/down/big", "identity", "bytes=1499995-", 206, "", "5", "text\n"},
		{"/down/small", "gzip", "", 200, "", "5", "small"},
		{"/down/empty", "gzip", "", 200, "", "0", ""},
		{"/down/none", "gzip", "", 404, "", "", ""},
	} {
		headers := []string{"Accept-Encoding", tc.accepts}
		if tc.part != "" {
			headers = append(headers, "Range", tc.part)
		}
		resp, text := v.do("GET", "/files?path="+tc.path, nil, headers...)
		encoding := resp.Header.Get("Content-Encoding")
		if encoding == "gzip" {
			if len(text) > len(big)/10 {
				t.Errorf("%s: %d bytes, compressed", tc.path, len(text))
			}
			z, err := gzip.NewReader(strings.NewReader(text))
			if err != nil {
				t.Fatal(err)
			}
			plain, err := io.ReadAll(z)
			if err != nil {
				t.Errorf("%s: %v", tc.path, err)
			}
			text = string(plain)
		}
		if resp.StatusCode != tc.status || encoding != tc.encoding || tc.status < 300 && text != tc.want {
			t.Errorf("%s for %q %q = %d, encoding %q, %.60q, want %d, %q, %.60q", tc.path, tc.accepts, tc.part, resp.StatusCode, encoding, text, tc.status, tc.encoding, tc.want)
		}
		if got := resp.Header.Get("Content-Length"); tc.length != "" && got != tc.length {
			t.Errorf("%s for %q %q: length %q, want %q", tc.path, tc.accepts, tc.part, got, tc.length)
		}
	}
	if resp, _ := v.do("GET", "/files?path=/down/big", nil); !strings.Contains(strings.Join(resp.Header.Values("Vary"), ","), "Accept-Encoding") {
		t.Errorf("Vary = %q", resp.Header.Values("Vary"))
	}
}

// TestCodecs makes one call by each codec of the protocol, alone and as a stream.
func TestCodecs(t *testing.T) {
	v := start(t)
	// A message Stat{path: "/"} and ListRequest{}, by hand: field 1, two wire types.
	binary, plain := "\x0a\x01/", `{"path":"/"}`
	for kind, body := range map[string]string{"application/proto": binary, "application/json": plain} {
		resp, text := v.do("POST", "/filesystem.Filesystem/Stat", strings.NewReader(body), "Content-Type", kind, "Connect-Protocol-Version", "1")
		if resp.StatusCode != http.StatusOK || resp.Header.Get("Content-Type") != kind || json.Valid([]byte(text)) != (kind == "application/json") {
			t.Errorf("stat by %s = %d %s %q", kind, resp.StatusCode, resp.Header.Get("Content-Type"), text)
		}
		resp, text = v.do("POST", "/filesystem.Filesystem/Stat", strings.NewReader(packed(t, body)), "Content-Type", kind, "Content-Encoding", "gzip", "Connect-Protocol-Version", "1")
		if resp.StatusCode != http.StatusOK {
			t.Errorf("compressed stat by %s = %d %q", kind, resp.StatusCode, text)
		}
	}
	if resp, text := v.do("POST", "/filesystem.Filesystem/Stat", strings.NewReader(`{"path":"/nowhere"}`), "Content-Type", "application/json"); resp.StatusCode != http.StatusNotFound || !strings.Contains(text, `"not_found"`) {
		t.Errorf("stat of nothing = %d %s", resp.StatusCode, text)
	}
	envelope := func(message string) io.Reader {
		return strings.NewReader("\x00\x00\x00\x00" + string(rune(len(message))) + message)
	}
	started := map[string]string{
		"application/connect+json":  `{"process":{"cmd":"/bin/sh","args":["-c","echo hello"]},"stdin":false}`,
		"application/connect+proto": "\x0a\x1b\x0a\x07/bin/sh\x12\x02-c\x12\x0cecho 'hello'\x20\x00",
	}
	for kind, message := range started {
		resp, text := v.do("POST", "/process.Process/Start", envelope(message), "Content-Type", kind, "Connect-Protocol-Version", "1")
		want := "hello\n"
		if kind == "application/connect+json" {
			want = "aGVsbG8K"
		}
		if resp.StatusCode != http.StatusOK || resp.Header.Get("Content-Type") != kind || !strings.Contains(text, want) || !strings.Contains(text, "\x02\x00\x00\x00\x02{}") {
			t.Errorf("start by %s = %d %s %q", kind, resp.StatusCode, resp.Header.Get("Content-Type"), text)
		}
	}
}

// TestUsernames names users as the clients do: by the name of Basic authentication, with the token of the sandbox.
func TestUsernames(t *testing.T) {
	v := start(t)
	call := func(user string) error {
		req := connect.NewRequest(&filepb.StatRequest{Path: "~"})
		r := &http.Request{Header: req.Header()}
		r.SetBasicAuth(user, "")
		_, err := v.files.Stat(t.Context(), req)
		return err
	}
	if err := call("nobody-here"); connect.CodeOf(err) != connect.CodeUnauthenticated || !strings.Contains(err.Error(), "invalid username: 'nobody-here'") {
		t.Errorf("unknown user = %v", err)
	}
	if err := call("root"); err != nil && connect.CodeOf(err) != connect.CodeNotFound { // the fake has no such home
		t.Errorf("root = %v", err)
	}
	if resp, text := v.do("GET", "/files?path=x&username=nobody-here", nil); resp.StatusCode != http.StatusUnauthorized || !strings.Contains(text, "invalid username") {
		t.Errorf("download = %d %s", resp.StatusCode, text)
	}
}

// TestListWithMetadata lists a directory whose metadata is larger than an answer of the agent.
func TestListWithMetadata(t *testing.T) {
	v := start(t)
	const many = 1000
	var files []string
	for i := range many {
		files = append(files, fmt.Sprintf("/many/%04d", i), "x")
	}
	body, kind := form(t, files...)
	value := strings.Repeat("v", 4000)
	if resp, text := v.do("POST", "/files", body, "Content-Type", kind, "X-Metadata-K", value, "X-Metadata-K", "the second"); resp.StatusCode != 200 {
		t.Fatalf("upload = %d %.200s", resp.StatusCode, text)
	}
	list, err := v.files.ListDir(t.Context(), connect.NewRequest(&filepb.ListDirRequest{Path: "/many"}))
	if err != nil {
		t.Fatal(err)
	}
	if n := len(list.Msg.GetEntries()); n != many {
		t.Fatalf("list = %d entries", n)
	}
	for i, e := range list.Msg.GetEntries() {
		if e.GetPath() != files[2*i] || e.GetMetadata()["k"] != value {
			t.Fatalf("entry %d = %.200v", i, e)
		}
	}
}

// TestLargeAnswers lists, and watches, more metadata than an answer may have.
func TestLargeAnswers(t *testing.T) {
	v := start(t)
	value := strings.Repeat("v", 4000)
	upload := func(files ...string) {
		t.Helper()
		body, kind := form(t, files...)
		if resp, text := v.do("POST", "/files", body, "Content-Type", kind, "X-Metadata-K", value); resp.StatusCode != 200 {
			t.Fatalf("upload = %d %.200s", resp.StatusCode, text)
		}
	}
	var files []string
	for i := range 2200 {
		files = append(files, fmt.Sprintf("/large/%d/%04d", i%2, i), "x")
	}
	upload(files...)
	list := func(path string, depth uint32) (*connect.Response[filepb.ListDirResponse], error) {
		return v.files.ListDir(t.Context(), connect.NewRequest(&filepb.ListDirRequest{Path: path, Depth: depth}))
	}
	if half, err := list("/large/0", 1); err != nil || len(half.Msg.GetEntries()) != 1100 {
		t.Errorf("half = %v", err)
	}
	if _, err := list("/large", 2); err == nil || !strings.Contains(err.Error(), "list a part of it") {
		t.Errorf("all = %v", err)
	}

	files = nil
	for i := range 100 {
		files = append(files, fmt.Sprintf("/changed/%d", i), "x")
	}
	upload(files...)
	created, err := v.files.CreateWatcher(t.Context(), connect.NewRequest(&filepb.CreateWatcherRequest{Path: "/changed", IncludeEntry: true}))
	if err != nil {
		t.Fatal(err)
	}
	stream, err := v.processes.Start(t.Context(), connect.NewRequest(&pb.StartRequest{
		Process: &pb.ProcessConfig{Cmd: "/bin/sh", Args: []string{"-c", "for i in $(seq 15); do for f in *; do echo x >$f; done; chmod 600 *; done; mkdir end"}, Cwd: new("/changed")},
	}))
	if err != nil {
		t.Fatal(err)
	}
	rest(t, stream)
	described, all := 0, 0
	for ended := false; !ended; { // the test ends by its time limit otherwise
		events, err := v.files.GetWatcherEvents(t.Context(), connect.NewRequest(&filepb.GetWatcherEventsRequest{WatcherId: created.Msg.GetWatcherId()}))
		if err != nil {
			t.Fatal(err)
		}
		if size := proto.Size(events.Msg); size > 9<<20 {
			t.Errorf("an answer has %d bytes", size)
		}
		for _, e := range events.Msg.GetEvents() {
			ended = ended || e.GetName() == "end"
			if e.GetEntry().GetMetadata()["k"] == value {
				described++
			}
			all++
		}
	}
	if described < 1000 {
		t.Errorf("%d of %d events have metadata", described, all)
	}
}

// TestWatcher asks for the events of a directory, as the Python client does.
func TestWatcher(t *testing.T) {
	v := start(t)
	made := func(path string) {
		if _, err := v.files.MakeDir(t.Context(), connect.NewRequest(&filepb.MakeDirRequest{Path: path})); err != nil {
			t.Fatal(err)
		}
	}
	made("/polled/sub")
	if _, err := v.files.CreateWatcher(t.Context(), connect.NewRequest(&filepb.CreateWatcherRequest{Path: "/none"})); connect.CodeOf(err) != connect.CodeNotFound {
		t.Errorf("watcher of nothing = %v", err)
	}
	created, err := v.files.CreateWatcher(t.Context(), connect.NewRequest(&filepb.CreateWatcherRequest{Path: "/polled", Recursive: true, IncludeEntry: true}))
	if err != nil {
		t.Fatal(err)
	}
	id := created.Msg.GetWatcherId()
	made("/polled/sub/new")
	for seen := false; !seen; { // the test ends by its time limit otherwise
		events, err := v.files.GetWatcherEvents(t.Context(), connect.NewRequest(&filepb.GetWatcherEventsRequest{WatcherId: id}))
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range events.Msg.GetEvents() {
			if e.GetName() == "sub/new" && e.GetType() == filepb.EventType_EVENT_TYPE_CREATE {
				seen = true
				if e.GetEntry().GetType() != filepb.FileType_FILE_TYPE_DIRECTORY {
					t.Errorf("entry = %v", e.GetEntry())
				}
			}
		}
	}
	if _, err := v.files.RemoveWatcher(t.Context(), connect.NewRequest(&filepb.RemoveWatcherRequest{WatcherId: id})); err != nil {
		t.Error(err)
	}
	for range 2 {
		if _, err := v.files.RemoveWatcher(t.Context(), connect.NewRequest(&filepb.RemoveWatcherRequest{WatcherId: id})); connect.CodeOf(err) != connect.CodeNotFound {
			t.Errorf("second removal = %v", err)
		}
	}
}

// TestCompose joins files.
func TestCompose(t *testing.T) {
	v := start(t)
	put := func(path, text string) {
		t.Helper()
		if resp, said := v.do("POST", "/files?path="+path, strings.NewReader(text), "Content-Type", "application/octet-stream"); resp.StatusCode != http.StatusOK {
			t.Fatalf("upload = %d %s", resp.StatusCode, said)
		}
	}
	big := strings.Repeat("b", 300_000)
	put("/c/1", "one ")
	put("/c/2", big)
	put("/c/empty", "")
	put("/c/dir/f", "in a directory")
	put("/c/all", "old")
	for _, tc := range []struct {
		body   string
		status int
		said   string
	}{
		{`{"source_paths":[],"destination":"/c/all"}`, 400, "source_paths"},
		{`{"source_paths":["/c/1",""],"destination":"/c/all"}`, 400, "source_paths"},
		{`{"source_paths":["/c/1"]}`, 400, "destination"},
		{`{"source_paths":"/c/1"}`, 400, "JSON"},
		{`{"source_paths":["/c/1","/c/none"],"destination":"/c/all"}`, 404, "path '/c/none' does not exist"},
		{`{"source_paths":["/c/1","/c/dir"],"destination":"/c/all"}`, 400, "path '/c/dir' is a directory"},
		{`{"source_paths":["/c/1"],"destination":"/c/dir"}`, 400, "destination"},
		{`{"source_paths":["/c/1"],"destination":"/c/all","username":"nobody-here"}`, 401, "invalid username: 'nobody-here'"},
		// The refused requests have changed nothing. The destination may be one of the files.
		{`{"source_paths":["/c/1","/c/all","/c/empty","/c/2","/c/1"],"destination":"/c/all","username":"root"}`, 200, `"path":"/c/all"`},
		{`{"source_paths":["/c/all"],"destination":"/c/new/moved"}`, 200, `"name":"moved"`},
	} {
		if resp, text := v.do("POST", "/files/compose", strings.NewReader(tc.body), "Content-Type", "application/json"); resp.StatusCode != tc.status || !strings.Contains(text, tc.said) {
			t.Errorf("compose %s = %d %s, want %d and %q", tc.body, resp.StatusCode, text, tc.status, tc.said)
		}
	}
	if _, text := v.do("GET", "/files?path=/c/new/moved", nil); text != "one old"+big+"one " {
		t.Errorf("the joined file has %d bytes %.20q", len(text), text)
	}
	for _, path := range []string{"/c/1", "/c/2", "/c/empty", "/c/all"} {
		if resp, _ := v.do("GET", "/files?path="+path, nil); resp.StatusCode != http.StatusNotFound {
			t.Errorf("%s, which was joined = %d", path, resp.StatusCode)
		}
	}
	set := maps.Clone(v.client.Transport.(headers).set)
	delete(set, "X-Access-Token")
	v.client = &http.Client{Transport: headers{v.HTTP.Transport, set}}
	if resp, text := v.do("POST", "/files/compose", strings.NewReader(`{"source_paths":["/c/new/moved"],"destination":"/x"}`)); resp.StatusCode != http.StatusUnauthorized {
		t.Errorf("compose without a token = %d %s", resp.StatusCode, text)
	}
}
