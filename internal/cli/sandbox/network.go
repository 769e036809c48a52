package sandbox

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/modbox/modbox/client"
	"github.com/modbox/modbox/internal/cli/base"
)

// NewNetworkCommand returns the command "modbox network".
func NewNetworkCommand(env *base.Env) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "network",
		Short: "Switch sandboxes' access to the internet, limit it, or publish ports",
		Long: `Switch the access to the internet of sandboxes that run or are paused, change the
destinations that they may reach, how requests reach their servers, or the ports
that one publishes.
Connections that are not allowed any more are cut.`,
	}
	cmd.AddCommand(
		newChangeCommand(env, "on SANDBOX...", "Give sandboxes access to the internet", "Give sandboxes access to the internet, a paused one when it is resumed.", switchNetwork(true)),
		newChangeCommand(env, "off SANDBOX...", "Take sandboxes off the internet", "Take sandboxes off the internet; their connections are cut.", switchNetwork(false)),
		newRulesCommand(env),
		newRequestsCommand(env),
		newPublishCommand(env),
	)
	return cmd
}

func switchNetwork(on bool) func(context.Context, *client.Client, string) (*client.Sandbox, error) {
	return func(ctx context.Context, c *client.Client, ref string) (*client.Sandbox, error) {
		return c.Sandboxes.SetNetwork(ctx, ref, client.NetworkChange{Enabled: &on})
	}
}

func newRulesCommand(env *base.Env) *cobra.Command {
	var allow, deny []string
	var all bool
	cmd := newChangeCommand(env, "rules SANDBOX...", "Replace the destinations that sandboxes may reach",
		`Replace the destinations that sandboxes may reach. Open connections to others are
cut. An address, range or name (example.com, *.example.com) of --allow-out may be
reached even if --deny-out contains it; without --deny-out everything else is
denied. --all removes all rules.`,
		func(ctx context.Context, c *client.Client, ref string) (*client.Sandbox, error) {
			allowed, denied := append([]string{}, allow...), append([]string{}, deny...)
			if len(allowed) > 0 && len(denied) == 0 {
				denied = []string{"0.0.0.0/0"}
			}
			return c.Sandboxes.SetNetwork(ctx, ref, client.NetworkChange{AllowOut: &allowed, DenyOut: &denied})
		})
	cmd.PreRunE = func(*cobra.Command, []string) error {
		if all == (len(allow)+len(deny) > 0) {
			return base.UsageError("give --allow-out or --deny-out, or else --all")
		}
		return nil
	}
	cmd.Example = "  modbox network rules my-agent --allow-out pypi.org --allow-out '*.pythonhosted.org'\n  modbox network rules my-agent --deny-out 198.51.100.0/24\n  modbox network rules my-agent --all"
	cmd.Flags().StringArrayVar(&allow, "allow-out", nil, "address, range or name that they may reach (repeatable)")
	cmd.Flags().StringArrayVar(&deny, "deny-out", nil, "address or range that they may not reach (repeatable)")
	cmd.Flags().BoolVar(&all, "all", false, "let them reach all destinations")
	return cmd
}

// requestFlags adds the flags that say how requests reach the servers of a sandbox.
func requestFlags(fs *pflag.FlagSet, host *string, ports *[]uint) {
	fs.StringVar(host, "request-host", "", "host that its servers see in requests, e.g. localhost:${PORT} with the port (default: the URL's)")
	fs.UintSliceVar(ports, "https-port", nil, "port whose server speaks HTTPS; its certificate is not checked (repeatable)")
	fs.Lookup("https-port").DefValue = "" // otherwise help says "default []"
}

// portsOf checks the ports of a flag.
func portsOf(flag string, numbers []uint) ([]uint16, error) {
	ports := []uint16{}
	for _, port := range numbers {
		if port < 1 || port > 65535 {
			return nil, base.UsageError("%s: %d is no port, 1 to 65535", flag, port)
		}
		ports = append(ports, uint16(port))
	}
	return ports, nil
}

