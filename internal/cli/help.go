package cli

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"
)

// newHelpCommand is cobra's, except that an unknown topic is an error.
func newHelpCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "help [command]",
		Short: "Show the help text of a command or a topic",
		Example: `  fencectl help acquire
  fencectl help exit-codes`,
		ValidArgsFunction: func(cmd *cobra.Command, args []string, prefix string) ([]string, cobra.ShellCompDirective) {
			parent, _, err := cmd.Root().Find(args)
			if err != nil {
				return nil, cobra.ShellCompDirectiveNoFileComp
			}
			var names []string
			for _, child := range parent.Commands() {
				if strings.HasPrefix(child.Name(), prefix) && !child.Hidden {
					names = append(names, cobra.CompletionWithDesc(child.Name(), child.Short))
				}
			}
			return names, cobra.ShellCompDirectiveNoFileComp
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			target, rest, err := cmd.Root().Find(args)
			if err != nil || len(rest) > 0 {
				return &usageError{message: fmt.Sprintf("no help for %q", strings.Join(args, " ")), hint: seeHelp(cmd.Root())}
			}
			target.InitDefaultHelpFlag()
			return target.Help()
		},
	}
}
