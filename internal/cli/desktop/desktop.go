package desktop

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/modbox/modbox/client"
	"github.com/modbox/modbox/internal/cli/base"
)

// NewDesktopCommand returns the command "modbox desktop".
func NewDesktopCommand(env *base.Env) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "desktop",
		Short: "Use the screen of a sandbox: pictures, mouse, keyboard, windows",
		Long: `Use the screen of a sandbox as a person would. The image modbox/sandbox has a desktop;
people use it in a browser at the path /vnc/ of the sandbox's URL.`,
	}
	cmd.AddCommand(
		newScreenshotCommand(env), newClickCommand(env), newMoveCommand(env), newDragCommand(env), newScrollCommand(env),
		newTypeCommand(env), newKeyCommand(env), newWindowsCommand(env), newFocusCommand(env), newCloseCommand(env),
		newOpenCommand(env), newSizeCommand(env), newRecordCommand(env), newRecordingsCommand(env),
	)
	return cmd
}

// command returns a command whose first argument is a sandbox; run gets the sandbox's desktop and the
// other arguments.
func command(env *base.Env, use, short, long string, args cobra.PositionalArgs, run func(ctx context.Context, d *client.Desktop, args []string) error) *cobra.Command {
	return &cobra.Command{
		Use: use, Short: short, Long: long, Args: args, ValidArgsFunction: env.CompleteSandboxes(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := env.Client()
			if err != nil {
				return err
			}
			return run(cmd.Context(), c.Sandboxes.Desktop(args[0]), args[1:])
		},
	}
}

// usage is an error in the arguments.
func usage(format string, args ...any) error {
	return &base.ExitError{Code: base.ExitUsage, Err: fmt.Errorf(format, args...)}
}

// point reads two arguments as a position.
func point(x, y string) (client.Point, error) {
	left, err := strconv.Atoi(x)
	top, err2 := strconv.Atoi(y)
	if err != nil || err2 != nil || left < 0 || top < 0 {
		return client.Point{}, usage("%s %s is not a position: give X and Y in pixels", x, y)
	}
	return client.Point{X: left, Y: top}, nil
}

func newScreenshotCommand(env *base.Env) *cobra.Command {
	var o client.ScreenshotOptions
	var region string
	cmd := command(env, "screenshot SANDBOX [FILE]", "Save a picture of the screen, a PNG",
		`Save a picture of the screen or of a part of it, a PNG. Without FILE, or with -, it is
written to standard output.`, cobra.RangeArgs(1, 2), func(ctx context.Context, d *client.Desktop, args []string) error {
			if region != "" {
				if n, err := fmt.Sscanf(region+"\n", "%d,%d,%d,%d\n", &o.X, &o.Y, &o.Width, &o.Height); n != 4 || err != nil {
					return usage("--region %s is not X,Y,WIDTH,HEIGHT", region)
				}
			}
			picture, err := d.Screenshot(ctx, o)
			if err != nil {
				return err
			}
			if len(args) == 0 || args[0] == "-" {
				_, err = env.Stdout.Write(picture)
				return err
			}
			return os.WriteFile(args[0], picture, 0o644)
		})
	cmd.Flags().StringVar(&region, "region", "", "only this part of the screen: X,Y,WIDTH,HEIGHT")
	cmd.Flags().BoolVar(&o.Pointer, "pointer", false, "show the mouse pointer")
	return cmd
}

// holdFlag adds the flag for keys that are held.
func holdFlag(cmd *cobra.Command, hold *[]string) {
	cmd.Flags().StringSliceVar(hold, "hold", nil, "keys that are held down meanwhile, such as shift,ctrl")
}

func newClickCommand(env *base.Env) *cobra.Command {
	a := client.DesktopAction{Type: client.ActionClick}
	double := false
	cmd := command(env, "click SANDBOX [X Y]", "Click, at a position or where the pointer is", "", func(cmd *cobra.Command, args []string) error {
		if len(args) != 1 && len(args) != 3 {
			return fmt.Errorf("give a sandbox, and X and Y or neither")
		}
		return nil
	}, func(ctx context.Context, d *client.Desktop, args []string) error {
		if len(args) == 2 {
			at, err := point(args[0], args[1])
			if err != nil {
				return err
			}
			a.At = &at
		}
		if double {
			a.Clicks = 2
		}
		return d.Act(ctx, a)
	})
	cmd.Flags().StringVar(&a.Button, "button", "left", "left, middle or right")
	cmd.Flags().BoolVar(&double, "double", false, "click twice")
	holdFlag(cmd, &a.Hold)
	return cmd
}

func newMoveCommand(env *base.Env) *cobra.Command {
	return command(env, "move SANDBOX X Y", "Move the mouse pointer", "", cobra.ExactArgs(3), func(ctx context.Context, d *client.Desktop, args []string) error {
		at, err := point(args[0], args[1])
		if err != nil {
			return err
		}
		return d.Move(ctx, at.X, at.Y)
	})
}