func newRequestsCommand(env *base.Env) *cobra.Command {
	var host string
	var numbers []uint
	var reset bool
	cmd := newChangeCommand(env, "requests SANDBOX...", "Replace how requests reach the servers in sandboxes",
		`Replace how requests reach the servers in sandboxes: the host that they see, and
the ports whose servers speak HTTPS. --reset has them see the host of the URL, and
speak HTTP on all ports.`,
		func(ctx context.Context, c *client.Client, ref string) (*client.Sandbox, error) {
			ports, err := portsOf("--https-port", numbers)
			if err != nil {
				return nil, err
			}
			return c.Sandboxes.SetNetwork(ctx, ref, client.NetworkChange{RequestHost: &host, HTTPSPorts: &ports})
		})
	cmd.PreRunE = func(*cobra.Command, []string) error {
		if reset == (host != "" || len(numbers) > 0) {
			return base.UsageError("give --request-host or --https-port, or else --reset")
		}
		return nil
	}
	cmd.Example = "  modbox network requests my-agent --request-host 'localhost:${PORT}'\n  modbox network requests my-agent --https-port 8443\n  modbox network requests my-agent --reset"
	requestFlags(cmd.Flags(), &host, &numbers)
	cmd.Flags().BoolVar(&reset, "reset", false, "the host of the URL, and HTTP on all ports")
	return cmd
}

func newPublishCommand(env *base.Env) *cobra.Command {
	return &cobra.Command{
		Use: "publish SANDBOX [PORT...]", Short: "Replace the ports that a sandbox publishes, and print their URLs",
		Args: cobra.MinimumNArgs(1), ValidArgsFunction: env.CompleteSandboxes(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			ports := []uint16{}
			for _, arg := range args[1:] {
				n, err := strconv.ParseUint(arg, 10, 16)
				if err != nil {
					return base.UsageError("%q is no port, 1 to 65535", arg)
				}
				ports = append(ports, uint16(n))
			}
			c, err := env.Client()
			if err != nil {
				return err
			}
			sb, err := c.Sandboxes.SetNetwork(cmd.Context(), args[0], client.NetworkChange{Ports: &ports})
			if err != nil {
				return err
			}
			if env.JSON {
				return env.PrintJSON(sb)
			}
			for _, p := range sb.Network.Ports {
				if _, err := fmt.Fprintln(env.Stdout, p.Port, p.URL); err != nil {
					return err
				}
			}
			return nil
		},
	}
}

// usageRow is a sandbox with its network usage.
type usageRow struct {
	ID    string        `json:"id"`
	Name  string        `json:"name"`
	Usage *client.Usage `json:"usage"`
}

// NewUsageCommand returns the command "modbox usage".
func NewUsageCommand(env *base.Env) *cobra.Command {
	return &cobra.Command{
		Use:   "usage SANDBOX...",
		Short: "Show what sandboxes have used in all",
		Long: `Show what sandboxes have used since they were made, over pauses and restarts of
the server. Those that have ended keep it.`,
		Args:              cobra.MinimumNArgs(1),
		ValidArgsFunction: env.CompleteSandboxes(0),
		RunE: func(cmd *cobra.Command, refs []string) error {
			c, err := env.Client()
			if err != nil {
				return err
			}
			rows := []usageRow{}
			for _, ref := range refs {
				sb, err := c.Sandboxes.Get(cmd.Context(), ref)
				if err != nil {
					return err
				}
				u, err := c.Sandboxes.Usage(cmd.Context(), sb.ID)
				if err != nil {
					return err
				}
				rows = append(rows, usageRow{ID: sb.ID, Name: sb.Name, Usage: u})
			}
			return printUsage(env, rows)
		},
	}
}

func printUsage(env *base.Env, rows []usageRow) error {
	if env.JSON {
		return env.PrintJSON(rows)
	}
	var table [][]string
	for _, r := range rows {
		u := r.Usage
		table = append(table, []string{r.Name, inSeconds(u.RunningSeconds), inSeconds(u.CPUSeconds),
			fmt.Sprintf("%.3f GiB·h", float64(u.MemoryByteSeconds)/(1<<30)/3600), base.Size(u.SentBytes), base.Size(u.ReceivedBytes)})
	}
	return env.PrintTable([]string{"NAME", "RUNNING", "CPU TIME", "MEMORY", "SENT", "RECEIVED"}, table)
}

// inSeconds formats a number of seconds.
func inSeconds(s float64) string {
	return time.Duration(s * float64(time.Second)).Round(10 * time.Millisecond).String()
}
