package cli

import (
	"bytes"
	"context"
	"flag"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/cobra"

	"github.com/modbox/modbox/internal/cli/base"
	"github.com/modbox/modbox/internal/statedir"
)

var update = flag.Bool("update", false, "write the golden files and the generated part of docs/cli.md")

// result is how an invocation of the command line ended.
type result struct {
	code           int
	stdout, stderr string
}

// invoke runs the command line against a server; nil means that none answers.
func invoke(t *testing.T, server http.Handler, stdin string, args ...string) result {
	t.Helper()
	return invokeContext(t.Context(), t, server, stdin, args...)
}

func invokeContext(ctx context.Context, t *testing.T, server http.Handler, stdin string, args ...string) result {
	t.Helper()
	url := "http://127.0.0.1:1" // nothing listens on port 1
	if server != nil {
		srv := httptest.NewServer(server)
		defer srv.Close()
		url = srv.URL
	}
	var out, errOut bytes.Buffer
	a := &base.Env{Stdin: strings.NewReader(stdin), Stdout: &out, Stderr: &errOut, Environ: []string{
		"MODBOX_URL=" + url, "MODBOX_API_TOKEN=mbx_test", "HOME=" + t.TempDir(), "MODBOX_STATE_DIR=" + t.TempDir(), "FROM_MY_ENV=mine",
	}}
	code := execute(ctx, a, args)
	return result{code, strings.ReplaceAll(out.String(), url, "http://SERVER"), strings.ReplaceAll(errOut.String(), url, "http://SERVER")}
}

// golden compares got with testdata/NAME.golden, or writes it with -update.
func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name+".golden")
	if *update {
		if err := os.MkdirAll("testdata", 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("%s (-want +got):\n%s", path, diff)
	}
}

func TestUsageErrors(t *testing.T) {
	for name, tc := range map[string]struct {
		args []string
		want string
	}{
		"unknown_command":     {[]string{"bogus"}, `unknown command "bogus"`},
		"unknown_in_group":    {[]string{"workspace", "bogus"}, `unknown command "bogus" for "modbox workspace"`},
		"mistyped":            {[]string{"creat"}, "Did you mean this?\n  create\n"},
		"mistyped_in_group":   {[]string{"workspace", "creat"}, "Did you mean this?\n  create\n"},
		"late_flag_of_exec":   {[]string{"exec", "x", "-it", "bash"}, `flags of Modbox go before "x": modbox exec -it x`},
		"late_flag_and_value": {[]string{"exec", "x", "--user", "root", "id"}, `modbox exec --user root x ...`},
		"late_short_flag":     {[]string{"exec", "x", "-u", "root", "id"}, `modbox exec -u root x ...`},
		"late_flag_of_run":    {[]string{"run", "modbox/base", "--keep", "bash"}, `flags of Modbox go before "modbox/base"`},
		"fork_of_none":        {[]string{"fork", "x", "--count", "0"}, "--count must be at least 1"},
		"unknown_flag":        {[]string{"ls", "--bogus"}, "--bogus"},
		"missing_argument":    {[]string{"get"}, "accepts 1 arg"},
		"what_it_takes":       {[]string{"exec", "x"}, "Usage: modbox exec SANDBOX [--] COMMAND"},
		"no_command_to_run":   {[]string{"run", "modbox/base"}, "say which command"},
		"bad_env":             {[]string{"run", "-e", "=x", "modbox/base", "true"}, "--env"},
		"rm_nothing":          {[]string{"rm"}, "name sandboxes"},
		"rm_all_and_some":     {[]string{"rm", "--all", "x"}, "name sandboxes"},
		"cp_two_locals":       {[]string{"cp", "./a", "/b"}, "exactly one side"},
		"tty_without_one":     {[]string{"exec", "-t", "x", "true"}, "--tty needs a terminal"},
		"bad_setting":         {[]string{"server", "--listen", "nowhere"}, "ADDRESS:PORT"},
		"unknown_output":      {[]string{"ls", "-o", "xml"}, `--output: "xml" is none of`},
		"bad_template":        {[]string{"ls", "-o", "template={{.x"}, "--output: template"},
		"output_and_quiet":    {[]string{"ls", "-q", "-o", "wide"}, "either --output or --quiet"},
		"bad_duration":        {[]string{"server", "--http-drain-timeout", "soon"}, "30s, 10m or 1h"},
	} {
		t.Run(name, func(t *testing.T) {
			r := invoke(t, nil, "", tc.args...)
			if r.code != base.ExitUsage || !strings.Contains(r.stderr, tc.want) || r.stdout != "" {
				t.Errorf("modbox %v = %+v, want code 2 and %q", tc.args, r, tc.want)
			}
		})
	}
}

