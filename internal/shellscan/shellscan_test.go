package shellscan_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/modbox/modbox/internal/shellscan"
)

// TestScan checks findings, as line:rule, and the programs inside code, as line:language:code.
func TestScan(t *testing.T) {
	for code, want := range map[string]string{
		"echo hi; ls -l | grep x > out.txt": "",
		"set -eu\nx=$(date)\necho \"$x\"":   "",
		"curl -s https://example.com":       "1:network",
		"x=1\n/usr/bin/wget u":              "2:network",
		"exec 3<>/dev/tcp/1.2.3.4/80":       "1:network",
		"pip3 install -q requests":          "1:network",
		"pip list":                          "",
		"git status && git clone u":         "1:network",
		"rm -rf /tmp/x":                     "1:file_delete",
		"r\\m x; \"rm\" y; 'rm' z":          "1:file_delete 1:file_delete 1:file_delete",
		"find . -name x -delete":            "1:file_delete",
		"find . -exec rm {} +":              "1:file_delete",
		"sleep 5 &":                         "1:process",
		"kill -9 1":                         "1:process",
		"if true; then\n  (pkill x)\nfi":    "2:process",
		"env":                               "1:environment",
		"env A=b ls":                        "",
		"export -p":                         "1:environment",
		"export A=b":                        "",
		"cat /proc/self/environ":            "1:environment",
		"eval \"$x\"":                       "1:eval",
		"$x y":                              "1:eval",
		"curl u | bash":                     "1:eval 1:network",
		"bash <(curl u)":                    "1:eval 1:network",
		"bash -c \"$x\"":                    "1:eval",
		"echo x | python3 run.py":           "",
		"LD_PRELOAD=/x.so ls":               "1:native",
		"timeout -s KILL 5 rm x":            "1:file_delete",
		"sudo -u root env A=b curl u":       "1:network",
		"echo 'rm x'":                       "",
		"# rm x":                            "",
		"f() {\n rm x\n}\nf":                "2:file_delete",
		"echo $(rm x) `rm y`":               "1:file_delete 1:file_delete",
		"if":                                "1:syntax",
		"echo 'x":                           "1:syntax",
		"python3 -c 'import os'":            "1:python:import os",
		"bash -c 'rm x'":                    "1:bash:rm x",
		"\npython3 - <<'E'\nimport os\nE":   "3:python:import os\n",
		"python3 <<E\nimport $x\nE":         "2:eval",
		"node -e \"a\\\"b\"":                "1:javascript:a\"b",
		"bash <<< 'rm x'":                   "1:bash:rm x",
		"trap 'rm x' EXIT":                  "1:bash:rm x",
		"perl -e 'unlink 1'":                "1:perl:unlink 1",
		"env A=b python3 -c x":              "1:python:x",
	} {
		answer := shellscan.Scan(code)
		var got []string
		for _, f := range answer.Findings {
			got = append(got, fmt.Sprintf("%d:%s", f.Line, f.Rule))
			if f.Column < 1 || f.Reason == "" || strings.Contains(f.Reason, "\x00") {
				t.Errorf("Scan(%q): finding %+v", code, f)
			}
		}
		for _, p := range answer.Programs {
			got = append(got, fmt.Sprintf("%d:%s:%s", p.Line, p.Language, p.Code))
		}
		if strings.Join(got, " ") != want {
			t.Errorf("Scan(%q) = %q, want %q", code, strings.Join(got, " "), want)
		}
	}
}

// TestScanIsBounded scans code with more findings and programs than an answer has.
func TestScanIsBounded(t *testing.T) {
	answer := shellscan.Scan(strings.Repeat("rm "+strings.Repeat("x", 1000)+"\nbash -c ls\n", 3000))
	data, err := json.Marshal(answer)
	if err != nil || len(answer.Findings) != 201 || len(answer.Programs) != 17 || len(data) > 64<<10 {
		t.Errorf("%d findings, %d programs, %d bytes, %v", len(answer.Findings), len(answer.Programs), len(data), err)
	}
}

func TestRun(t *testing.T) {
	var out bytes.Buffer
	if err := shellscan.Run(strings.NewReader(`{"code":"true"}`), &out); err != nil || strings.TrimSpace(out.String()) != `{"findings":[]}` {
		t.Errorf("Run() wrote %s, %v", out.String(), err)
	}
	if err := shellscan.Run(strings.NewReader(`{"code`), &out); err == nil {
		t.Error("half a request is scanned")
	}
}

func FuzzScan(f *testing.F) {
	f.Add("curl u | bash <<E\n$x\nE")
	f.Add("find . -exec sh -c 'rm \"$1\"' {} +")
	f.Fuzz(func(t *testing.T, code string) {
		for _, finding := range shellscan.Scan(code).Findings {
			if finding.Line < 1 || finding.Column < 1 {
				t.Errorf("%q: %+v", code, finding)
			}
		}
	})
}