func newDragCommand(env *base.Env) *cobra.Command {
	a := client.DesktopAction{Type: client.ActionDrag}
	cmd := command(env, "drag SANDBOX X Y TO-X TO-Y", "Drag from a position to another", "", cobra.ExactArgs(5), func(ctx context.Context, d *client.Desktop, args []string) error {
		from, err := point(args[0], args[1])
		if err != nil {
			return err
		}
		to, err := point(args[2], args[3])
		if err != nil {
			return err
		}
		a.At, a.To = &from, &to
		return d.Act(ctx, a)
	})
	cmd.Flags().StringVar(&a.Button, "button", "left", "left, middle or right")
	holdFlag(cmd, &a.Hold)
	return cmd
}

func newScrollCommand(env *base.Env) *cobra.Command {
	a := client.DesktopAction{Type: client.ActionScroll}
	var at string
	cmd := command(env, "scroll SANDBOX up|down|left|right", "Turn the wheel of the mouse", "", cobra.ExactArgs(2), func(ctx context.Context, d *client.Desktop, args []string) error {
		if at != "" {
			x, y, _ := strings.Cut(at, ",")
			p, err := point(x, y)
			if err != nil {
				return err
			}
			a.At = &p
		}
		a.Direction = args[0]
		return d.Act(ctx, a)
	})
	cmd.Flags().IntVar(&a.Amount, "amount", 3, "steps of the wheel")
	cmd.Flags().StringVar(&at, "at", "", "move the pointer there first: X,Y")
	holdFlag(cmd, &a.Hold)
	return cmd
}

func newTypeCommand(env *base.Env) *cobra.Command {
	return command(env, "type SANDBOX TEXT", "Type a text", "", cobra.ExactArgs(2), func(ctx context.Context, d *client.Desktop, args []string) error {
		return d.Type(ctx, args[0])
	})
}

func newKeyCommand(env *base.Env) *cobra.Command {
	return command(env, "key SANDBOX KEYS...", "Press keys, such as ctrl+l or Return",
		`Press keys, one combination after the other, such as "ctrl+l", "alt+F4" or "Return".
Names of keys are X11's, and enter, esc, backspace, delete, pageup, pagedown, cmd.`, cobra.MinimumNArgs(2), func(ctx context.Context, d *client.Desktop, args []string) error {
			return d.Press(ctx, strings.Join(args, " "))
		})
}

func newWindowsCommand(env *base.Env) *cobra.Command {
	return command(env, "windows SANDBOX", "List the windows", "", cobra.ExactArgs(1), func(ctx context.Context, d *client.Desktop, _ []string) error {
		list, err := d.Windows(ctx)
		if err != nil {
			return err
		}
		if env.JSON {
			return env.PrintJSON(list)
		}
		var table [][]string
		for _, w := range list {
			active := ""
			if w.Active {
				active = "*"
			}
			table = append(table, []string{w.ID, active, fmt.Sprintf("%dx%d+%d+%d", w.Width, w.Height, w.X, w.Y), base.Clean(w.WMClass), base.Clean(w.Title)})
		}
		return env.PrintTable([]string{"WINDOW", "ACTIVE", "PLACE", "CLASS", "TITLE"}, table)
	})
}

func newFocusCommand(env *base.Env) *cobra.Command {
	return command(env, "focus SANDBOX WINDOW", "Raise a window and give it the keyboard", "", cobra.ExactArgs(2), func(ctx context.Context, d *client.Desktop, args []string) error {
		return d.Focus(ctx, args[0])
	})
}

func newCloseCommand(env *base.Env) *cobra.Command {
	return command(env, "close SANDBOX WINDOW", "Close a window", "", cobra.ExactArgs(2), func(ctx context.Context, d *client.Desktop, args []string) error {
		return d.Close(ctx, args[0])
	})
}

func newOpenCommand(env *base.Env) *cobra.Command {
	program := false
	cmd := command(env, "open SANDBOX TARGET", "Open a URL or a file, or start a program, on the screen",
		`Open a URL, or a file of the sandbox by its absolute path, on the screen. With --program,
TARGET is a program with its arguments, which goes on.`, cobra.MinimumNArgs(2), func(ctx context.Context, d *client.Desktop, args []string) error {
			switch {
			case program:
				return d.Launch(ctx, args...)
			case len(args) > 1:
				return usage("give one URL or file")
			}
			return d.Open(ctx, args[0])
		})
	cmd.Flags().BoolVar(&program, "program", false, "start a program: modbox desktop open --program SANDBOX -- xterm -geometry 80x24")
	return cmd
}

func newSizeCommand(env *base.Env) *cobra.Command {
	return command(env, "size SANDBOX [WIDTHxHEIGHT]", "Print or change the size of the screen", "", cobra.RangeArgs(1, 2), func(ctx context.Context, d *client.Desktop, args []string) error {
		var s *client.Screen
		var err error
		if len(args) == 0 {
			s, err = d.Screen(ctx)
		} else {
			var width, height int
			if n, err := fmt.Sscanf(args[0]+"\n", "%dx%d\n", &width, &height); n != 2 || err != nil {
				return usage("%s is not WIDTHxHEIGHT", args[0])
			}
			s, err = d.Resize(ctx, width, height)
		}
		if err != nil {
			return err
		}
		if env.JSON {
			return env.PrintJSON(s)
		}
		_, err = fmt.Fprintf(env.Stdout, "%dx%d\n", s.Width, s.Height)
		return err
	})
}
