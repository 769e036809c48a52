package image

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/modbox/modbox/client"
	"github.com/modbox/modbox/internal/cli/base"
)

// NewCatalogueCommand returns the command "modbox catalogue".
func NewCatalogueCommand(env *base.Env) *cobra.Command {
	cmd := &cobra.Command{
		Use: "catalogue", Aliases: []string{"catalog", "sandbox-images"},
		Short: "Name images, with defaults for the sandboxes made from them",
		Long: `Name images, with defaults for the sandboxes made from them. The catalogue belongs
to the workspace and includes the built-in images; "modbox images" manages the images
on the server's disk.`,
		Args: cobra.NoArgs,
	}
	list := newCatalogueListCommand(env)
	cmd.RunE = list.RunE // "modbox catalogue" lists
	cmd.Flags().AddFlagSet(list.Flags())
	cmd.AddCommand(list, newCatalogueAddCommand(env), newCatalogueUpdateCommand(env), newCatalogueRemoveCommand(env))
	return cmd
}

// catalogueFlags are the fields of a catalogue image as flags.
type catalogueFlags struct {
	name, image, tag, description, memory, registry string
	port                                            uint16
	ttl                                             time.Duration
}

func (f *catalogueFlags) add(cmd *cobra.Command) {
	fs := cmd.Flags()
	fs.StringVar(&f.tag, "tag", "", "the tag, when IMAGE has none (default: latest)")
	fs.StringVar(&f.description, "description", "", "your own words about it")
	fs.StringVar(&f.memory, "memory", "", "memory limit of its sandboxes, 256Mi to 8Gi (default: the image's)")
	fs.Uint16Var(&f.port, "readiness-port", 0, "GET / on this port must answer before a sandbox counts as running; 0: none")
	fs.DurationVar(&f.ttl, "ttl", 0, "destroy its sandboxes after this time unless they say, 1m to 24h; 0: never")
	fs.StringVar(&f.registry, "registry", "", `pull it with this registry, by name or id; "": the one of its host`)
}

// fields returns the fields of the given flags.
func (f *catalogueFlags) fields(cmd *cobra.Command, c *client.Client) (client.SandboxImageFields, error) {
	var out client.SandboxImageFields
	given := cmd.Flags().Changed
	for flag, to := range map[string]struct {
		value *string
		field **string
	}{"name": {&f.name, &out.Name}, "image": {&f.image, &out.Image}, "tag": {&f.tag, &out.Tag}, "description": {&f.description, &out.Description}} {
		if given(flag) {
			*to.field = to.value
		}
	}
	if given("memory") {
		q, err := resource.ParseQuantity(f.memory)
		if err != nil {
			return out, base.UsageError("--memory: %q is not a size such as 512Mi", f.memory)
		}
		mb := (q.Value() + 1<<20 - 1) >> 20
		out.MemoryMB = &mb
	}
	if given("readiness-port") {
		port := int64(f.port)
		out.ReadinessPort = &port
	}
	if given("ttl") {
		seconds := int64(base.WholeSeconds(f.ttl))
		out.TTLSeconds = &seconds
	}
	if given("registry") {
		id := ""
		if f.registry != "" {
			var err error
			if id, err = registryID(cmd, c, f.registry); err != nil {
				return out, fmt.Errorf("registry %s: %w", f.registry, err)
			}
		}
		out.RegistryID = &id
	}
	return out, nil
}

func newCatalogueAddCommand(env *base.Env) *cobra.Command {
	var flags catalogueFlags
	var disabled, isDefault bool
	cmd := &cobra.Command{
		Use:   "add NAME IMAGE",
		Short: "Add an image to the catalogue",
		Example: `  modbox catalogue add agent ghcr.io/org/agent:v1 --memory 1Gi --readiness-port 8080
  modbox run --catalogue agent -- agent --version`,
		Args: cobra.ExactArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := env.Client()
			if err != nil {
				return err
			}
			f, err := flags.fields(cmd, c)
			if err != nil {
				return err
			}
			enabled := !disabled
			f.Name, f.Image, f.Enabled, f.IsDefault = &args[0], &args[1], &enabled, &isDefault
			i, err := c.SandboxImages.Create(cmd.Context(), f)
			if err != nil {
				return err
			}
			return printSandboxImage(env, i)
		},
	}
	flags.add(cmd)
	cmd.Flags().BoolVar(&isDefault, "default", false, "use it for sandboxes that name no image")
	cmd.Flags().BoolVar(&disabled, "disabled", false, "not to be used yet")
	return cmd
}

func printSandboxImage(env *base.Env, i *client.SandboxImage) error {
	if env.JSON {
		return env.PrintJSON(i)
	}
	_, err := fmt.Fprintln(env.Stdout, i.ID)
	return err
}

