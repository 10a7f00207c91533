package cli

import (
	"github.com/fencectl/fencectl/internal/procedures"
	"github.com/spf13/cobra"
)

// interveneFlags are those of an operator's decision about one generation. They have no default in the
// environment: an intervention names what it acts on, and who decided.
type interveneFlags struct {
	generation int64
	by         string
	note       string
}

func (f *interveneFlags) register(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.Int64Var(&f.generation, "generation", 0, `act only while the resource has this generation, as "fencectl leases" shows it (required)`)
	flags.StringVar(&f.by, "by", "", "who decides: a person's name, kept with the record (required)")
	flags.StringVar(&f.note, "note", "", "why, kept with the record")
	for _, name := range []string{"generation", "by"} {
		// It fails only for a flag that is not there.
		if err := cmd.MarkFlagRequired(name); err != nil {
			panic(err)
		}
	}
}

func (f *interveneFlags) params(cmd *cobra.Command, args []string) (procedures.InterveneParams, error) {
	p := procedures.InterveneParams{
		Resource: args[0], Generation: f.generation, By: f.by, Note: optional(cmd, "note", f.note),
	}
	for name, value := range map[string]string{"RESOURCE": args[0], "--by": f.by, "--note": f.note} {
		if err := checkText(name, value); err != nil {
			return p, err
		}
	}
	return p, nil
}
