package api_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/modbox/modbox/internal/api"
	"github.com/modbox/modbox/internal/api/apitest"
)

func TestReady(t *testing.T) {
	var broken error
	apitest.NotElsewhere(t, "it reads the log of the server")
	s := apitest.NewWith(t, func(_ *api.Config, deps *api.Deps) {
		deps.Ready = map[string]func(context.Context) error{
			"store":  func(context.Context) error { return nil },
			"driver": func(context.Context) error { return broken },
		}
	})
	var got struct {
		Ready  bool
		Checks map[string]string
	}
	s.Want(200, "GET", "/readyz", nil).Into(t, &got)
	if !got.Ready || got.Checks["driver"] != "ok" {
		t.Errorf("ready: %+v", got)
	}
	broken = errors.New("secret path")
	a := s.Want(503, "GET", "/readyz/", nil)
	a.Into(t, &got)
	if got.Ready || got.Checks["store"] != "ok" || got.Checks["driver"] != "failing" || strings.Contains(string(a.Body), "secret") {
		t.Errorf("not ready: %s", a.Body)
	}
	if !strings.Contains(s.Log.String(), "secret path") {
		t.Error("the log does not say what is wrong")
	}
	s.Want(200, "GET", "/healthz", nil)
}
