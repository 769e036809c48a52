package chart_test

import (
	"crypto/ecdsa"
	"crypto/sha256"
	"crypto/tls"
	"encoding/hex"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"helm.sh/helm/v4/pkg/chart/v2/lint"
	"helm.sh/helm/v4/pkg/chart/v2/lint/support"
	corev1 "k8s.io/api/core/v1"

	"github.com/modbox/modbox/test/chart"
)

var update = flag.Bool("update", false, "write the files that are compared")

// kustomize has the objects of the default values, for users without Helm.
var kustomize = filepath.Join("..", "..", "deploy", "kustomize", "base", "modbox.yaml")

// cases returns the names of the files of values in testdata, with the rendered chart of each.
func cases(t *testing.T) map[string]chart.Rendered {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join("testdata", "*.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]chart.Rendered{}
	for _, path := range paths {
		name := strings.TrimSuffix(filepath.Base(path), ".yaml")
		if strings.HasSuffix(name, ".golden") {
			continue
		}
		values, err := chart.ReadValues(path)
		if err != nil {
			t.Fatal(err)
		}
		if all[name], err = chart.Render(chart.Dir, values); err != nil {
			t.Fatalf("%s: %v", path, err)
		}
	}
	if len(all) < 4 {
		t.Fatalf("there are %d files of values in testdata", len(all))
	}
	return all
}

func TestGolden(t *testing.T) {
	for name, r := range cases(t) {
		golden := filepath.Join("testdata", name+".golden.yaml")
		if name == "default" {
			golden = kustomize
		}
		if *update {
			if err := os.WriteFile(golden, []byte(r.Text()), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(golden)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(string(want), r.Text()); diff != "" {
			t.Errorf("%s (-want +got; go test . -update writes it):\n%s", golden, diff)
		}
	}
}

func TestLint(t *testing.T) {
	for name := range cases(t) {
		values, err := chart.ReadValues(filepath.Join("testdata", name+".yaml"))
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range lint.RunAll(chart.Dir, values, chart.Release).Messages {
			if m.Severity >= support.WarningSev {
				t.Errorf("with %s: %s", name, m)
			}
		}
	}
}

// The Secret of the chart has the same form as the files that the server makes.
func TestJoinSecret(t *testing.T) {
	r, err := chart.Render(chart.Dir, nil)
	if err != nil {
		t.Fatal(err)
	}
	secret := find[corev1.Secret](t, decode(t, r), "modbox-join")
	authority, token := secret.Data["authority.pem"], string(secret.Data["token"])
	pair, err := tls.X509KeyPair(authority, authority)
	if err != nil {
		t.Fatal(err)
	}
	if _, ok := pair.PrivateKey.(*ecdsa.PrivateKey); !ok || !pair.Leaf.IsCA {
		t.Errorf("the key is a %T, and the certificate one of an authority: %v", pair.PrivateKey, pair.Leaf.IsCA)
	}
	sum := sha256.Sum256(pair.Leaf.Raw)
	random, digest, _ := strings.Cut(strings.TrimPrefix(token, "mbw_"), ".")
	if !strings.HasPrefix(token, "mbw_") || len(random) < 26 || digest != hex.EncodeToString(sum[:]) {
		t.Errorf("the token %q is not of the authority", token)
	}
	again, err := chart.Render(chart.Dir, nil)
	if err != nil {
		t.Fatal(err)
	}
	if other := find[corev1.Secret](t, decode(t, again), "modbox-join"); string(other.Data["token"]) == token {
		t.Error("two installations have one token")
	}
}

func TestNotes(t *testing.T) {
	for name, r := range cases(t) {
		// Commands in the Pod must not call the API, whose port may be encrypted.
		if !strings.Contains(r.Notes, "token create --state-dir") || strings.Contains(r.Notes, "/usr/bin/modbox user") || !strings.Contains(r.Notes, "workers ls --local") || strings.Contains(r.Notes, "%!") {
			t.Errorf("notes of %s:\n%s", name, r.Notes)
		}
		if example := strings.Contains(r.Notes, "image.repository is the example"); example != (name != "all") {
			t.Errorf("the notes of %s warn of the example of a registry: %v", name, example)
		}
	}
}

func TestRefusedValues(t *testing.T) {
	active := map[string]any{
		"active": 2, "replicas": 3, "database": map[string]any{"url": "postgres://m@db/m"},
		"persistence": map[string]any{"accessModes": []any{"ReadWriteMany"}},
	}
	for name, tc := range map[string]struct {
		values map[string]any
		want   string
	}{
		"unknown":              {map[string]any{"replicas": 2}, "replicas"},
		"unknown_inside":       {map[string]any{"worker": map[string]any{"replica": 2}}, "replica"},
		"ingress_without_url":  {map[string]any{"ingress": map[string]any{"enabled": true}}, "publicURL"},
		"monitor_without":      {map[string]any{"serviceMonitor": map[string]any{"enabled": true}}, "tokenSecret"},
		"localhost_without":    {map[string]any{"worker": map[string]any{"seccompProfile": map[string]any{"type": "Localhost"}}}, "localhostProfile"},
		"profile_of_no_type":   {map[string]any{"worker": map[string]any{"seccompProfile": map[string]any{"type": "unconfined"}}}, "seccompProfile"},
		"quantity":             {map[string]any{"server": map[string]any{"persistence": map[string]any{"size": "50GB"}}}, "size"},
		"url":                  {map[string]any{"publicURL": "modbox.example.com"}, "publicURL"},
		"url_with_path":        {map[string]any{"publicURL": "https://example.com/modbox"}, "publicURL"},
		"domain_with_wildcard": {map[string]any{"domain": "*.example.com"}, "domain"},
		"standbys_on_sqlite":   {map[string]any{"server": map[string]any{"replicas": 2}}, "server.database.url"},
		"sqlite_on_files":      {map[string]any{"server": map[string]any{"persistence": map[string]any{"accessModes": []any{"ReadWriteMany"}}}}, "server.database.url"},
		"standbys_on_own":      {map[string]any{"server": map[string]any{"replicas": 2, "database": map[string]any{"url": "postgres://m@db/m"}}}, "ReadWriteMany"},
		"active_above_servers": {map[string]any{"server": map[string]any{"active": 2}}, "server.replicas"},
		"active_above_workers": {map[string]any{"server": active, "worker": map[string]any{"replicas": 1}}, "worker.replicas"},
		"active_three":         {map[string]any{"server": map[string]any{"active": 3}}, "active"},
		"digest":               {map[string]any{"image": map[string]any{"digest": "sha256:12"}}, "digest"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := chart.Render(chart.Dir, tc.values)
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("Render = %v, want an error with %q", err, tc.want)
			}
		})
	}
}
