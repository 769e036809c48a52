package desktop

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/modbox/modbox/client"
	"github.com/modbox/modbox/internal/cli/base"
)

func newRecordCommand(env *base.Env) *cobra.Command {
	var o client.RecordOptions
	var stop, remove string
	cmd := command(env, "record SANDBOX", "Record the screen to a file in the sandbox, an MP4",
		`Record the screen to a file in the sandbox, an MP4, and print the id of the recording and
the path. It goes on until "modbox desktop record SANDBOX --stop ID", or until it has its
maximum of time or bytes. "modbox desktop recordings SANDBOX" lists recordings.`, cobra.ExactArgs(1), func(ctx context.Context, d *client.Desktop, _ []string) error {
			var r *client.Recording
			var err error
			switch {
			case remove != "":
				return d.DeleteRecording(ctx, remove)
			case stop != "":
				r, err = d.StopRecording(ctx, stop)
			default:
				r, err = d.Record(ctx, o)
			}
			if err != nil {
				return err
			}
			if env.JSON {
				return env.PrintJSON(r)
			}
			if r.Error != "" {
				return fmt.Errorf("the recording failed: %s", base.Clean(r.Error))
			}
			_, err = fmt.Fprintf(env.Stdout, "%s %s\n", r.ID, base.Clean(r.Path))
			return err
		})
	cmd.Flags().StringVar(&stop, "stop", "", "end the recording with this id")
	cmd.Flags().StringVar(&remove, "delete", "", "end the recording with this id, and delete its file")
	cmd.MarkFlagsMutuallyExclusive("stop", "delete")
	cmd.Flags().StringVar(&o.Path, "path", "", "file, absolute, ending in .mp4 (default a new file in recordings)")
	cmd.Flags().IntVar(&o.FPS, "fps", 10, "pictures in a second, at most 30")
	cmd.Flags().IntVar(&o.MaxSeconds, "max-seconds", 600, "end it after this many seconds")
	cmd.Flags().Int64Var(&o.MaxBytes, "max-bytes", 1<<30, "end it at this size")
	return cmd
}

func newRecordingsCommand(env *base.Env) *cobra.Command {
	return command(env, "recordings SANDBOX", "List the recordings of the screen, newest first", "", cobra.ExactArgs(1), func(ctx context.Context, d *client.Desktop, _ []string) error {
		list, err := d.Recordings().Collect(ctx)
		if err != nil {
			return err
		}
		if env.JSON {
			return env.PrintJSON(list)
		}
		var table [][]string
		for _, r := range list {
			size := "-"
			if r.SizeBytes != nil {
				size = base.Size(*r.SizeBytes)
			}
			table = append(table, []string{r.ID, r.State, size, base.Age(r.CreatedAt), base.Clean(r.Path)})
		}
		return env.PrintTable([]string{"RECORDING", "STATE", "SIZE", "CREATED", "PATH"}, table)
	})
}