func TestNoServer(t *testing.T) {
	for args, code := range map[string]int{"ls": base.ExitFailure, "run modbox/base -- true": base.ExitInternal, "exec x -- true": base.ExitInternal} {
		r := invoke(t, nil, "", strings.Fields(args)...)
		if r.code != code || !strings.Contains(r.stderr, "MODBOX_URL") {
			t.Errorf("modbox %s without a server = %+v, want code %d and a hint", args, r, code)
		}
	}
}

func TestTokenOfALocalServer(t *testing.T) {
	var got []string
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		got = append(got, r.Header.Get("Authorization"))
		_, _ = w.Write([]byte(`{"items":[]}`))
	}))
	defer srv.Close()
	state := t.TempDir()
	defer runServer(t, state, strings.TrimPrefix(srv.URL, "http://"))()
	var out bytes.Buffer
	a := &base.Env{Stdin: strings.NewReader(""), Stdout: &out, Stderr: &out, Environ: []string{"MODBOX_URL=" + srv.URL, "MODBOX_STATE_DIR=" + state}}
	if code := execute(t.Context(), a, []string{"ls"}); code != 0 {
		t.Fatalf("ls = %d: %s", code, out.String())
	}
	if diff := cmp.Diff([]string{"Bearer mbx_local"}, got); diff != "" {
		t.Errorf("token (-want +got):\n%s", diff)
	}
	for url, want := range map[string]bool{
		"http://127.0.0.1:7070": true, "http://localhost:1": true, "http://[::1]:1": true,
		"https://modbox.example.com": false, "http://10.0.0.1:7070": false, "http://127.0.0.1.evil.example": false, ":": false,
	} {
		if base.OnThisMachine(url) != want {
			t.Errorf("onThisMachine(%q) = %v, want %v", url, !want, want)
		}
	}
}

func TestControlCharactersDoNotReachTheTerminal(t *testing.T) {
	r := invoke(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write([]byte(`{"items":[{"name":"a\u001b]0;owned\u0007b","image":"i"}]}`))
	}), "", "ls")
	if r.code != 0 || strings.ContainsAny(r.stdout, "\x1b\x07") {
		t.Errorf("ls = %d %q, want no control characters", r.code, r.stdout)
	}
}

// docs/cli.md ends with the help of every command, which is also their golden file.
func TestCommandReference(t *testing.T) {
	const path, begin = "../../docs/cli.md", "<!-- commands -->\n"
	page, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	intro, _, ok := strings.Cut(string(page), begin)
	if !ok {
		t.Fatalf("%s lacks the mark %q", path, begin)
	}
	var b strings.Builder
	b.WriteString(intro + begin)
	describe(&b, root(base.NewEnv("unknown")))
	if *update {
		if err := os.WriteFile(path, []byte(b.String()), 0o644); err != nil {
			t.Fatal(err)
		}
		page = []byte(b.String())
	}
	if diff := cmp.Diff(b.String(), string(page)); diff != "" {
		t.Errorf("%s is not what the commands say; run make gen (-want +file):\n%s", path, diff)
	}
}