func newCatalogueListCommand(env *base.Env) *cobra.Command {
	var enabledOnly bool
	cmd := &cobra.Command{
		Use:   "ls",
		Short: "List the built-in images and the workspace's own",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := env.Client()
			if err != nil {
				return err
			}
			list, err := c.SandboxImages.List(enabledOnly).Collect(cmd.Context())
			if err != nil {
				return err
			}
			if env.JSON {
				return env.PrintJSON(list)
			}
			var rows [][]string
			for _, i := range list {
				rows = append(rows, catalogueRow(&i))
			}
			return env.PrintTable([]string{"NAME", "IMAGE", "MEMORY", "PORT", "TTL", "REGISTRY", "STATE", "ID"}, rows)
		},
	}
	cmd.Flags().BoolVar(&enabledOnly, "enabled", false, "only images that sandboxes may use")
	return cmd
}

func catalogueRow(i *client.SandboxImage) []string {
	name, ref, state, port, ttl, registry := i.Name, i.Image, "enabled", "-", "-", "-"
	if i.IsDefault {
		name += " (default)"
	}
	if i.Tag != "" {
		ref += ":" + i.Tag
	}
	if !i.Enabled {
		state = "disabled"
	}
	if i.Builtin {
		state += ", built in"
	}
	if i.ReadinessPort != 0 {
		port = strconv.Itoa(i.ReadinessPort)
	}
	if i.TTLSeconds != 0 {
		ttl = (time.Duration(i.TTLSeconds) * time.Second).String()
	}
	switch {
	case i.RegistryName != "":
		registry = i.RegistryName
	case i.RegistryID != "":
		registry = "deleted"
	}
	return []string{name, ref, base.Size(i.MemoryMB << 20), port, ttl, registry, state, i.ID}
}

func newCatalogueUpdateCommand(env *base.Env) *cobra.Command {
	var flags catalogueFlags
	var enable, disable, isDefault bool
	cmd := &cobra.Command{
		Use:   "update NAME",
		Short: "Change an image of the catalogue, by name or id; other settings stay",
		Long: `Change an image of the catalogue, by name or id; other settings stay. Sandboxes
that exist stay as they are. Of a built-in image an administrator of the
installation may give --enable and --disable, which count for all workspaces.`,
		Example: "  modbox catalogue update agent --tag v2",
		Args:    cobra.ExactArgs(1),

		ValidArgsFunction: completeCatalogue(env),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := env.Client()
			if err != nil {
				return err
			}
			f, err := flags.fields(cmd, c)
			if err != nil {
				return err
			}
			if enable || disable {
				f.Enabled = &enable
			}
			if cmd.Flags().Changed("default") {
				f.IsDefault = &isDefault
			}
			id, err := CatalogueID(cmd.Context(), c, args[0])
			if err != nil {
				return err
			}
			i, err := c.SandboxImages.Update(cmd.Context(), id, f)
			if err != nil {
				return err
			}
			return printSandboxImage(env, i)
		},
	}
	flags.add(cmd)
	cmd.Flags().StringVar(&flags.name, "name", "", "name")
	cmd.Flags().StringVar(&flags.image, "image", "", "the image")
	cmd.Flags().BoolVar(&isDefault, "default", false, "use it for sandboxes without an image; --default=false: no longer")
	cmd.Flags().BoolVar(&enable, "enable", false, "let sandboxes be made from it")
	cmd.Flags().BoolVar(&disable, "disable", false, "let no sandboxes be made from it")
	cmd.MarkFlagsMutuallyExclusive("enable", "disable")
	return cmd
}

func newCatalogueRemoveCommand(env *base.Env) *cobra.Command {
	return &cobra.Command{
		Use:   "rm NAME...",
		Short: "Remove images from the catalogue, by name or id; sandboxes made from them go on",
		Args:  cobra.MinimumNArgs(1),

		ValidArgsFunction: completeCatalogue(env),
		RunE: func(cmd *cobra.Command, refs []string) error {
			c, err := env.Client()
			if err != nil {
				return err
			}
			for _, ref := range refs {
				id, err := CatalogueID(cmd.Context(), c, ref)
				if err == nil {
					err = c.SandboxImages.Delete(cmd.Context(), id)
				}
				if err != nil {
					return fmt.Errorf("%s: %w", ref, err)
				}
			}
			return nil
		},
	}
}

// CatalogueID returns the id of the catalogue image with that id or name; the workspace's own
// images take precedence.
func CatalogueID(ctx context.Context, c *client.Client, ref string) (string, error) {
	list, err := c.SandboxImages.List(false).Collect(ctx)
	if err != nil {
		return "", err
	}
	for i := len(list) - 1; i >= 0; i-- { // built-in images come first
		if list[i].Name == ref || list[i].ID == ref {
			return list[i].ID, nil
		}
	}
	return "", &client.Error{Code: client.NotFound, Message: fmt.Sprintf("there is no image %q in the catalogue", ref)}
}

// completeCatalogue completes names of the catalogue.
func completeCatalogue(env *base.Env) cobra.CompletionFunc {
	return func(cmd *cobra.Command, _ []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
		return env.Complete(cmd, func(c *client.Client) (list []cobra.Completion, err error) {
			images, err := c.SandboxImages.List(false).Collect(cmd.Context())
			for _, i := range images {
				list = append(list, cobra.CompletionWithDesc(i.Name, i.Image))
			}
			return list, err
		})
	}
}
