package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/dunnage-project/dunnage/policy"
)

func configCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "config", Short: "Work on the node's configuration",
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 {
				return usageError{fmt.Errorf("unknown command %q: dunnage config check [FILE]", args[0])}
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() }}
	check := &cobra.Command{Use: "check [FILE]", Short: "Say whether the configuration can be used",
		Long: `Reads the configuration as the daemon would, and looks up the policies that it
names. Nothing is changed; the daemon is not asked.`,
		Example: "  dunnage config check\n  dunnage config check --policies ./policies ./config.yaml", Args: cobra.MaximumNArgs(1)}
	dir := check.Flags().String("policies", installed, "folder of policy files")
	check.RunE = func(cmd *cobra.Command, args []string) error {
		file := defaultConfig
		if len(args) == 1 {
			file = args[0]
		}
		set, err := policy.LoadDir(*dir)
		if err != nil {
			return err
		}
		conf, err := settings{config: file}.loadConfig(set)
		if err != nil {
			return err
		}
		every := "no policy for containers that ask for none"
		if conf.everyContainer() {
			every = "the hook runs for every container"
		}
		fmt.Fprintf(cmd.OutOrStdout(), "%s: ok; %s\n", file, every)
		return nil
	}
	cmd.AddCommand(check)
	return cmd
}