// describe writes the help of the command and of all below it, without the commands of cobra.
func describe(b *strings.Builder, cmd *cobra.Command) {
	if cmd.Name() == "completion" || cmd.Name() == "help" || cmd.Hidden {
		return
	}
	var help bytes.Buffer
	cmd.SetOut(&help)
	cmd.InitDefaultHelpFlag()
	_ = cmd.Help()
	b.WriteString("\n### " + cmd.CommandPath() + "\n\n```\n" + trailing.ReplaceAllString(strings.TrimRight(help.String(), "\n"), "") + "\n```\n")
	for _, c := range cmd.Commands() {
		describe(b, c)
	}
}

var trailing = regexp.MustCompile(`(?m)[ \t]+$`)

func TestEveryCommandIsDescribed(t *testing.T) {
	var walk func(cmd *cobra.Command)
	walk = func(cmd *cobra.Command) {
		if cmd.Short == "" || strings.HasSuffix(cmd.Short, ".") {
			t.Errorf("%s has the description %q, want one without a full stop", cmd.CommandPath(), cmd.Short)
		}
		if cmd.Runnable() && cmd.Args == nil && cmd.HasParent() && !strings.Contains(cmd.Use, "...") {
			t.Errorf("%s does not check its arguments", cmd.CommandPath())
		}
		for _, c := range cmd.Commands() {
			walk(c)
		}
	}
	walk(root(base.NewEnv("unknown")))
}

// runServer makes a state directory look like the directory of a running server that listens on an
// address. The caller releases the lock.
func runServer(t *testing.T, dir, address string) (unlock func()) {
	t.Helper()
	unlock, err := statedir.Lock(t.Context(), dir, dir)
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{statedir.AddressFile: address, statedir.TokenFile: "mbx_local"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return unlock
}

// TestTokensGoToNamedServersOnly has a stranger listen where a server might.
func TestTokensGoToNamedServersOnly(t *testing.T) {
	var got []string
	stranger := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		got = append(got, r.Header.Get("Authorization"))
		_, _ = w.Write([]byte(`{"items":[]}`))
	}))
	defer stranger.Close()
	address := stranger.Listener.Addr().String()
	state, home := t.TempDir(), t.TempDir()
	env := []string{"HOME=" + home, "MODBOX_STATE_DIR=" + state}
	list := func(env ...string) (code int, sent []string) {
		t.Helper()
		got = nil
		var out strings.Builder
		a := &base.Env{Stdin: strings.NewReader(""), Stdout: &out, Stderr: &out, Environ: env}
		return execute(t.Context(), a, []string{"list"}), got
	}
	unlock := runServer(t, state, address)
	for name, tc := range map[string]struct {
		env  []string
		want []string
	}{
		"own_server":           {env, []string{"Bearer mbx_local"}},
		"own_server_and_token": {append(env, "MODBOX_API_TOKEN=mbx_given"), []string{"Bearer mbx_given"}},
		"other_state":          {append(env[:1:1], "MODBOX_STATE_DIR="+t.TempDir(), "MODBOX_URL=http://"+address), []string{""}},
	} {
		if _, sent := list(tc.env...); !slices.Equal(sent, tc.want) {
			t.Errorf("%s: the server was sent %q, want %q", name, sent, tc.want)
		}
	}
	unlock() // killed, and a stranger took its port
	if code, sent := list(append(env, "MODBOX_API_TOKEN=mbx_given")...); code != base.ExitUsage || len(sent) > 0 {
		t.Errorf("a token without a server: exit code %d, sent %q", code, sent)
	}
	if _, sent := list(append(env, "MODBOX_URL=http://"+address)...); !slices.Equal(sent, []string{""}) {
		t.Errorf("when the server does not run, the local token went to a stranger: %q", sent)
	}
}

// TestTokensAreNotRedirected has a server send a client to another port of its host.
func TestTokensAreNotRedirected(t *testing.T) {
	var got []string
	other := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		got = append(got, r.Header.Get("Authorization"))
	}))
	defer other.Close()
	r := invoke(t, http.RedirectHandler(other.URL, http.StatusTemporaryRedirect), "", "list")
	if r.code != base.ExitFailure || len(got) > 0 {
		t.Errorf("a redirect was followed with %q: %+v", got, r)
	}
}
