// Command render prints the objects of the chart, as "helm template" does: without a cluster, and in a namespace "modbox".
//
//	go run ./render [VALUES.yaml]
package main

import (
	"fmt"
	"os"

	"github.com/modbox/modbox/test/chart"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "render:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	values := map[string]any{}
	if len(args) > 0 {
		var err error
		if values, err = chart.ReadValues(args[0]); err != nil {
			return err
		}
	}
	r, err := chart.Render(chart.Dir, values)
	if err != nil {
		return err
	}
	_, err = fmt.Print(r.Text())
	return err
}
