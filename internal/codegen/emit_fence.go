package codegen

import (
	"fmt"
)

// ContractVersion is the contract that the callers in gen/ are written for: what fence.about answers.
const ContractVersion = 1

// fenceImport is the package of types that both engines' callers have in common.
const fenceImport = "github.com/fencectl/fencectl/gen/fence"

// EmitFence writes this module's own callers from the fence's routines of both engines: files by their paths below the
// module's root.
func EmitFence(postgres, mssql []Routine) (map[string][]byte, error) {
	files := map[string][]byte{}
	for _, one := range []struct {
		folder   string
		routines []Routine
		change   func(*EmitOptions)
	}{
		{"gen/fence", postgres, func(o *EmitOptions) { o.Engine, o.Parts = Postgres, []Part{TypesPart} }},
		{"gen/fencepg", postgres, func(o *EmitOptions) {
			o.Engine, o.Parts, o.TypesImport = Postgres, []Part{CallersPart}, fenceImport
		}},
		{"gen/fencemssql", mssql, func(o *EmitOptions) {
			o.Engine, o.Parts, o.TypesImport = MSSQL, []Part{CallersPart}, fenceImport
		}},
	} {
		options := fenceOptions()
		options.Package = one.folder[len("gen/"):]
		one.change(&options)
		written, err := Emit(one.routines, options)
		if err != nil {
			return nil, fmt.Errorf("write %s: %w", one.folder, err)
		}
		for name, content := range written {
			files[one.folder+"/"+name] = content
		}
	}
	return files, nil
}

func fenceOptions() EmitOptions {
	return EmitOptions{
		Groups: []Group{
			{
				Name: "Token", Doc: "Token is what a caller must present: the acquisition that it acts for.",
				Names: []string{"resource", "owner", "generation"},
			},
			{
				Name: "Observation", Doc: "Observation is what a read of the row saw: evidence, not proof. All fields are nil when " +
					"there was nothing to explain.",
				Names: []string{"observed_generation", "observed_owner", "observed_lease_until", "observed_at"}, JSON: true,
			},
		},
		Interface:     "Procedures",
		InTransaction: []string{"check", "require", "enqueue", "receive"},
		Accepting: []string{
			"acquired", "replayed", "renewed", "released", "accepted", "ok", "seized", "raised", "unchanged", "removed",
			"enqueued", "settled", "requeued", "cancelled", "resolved", "duplicate",
		},
		Fence:           true,
		ContractVersion: ContractVersion,
	}
}
