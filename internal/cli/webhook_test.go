package cli

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/modbox/modbox/client"
	"github.com/modbox/modbox/internal/api/apitest"
	"github.com/modbox/modbox/internal/cli/base"
)

func TestWebhookCommands(t *testing.T) {
	s := apitest.New(t)
	var status atomic.Int64
	status.Store(http.StatusNoContent)
	receiver := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(int(status.Load())) }))
	t.Cleanup(receiver.Close)
	modbox := func(args ...string) result {
		t.Helper()
		return invoke(t, nil, "", append([]string{"--url", s.URL, "--token", s.Token, "webhook"}, args...)...)
	}
	works := func(args ...string) string {
		t.Helper()
		r := modbox(args...)
		if r.code != 0 || r.stderr != "" {
			t.Fatalf("modbox webhook %v = %+v", args, r)
		}
		return r.stdout
	}
	secrets := regexp.MustCompile(`^ID +([0-9a-f-]{36})\nSECRET +(whsec_[A-Za-z0-9+/=]{44})\n$`)
	made := secrets.FindStringSubmatch(works("create", receiver.URL, "--type", "created,failed", "--description", "mine"))
	if made == nil {
		t.Fatal("create prints no id and secret")
	}
	id := made[1]
	shown := works("ls") + works("show", id)
	for _, want := range []string{receiver.URL, "created,failed", "mine", "enabled"} {
		if !strings.Contains(shown, want) {
			t.Errorf("ls and show print\n%s\nwithout %s", shown, want)
		}
	}
	if strings.Contains(shown, "whsec_") {
		t.Error("ls or show prints the secret")
	}

	pinged := regexp.MustCompile(`^(msg_\S+) delivered: 204 in \d+ ms\n$`).FindStringSubmatch(works("ping", id))
	if pinged == nil {
		t.Fatal("ping does not print the delivery")
	}
	status.Store(http.StatusTeapot)
	if r := modbox("redeliver", id, pinged[1]); r.code != base.ExitFailure || !strings.Contains(r.stderr, pinged[1]+" is pending: the receiver answered 418") {
		t.Errorf("redeliver to a receiver that fails: %+v", r)
	}
	if shown := works("deliveries", id, "--state", "pending"); !strings.Contains(shown, pinged[1]) || !strings.Contains(shown, "answered 418") {
		t.Errorf("deliveries prints\n%s", shown)
	}
	status.Store(http.StatusOK)
	works("redeliver", id, pinged[1])
	works("ping", id)
	r := modbox("deliveries", id, "--limit", "1")
	if r.code != 0 || strings.Count(r.stdout, "msg_") != 1 || !strings.Contains(r.stderr, "more than 1") {
		t.Errorf("deliveries --limit 1: %+v", r)
	}
	var list []client.WebhookDelivery
	if err := json.Unmarshal([]byte(works("deliveries", id, "--limit", "0", "--json")), &list); err != nil || len(list) != 2 || list[1].ID != pinged[1] || list[1].State != "delivered" {
		t.Errorf("deliveries --json: %+v, %v", list, err)
	}

	next := secrets.FindStringSubmatch(works("rotate", id, "--overlap", "1h"))
	if next == nil || next[1] != id || next[2] == made[2] {
		t.Errorf("rotate prints %v, the first secret is %v", next, made)
	}
	var w client.Webhook
	if err := json.Unmarshal([]byte(works("update", id, "--type", "", "--disable", "--json")), &w); err != nil || len(w.Types) != 0 || w.Enabled || w.Description != "mine" {
		t.Errorf("update: %+v, %v", w, err)
	}
	if r := modbox("ping", id); r.code != base.ExitFailure || !strings.Contains(r.stderr, "disabled") {
		t.Errorf("ping of a disabled webhook: %+v", r)
	}
	works("update", id, "--enable", "--receiver", receiver.URL+"/other")
	if shown := works("show", id); !strings.Contains(shown, receiver.URL+"/other") || !strings.Contains(shown, "enabled") {
		t.Errorf("after an update, show prints\n%s", shown)
	}
	for _, args := range [][]string{{"update", id}, {"create"}, {"redeliver", id}} {
		if r := modbox(args...); r.code != base.ExitUsage {
			t.Errorf("webhook %v: %+v", args, r)
		}
	}
	works("rm", id)
	if r := modbox("show", id); r.code != base.ExitFailure || !strings.Contains(r.stderr, "not_found") {
		t.Errorf("show of a deleted webhook: %+v", r)
	}
}
