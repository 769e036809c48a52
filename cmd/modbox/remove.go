package main

import (
	"bufio"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"

	"github.com/modbox/modbox/client"
)

// removeConcurrency is how many sandboxes rm ends at the same time.
const removeConcurrency = 8

func (a *app) removeCommand() *cobra.Command {
	var all, yes bool
	cmd := &cobra.Command{
		Use:               "rm SANDBOX...",
		Aliases:           []string{"destroy", "kill"},
		Short:             "Destroy sandboxes",
		Long:              "Destroy sandboxes, whatever they do, and wait until nothing of them is left.",
		ValidArgsFunction: a.completeSandboxes(0),
		Args: func(_ *cobra.Command, args []string) error {
			if all == (len(args) > 0) {
				return errors.New("name sandboxes, or give --all")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, refs []string) error {
			c, err := a.client()
			if err != nil {
				return err
			}
			if all {
				for sb, err := range c.All(cmd.Context(), client.ListOptions{}) {
					if err != nil {
						return err
					}
					refs = append(refs, sb.ID)
				}
				if len(refs) > 0 && !yes && !a.confirm(fmt.Sprintf("Destroy all %d sandboxes of the workspace?", len(refs))) {
					return errors.New("nothing was destroyed")
				}
			}
			return a.remove(cmd, c, refs)
		},
	}
	cmd.Flags().BoolVar(&all, "all", false, "all that live in the workspace")
	cmd.Flags().BoolVarP(&yes, "yes", "y", false, "do not ask")
	return cmd
}

// remove ends them all and reports each; one that fails does not stop the others.
func (a *app) remove(cmd *cobra.Command, c *client.Client, refs []string) error {
	removed := make([]*client.Sandbox, len(refs))
	failed := make([]error, len(refs))
	var g errgroup.Group
	g.SetLimit(removeConcurrency)
	for i, ref := range refs {
		g.Go(func() error {
			if removed[i], failed[i] = c.Delete(cmd.Context(), ref); failed[i] != nil {
				failed[i] = fmt.Errorf("%s: %w", ref, failed[i])
			}
			return nil
		})
	}
	_ = g.Wait() // its functions return no errors
	list := []*client.Sandbox{}
	for _, sb := range removed {
		if sb != nil {
			list = append(list, sb)
		}
	}
	if a.json {
		return errors.Join(append(failed, a.printJSON(list))...)
	}
	for _, sb := range list {
		fmt.Fprintln(a.stdout, clean(sb.Name))
	}
	return errors.Join(failed...)
}

// agreed reports whether the user agrees, or has said so by --yes. Without a terminal
// nobody is asked: what a program says is meant.
func (a *app) agreed(yes bool, question string) bool {
	return yes || !a.interactive() || a.confirm(question)
}

// confirm asks on standard error; only "y" and "yes" agree.
func (a *app) confirm(question string) bool {
	fmt.Fprint(a.stderr, question+" [y/N] ")
	line, _ := bufio.NewReader(a.stdin).ReadString('\n') // no answer is a no
	switch strings.ToLower(strings.TrimSpace(line)) {
	case "y", "yes":
		return true
	}
	return false
}
