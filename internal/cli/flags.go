package cli

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/fencectl/fencectl/internal/procedures"
	"github.com/spf13/cobra"
)

// Variables that a supervisor sets for the program that it runs under a lease. A flag wins over them.
const (
	envResource   = "FENCE_RESOURCE"
	envOwner      = "FENCE_OWNER"
	envGeneration = "FENCE_GENERATION"
)

// enumFlag is a word out of a closed set.
type enumFlag struct {
	value   string
	allowed []string
}

// Set implements pflag.Value.
func (e *enumFlag) Set(text string) error {
	if !slices.Contains(e.allowed, text) {
		return fmt.Errorf("allowed are %s", e.list())
	}
	e.value = text
	return nil
}

// String implements pflag.Value.
func (e *enumFlag) String() string { return e.value }

// Type implements pflag.Value.
func (*enumFlag) Type() string { return "string" }

func (e *enumFlag) list() string { return strings.Join(e.allowed, ", ") }

// addEnum adds a flag whose value is one of a few words, with completion.
func addEnum(cmd *cobra.Command, e *enumFlag, name, usual, what string, allowed ...string) {
	*e = enumFlag{value: usual, allowed: allowed}
	cmd.Flags().Var(e, name, what+": "+e.list())
	complete(cmd, name, allowed)
}

func complete(cmd *cobra.Command, flag string, words []string) {
	// It fails only for a flag that is not there, and that is a mistake in this file.
	if err := cmd.RegisterFlagCompletionFunc(flag, cobra.FixedCompletions(words, cobra.ShellCompDirectiveNoFileComp)); err != nil {
		panic(err)
	}
}

func addPolicy(cmd *cobra.Command, policy *enumFlag) {
	addEnum(cmd, policy, "policy", procedures.UntilSuperseded,
		"whether a lease that has run out still counts", procedures.UntilSuperseded, procedures.Unexpired)
}

// tokenFlags are --owner and --generation, which with RESOURCE make the token.
type tokenFlags struct {
	owner      string
	generation int64
}

func (t *tokenFlags) register(cmd *cobra.Command) {
	addOwner(cmd, &t.owner)
	cmd.Flags().Int64Var(&t.generation, "generation", 0, "the generation that acquire gave (default $"+envGeneration+")")
}

func addOwner(cmd *cobra.Command, owner *string) {
	cmd.Flags().StringVar(owner, "owner", "", "who asks: host, pod or run id (default $"+envOwner+")")
}

// token puts the token together, out of the command line and the environment.
func (a *app) token(cmd *cobra.Command, args []string, t tokenFlags) (procedures.Token, error) {
	resource, err := a.resource(args)
	if err != nil {
		return procedures.Token{}, err
	}
	owner, err := a.owner(cmd, t.owner)
	if err != nil {
		return procedures.Token{}, err
	}
	generation, err := a.generation(cmd, t.generation)
	if err != nil {
		return procedures.Token{}, err
	}
	return procedures.Token{Resource: resource, Owner: owner, Generation: generation}, nil
}

func (a *app) resource(args []string) (string, error) {
	if len(args) > 0 {
		return args[0], checkText("RESOURCE", args[0])
	}
	if resource := a.env[envResource]; resource != "" {
		return resource, checkText(envResource, resource)
	}
	return "", usagef("missing RESOURCE: give its name, or set %s", envResource)
}

func (a *app) owner(cmd *cobra.Command, flag string) (string, error) {
	if cmd.Flags().Changed("owner") {
		return flag, checkText("--owner", flag)
	}
	if owner := a.env[envOwner]; owner != "" {
		return owner, checkText(envOwner, owner)
	}
	return "", usagef("missing --owner: say who asks, or set %s", envOwner)
}

func (a *app) generation(cmd *cobra.Command, flag int64) (int64, error) {
	if cmd.Flags().Changed("generation") {
		return flag, nil
	}
	text := a.env[envGeneration]
	if text == "" {
		return 0, usagef("missing --generation: give the number that acquire gave, or set %s", envGeneration)
	}
	generation, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return 0, usagef("%s is %q, which is not a generation", envGeneration, text)
	}
	return generation, nil
}

// checkText refuses what no database could store as text. All other rules are the database's.
func checkText(name, value string) error {
	if !utf8.ValidString(value) || strings.ContainsRune(value, 0) {
		return usagef("%s is not valid UTF-8 text", name)
	}
	return nil
}

// optional is a flag's value, or nil when the flag was not given.
func optional[T any](cmd *cobra.Command, flag string, value T) *T {
	if !cmd.Flags().Changed(flag) {
		return nil
	}
	return &value
}

func dashed(name string) string { return strings.ReplaceAll(name, "_", "-") }

// atMost takes up to n arguments; the usage error names the one that is too many.
func atMost(n int) cobra.PositionalArgs {
	return func(_ *cobra.Command, args []string) error {
		if len(args) > n {
			return usagef("unexpected argument %q", args[n])
		}
		return nil
	}
}

// theResource takes exactly one argument.
func theResource(_ *cobra.Command, args []string) error {
	if len(args) == 0 {
		return usagef("missing RESOURCE")
	}
	return atMost(1)(nil, args)
}
