package chart_test

import (
	"os"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/modbox/modbox/test/chart"
)

func TestSeccompProfile(t *testing.T) {
	got, err := chart.WorkerProfile()
	if err != nil {
		t.Fatal(err)
	}
	if *update {
		if err := os.WriteFile(chart.Profile, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(chart.Profile)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), string(got)); diff != "" {
		t.Errorf("%s (-want +got; go test . -update writes it):\n%s", chart.Profile, diff)
	}
}
